//! The encoding of a message: the length of its JSON, the JSON, and bytes that are better not put into JSON.
//!
//! ```text
//! u32 little-endian   length of the JSON in bytes
//! JSON                the message
//! the rest            attachment (a part of a component), mostly empty
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message as it came, with what was attached to it.
#[derive(Debug)]
pub struct Envelope<T> {
    /// The message.
    pub message: T,
    /// What was attached.
    pub attachment: Vec<u8>,
}

/// A message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// It ends before its JSON does.
    #[error("cannot read a message: it says that {announced} bytes of JSON follow, and {present} do")]
    Short {
        /// Bytes announced.
        announced: usize,
        /// Bytes present.
        present: usize,
    },
    /// Its JSON is not a message of this version.
    #[error("cannot read a message: {0}; are all processes of the cluster of the same version of weir?")]
    Json(#[from] serde_json::Error),
}

/// Encodes a message.
pub fn encode<T: Serialize>(message: &T, attachment: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    if let Err(error) = serde_json::to_writer(&mut bytes, message) {
        unreachable!("messages have only string keys and no own serializer that fails: {error}");
    }
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(attachment);
    bytes
}

/// Decodes a message. What it allocates is bounded by a constant times the length of `bytes`.
///
/// # Errors
/// What is wrong with it.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<Envelope<T>, CodecError> {
    let short = |announced| CodecError::Short { announced, present: bytes.len().saturating_sub(4) };
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| short(0))?;
    let length = u32::from_le_bytes(*length) as usize;
    let (json, attachment) = rest.split_at_checked(length).ok_or_else(|| short(length))?;
    Ok(Envelope { message: serde_json::from_slice(json)?, attachment: attachment.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Execution};
    use weir_model::Attempt;

    #[test]
    fn a_message_survives_with_its_attachment_and_a_cut_one_is_refused() {
        let message = Command::Start { execution: Execution { job: "j".into(), attempt: Attempt(3) } };
        let bytes = encode(&message, b"abc");
        let Envelope { message: decoded, attachment } = decode::<Command>(&bytes).unwrap();
        assert!(matches!(decoded, Command::Start { execution } if execution.attempt == Attempt(3)));
        assert_eq!(attachment, b"abc");
        for length in 0..bytes.len() - 3 {
            assert!(decode::<Command>(&bytes[..length]).is_err(), "{length}");
        }
        assert!(decode::<Command>(&encode(&"something else", b"")).is_err());
    }
}
