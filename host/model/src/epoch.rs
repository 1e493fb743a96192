//! Which coordinator speaks, and which of its lives.

use std::cmp::Ordering;
use std::fmt;

/// One life of a coordinator: whose metadata it has, and the how many-th start from it this is.
///
/// It stands in whatever a coordinator says to workers and writes into a job's log, so that each of them knows whether it is still led by
/// the one it was led by before. Two epochs of one origin are ordered: the greater count leads. Those of different origins are not
/// comparable, and neither ever follows from the other; only a person may say that one takes the other's place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Epoch {
    /// Random id of the coordinator's metadata, made once with it: two metadata folders never have the same, a copy of one does. In
    /// text 32 hexadecimal digits.
    #[serde(with = "origin_text")]
    pub origin: [u8; 16],
    /// Starts of a coordinator from that metadata, this one included; made durable before it acts. At least 1.
    pub count: u64,
}

impl Epoch {
    /// The origin as 32 hexadecimal digits.
    pub fn origin_text(&self) -> String {
        origin_text::hex(&self.origin)
    }

    /// The first eight of them: enough for people to tell coordinators apart, never for a comparison.
    pub fn origin_short(&self) -> String {
        let mut short = self.origin_text();
        short.truncate(8);
        short
    }
}

/// Ordered within one origin, by count.
impl PartialOrd for Epoch {
    fn partial_cmp(&self, other: &Epoch) -> Option<Ordering> {
        (self.origin == other.origin).then(|| self.count.cmp(&other.count))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.origin_short(), self.count)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({}/{})", self.origin_text(), self.count)
    }
}

/// An origin in text: 32 lower-case hexadecimal digits.
mod origin_text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn hex(origin: &[u8; 16]) -> String {
        origin.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn serialize<S: Serializer>(origin: &[u8; 16], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(origin))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 16], D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let is_origin = text.len() == 32 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        let number = is_origin.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        number.map(u128::to_be_bytes).ok_or_else(|| D::Error::custom("an origin is 32 lower-case hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(origin: u8, count: u64) -> Epoch {
        Epoch { origin: std::array::from_fn(|index| origin + index as u8), count }
    }

    #[test]
    fn epochs_are_ordered_within_an_origin_and_never_across_origins() {
        assert!(epoch(1, 1) < epoch(1, 2) && epoch(1, 3) > epoch(1, 2));
        assert_eq!(epoch(1, 1).partial_cmp(&epoch(2, 2)), None);
    }

    #[test]
    fn an_epoch_survives_its_text_and_nothing_else_is_one() {
        let epoch = epoch(0x0a, 7);
        let text = serde_json::to_string(&epoch).unwrap();
        assert_eq!(text, r#"{"origin":"0a0b0c0d0e0f10111213141516171819","count":7}"#);
        assert_eq!(serde_json::from_str::<Epoch>(&text).unwrap(), epoch);
        assert_eq!(epoch.to_string(), "0a0b0c0d/7");
        for wrong in ["", "0a0b", "+a0b0c0d0e0f10111213141516171819", "0A0B0C0D0E0F10111213141516171819"] {
            assert!(serde_json::from_str::<Epoch>(&format!(r#"{{"origin":"{wrong}","count":7}}"#)).is_err(), "{wrong}");
        }
    }
}
