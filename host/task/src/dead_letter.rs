//! Rows for the dead-letter output: the rejected row with what is known of why.

use std::borrow::Cow;

use serde_json::{Map, Value};
use weir_model::{Batch, BatchRef, OperatorUid};
use weir_sandbox::Rejection;

use crate::TaskError;

/// One dead letter a rejection. Time and key are the row's; the value is a JSON object: `operator`, `component`, `input`,
/// `reason`, and `value` (text) or `value_hex` (where the bytes are no text).
pub(crate) fn rows(uid: &OperatorUid, component: &str, input: u32, rows: BatchRef<'_>, rejections: &[Rejection]) -> Batch {
    let mut letters = Batch::default();
    for rejection in rejections {
        let row = rejection.row as usize;
        let mut letter = Map::new();
        letter.insert("operator".into(), Value::from(&**uid));
        letter.insert("component".into(), Value::from(component));
        letter.insert("input".into(), Value::from(input));
        letter.insert("reason".into(), Value::from(rejection.reason.as_str()));
        let value = rows.values.get(row);
        match std::str::from_utf8(value) {
            Ok(text) => letter.insert("value".into(), Value::from(text)),
            Err(_) => letter.insert("value_hex".into(), Value::from(hex(value))),
        };
        letters.push(rows.timestamps[row], rows.keys.get(row), Value::Object(letter).to_string().as_bytes());
    }
    letters
}

/// The failure of a job that does not put rejected rows aside.
pub(crate) fn failure(uid: &OperatorUid, rows: BatchRef<'_>, rejection: &Rejection) -> TaskError {
    let row = rejection.row as usize;
    let text = |bytes: &[u8]| -> String {
        let shown: Cow<'_, str> = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]);
        shown.into_owned()
    };
    TaskError::Rejected {
        uid: uid.clone(),
        reason: rejection.reason.clone(),
        key: text(rows.keys.get(row)),
        value: text(rows.values.get(row)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_keeps_the_row_and_says_why() {
        let mut batch = Batch::default();
        batch.push(1, b"a", b"fine");
        batch.push(2, b"k", b"not \"json\"");
        batch.push(3, b"", &[0xff, 0x01]);
        let rejections = [Rejection { row: 1, reason: "bad".into() }, Rejection { row: 2, reason: "worse".into() }];
        let letters = rows(&"parse".into(), "parse@1.0.0", 0, batch.view(), &rejections);
        let found: Vec<_> = letters.rows().collect();
        assert_eq!((found[0].0, found[0].1), (2, b"k".as_slice()));
        let first: Value = serde_json::from_slice(found[0].2).unwrap();
        assert_eq!(first["value"], "not \"json\"");
        assert_eq!(first["reason"], "bad");
        let second: Value = serde_json::from_slice(found[1].2).unwrap();
        assert_eq!(second["value_hex"], "ff01");
    }
}
