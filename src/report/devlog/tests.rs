//! What people wrote survives, what mlarun owns is exact, and what cannot be trusted is refused.

use proptest::prelude::*;

use super::scan::begin_border;
use super::{
    About, Adding, Block, CompactRecord, DevlogError, Identity, Links, StaleReason, check, file_name, new_log, update,
};
use crate::conf::Conf;
use crate::model::Version;
use crate::report::Report;
use crate::report::fixtures::{V0_S1, V1_S1, V1_S1_ANNOTATION, V2_S1, input, renderer, shape};

fn records() -> Vec<CompactRecord> {
    let input = input();
    let report = Report::new(&input, &Conf::default().thresholds).expect("the input is sound");
    let links = |annotation, previous| Links { annotation, previous, shown: Vec::new() };
    [(V0_S1, links(None, None)), (V1_S1, links(Some(V1_S1_ANNOTATION), Some(V0_S1))), (V2_S1, links(None, Some(V1_S1)))]
        .into_iter()
        .map(|(index, links)| report.devlog_record(index, links).expect("it was measured"))
        .collect()
}

fn block_of(record: &CompactRecord) -> Block {
    let about = About { description: "blocked, online softmax".into(), location: "kernels/c/mla/mla_var6_plus".into() };
    Block::render(&renderer(), record, &about).expect("it renders")
}

fn blocks() -> Vec<Block> {
    records().iter().map(block_of).collect()
}

fn write(text: &str, blocks: &[Block]) -> String {
    update(text, blocks, Adding::AnyDevice).expect("the log is sound").text
}

fn log() -> String {
    write(&new_log("mla_var6_plus"), &blocks())
}

fn error(text: &str) -> DevlogError {
    let error = update(text, &blocks(), Adding::AnyDevice).expect_err("it cannot be trusted");
    assert_eq!(check(text, &blocks()).expect_err("nor can it be checked"), error);
    error
}

#[test]
fn a_new_log() {
    insta::assert_snapshot!("devlog", log());
}

#[test]
fn the_block_is_exact() {
    let mut record = records().swap_remove(1);
    record.identity.device = "NVIDIA H200".into();
    record.clocks_locked = true;
    record.achieved_occupancy_percent = Some(31.4);
    record.tensor_core_percent = Some(61.5);
    let expected = "\
**Performance** (NVIDIA H200, locked clocks, float32, b=1, s=1, t=256):

| Metric            | Value      | vs Previous   |
| ----------------- | ---------- | ------------- |
| Duration          | 2020.00 μs | 200.0% faster |
| Achieved TFLOPs/s | 0.02       | +200.0%       |
| Achieved GB/s     | 4.95       | +200.0%       |
| Occupancy         | 31%        | --            |
| TC Util           | 62%        | --            |

**Bottleneck**: Memory-bound
";
    assert_eq!(block_of(&record).body, expected);
}

#[test]
fn further_parameters_are_named_when_asked() {
    let mut record = records().swap_remove(0);
    record.identity.shape.0.insert("causal".into(), true.into());
    record.identity.shape.0.insert("h".into(), 8.into());
    record.shown = vec!["causal".into()];
    assert!(block_of(&record).body.contains("float32, b=1, s=1, t=256, causal=true):"));
}

#[test]
fn a_record_survives_its_file() {
    for record in records() {
        assert_eq!(CompactRecord::from_json(&record.to_json()).expect("it is its own format"), record);
    }
    let newer = records()[0].to_json().replace("\"major\": 1", "\"major\": 2");
    assert!(CompactRecord::from_json(&newer).is_err());
    assert!(CompactRecord::from_json("{}").is_err());
}

#[test]
fn files_are_named_after_kernel_version_and_identity() {
    assert_eq!(file_name("mla_var6_plus"), "mla-var6-plus.md");
    let paths: Vec<_> = records().iter().map(|record| record.path().display().to_string()).collect();
    assert!(paths[0].starts_with("records/mla-var6-plus/v0-") && paths[0].ends_with(".json"), "{paths:?}");
    assert_ne!(paths[0][24..], paths[1][24..]);
}

