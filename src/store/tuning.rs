//! Results of tuning, kept under `.cache/kernel-autotune/<kernel>/<version>/<unit>/<key>.json`, where a unit is a stage
//! or the pipeline as a whole. They can be had again by tuning again, so they are no records.
//!
//! A search's history may be megabytes, and a plan needs nothing but the choice: `<key>.choice.json` beside it says what
//! the file of this size and time of change has chosen. It is derived, and made anew whenever it does not fit.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::envelope::{self, Fault};
use super::files::Stamp;
use super::{Durability, StoreError, atomic, io, unkept};
use crate::model::{Choices, KernelId, Key};

/// A finished search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    pub key: Key,
    /// The struct that `key` is the hash of.
    pub material: serde_json::Value,
    pub chosen: Choices,
    /// Everything that was tried, in order.
    pub history: Vec<Tried>,
}

/// One point of the space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Number of the candidate, counted over the whole space.
    pub number: usize,
    pub choices: Choices,
    pub outcome: Outcome,
}

/// What became of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Median of `samples` launches.
    Timed {
        median_ns: f64,
        samples: u32,
    },
    /// A constraint of the space does not hold.
    Rejected {
        constraint: String,
    },
    /// Given up early, as `ns` was far above the best.
    Abandoned {
        ns: f64,
    },
    Failed {
        message: String,
    },
}

/// A stored result that was looked up.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup<T> {
    Found(T),
    Absent,
    /// The file did not check out; it was renamed and counts as absent. The text is a warning for people.
    SetAside {
        warning: String,
    },
}

/// All tuning results of a project.
#[derive(Debug, Clone)]
pub struct Tunings {
    folder: PathBuf,
}

const BODY: &str = "tuning";
const CHOICE: &str = "choice";

/// What a result has chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Choice {
    key: Key,
    /// State of the result's file.
    of: Stamp,
    chosen: Choices,
}

impl Tunings {
    /// The results below `cache`, the project's `.cache`.
    pub fn new(cache: &Path) -> Tunings {
        Tunings { folder: cache.join("kernel-autotune") }
    }

    /// File of a result. `unit` is the name of a stage, or `pipeline`. Languages are told apart by the key.
    pub fn path(&self, id: &KernelId, unit: &str, key: &Key) -> PathBuf {
        self.folder.join(&id.kernel).join(id.version.to_string()).join(unit).join(format!("{key}.json"))
    }

    /// The result of `key`, checked.
    ///
    /// # Errors
    /// The file cannot be read or renamed, or a newer mlarun wrote it.
    pub fn load(&self, id: &KernelId, unit: &str, key: &Key) -> Result<Lookup<Box<Tuning>>, StoreError> {
        let path = self.path(id, unit, key);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Lookup::Absent),
            Err(error) => return Err(io(&path)(error)),
        };
        let right_key = |tuning: Tuning| {
            let kind = || BODY.to_owned();
            if tuning.key == *key { Ok(tuning) } else { Err(Fault::Misplaced { kind: kind(), key: tuning.key }) }
        };
        match envelope::decode::<Tuning>(BODY, &text).and_then(right_key) {
            Ok(tuning) => Ok(Lookup::Found(Box::new(tuning))),
            Err(Fault::Newer(found)) => Err(StoreError::Newer { path, found }),
            Err(fault) => set_aside(&path, &fault),
        }
    }

    /// What the result of `key` has chosen, without reading its history where that was read before.
    ///
    /// # Errors
    /// As [`Tunings::load`], and where the choice cannot be written.
    pub fn chosen(&self, id: &KernelId, unit: &str, key: &Key) -> Result<Lookup<Choices>, StoreError> {
        let path = self.path(id, unit, key);
        let Some(stamp) = stamp(&path)? else { return Ok(Lookup::Absent) };
        let beside = path.with_extension("choice.json");
        if let Some(choice) = read_choice(&beside)?.filter(|choice| choice.key == *key && choice.of == stamp) {
            return Ok(Lookup::Found(choice.chosen));
        }
        Ok(match self.load(id, unit, key)? {
            Lookup::Found(tuning) => {
                // The stamp is older than what was read: a file that was replaced in between is read again next time.
                let choice = Choice { key: *key, of: stamp, chosen: tuning.chosen };
                let text = envelope::encode(CHOICE, &choice)
                    .map_err(|error| StoreError::Json { path: beside.clone(), error })?;
                atomic::write(&beside, &text, Durability::Cached).map_err(io(&beside))?;
                Lookup::Found(choice.chosen)
            }
            Lookup::Absent => Lookup::Absent,
            Lookup::SetAside { warning } => Lookup::SetAside { warning },
        })
    }

    /// Stores a result, in place of an earlier one of the same key.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, id: &KernelId, unit: &str, tuning: &Tuning) -> Result<PathBuf, StoreError> {
        let path = self.path(id, unit, &tuning.key);
        let text = envelope::encode(BODY, tuning).map_err(|error| StoreError::Json { path: path.clone(), error })?;
        atomic::check_below(&self.folder, &path).map_err(unkept(&path))?;
        atomic::write(&path, &text, Durability::Synced).map_err(unkept(&path))?;
        Ok(path)
    }
}

