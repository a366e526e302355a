use std::io::Cursor;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::json;

use super::entry::{Area, StoredFile};
use super::names::Names;
use super::reader::read;
use super::redact::Redactions;
use super::{RecordingError, entry::Answered};
use crate::model::protocol::{GpuRequest, PROTOCOL, Request, Task};

#[test]
fn folders_of_the_host_are_left_out_and_its_root_is_not() {
    let redactions = Redactions::new(Path::new("/home/ada/mla"), Some(Path::new("/home/ada")));
    assert_eq!(redactions.text("/home/ada/mla/x.c: error; see /home/ada/notes"), "./x.c: error; see ~/notes");
    let message = json!({ "message": ["/home/ada/mla/a", 1], "path": "/usr/bin/cc" });
    assert_eq!(redactions.json(&message).expect("JSON"), json!({ "message": ["./a", 1], "path": "/usr/bin/cc" }));
    assert_eq!(Redactions::new(Path::new("/"), None).text("/usr/bin"), "/usr/bin");
}

#[test]
fn equal_requests_of_two_hosts_get_one_name() {
    let request = |support: &str| Request {
        protocol: PROTOCOL,
        task: Task::Probe,
        cores: vec![],
        gpu: Some(GpuRequest { uuid: "GPU-1".into(), support: support.into() }),
    };
    let named = |path: &str| {
        let names = Names::default();
        names.insert(PathBuf::from(path), "support");
        names.put_into(&request(path))
    };
    assert_eq!(named("/a/support.cubin"), named("/b/c.cubin"));
    assert_eq!(named("/a").gpu.expect("a GPU").support, Path::new("support"));
    assert_ne!(Names::default().put_into(&request("/a")), Names::default().put_into(&request("/b")));
}

#[test]
fn a_file_stays_below_its_folder() {
    let below = |path: &str| {
        let file = StoredFile { area: Area::Project, path: path.into(), text: String::new() };
        file.below(Path::new("/out"))
    };
    assert_eq!(below("conf/devices.toml").expect("inside"), Path::new("/out/conf/devices.toml"));
    for path in ["", "..", "a/../../b", "/etc/passwd", "./a/.."] {
        assert!(matches!(below(path), Err(RecordingError::Outside { .. })), "{path}");
    }
}

#[test]
fn an_answer_of_the_first_format_is_read() {
    let text = r#"{"request":{"protocol":1,"task":{"task":"probe"},"cores":[0]},"at":"2026-11-29T18:35:00Z",
        "elapsed_ns":5,"lines":[{"line":"launch_overhead","ns":2.5}],"failure":null}"#;
    let answer: Answered = serde_json::from_str(text).expect("it is read");
    assert_eq!((answer.request.task, answer.elapsed_ns, answer.lines.len()), (Task::Probe, 5, 1));
}

proptest! {
    #[test]
    fn whatever_a_file_holds_reading_it_ends_in_words(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let error = read(Cursor::new(bytes), Path::new("x")).expect_err("it is no recording");
        prop_assert!(error.to_string().starts_with("x: "));
    }
}