#[test]
fn writing_twice_changes_nothing() {
    assert_eq!(write(&log(), &blocks()), log());
    assert_eq!(check(&log(), &blocks()), Ok(vec![]));
}

#[test]
fn what_people_wrote_survives() {
    let written = log()
        .replacen("- [Remaining problems]", "- The tail of t is slow.\n- | a table\n", 1)
        .replace("# mla_var6_plus\n", "# mla_var6_plus\n\nAn introduction.\t \n\n\n## History\n");
    let mut blocks = blocks();
    blocks[0].body = blocks[0].body.replace("6060.00", "1.00");
    let updated = write(&written, &blocks);
    assert_eq!(updated, written.replace("6060.00 μs", "1.00 μs"));
}

#[test]
fn a_changed_block_is_stale_and_restored() {
    let edited = log().replace("6060.00", "1.00");
    let stale = check(&edited, &blocks()).expect("the borders are whole");
    assert_eq!(stale.len(), 1);
    assert_eq!((stale[0].reason, stale[0].line), (StaleReason::Differs, Some(10)));
    assert_eq!(write(&edited, &blocks()), log());
}

#[test]
fn missing_and_orphaned_blocks_are_stale() {
    let reasons = |text: &str, blocks: &[Block]| -> Vec<StaleReason> {
        check(text, blocks).expect("the log is sound").iter().map(|stale| stale.reason).collect()
    };
    assert_eq!(reasons("# Empty\n", &blocks()), [StaleReason::Missing; 3]);
    assert_eq!(reasons(&log(), &blocks()[..2]), [StaleReason::WithoutRecord]);
}

#[test]
fn crlf_stays_crlf() {
    let crlf = log().replace('\n', "\r\n");
    assert_eq!(check(&crlf, &blocks()), Ok(vec![]));
    assert_eq!(write(&crlf, &blocks()), crlf);
    let begun = write("# Title\r\n\r\nText.\r\n", &blocks());
    assert_eq!(begun.matches('\n').count(), begun.matches("\r\n").count());
    assert!(begun.starts_with("# Title\r\n\r\nText.\r\n\r\n### V0: "));
}

#[test]
fn a_missing_final_line_break_stays_missing() {
    let cut = log().trim_end().to_owned();
    assert_eq!(write(&cut, &blocks()), cut);
    let begun = write("# Title\n\nText.", &blocks());
    assert!(begun.starts_with("# Title\n\nText.\n\n### V0: ") && !begun.ends_with('\n'));
    assert_eq!(write(&begun, &blocks()), begun);
}

#[test]
fn a_missing_section_is_added_in_the_order_of_versions() {
    let blocks = blocks();
    let gap = write(&new_log("k"), &[blocks[0].clone(), blocks[2].clone()]);
    assert!(!gap.contains("### V1"));
    let filled = write(&gap, &blocks);
    assert_eq!(filled, write(&new_log("k"), &blocks));
    let first_last = write(&write(&new_log("k"), &blocks[2..]), &blocks[..1]);
    assert!(first_last.find("### V0").expect("added") < first_last.find("### V2").expect("there"));
}

#[test]
fn a_block_is_added_to_the_section_that_people_began() {
    let text = "# k\n\n### V1: mine\n\nMy words.\n### V9\nMore.\n\n## Appendix\n\nThe end.\n";
    let blocks = blocks();
    let updated = write(text, &blocks[1..2]);
    let border = begin_border(&blocks[1].identity);
    assert!(
        updated.starts_with(&format!("# k\n\n### V1: mine\n\nMy words.\n\n{border}\n**Performance**")),
        "{updated}"
    );
    assert!(updated.ends_with("next iteration]\n\n### V9\nMore.\n\n## Appendix\n\nThe end.\n"), "{updated}");
}

