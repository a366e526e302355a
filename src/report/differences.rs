//! What differs between the circumstances of two results that are compared: neither is wrong, but the change may be
//! theirs and not the kernel's. Pure.

use super::numbers::cell;
use super::view::clocks;
use crate::model::clocks::TOLERANCE_PERCENT;
use crate::model::record::{Body, Environment, Record};

/// What differs, each as `what (before → now)`. Results of two devices are not compared at all.
pub(super) fn differences(previous: &Record, current: &Record) -> Vec<String> {
    let (old, new) = (&previous.environment, &current.environment);
    let driver = |record: &Record| record.environment.device.gpu.as_ref().map(|gpu| gpu.driver.clone());
    let told = |text: Option<String>| text.unwrap_or_else(|| "not told".to_owned());
    let mut found = Vec::new();
    let mut differ = |what: &str, old: String, new: String| {
        if old != new {
            found.push(format!("{what} ({} → {})", cell(&old), cell(&new)));
        }
    };
    differ("driver", told(driver(previous)), told(driver(current)));
    differ("clocks", held(previous), held(current));
    // Free clocks are what they are; two sides that ran at different ones say so.
    if let (Some(old), Some(new)) = (sm_mhz(previous), sm_mhz(current))
        && (old - new).abs() > old * TOLERANCE_PERCENT / 100.0
    {
        differ("SM clock", format!("{old:.0} MHz"), format!("{new:.0} MHz"));
    }
    differ("compiler", old.compiler.clone(), new.compiler.clone());
    differ("system", old.os.clone(), new.os.clone());
    differ("mlarun", old.mlarun.clone(), new.mlarun.clone());
    let (old, new) = (&previous.material, &current.material);
    // Records of a verification, or of another mode, have none.
    if old.get("protocol") != new.get("protocol") || old.get("clock_policy") != new.get("clock_policy") {
        found.push("protocol".to_owned());
    }
    found
}

/// The clocks of a record, with those that were held where it tells.
fn held(record: &Record) -> String {
    let Environment { clocks_locked, telemetry, .. } = &record.environment;
    let held = telemetry.as_ref().and_then(|seen| seen.clocks.held()).filter(|_| *clocks_locked);
    let at = held.map(|held| format!(" at {held}")).unwrap_or_default();
    format!("{}{at}", clocks(*clocks_locked))
}

/// SM clock over the samples of event mode, as the GPU counted it.
fn sm_mhz(record: &Record) -> Option<f64> {
    match &record.body {
        Body::Event(set) => set.sm_mhz,
        Body::Annotation(_) | Body::Ncu(_) | Body::Timeline(_) | Body::Verification { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Mode;
    use crate::report::fixtures;

    #[test]
    fn only_what_differs_is_named() {
        let record = fixtures::event_record(&fixtures::run("k", 1, 16, Mode::Event), 0, 5.0);
        assert_eq!(differences(&record, &record), Vec::<String>::new());
        let mut other = record.clone();
        other.environment.clocks_locked = true;
        other.environment.compiler = "cc 13 | new".to_owned();
        other.material = serde_json::json!({ "protocol": { "min_samples": 3 } });
        let found = differences(&record, &other);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], "clocks (unlocked clocks → locked clocks)");
        assert!(found[1].starts_with("compiler (") && found[1].contains(r"cc 13 \| new"), "{found:?}");
        assert_eq!(found[2], "protocol");
    }

    #[test]
    fn clocks_that_ran_apart_are_named() {
        let record = fixtures::event_record(&fixtures::run("k", 1, 16, Mode::Event), 0, 5.0);
        let at = |mhz| {
            let mut record = record.clone();
            if let Body::Event(set) = &mut record.body {
                set.sm_mhz = mhz;
            }
            record
        };
        assert_eq!(differences(&at(Some(1780.0)), &at(Some(1650.4))), ["SM clock (1780 MHz → 1650 MHz)"]);
        assert_eq!(differences(&at(Some(1780.0)), &at(Some(1770.0))), Vec::<String>::new());
        assert_eq!(differences(&at(None), &at(Some(1770.0))), Vec::<String>::new());
    }
}