/// State of a file; `None` where there is none.
fn stamp(path: &Path) -> Result<Option<Stamp>, StoreError> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(Stamp::of(&meta))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io(path)(error)),
    }
}

/// The choice at `path`; `None` where there is none that can be used, as it is then made anew.
fn read_choice(path: &Path) -> Result<Option<Choice>, StoreError> {
    match fs::read(path) {
        Ok(text) => Ok(envelope::decode(CHOICE, &text).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io(path)(error)),
    }
}

fn set_aside<T>(path: &Path, fault: &Fault) -> Result<Lookup<T>, StoreError> {
    let to = path.with_extension("json.damaged");
    fs::rename(path, &to).map_err(io(path))?;
    let warning = format!("{}: {fault}; kept as {}, tuning starts anew", path.display(), to.display());
    Ok(Lookup::SetAside { warning })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Language, Value, Version};

    fn id() -> KernelId {
        KernelId { kernel: "flash_mla".into(), version: Version(2), language: Language::C }
    }

    fn tuning() -> Tuning {
        let choices = |block: i64| Choices::from([("block_t".to_owned(), Value::Int(block))]);
        let outcomes = [
            Outcome::Timed { median_ns: 1234.5, samples: 7 },
            Outcome::Rejected { constraint: "tile.block_t <= t".into() },
            Outcome::Abandoned { ns: 9e9 },
            Outcome::Failed { message: "crashed".into() },
        ];
        let tried = |(number, outcome)| Tried { number, choices: choices(16 << number), outcome };
        Tuning {
            key: Key::of("tuning/1", &1),
            material: serde_json::json!({ "stage": "latent" }),
            chosen: choices(16),
            history: outcomes.into_iter().enumerate().map(tried).collect(),
        }
    }

    #[test]
    fn a_result_is_read_back_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let (tunings, tuning) = (Tunings::new(folder.path()), tuning());
        assert_eq!(tunings.load(&id(), "latent", &tuning.key).expect("readable"), Lookup::Absent);
        tunings.save(&id(), "latent", &tuning).expect("saved");
        let found = tunings.load(&id(), "latent", &tuning.key).expect("readable");
        assert_eq!(found, Lookup::Found(Box::new(tuning.clone())));
        assert_eq!(tunings.load(&id(), "project", &tuning.key).expect("readable"), Lookup::Absent);
    }

    #[test]
    fn a_damaged_or_misplaced_result_is_kept_aside_with_a_warning() {
        let folder = tempfile::tempdir().expect("a folder");
        let (tunings, tuning) = (Tunings::new(folder.path()), tuning());
        let path = tunings.save(&id(), "latent", &tuning).expect("saved");
        let text = fs::read_to_string(&path).expect("text");
        let other = tunings.path(&id(), "latent", &Key::of("tuning/1", &2));
        fs::write(&other, &text).expect("copied");
        fs::write(&path, text.replace("1234.5", "234.5")).expect("changed");
        for (key, path) in [(tuning.key, &path), (Key::of("tuning/1", &2), &other)] {
            let found = tunings.load(&id(), "latent", &key).expect("no error");
            let Lookup::SetAside { warning } = found else { panic!("{found:?}") };
            assert!(warning.contains(&path.display().to_string()), "{warning}");
            assert!(path.with_extension("json.damaged").exists());
            assert_eq!(tunings.load(&id(), "latent", &key).expect("no error"), Lookup::Absent);
        }
    }

    #[test]
    fn a_newer_result_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (tunings, tuning) = (Tunings::new(folder.path()), tuning());
        let path = tunings.save(&id(), "latent", &tuning).expect("saved");
        let text = fs::read_to_string(&path).expect("text");
        fs::write(&path, text.replace("\"major\": 1", "\"major\": 2")).expect("changed");
        assert!(matches!(tunings.load(&id(), "latent", &tuning.key), Err(StoreError::Newer { .. })));
        assert!(path.exists());
    }

    #[test]
    fn a_choice_is_that_of_the_file_as_it_is_now() {
        let folder = tempfile::tempdir().expect("a folder");
        let (tunings, mut tuning) = (Tunings::new(folder.path()), tuning());
        let chosen = |key: &Key| tunings.chosen(&id(), "latent", key).expect("readable");
        assert_eq!(chosen(&tuning.key), Lookup::Absent);
        let path = tunings.save(&id(), "latent", &tuning).expect("saved");
        let beside = path.with_extension("choice.json");
        for _ in 0..2 {
            assert_eq!(chosen(&tuning.key), Lookup::Found(tuning.chosen.clone()));
            assert!(beside.exists());
        }
        fs::write(&beside, "{").expect("cut short");
        assert_eq!(chosen(&tuning.key), Lookup::Found(tuning.chosen.clone()));
        tuning.chosen = Choices::from([("another_name".to_owned(), Value::Int(1))]);
        tunings.save(&id(), "latent", &tuning).expect("replaced");
        assert_eq!(chosen(&tuning.key), Lookup::Found(tuning.chosen.clone()));
        fs::write(&path, "{}").expect("damaged");
        assert!(matches!(chosen(&tuning.key), Lookup::SetAside { .. }));
        assert_eq!(chosen(&tuning.key), Lookup::Absent, "the choice went with its history");
    }
}