#[test]
fn a_second_shape_stands_below_the_first() {
    let mut second = blocks().swap_remove(0);
    second.identity.shape = shape(16);
    let updated = write(&log(), std::slice::from_ref(&second));
    let place = |text: &str| updated.find(text).unwrap_or_else(|| panic!("{text} is missing in\n{updated}"));
    assert!(place(&begin_border(&blocks()[0].identity)) < place(&begin_border(&second.identity)));
    assert!(place(&begin_border(&second.identity)) < place("### V1"));
}

#[test]
fn blocks_of_other_devices_are_left_alone() {
    let mut other = blocks().swap_remove(0);
    other.identity.device = "NVIDIA H200".into();
    let updated = update(&log(), std::slice::from_ref(&other), Adding::KnownDevices).expect("the log is sound");
    assert_eq!((updated.text, updated.left_out), (log(), vec![other.identity.clone()]));
    let both = write(&log(), std::slice::from_ref(&other));
    assert_eq!(write(&both, &blocks()), both);
    let mut new_shape = blocks().swap_remove(0);
    new_shape.identity.shape = shape(16);
    let known = update(&log(), std::slice::from_ref(&new_shape), Adding::KnownDevices).expect("the log is sound");
    assert!(known.left_out.is_empty() && known.text.contains(&begin_border(&new_shape.identity)));
}

#[test]
fn a_deleted_border_is_an_error_with_its_line() {
    let end = "<!-- mlarun:performance end -->\n";
    assert_eq!(error(&log().replacen(end, "", 1)), DevlogError::Unended { line: 10 });
    let begin = format!("{}\n", begin_border(&blocks()[0].identity));
    assert_eq!(error(&log().replacen(&begin, "", 1)), DevlogError::Unbegun { line: 21 });
    let last = log().rfind(end).expect("it ends");
    let mut cut = log();
    cut.replace_range(last..last + end.len(), "");
    assert!(matches!(error(&cut), DevlogError::Unended { .. }));
}

#[test]
fn a_doubled_border_or_block_is_an_error_with_its_lines() {
    let end = "<!-- mlarun:performance end -->\n";
    assert_eq!(error(&log().replacen(end, &end.repeat(2), 1)), DevlogError::Unbegun { line: 23 });
    let begin = format!("{}\n", begin_border(&blocks()[0].identity));
    assert_eq!(error(&log().replacen(&begin, &begin.repeat(2), 1)), DevlogError::Unended { line: 10 });
    let doubled = format!("{}\n{begin}{end}", log());
    let message = error(&doubled).to_string();
    let lines = format!("lines 10 and {}: two performance blocks of v0 at b=1 s=1", log().lines().count() + 2);
    assert!(message.starts_with(&lines), "{message}");
}

#[test]
fn a_broken_border_is_an_error_with_its_line() {
    let broken = log().replacen("{\"version\":\"v0\"", "{\"version\":\"zero\"", 1);
    assert!(matches!(error(&broken), DevlogError::Border { line: 10, .. }));
    assert!(matches!(error("<!-- mlarun:performance begin\n"), DevlogError::Border { line: 1, .. }));
}

#[test]
fn a_doubled_section_is_an_error_with_its_lines() {
    let text = "### V1: a\n\n### V1: b\n";
    assert_eq!(error(text), DevlogError::DoubledSection { version: Version(1), first: 1, second: 3 });
}

#[test]
fn borders_and_headings_in_code_are_text() {
    let begin = begin_border(&blocks()[0].identity);
    for (open, close) in [("```", "```"), ("~~~text", "~~~"), ("````\n```", "````")] {
        let text = format!("# k\n\n{open}\n{begin}\n### V0: no heading\n<!-- mlarun:performance end -->\n{close}\n");
        let updated = write(&text, &blocks()[..1]);
        assert!(updated.starts_with(&text), "{updated}");
        assert_eq!(updated.matches(&begin).count(), 2, "{updated}");
        assert_eq!(write(&updated, &blocks()[..1]), updated);
    }
}

