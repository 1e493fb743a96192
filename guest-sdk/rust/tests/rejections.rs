//! What is rejected, and of which call: nothing an operator emits or rejects may reach the host in a form it refuses.
#![allow(clippy::unwrap_used, reason = "tests")]

use weir_sdk::prelude::*;
use weir_sdk::testing::Harness;
use weir_sdk::{CALL_BYTES_MAX, HEADERS_BYTES_MAX, KEY_BYTES_MAX, NewRow, VALUE_BYTES_MAX};

/// Does what the value of a row says.
#[derive(Default)]
struct Wild {
    reject_later: bool,
}

impl Operator for Wild {
    type Config = NoConfig;

    fn open(_: NoConfig, _: &Context) -> Result<Wild, Error> {
        Ok(Wild::default())
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let (what, number) = std::str::from_utf8(row.value())?.split_once(' ').unwrap_or_default();
        let number: usize = number.parse()?;
        match what {
            "key" => out.emit(row.timestamp(), &vec![b'k'; number], b"v"),
            "value" => out.to(1).emit(row.timestamp(), row.key(), &vec![b'v'; number]),
            "headers" => {
                let header = vec![b'h'; number - 8];
                let row = NewRow { timestamp: row.timestamp(), key: Some(b"k"), value: Some(b"v"), headers: &[("", &header)] };
                out.to(0).emit_row(row);
            }
            "json" => out.emit_json(row.timestamp(), row.key(), &"v".repeat(number))?,
            "reject" => out.reject(number as u32, "said so"),
            "long" => return Err(row.reject("ü".repeat(number))),
            "fail" => {
                out.reject(number as u32, "half done");
                return Err(Error::fail("said so"));
            }
            _ => self.reject_later = true,
        }
        Ok(())
    }

    fn advance(&mut self, _: Timestamp, out: &mut Outputs) -> Result<(), Error> {
        if self.reject_later {
            out.reject(0, "in advance");
        }
        Ok(())
    }
}

fn reasons(wild: &mut Harness<Wild>) -> Vec<String> {
    wild.take_rejections().into_iter().map(|rejected| rejected.reason).collect()
}

#[test]
fn what_the_host_would_refuse_rejects_the_row_that_made_it() {
    let mut wild = Harness::<Wild>::new("{}");
    wild.row(1, "k", format!("key {KEY_BYTES_MAX}")).row(1, "k", format!("value {VALUE_BYTES_MAX}"));
    wild.row(1, "k", format!("json {}", VALUE_BYTES_MAX - 2));
    assert_eq!(reasons(&mut wild), Vec::<String>::new());
    assert_eq!((wild.take(0).len(), wild.take(1).len()), (2, 1));
    let rows = [format!("key {}", KEY_BYTES_MAX + 1), format!("value {}", VALUE_BYTES_MAX + 1), "key 3".to_owned()];
    wild.input(0, &rows.each_ref().map(|value| (1, &b"k"[..], value.as_bytes())));
    wild.row(2, "k", format!("json {}", VALUE_BYTES_MAX - 1)).row(2, "k", format!("json {}", 3 * VALUE_BYTES_MAX));
    assert_eq!(
        reasons(&mut wild),
        [
            "the key of what is sent on has 65537 bytes; at most 65536 are possible",
            "the value of what is sent on has 16777217 bytes; at most 16777216 are possible",
            "the value of what is sent on has 16777217 bytes; at most 16777216 are possible",
            "the value of what is sent on has 50331650 bytes; at most 16777216 are possible",
        ]
    );
    assert_eq!(wild.take_text(0), ["1 kkk v"], "the rows around them are as they would be without them");
}

#[test]
fn a_call_sends_no_more_than_the_host_takes() {
    let mut wild = Harness::<Wild>::new("{}");
    let part = format!("value {}", CALL_BYTES_MAX / 8);
    wild.input(0, &[(1, &b"k"[..], part.as_bytes()); 9]);
    assert_eq!(wild.take(1).len(), 7, "each needs a few bytes more than an eighth");
    assert_eq!(reasons(&mut wild), ["more than 67108864 bytes were sent on within one call"; 2]);
    wild.row(1, "k", &part);
    assert_eq!((wild.take(1).len(), reasons(&mut wild).len()), (1, 0), "the next call begins anew");
}

#[test]
fn s93_rejections_only_ever_hit_their_own_calls_rows() {
    // Left over by a call that failed.
    let mut wild = Harness::<Wild>::new("{}");
    assert!(wild.try_input(0, &[(1, b"k", b"fail 0")]).unwrap_err().contains("said so"));
    wild.row(2, "k", "key 1");
    assert_eq!(reasons(&mut wild), Vec::<String>::new());
    // Made where there are no rows.
    let error = wild.row(3, "k", "later 0").try_advance(5).unwrap_err();
    assert!(error.starts_with("a row was rejected in advance, which has no rows (in advance)"), "{error}");
    wild.row(6, "k", "key 1");
    assert_eq!(reasons(&mut wild), Vec::<String>::new());
    // Of a row that the call does not have.
    let error = wild.try_input(0, &[(7, b"k", b"reject 1")]).unwrap_err();
    assert_eq!(error, "row 1 was rejected in a call with 1 rows: said so");
    wild.row(8, "k", "reject 0");
    assert_eq!(reasons(&mut wild), ["said so"]);
}

#[test]
fn a_reason_is_cut_to_what_is_kept_of_it() {
    let mut wild = Harness::<Wild>::new("{}");
    wild.row(1, "k", "long 1000000");
    assert_eq!(reasons(&mut wild), ["ü".repeat(512)]);
}

#[test]
fn headers_that_the_host_would_refuse_reject_the_row_that_made_them() {
    let mut wild = Harness::<Wild>::new("{}");
    wild.row(1, "k", format!("headers {HEADERS_BYTES_MAX}")).row(1, "k", format!("headers {}", HEADERS_BYTES_MAX + 1));
    let reason =
        format!("the headers of what is sent on have {} bytes; at most {HEADERS_BYTES_MAX} are possible", HEADERS_BYTES_MAX + 1);
    assert_eq!(reasons(&mut wild), [reason]);
    assert_eq!(wild.take(0).len(), 1);
}

/// Makes a hundred small values of each row.
struct Split;

impl Operator for Split {
    type Config = NoConfig;

    fn open(_: NoConfig, _: &Context) -> Result<Split, Error> {
        Ok(Split)
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        (0..100).for_each(|_| out.emit_value(row, b"part"));
        Ok(())
    }
}

#[test]
fn new_values_count_as_what_they_are_and_not_as_what_they_replace() {
    let mut split = Harness::<Split>::new("{}");
    split.row(1, "k", vec![b'v'; 1 << 20]);
    assert_eq!((split.take(0).len(), split.take_rejections().len()), (100, 0));
}
