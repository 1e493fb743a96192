//! Rows for the dead-letter output: the rejected row with what is known of why.

use std::borrow::Cow;

use serde_json::{Map, Value};
use weir_connectors::bytes_as_json;
use weir_model::{Batch, BatchRef, OperatorUid, limits};
use weir_sandbox::Rejection;

use crate::TaskError;

/// One dead letter a rejection. Time and key are the row's; the value is a JSON object: `operator`, `component`, `input`,
/// `reason`, and `value`, written as sinks write bytes ([`bytes_as_json`]). A row is no longer than a letter may be, but
/// escapes can make it so: then the letter has the beginning, and `value_bytes` says how long the value was.
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
        letter.insert("value".into(), bytes_as_json(value));
        let mut text = Value::Object(letter).to_string();
        if text.len() > limits::VALUE_BYTES_MAX {
            text = cut(&text, value);
        }
        letters.push(rows.timestamps[row], rows.keys.get(row), text.as_bytes());
    }
    letters
}

/// Bytes of a value whose letter would be too long. However they are escaped, at most six for one, a letter has room for them.
const CUT_BYTES: usize = limits::VALUE_BYTES_MAX / 8;

/// The letter `text` again, with the beginning of its value. A channel would refuse the whole, which would end the job.
#[cold]
fn cut(text: &str, value: &[u8]) -> String {
    // It was written from a map just now.
    let mut letter: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    letter.insert("value_bytes".into(), Value::from(value.len()));
    let end = match std::str::from_utf8(value) {
        Ok(text) => text.floor_char_boundary(CUT_BYTES),
        Err(_) => CUT_BYTES.min(value.len()),
    };
    letter.insert("value".into(), bytes_as_json(&value[..end]));
    Value::Object(letter).to_string()
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
        assert_eq!(second["value"], serde_json::json!({"base64": "/wE="}));
    }

    /// A channel carries no value that is longer, so such a letter would end the job for a row that a stranger wrote.
    #[test]
    fn a_letter_is_never_longer_than_a_value_may_be() {
        let mut batch = Batch::default();
        let max = limits::VALUE_BYTES_MAX;
        batch.push(1, b"a", "\u{1}".repeat(max).as_bytes());
        batch.push(2, b"b", &vec![0xff; max]);
        batch.push(3, b"c", "ü".repeat(max / 2).as_bytes());
        batch.push(4, b"d", &vec![b'x'; max - 1_000]);
        let rejections = [0, 1, 2, 3].map(|row| Rejection { row, reason: "ü\"\n\u{1}".repeat(204) });
        let letters = rows(&"parse".into(), "parse@1.0.0", 0, batch.view(), &rejections);
        for (index, (_, _, letter)) in letters.rows().enumerate() {
            assert!(letter.len() <= max, "{}", letter.len());
            let letter: Value = serde_json::from_slice(letter).unwrap();
            assert_eq!(letter["reason"], rejections[index].reason);
            let value = letter["value"].as_str().map(str::to_owned).unwrap_or_default();
            match index {
                0 => assert_eq!((value.len(), &letter["value_bytes"]), (CUT_BYTES, &max.into())),
                1 => assert_eq!(letter["value"]["base64"].as_str().map(str::len), Some(CUT_BYTES.div_ceil(3) * 4)),
                2 => assert_eq!((value.len(), &letter["value_bytes"]), (CUT_BYTES, &max.into())),
                _ => assert_eq!((value.len(), &letter["value_bytes"]), (CUT_BYTES, &(max - 1_000).into())),
            }
        }
        let short = rows(&"parse".into(), "parse@1.0.0", 0, batch.view(), &[Rejection { row: 3, reason: "x".into() }]);
        let short: Value = serde_json::from_slice(short.rows().next().unwrap().2).unwrap();
        assert_eq!((short["value"].as_str().map(str::len), short.get("value_bytes")), (Some(max - 1_000), None));
    }
}