#[test]
fn a_fence_that_never_closes_is_an_error_with_its_line() {
    assert_eq!(error("# k\n\n```\ncode\n"), DevlogError::UnclosedFence { line: 3 });
    assert_eq!(error("# k\n\n~~~\ncode\n```\n"), DevlogError::UnclosedFence { line: 3 });
}

#[test]
fn names_cannot_break_out_of_their_place() {
    let mut record = records().swap_remove(0);
    record.identity.device = "A|B `C` --> <!-- x\n### V7".into();
    let block = block_of(&record);
    assert!(
        block.body.starts_with("**Performance** (A\\|B \\`C\\` --> <!-- x ### V7, unlocked clocks,"),
        "{}",
        block.body
    );
    let border = begin_border(&record.identity);
    assert_eq!(border.matches("-->").count(), 1, "{border}");
    let once = write(&new_log("k"), std::slice::from_ref(&block));
    assert_eq!(write(&once, std::slice::from_ref(&block)), once);
    assert_eq!(check(&once, &[block]), Ok(vec![]));
}

/// Lines that people may write, borders excluded.
fn foreign() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "[ -~]{0,30}",
        "[|`~#>*-]{1,6}[ a-z]{0,5}",
        Just("### V1: a section of theirs".to_owned()),
        Just("## Notes".to_owned()),
        Just("    indented".to_owned()),
        Just("μs \u{1f980} ü".to_owned()),
        Just(String::new()),
    ];
    (prop::collection::vec((line, prop::bool::ANY), 0..12), prop::bool::ANY).prop_map(|(lines, ends)| {
        let text: String =
            lines.iter().map(|(line, crlf)| format!("{line}{}", if *crlf { "\r\n" } else { "\n" })).collect();
        if ends { text } else { text.trim_end_matches(['\r', '\n']).to_owned() }
    })
}

/// Whether `part` is what is left of `whole` when some of its bytes are taken out.
fn is_subsequence(part: &str, whole: &str) -> bool {
    let mut rest = whole.bytes();
    part.bytes().all(|byte| rest.any(|other| other == byte))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn foreign_text_survives_and_writing_is_idempotent(text in foreign()) {
        let blocks = blocks();
        if let Ok(once) = update(&text, &blocks, Adding::AnyDevice) {
            prop_assert!(is_subsequence(&text, &once.text));
            prop_assert_eq!(check(&once.text, &blocks), Ok(vec![]));
            let twice = update(&once.text, &blocks, Adding::AnyDevice).expect("what was written can be read");
            prop_assert_eq!(&twice.text, &once.text);
        }
    }

    #[test]
    fn a_value_changes_inside_its_borders_alone(before in foreign(), after in foreign(), ns in 1e3..1e9_f64) {
        let mut record = records().swap_remove(1);
        let border = begin_border(&record.identity);
        let end = "<!-- mlarun:performance end -->";
        let text = format!("{before}\n\n{border}\nold\n{end}\n{after}");
        record.duration_ns = ns;
        let block = block_of(&record);
        if let Ok(updated) = update(&text, std::slice::from_ref(&block), Adding::KnownDevices)
            && text.contains(&border)
            && check(&text, &[]).is_ok_and(|found| found.len() == 1)
        {
            let (start, rest) = (format!("{before}\n\n{border}\n"), format!("{end}\n{after}"));
            prop_assert!(updated.text.starts_with(&start) && updated.text.ends_with(&rest), "{}", updated.text);
        }
    }

    #[test]
    fn any_device_name_has_a_border_that_is_read_back(device in "\\PC{1,40}") {
        let identity = Identity { version: Version(3), device, shape: shape(1) };
        let text = format!("{}\n<!-- mlarun:performance end -->\n", begin_border(&identity));
        let found = check(&text, &[]).expect("the borders are whole");
        prop_assert_eq!(&found[0].identity, &identity);
    }
}
