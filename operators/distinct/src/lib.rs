//! Counts the distinct values of a field for each key and window of event time. See README.md for its configuration.
//!
//! A count that is sent is exact. Where memory is full, rows with new values are rejected, so that nobody takes the count for
//! complete without a word.

use std::collections::BTreeMap;

use weir_sdk::json::{Path, append_integer};
use weir_sdk::prelude::*;
use weir_sdk::{Port, Span, memory};

/// The output of rows that came too late.
const LATE: u32 = 1;

/// About what a window costs beside its keys.
const WINDOW_BYTES: usize = 256;

/// What is counted, and over which windows.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Config {
    /// Path of the field in the value
    field: Path,
    /// Length of a window
    size: Span,
    /// How long after its end a window still takes rows
    #[serde(default)]
    allowed_lateness: Span,
}

/// The operator.
#[derive(Debug)]
pub struct Distinct {
    config: Config,
    state: State,
}

#[derive(Debug, Serialize, Deserialize)]
struct State {
    /// Length of the windows, in milliseconds.
    size: i64,
    /// The values seen for each key, by start of the window.
    windows: BTreeMap<Timestamp, KeyMap<KeyMap<()>>>,
    /// Windows that end here or earlier have been sent.
    sent_until: Timestamp,
    /// Windows that end here or earlier were closed by an end of the input, after which more came, and take no more rows.
    closed_until: Timestamp,
}

impl Operator for Distinct {
    type Config = Config;

    fn describe() -> Description {
        Description::new("Counts the distinct values of a field for each key and window of event time")
            .keyed_output("main", "The number of distinct values of a key in a window")
            .keyed_output("late", "Rows whose window takes none any more, as they came")
    }

    fn open(config: Config, _: &Context) -> Result<Distinct, Error> {
        let size = config.size.ms();
        if size == 0 {
            return Err(Error::fail("config.size: must be longer than 0"));
        }
        if config.field.steps().is_empty() {
            return Err(Error::fail("config.field: an empty path; write for example \"user.id\""));
        }
        Ok(Distinct {
            config,
            state: State { size, windows: BTreeMap::new(), sent_until: Timestamp::MIN, closed_until: Timestamp::MIN },
        })
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let size = self.size()?;
        let path = &self.config.field;
        let raw = path.find(row.present_value()?).or_reject("reading the value")?.filter(|raw| !raw.is_null());
        let raw = raw.ok_or_else(|| row.reject(format_args!("field `{path}` is missing")))?;
        let value = raw.text().map_err(|reason| row.reject(format_args!("field `{path}` {reason}")))?;
        let start = row.timestamp().checked_sub(row.timestamp().rem_euclid(size));
        let (start, end) = start
            .and_then(|start| Some((start, start.checked_add(size)?)))
            .ok_or_else(|| row.reject(format_args!("time {} is out of range", row.timestamp())))?;
        let expired = end.saturating_add(self.config.allowed_lateness.ms()) <= out.watermark();
        if expired || end <= self.state.closed_until {
            out.to(LATE).forward(row);
            return Ok(());
        }
        if !self.state.windows.contains_key(&start) {
            memory::reserve(WINDOW_BYTES)?;
        }
        let values = self.state.windows.entry(start).or_default().try_or_default(row.key())?;
        let before = values.len();
        values.try_or_default(&value)?;
        if values.len() > before && end <= self.state.sent_until {
            send(start, end, row.key(), values.len(), out.to(0));
        }
        Ok(())
    }

    fn advance(&mut self, watermark: Timestamp, out: &mut Outputs) -> Result<(), Error> {
        let size = self.size()?;
        let lateness = self.config.allowed_lateness.ms();
        if self.state.sent_until == Timestamp::MAX && watermark < Timestamp::MAX {
            let start = watermark.checked_sub(watermark.rem_euclid(size));
            self.state.closed_until = start.and_then(|start| start.checked_add(size)).unwrap_or(watermark);
        }
        for (&start, keys) in &self.state.windows {
            let end = start + size;
            if end > watermark {
                break;
            }
            if end > self.state.sent_until {
                keys.for_each(|key, values| {
                    // A key may be there without a value where there was no room for its first.
                    if !values.is_empty() {
                        send(start, end, key, values.len(), out.to(0));
                    }
                });
            }
        }
        self.state.sent_until = watermark.max(self.state.closed_until);
        while let Some(window) = self.state.windows.first_entry()
            && (*window.key() + size).saturating_add(lateness) <= watermark
        {
            window.remove();
        }
        Ok(())
    }
}

