//! Rows for the dead-letter output: the rejected row with what is known of why.

use serde_json::{Map, Value};
use weir_connectors::bytes_as_json;
use weir_model::{Batch, BatchRef, OperatorUid, RowRef, limits};
use weir_sandbox::Rejection;

use crate::TaskError;

/// One dead letter a rejection. Time, key and headers are the row's; the value is a JSON object: `operator`, `component`, `input`,
/// `reason`, and `value`, written as sinks write bytes ([`bytes_as_json`]), `null` where it is absent. A row is no longer than a letter may be, but
/// escapes can make it so: then the letter has the beginning, and `value_bytes` says how long the value was.
pub(crate) fn rows(uid: &OperatorUid, component: &str, input: u32, rows: BatchRef<'_>, rejections: &[Rejection]) -> Batch {
    let mut letters = Batch::default();
    for rejection in rejections {
        let row = rows.row(rejection.row as usize);
        let mut letter = Map::new();
        letter.insert("operator".into(), Value::from(&**uid));
        letter.insert("component".into(), Value::from(component));
        letter.insert("input".into(), Value::from(input));
        letter.insert("reason".into(), Value::from(rejection.reason.as_str()));
        letter.insert("value".into(), row.value.map_or(Value::Null, bytes_as_json));
        let mut text = Value::Object(letter).to_string();
        if text.len() > limits::VALUE_BYTES_MAX {
            text = cut(&text, row.value_bytes());
        }
        letters.push_row(RowRef { value: Some(text.as_bytes()), ..row });
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
    let row = rows.row(rejection.row as usize);
    let text = |bytes: Option<&[u8]>| match bytes {
        None => "absent".to_owned(),
        Some(bytes) => format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(120)])),
    };
    TaskError::Rejected { uid: uid.clone(), reason: rejection.reason.clone(), key: text(row.key), value: text(row.value) }
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
        assert_eq!((found[0].timestamp, found[0].key), (2, Some(b"k".as_slice())));
        let first: Value = serde_json::from_slice(found[0].value_bytes()).unwrap();
        assert_eq!(first["value"], "not \"json\"");
        assert_eq!(first["reason"], "bad");
        let second: Value = serde_json::from_slice(found[1].value_bytes()).unwrap();
        assert_eq!(second["value"], serde_json::json!({"base64": "/wE="}));
    }

    #[test]
    fn s114_a_dead_letter_tells_what_is_absent_from_what_is_empty_and_has_the_headers_of_its_row() {
        let mut headers = Vec::new();
        weir_model::push_header(&mut headers, b"trace", b"7");
        let mut batch = Batch::default();
        batch.push_row(RowRef { timestamp: 1, key: None, value: None, headers: &headers });
        batch.push(2, b"", b"");
        let rejections = [0, 1].map(|row| Rejection { row, reason: "bad".into() });
        let letters = rows(&"parse".into(), "parse@1.0.0", 0, batch.view(), &rejections);
        let found: Vec<_> = letters.rows().map(|row| (row.timestamp, row.key, row.headers)).collect();
        assert_eq!(found, [(1, None, headers.as_slice()), (2, Some(&b""[..]), b"")]);
        let values: Vec<Value> =
            letters.values.iter().map(|letter| serde_json::from_slice::<Value>(letter).unwrap()["value"].take()).collect();
        assert_eq!(values, [Value::Null, Value::from("")]);
        let said = rejections.iter().map(|one| failure(&"parse".into(), batch.view(), one).to_string()).collect::<Vec<_>>();
        assert!(said[0].contains("key is absent") && said[1].contains("key is \"\""), "{said:?}");
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
        for (index, letter) in letters.values.iter().enumerate() {
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
        let short: Value = serde_json::from_slice(short.values.get(0)).unwrap();
        assert_eq!((short["value"].as_str().map(str::len), short.get("value_bytes")), (Some(max - 1_000), None));
    }
}
