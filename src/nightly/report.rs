//! What a night's report says: for people as Markdown, for programs as JSON, for whatever shows test results as JUnit XML.

use std::fmt::Write as _;

use jiff::Timestamp;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite, XmlString};
use serde::Serialize;

use super::alarm::Alarm;
use super::drift::Drift;
use super::order::{Offer, Why, queue};
use super::state::{Observation, Outcome, Situation, State, Subject, Tonight, Track};
use crate::report::numbers::{ABSENT, cell, change_of_speed, counted, duration};

/// Version of the JSON form.
const VERSION: u32 = 1;

/// A night, told from the state alone: a night that was interrupted reports what it measured before as well.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub version: u32,
    pub night: String,
    pub began_at: Timestamp,
    /// Until now, where it is not over.
    pub ended_at: Timestamp,
    pub situation: Situation,
    /// What was missed, interrupted or changed.
    pub notes: Vec<String>,
    pub rows: Vec<Row>,
    /// Subjects whose alarm stands.
    pub regressions: usize,
}

/// A subject's night.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub subject: Subject,
    /// Its sessions of the night, the oldest first.
    pub sessions: Vec<Observation>,
    /// Why it is still due, where it is.
    pub due: Option<Why>,
    pub alarm: Alarm,
    pub drift: Drift,
}

impl Row {
    /// An alarm stands.
    pub const fn is_regression(&self) -> bool {
        matches!(self.alarm, Alarm::Raised { .. }) || matches!(self.drift, Drift::Raised { .. })
    }

    /// How it stands, in a word or a few.
    fn standing(&self) -> &'static str {
        match (&self.alarm, &self.drift) {
            (Alarm::Raised { recovering: Some(_), .. }, _) => "ALARM, recovering",
            (Alarm::Raised { .. }, _) => "ALARM",
            (_, Drift::Raised { .. }) => "ALARM: drift",
            (Alarm::Suspected { .. }, _) => "suspected",
            (_, Drift::Suspected { .. }) => "drift suspected",
            _ => "",
        }
    }
}

impl Report {
    /// The night of `state`, which has not been finished yet; `None` where none has begun.
    pub fn of(state: &State, offers: &[Offer], situation: &Situation, now: Timestamp) -> Option<Report> {
        let tonight = state.tonight.as_ref()?;
        let due = queue(offers, state, situation, tonight, now);
        let row = |(index, offer): (usize, &Offer)| {
            let track = state.track(&offer.subject, situation);
            let due = due.iter().find(|choice| choice.offer == index).map(|choice| choice.why.clone());
            row(&offer.subject, track, tonight, due)
        };
        let rows: Vec<Row> = offers.iter().enumerate().map(row).collect();
        Some(Report {
            version: VERSION,
            night: tonight.id.clone(),
            began_at: tonight.began_at,
            ended_at: now,
            situation: situation.clone(),
            notes: tonight.notes.clone(),
            regressions: rows.iter().filter(|row| row.is_regression()).count(),
            rows,
        })
    }