impl Distinct {
    /// Length of the windows. State that was saved for another length must not be read with this one.
    fn size(&self) -> Result<i64, Error> {
        let size = self.config.size.ms();
        if size != self.state.size {
            return Err(Error::fail(format_args!(
                "config.size: the loaded state has windows of {} ms, not {size} ms; keep the size, or start without the state",
                self.state.size
            )));
        }
        Ok(size)
    }
}

fn send(start: Timestamp, end: Timestamp, key: &[u8], distinct: usize, mut out: Port<'_>) {
    out.write(end - 1, key, |bytes| {
        bytes.extend_from_slice(b"{\"start\":");
        append_integer(bytes, start);
        bytes.extend_from_slice(b",\"end\":");
        append_integer(bytes, end);
        bytes.extend_from_slice(b",\"distinct\":");
        append_integer(bytes, distinct as i64);
        bytes.push(b'}');
    });
}

weir_sdk::export!(Distinct, portable = state);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use weir_sdk::testing::Harness;

    const CONFIG: &str = r#"{"field":"user","size":"10ms","allowed_lateness":"5ms"}"#;

    fn user(name: &str) -> String {
        format!("{{\"user\":\"{name}\"}}")
    }

    #[test]
    fn each_value_counts_once_a_window_and_key() {
        let mut distinct = Harness::<Distinct>::new(CONFIG);
        for (time, key, name) in [(0, "a", "ann"), (9, "a", "ann"), (3, "a", "bob"), (3, "b", "ann"), (10, "a", "ann")] {
            distinct.row(time, key, user(name));
        }
        distinct.row(4, "a", r#"{"user":7}"#).advance(10);
        let mut rows = distinct.take_text(0);
        rows.sort();
        assert_eq!(rows, [r#"9 a {"start":0,"end":10,"distinct":3}"#, r#"9 b {"start":0,"end":10,"distinct":1}"#]);
        distinct.finish();
        assert_eq!(distinct.take_text(0), [r#"19 a {"start":10,"end":20,"distinct":1}"#]);
    }

    #[test]
    fn late_values_update_the_count_and_too_late_rows_go_to_their_own_output() {
        let mut distinct = Harness::<Distinct>::new(CONFIG);
        distinct.row(1, "a", user("ann")).advance(12);
        distinct.take(0);
        distinct.row(2, "a", user("ann"));
        assert!(distinct.take(0).is_empty(), "nothing new");
        distinct.row(2, "a", user("bob"));
        assert_eq!(distinct.take_text(0), [r#"9 a {"start":0,"end":10,"distinct":2}"#]);
        distinct.advance(15).row(2, "a", user("eve"));
        assert_eq!(distinct.take_text(LATE), [r#"2 a {"user":"eve"}"#]);
    }

    #[test]
    fn counts_equal_a_set_across_an_upgrade() {
        let mut distinct = Harness::<Distinct>::new(CONFIG);
        let mut reference = std::collections::BTreeSet::new();
        for i in 0..5_000u64 {
            let name = format!("user {}", i.wrapping_mul(0x9E37_79B9) % 700);
            reference.insert(name.clone());
            distinct.row(5, "k", user(&name));
            if i == 2_500 {
                distinct = distinct.upgrade(CONFIG).unwrap();
            }
        }
        distinct.finish();
        assert_eq!(distinct.take_text(0), [format!("9 k {{\"start\":0,\"end\":10,\"distinct\":{}}}", reference.len())]);
    }

    #[test]
    fn what_an_end_of_the_input_has_closed_stays_closed_when_more_comes() {
        let mut distinct = Harness::<Distinct>::new(CONFIG);
        distinct.row(3, "k", user("ann")).row(12, "k", user("ann")).finish();
        assert_eq!(distinct.take(0).len(), 2);
        distinct.advance(12);
        distinct.row(15, "k", user("bob")).row(20, "k", user("bob")).row(21, "k", user("ann")).finish();
        assert_eq!(distinct.take_text(0), [r#"29 k {"start":20,"end":30,"distinct":2}"#]);
        assert_eq!(distinct.take(LATE).len(), 1, "that of 15");
    }

    #[test]
    fn rows_without_the_field_are_rejected() {
        let mut distinct = Harness::<Distinct>::new(CONFIG);
        distinct.row(1, "a", "{}").row(1, "a", r#"{"user":null}"#).row(1, "a", r#"{"user":[]}"#).row(i64::MAX, "a", user("x"));
        let reasons: Vec<String> = distinct.take_rejections().into_iter().map(|rejected| rejected.reason).collect();
        let missing = "field `user` is missing";
        assert_eq!(reasons[..3], [missing, missing, "field `user` is an object or array"]);
        assert!(reasons[3].ends_with("is out of range"));
        distinct.finish();
        assert!(distinct.take(0).is_empty());
    }

    /// Full memory rejects what is new and counts the rest: the job goes on, and nothing is lost without a word.
    #[test]
    fn new_values_are_rejected_where_memory_is_full() {
        let mut distinct = Harness::<Distinct>::new(CONFIG);
        for i in 0..1_000 {
            distinct.row(5, "k", user(&format!("a user with a long name {i}")));
        }
        distinct.set_room(Some(0));
        for i in 990..2_000 {
            distinct.row(5, "k", user(&format!("a user with a long name {i}")));
            distinct.row(100 * i, "k", user("x"));
        }
        let rejected = distinct.take_rejections();
        assert!(rejected.iter().all(|rejected| rejected.reason.contains("raise limits.memory")), "{}", rejected[0].reason);
        assert_eq!(rejected.len(), 1_000 + 1_010, "those with values that were there are counted");
        assert_eq!(distinct.operator().state.windows.len(), 1, "nothing is kept for them");
        distinct.advance(10);
        assert_eq!(distinct.take_text(0), [r#"9 k {"start":0,"end":10,"distinct":1000}"#]);
        distinct.set_room(None);
        distinct.row(11, "k", user("x")).advance(20);
        assert_eq!(distinct.take_text(0), [r#"19 k {"start":10,"end":20,"distinct":1}"#]);
    }

    #[test]
    fn a16_a_value_that_is_no_text_says_why() {
        let mut distinct = Harness::<Distinct>::new(CONFIG);
        distinct.row(1, "a", r#"{"user":"\ud800"}"#).row(1, "a", b"{\"user\":\"caf\xE9\"}").row(1, "a", r#"{"user":""}"#);
        let reasons: Vec<String> = distinct.take_rejections().into_iter().map(|rejected| rejected.reason).collect();
        assert_eq!(
            reasons,
            [
                "field `user` has half of a surrogate pair (as in \"\\ud800\"), which is no character",
                "field `user` has bytes that are not UTF-8"
            ]
        );
        distinct.finish();
        assert_eq!(distinct.take_text(0), [r#"9 a {"start":0,"end":10,"distinct":1}"#], "an empty text is a value");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let error = |config: &str| Harness::<Distinct>::try_new(config).unwrap_err();
        assert_eq!(error(r#"{"field":"a"}"#), "config: key `size` is missing");
        assert_eq!(error(r#"{"field":"a","size":"0s"}"#), "config.size: must be longer than 0");
        let other = r#"{"field":"user","size":"20ms"}"#;
        let mut loaded = Harness::<Distinct>::new(CONFIG).upgrade::<Distinct>(other).unwrap();
        assert!(loaded.try_input(0, &[(1, b"", b"{}")]).unwrap_err().contains("config.size: the loaded state"));
    }
}
