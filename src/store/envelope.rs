//! The form of a stored file: version of the format, checksum, body. Pure: bytes to values and back.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::model::Key;
use crate::model::record::{FORMAT, Format};

/// Why a stored file is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("it is no such file: {0}")]
    Unreadable(String),
    #[error("its checksum is {expected}, its contents have {actual}")]
    Checksum { expected: Key, actual: Key },
    #[error("it lies where another kind or key belongs than its own ({kind} {key})")]
    Misplaced { kind: String, key: Key },
    #[error("it was measured on {device}, while its key is that of a run on another device")]
    Foreign { device: String },
    #[error("its format is {}.{}, which no mlarun has written", .0.major, .0.minor)]
    Format(Format),
    /// Not a fault of the file: it must be left alone.
    #[error("its format {}.{} is newer than this program's", .0.major, .0.minor)]
    Newer(Format),
}

/// Text of a file whose body, under the name `name`, is `body`.
pub fn encode<T: Serialize>(name: &str, body: &T) -> Result<Vec<u8>, serde_json::Error> {
    let body = serde_json::to_value(body)?;
    let mut file = Map::new();
    file.insert("format".into(), json!(FORMAT));
    file.insert("sha256".into(), json!(checksum(&body)?));
    file.insert(name.into(), body);
    let mut text = serde_json::to_vec_pretty(&file)?;
    text.push(b'\n');
    Ok(text)
}

/// The body of a file that [`encode`] made; unknown fields of a newer minor version are ignored.
pub fn decode<T: DeserializeOwned>(name: &str, text: &[u8]) -> Result<T, Fault> {
    let unreadable = |error: serde_json::Error| Fault::Unreadable(error.to_string());
    let mut file: Map<String, Value> = serde_json::from_slice(text).map_err(unreadable)?;
    let mut take = |field: &str| file.remove(field).ok_or_else(|| Fault::Unreadable(format!("`{field}` is missing")));
    let format: Format = serde_json::from_value(take("format")?).map_err(unreadable)?;
    if format.major > FORMAT.major {
        return Err(Fault::Newer(format));
    }
    if format.major < FORMAT.major {
        return Err(Fault::Format(format));
    }
    let expected: Key = serde_json::from_value(take("sha256")?).map_err(unreadable)?;
    let body = take(name)?;
    let actual = checksum(&body).map_err(unreadable)?;
    if actual != expected {
        return Err(Fault::Checksum { expected, actual });
    }
    serde_json::from_value(body).map_err(unreadable)
}

/// SHA-256 of the canonical text of `body`: sorted keys, no white space.
fn checksum(body: &Value) -> Result<Key, serde_json::Error> {
    Ok(Key::of_bytes(&serde_json::to_vec(body)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_finite_number_survives(ns in proptest::collection::vec(prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL, 0..20)) {
            let text = encode("samples", &ns).expect("serialises");
            prop_assert_eq!(decode::<Vec<f64>>("samples", &text), Ok(ns));
        }

        #[test]
        fn every_flipped_bit_is_noticed(position in any::<prop::sample::Index>(), bit in 0..8u8) {
            let body = json!({ "key": "value", "samples": [1.5, 2.25e-7, 3e20] });
            let mut text = encode("record", &body).expect("serialises");
            let index = position.index(text.len());
            text[index] ^= 1 << bit;
            // White space may become other white space; nothing else may pass, and then with the same value.
            if let Ok(read) = decode::<Value>("record", &text) {
                prop_assert_eq!(read, body);
            }
        }
    }
}
