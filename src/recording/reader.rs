//! Reading a recording: every line checked, older ones brought up to date.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use super::entry::{Answered, Build, Call, Entry, Header, HostEntry, Read, SessionEntry, StoredFile};
use super::{RECORDING_FORMAT, RecordingError, io};
use crate::model::protocol::PROTOCOL;
use crate::model::record::Format;

/// A recording, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    pub header: Header,
    pub call: Call,
    pub files: Vec<StoredFile>,
    pub host: HostEntry,
    /// `None` where nothing had to be done.
    pub session: Option<SessionEntry>,
    pub builds: Vec<Build>,
    pub answers: Vec<Answered>,
    /// In their order.
    pub readings: Vec<Read>,
    /// The file ends in the middle, as its writer was killed: what it holds up to there is good.
    pub cut_short: bool,
}

/// Bytes of text that are read at most; a file that says nothing new packs a thousandfold.
const TEXT_LIMIT: u64 = 1 << 30;
/// Bytes of one line: those of honest recordings have some hundred thousand at most.
const LINE_LIMIT: u64 = 1 << 26;

impl Recording {
    /// Reads the file `path`.
    ///
    /// # Errors
    /// It cannot be read, is no recording, is damaged, or a newer mlarun wrote it.
    pub fn read(path: &Path) -> Result<Recording, RecordingError> {
        let file = File::open(path).map_err(io(path))?;
        read(file, path)
    }
}

/// Reads a recording from the packed `source`, which messages call `path`.
///
/// # Errors
/// As [`Recording::read`].
pub(super) fn read(source: impl std::io::Read, path: &Path) -> Result<Recording, RecordingError> {
    read_text(GzDecoder::new(source), path)
}

/// Reads the text of a recording, which messages call `path`.
///
/// # Errors
/// As [`Recording::read`].
pub(crate) fn read_text(text: impl std::io::Read, path: &Path) -> Result<Recording, RecordingError> {
    let mut lines = Lines {
        text: BufReader::new(text.take(TEXT_LIMIT)),
        path: path.to_owned(),
        number: 0,
        cut_short: false,
        newer: None,
    };
    let foreign = |reason: String| RecordingError::Foreign { path: path.to_owned(), reason };
    let first = match lines.next_line() {
        Ok(line) => line.ok_or_else(|| foreign("it is empty".to_owned()))?,
        Err(RecordingError::Io { error, .. }) => return Err(foreign(error.to_string())),
        Err(error) => return Err(error),
    };
    let header: Header = serde_json::from_slice(&first).map_err(|error| foreign(format!("its first line: {error}")))?;
    if header.recording.major > RECORDING_FORMAT.major || header.protocol > PROTOCOL {
        let (found, protocol) = (header.recording, header.protocol);
        return Err(RecordingError::Newer { path: path.to_owned(), found, protocol });
    }
    if header.recording > RECORDING_FORMAT {
        lines.newer = Some((header.recording, header.protocol));
    }
    let (mut call, mut host, mut session) = (None, None, None);
    let (mut files, mut builds, mut answers, mut readings) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    while let Some(line) = lines.next_line()? {
        match lines.entry(&line)? {
            Some(Entry::Call(of)) => call = Some(of),
            Some(Entry::File(file)) => files.push(file),
            Some(Entry::Host(of)) => host = Some(*of),
            Some(Entry::Session(of)) => session = Some(*of),
            Some(Entry::Build(build)) => builds.push(*build),
            Some(Entry::Answer(answer)) => answers.push(*answer),
            Some(Entry::Reading(reading)) => readings.push(*reading),
            None => break,
        }
    }
    let lacks = |what| RecordingError::Incomplete { path: path.to_owned(), what };
    Ok(Recording {
        call: call.ok_or_else(|| lacks("the call that it is of"))?,
        host: host.ok_or_else(|| lacks("the host"))?,
        header,
        files,
        session,
        builds,
        answers,
        readings,
        cut_short: lines.cut_short,
    })
}

/// The lines of an unpacked file.
struct Lines<R> {
    text: BufReader<std::io::Take<R>>,
    path: PathBuf,
    number: usize,
    cut_short: bool,
    /// Format and protocol of a writer that may know lines which this program does not.
    newer: Option<(Format, u32)>,
}

impl<R: std::io::Read> Lines<R> {
    /// The next line; `None` at the end, also where the file was cut short.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, RecordingError> {
        let mut line = Vec::new();
        self.number += 1;
        match self.text.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line) {
            Ok(read) if read as u64 == LINE_LIMIT && !line.ends_with(b"\n") => {
                return Err(RecordingError::TooLarge { path: self.path.clone(), limit: LINE_LIMIT });
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.number > 1 => self.cut_short = true,
            Err(error) => return Err(io(&self.path)(error)),
        }
        if self.text.get_ref().limit() == 0 {
            return Err(RecordingError::TooLarge { path: self.path.clone(), limit: TEXT_LIMIT });
        }
        // A line that was not ended was not finished.
        self.cut_short |= !line.is_empty() && !line.ends_with(b"\n");
        Ok(line.pop().filter(|&end| end == b'\n').map(|_| line))
    }

    fn entry(&self, line: &[u8]) -> Result<Option<Entry>, RecordingError> {
        let path = self.path.clone();
        serde_json::from_slice(line).map(Some).map_err(|error| match self.newer {
            Some((found, protocol)) => RecordingError::Newer { path, found, protocol },
            None => RecordingError::Damaged { path, line: self.number, reason: error.to_string() },
        })
    }
}