    /// For people.
    pub fn markdown(&self) -> String {
        let Situation { device, pin_name, pin, circumstances, .. } = &self.situation;
        let driver = circumstances.driver.as_ref().map(|driver| format!(", driver {driver}")).unwrap_or_default();
        let mut text = format!(
            "# Night {}\n\n{} on {device}{driver}, clocks {}, {}; against the pinned build {pin_name} ({}). From {} to {}.\n\n",
            self.night,
            counted(self.rows.len(), "subject"),
            circumstances.clocks,
            circumstances.compiler,
            pin.short(),
            self.began_at.strftime("%Y-%m-%d %H:%M:%SZ"),
            self.ended_at.strftime("%Y-%m-%d %H:%M:%SZ"),
        );
        text += &format!("**{}**\n", self.summary());
        for note in &self.notes {
            let _ = write!(text, "\n- {note}");
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        self.alarms(&mut text);
        self.measured(&mut text);
        self.due(&mut text);
        text
    }

    /// One line that says how the night went.
    pub fn summary(&self) -> String {
        let measured = self.rows.iter().filter(|row| !row.sessions.is_empty()).count();
        let alarms = match self.regressions {
            0 => "no alarm".to_owned(),
            count => counted(count, "alarm"),
        };
        let undecided =
            self.rows.iter().filter(|row| row.sessions.last().is_some_and(|last| last.outcome.doubt().is_some()));
        format!(
            "{alarms}; {measured} of {} measured, {} undecided",
            counted(self.rows.len(), "subject"),
            undecided.count()
        )
    }

    fn alarms(&self, text: &mut String) {
        let standing: Vec<&Row> = self.rows.iter().filter(|row| !row.standing().is_empty()).collect();
        if standing.is_empty() {
            return;
        }
        text.push_str(
            "\n## Alarms and suspicions\n\n| Subject | Stands | Since | Change of speed |\n|---|---|---|---|\n",
        );
        for row in standing {
            let (since, change) = match (&row.alarm, &row.drift) {
                (Alarm::Raised { since, change, .. } | Alarm::Suspected { since, change, .. }, _) => {
                    (Some(*since), Some(*change))
                }
                (Alarm::Quiet, Drift::Raised { since, level }) => (Some(*since), Some(*level)),
                (Alarm::Quiet, _) => (None, None),
            };
            let since = since.map_or(ABSENT.to_owned(), |since| since.strftime("%Y-%m-%d %H:%MZ").to_string());
            let subject = cell(&row.subject.to_string());
            let _ = writeln!(text, "| {subject} | {} | {since} | {} |", row.standing(), change_of_speed(change));
        }
    }

    fn measured(&self, text: &mut String) {
        let sessions = || self.rows.iter().flat_map(|row| row.sessions.iter().map(move |session| (row, session)));
        if sessions().next().is_none() {
            return;
        }
        text.push_str(
            "\n## Measured\n\n| Subject | Why | Verdict | Change of speed | Interval | Rounds | Took | Note |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        for (row, session) in sessions() {
            let (verdict, change, interval, rounds) = result(&session.outcome);
            let _ = writeln!(
                text,
                "| {} | {} | {verdict} | {change} | {interval} | {rounds} | {} | {} |",
                cell(&row.subject.to_string()),
                cell(&session.why.to_string()),
                duration(session.took_s * 1e9),
                cell(&note(session)),
            );
        }
    }

    fn due(&self, text: &mut String) {
        let due: Vec<(&Row, &Why)> = self.rows.iter().filter_map(|row| Some((row, row.due.as_ref()?))).collect();
        if due.is_empty() {
            return;
        }
        text.push_str(
            "\n## Still due\n\nFor the next night, as the budget did not reach.\n\n| Subject | Why |\n|---|---|\n",
        );
        for (row, why) in due {
            let _ = writeln!(text, "| {} | {} |", cell(&row.subject.to_string()), cell(&why.to_string()));
        }
    }

    /// For programs.
    ///
    /// # Errors
    /// None that a text in memory could meet; they are passed on as they are.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// As test results: an alarm is a failure, a run without a result an error, what was not measured is skipped.
    ///
    /// # Errors
    /// None that a text in memory could meet; they are passed on as they are.
    pub fn junit(&self) -> Result<String, quick_junit::SerializeError> {
        let mut suite = TestSuite::new(XmlString::new("mlarun nightly"));
        let circumstances = &self.situation.circumstances;
        for (name, value) in [
            ("night", self.night.as_str()),
            ("device", &self.situation.device),
            ("driver", circumstances.driver.as_deref().unwrap_or(ABSENT)),
            ("compiler", &circumstances.compiler),
            ("clocks", &circumstances.clocks),
            ("pinned build", &pin(&self.situation)),
        ] {
            suite.add_property((name, value));
        }
        suite.add_test_cases(self.rows.iter().map(case));
        suite.set_time(seconds(self.ended_at.duration_since(self.began_at).as_secs_f64()));
        let mut report = quick_junit::Report::new("mlarun nightly");
        report.add_test_suite(suite);
        report.to_string()
    }
}

fn pin(situation: &Situation) -> String {
    format!("{} ({})", situation.pin_name, situation.pin.short())
}

fn seconds(seconds: f64) -> std::time::Duration {
    std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn row(subject: &Subject, track: Option<&Track>, tonight: &Tonight, due: Option<Why>) -> Row {
    let sessions = track.map_or(Vec::new(), |track| {
        track.observations.iter().filter(|seen| seen.night == tonight.id).cloned().collect()
    });
    Row {
        subject: subject.clone(),
        sessions,
        due,
        alarm: track.map_or(Alarm::Quiet, |track| track.alarm.clone()),
        drift: track.map_or(Drift::Quiet, |track| track.drift.clone()),
    }
}

/// Verdict, change, interval and rounds as texts.
fn result(outcome: &Outcome) -> (&'static str, String, String, String) {
    let absent = || ABSENT.to_owned();
    match outcome {
        Outcome::Judged { verdict, change, low, high, rounds } => {
            let interval = low.zip(*high).map_or(absent(), |(low, high)| {
                format!("{} to {}", change_of_speed(Some(low)), change_of_speed(Some(high)))
            });
            (verdict.name(), change_of_speed(*change), interval, rounds.to_string())
        }
        Outcome::SameCode => ("same code", absent(), absent(), absent()),
        Outcome::Failed { .. } => ("FAILED", absent(), absent(), absent()),
    }
}

/// What came of a session, and why it decided nothing.
fn note(session: &Observation) -> String {
    session.outcome.doubt().into_iter().chain(session.notes.iter().cloned()).collect::<Vec<_>>().join("; ")
}

fn case(row: &Row) -> TestCase {
    let last = row.sessions.last();
    let told = last.map(|last| {
        let (verdict, change, interval, _) = result(&last.outcome);
        let effect = if change == ABSENT { verdict.to_owned() } else { format!("{verdict}: {change} ({interval})") };
        let text = [effect, note(last)];
        text.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
    });
    let failed = |kind, message: String| {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_message(message);
        status
    };
    let status = match last.map(|last| &last.outcome) {
        _ if row.is_regression() => {
            let told = told.clone().unwrap_or_else(|| "not measured tonight".to_owned());
            failed(NonSuccessKind::Failure, format!("{}; {told}", row.standing()))
        }
        Some(Outcome::Failed { reason, .. }) => failed(NonSuccessKind::Error, reason.clone()),
        Some(_) => TestCaseStatus::success(),
        None => {
            let mut status = TestCaseStatus::skipped();
            let why = row.due.as_ref().map_or("not measured tonight".to_owned(), |why| format!("still due: {why}"));
            status.set_message(why);
            status
        }
    };
    let mut case = TestCase::new(row.subject.to_string(), status);
    case.set_classname(row.subject.id.kernel.as_str());
    case.set_time(seconds(row.sessions.iter().map(|session| session.took_s.max(0.0)).sum()));
    if let Some(told) = told {
        case.set_system_out(told);
    }
    case
}
