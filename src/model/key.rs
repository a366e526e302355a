//! Content keys: SHA-256 over a canonical serialisation of one struct.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// SHA-256 of what identifies a thing. Prints as 64 hexadecimal digits; [`Key::short`] gives the first 12.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// Key of `material`: its JSON without white space, fields in declared order, maps sorted, behind the tag of what
    /// it is.
    ///
    /// `tag` separates kinds of material that serialise alike and names the version of its definition, e.g.
    /// `subject/1`.
    ///
    /// # Panics
    /// When `material` does not serialise to JSON (a map with keys that are no strings).
    pub fn of<T: Serialize>(tag: &str, material: &T) -> Key {
        let mut text = Vec::with_capacity(1024);
        text.extend_from_slice(tag.as_bytes());
        text.push(b'\n');
        serde_json::to_writer(&mut text, material).expect("key material serialises to JSON");
        Key::of_bytes(&text)
    }

    /// Key of raw bytes (a source file, an artifact, a tensor).
    pub fn of_bytes(bytes: &[u8]) -> Key {
        Key(Sha256::digest(bytes).into())
    }

    /// Its 32 bytes, for compact storage.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key whose bytes [`Key::as_bytes`] gave.
    pub const fn from_bytes(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    /// Gives `then` the 64 digits. Keys of keys are made by the ten thousand, hence without a formatter.
    fn digits<T>(&self, then: impl FnOnce(&str) -> T) -> T {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        then(str::from_utf8(&digits).expect("hexadecimal digits are ASCII"))
    }

    /// The first 12 hexadecimal digits, for people.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digits(|digits| f.write_str(digits))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a key of 64 hexadecimal digits")]
pub struct InvalidKey(pub String);

impl FromStr for Key {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidKey(text.to_owned());
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 64 || !text.bytes().all(hex) {
            return Err(invalid());
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| invalid())?;
        }
        Ok(Key(bytes))
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.digits(|digits| serializer.serialize_str(digits))
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_key_does_not_depend_on_the_order_in_which_a_map_was_filled() {
        let forth = BTreeMap::from([("a", 1), ("b", 2)]);
        let back = BTreeMap::from([("b", 2), ("a", 1)]);
        assert_eq!(Key::of("t/1", &forth), Key::of("t/1", &back));
    }

    #[test]
    fn a_key_depends_on_the_tag_and_on_every_value() {
        assert_ne!(Key::of("t/1", &1), Key::of("t/2", &1));
        assert_ne!(Key::of("t/1", &1), Key::of("t/1", &2));
    }

    #[test]
    fn a_key_survives_its_text() {
        let key = Key::of_bytes(b"text");
        assert_eq!(key.to_string().parse(), Ok(key));
        assert!("abc".parse::<Key>().is_err());
        assert!(key.to_string().to_uppercase().parse::<Key>().is_err());
    }
}
