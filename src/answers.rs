//! Answers of tools and drivers that take long to ask, kept in a file with the state that each holds for: an unchanged
//! later start runs no process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::atomic::{self, Durability};

/// The file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}; check that the file can be read and written", path.display())]
pub struct AnswersError {
    pub path: PathBuf,
    pub error: std::io::Error,
}

/// Remembered answers.
#[derive(Debug, Clone)]
pub struct Answers {
    file: PathBuf,
}

/// Contents of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    format: u32,
    /// By the name of who was asked.
    answers: BTreeMap<String, Remembered>,
}

const FORMAT: u32 = 2;

#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    state: Value,
    answer: Value,
}

impl Answers {
    /// Those of a project; `cache` is its `.cache`.
    pub fn new(cache: &Path) -> Answers {
        Answers { file: cache.join("probes.json") }
    }

    /// The answer of `name` in `state`: the remembered one, else that of `ask`, which is then remembered.
    ///
    /// # Errors
    /// That of `ask`, or the file cannot be read or written.
    pub fn get_or_ask<T, E>(
        &self,
        name: &str,
        state: &impl Serialize,
        ask: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<AnswersError>,
    {
        if let Some(answer) = self.recall(name, state)? {
            return Ok(answer);
        }
        let answer = ask()?;
        self.remember(name, state, &answer)?;
        Ok(answer)
    }

    /// The remembered answer of `name` in `state`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn recall<T: DeserializeOwned>(&self, name: &str, state: &impl Serialize) -> Result<Option<T>, AnswersError> {
        let state = self.json(state)?;
        let known = self.read()?;
        let remembered = known.answers.get(name).filter(|remembered| remembered.state == state);
        Ok(remembered.and_then(|remembered| T::deserialize(&remembered.answer).ok()))
    }

    /// Remembers the answer of `name` in `state`, in place of what it answered before.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn remember(&self, name: &str, state: &impl Serialize, answer: &impl Serialize) -> Result<(), AnswersError> {
        let state = self.json(state)?;
        let mut known = self.read()?;
        known.answers.insert(name.to_owned(), Remembered { state, answer: self.json(answer)? });
        let text = serde_json::to_vec_pretty(&known).map_err(|error| self.failed(error.into()))?;
        atomic::write(&self.file, &text, Durability::Cached).map_err(|error| self.failed(error))
    }

    /// What the file holds. One of another format, or one that was cut short, remembers nothing: asking again gives the
    /// same answers.
    fn read(&self) -> Result<Known, AnswersError> {
        let nothing = || Known { format: FORMAT, answers: BTreeMap::new() };
        match fs::read(&self.file) {
            Ok(text) => {
                let known = serde_json::from_slice::<Known>(&text).ok();
                Ok(known.filter(|known| known.format == FORMAT).unwrap_or_else(nothing))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(nothing()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn json(&self, value: &impl Serialize) -> Result<Value, AnswersError> {
        serde_json::to_value(value).map_err(|error| self.failed(error.into()))
    }

    fn failed(&self, error: std::io::Error) -> AnswersError {
        AnswersError { path: self.file.clone(), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_asked_for_once_a_state() {
        let cache = tempfile::tempdir().expect("a folder");
        let answers = Answers::new(cache.path());
        let asked = std::cell::Cell::new(0);
        let ask = |name: &str, state: u32| {
            let count = || {
                asked.set(asked.get() + 1);
                Ok::<_, AnswersError>(asked.get())
            };
            answers.get_or_ask(name, &state, count).expect("an answer")
        };
        assert_eq!([ask("cc", 1), ask("cc", 1), ask("gcc", 1), ask("cc", 1)], [1, 1, 2, 1]);
        assert_eq!([ask("cc", 2), ask("cc", 2)], [3, 3]);
        fs::write(cache.path().join("probes.json"), "{").expect("spoilt");
        assert_eq!(ask("cc", 2), 4);
    }

    #[test]
    fn a_failure_is_not_remembered() {
        let cache = tempfile::tempdir().expect("a folder");
        let answers = Answers::new(cache.path());
        let failed = || Err(AnswersError { path: "x".into(), error: std::io::Error::other("busy") });
        assert!(answers.get_or_ask::<u32, _>("cc", &1, failed).is_err());
        assert_eq!(answers.get_or_ask("cc", &1, || Ok::<_, AnswersError>(7)).expect("an answer"), 7);
    }
}
