//! Rows that did not go the normal way: how many, of which kind, and the first of each kind with the reason.
//!
//! Owns the kinds, their names and words, and the bounds of what is kept. Never decides what becomes of a row.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{ODDITY_REASON_BYTES_MAX, ODDITY_VALUE_BYTES_MAX};

/// In which way a row was odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OddKind {
    /// It could not be processed, and went to the dead letters.
    Rejected,
    /// Event time had passed it when it came: no window takes it any more.
    Late,
    /// A line longer than is allowed; it was skipped.
    LongLine,
    /// Its event time could not be read.
    NoTime,
    /// Its event time is too far ahead, so event time did not follow it.
    AheadOfTime,
    /// It was emitted to an output that the job file does not name, and discarded.
    UnnamedOutput,
    /// No row, but a part of the input (a file, the rest of one) that was passed over.
    SkippedInput,
}

impl OddKind {
    /// All of them, in the order of their declaration.
    pub const ALL: [OddKind; 7] = [
        OddKind::Rejected,
        OddKind::Late,
        OddKind::LongLine,
        OddKind::NoTime,
        OddKind::AheadOfTime,
        OddKind::UnnamedOutput,
        OddKind::SkippedInput,
    ];

    /// Its name in JSON and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            OddKind::Rejected => "rejected",
            OddKind::Late => "late",
            OddKind::LongLine => "long_line",
            OddKind::NoTime => "no_time",
            OddKind::AheadOfTime => "ahead_of_time",
            OddKind::UnnamedOutput => "unnamed_output",
            OddKind::SkippedInput => "skipped_input",
        }
    }

    /// What stands after the number: "12 rejected", "3 late".
    pub fn words(self) -> &'static str {
        match self {
            OddKind::Rejected => "rejected",
            OddKind::Late => "late",
            OddKind::LongLine => "too long, skipped",
            OddKind::NoTime => "without a time",
            OddKind::AheadOfTime => "too far ahead in time",
            OddKind::UnnamedOutput => "for an unnamed output, discarded",
            OddKind::SkippedInput => "parts of the input passed over",
        }
    }
}

impl std::fmt::Display for OddKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// One odd row, for people. Both texts are short and have no control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OddExample {
    /// The row's value, or its beginning.
    pub value: String,
    /// Why it is odd, with a hint.
    pub reason: String,
}

impl OddExample {
    /// A row's value and a reason, each cut to what is kept.
    pub fn new(value: &[u8], reason: &str) -> OddExample {
        OddExample { value: excerpt(value, ODDITY_VALUE_BYTES_MAX), reason: excerpt(reason.as_bytes(), ODDITY_REASON_BYTES_MAX) }
    }
}

/// The odd rows of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Odd {
    /// How many.
    pub rows: u64,
    /// The first of them; none where it was left out for its size.
    #[serde(default)]
    pub first: Option<OddExample>,
}

/// Odd rows by kind; kinds without any are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Oddities(BTreeMap<OddKind, Odd>);

impl Oddities {
    /// None of any kind.
    pub const fn new() -> Oddities {
        Oddities(BTreeMap::new())
    }

    /// Counts one row. `example` is called for the first of its kind only, so that the others cost no allocation.
    pub fn add(&mut self, kind: OddKind, example: impl FnOnce() -> OddExample) {
        self.add_rows(kind, 1, example);
    }

    /// Counts several rows of a kind at once; none is no news.
    pub fn add_rows(&mut self, kind: OddKind, rows: u64, example: impl FnOnce() -> OddExample) {
        if rows == 0 {
            return;
        }
        let odd = self.0.entry(kind).or_default();
        odd.rows = odd.rows.saturating_add(rows);
        if odd.first.is_none() {
            odd.first = Some(example());
        }
    }

    /// Adds the odd rows of another part of the same vertex or job. Examples that are there stay.
    pub fn merge(&mut self, other: &Oddities) {
        for (kind, theirs) in &other.0 {
            let odd = self.0.entry(*kind).or_default();
            odd.rows = odd.rows.saturating_add(theirs.rows);
            if odd.first.is_none() {
                odd.first.clone_from(&theirs.first);
            }
        }
    }

    /// Cuts examples that another process made to what is kept.
    pub fn cut(&mut self) {
        for example in self.0.values_mut().filter_map(|odd| odd.first.as_mut()) {
            *example = OddExample::new(example.value.as_bytes(), &example.reason);
        }
    }

    /// Puts other texts in the place of those of the examples.
    pub fn edit_examples(&mut self, edit: impl Fn(&str) -> String) {
        for example in self.0.values_mut().filter_map(|odd| odd.first.as_mut()) {
            *example = OddExample { value: edit(&example.value), reason: edit(&example.reason) };
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rows of a kind.
    pub fn rows(&self, kind: OddKind) -> u64 {
        self.0.get(&kind).map_or(0, |odd| odd.rows)
    }

    /// Rows of all kinds; grows with every call of [`Oddities::add`].
    pub fn total(&self) -> u64 {
        self.0.values().fold(0, |total, odd| total.saturating_add(odd.rows))
    }

    /// The odd rows of a kind, if there are any.
    pub fn get(&self, kind: OddKind) -> Option<&Odd> {
        self.0.get(&kind)
    }

    /// All kinds that there are, in the order of [`OddKind`].
    pub fn iter(&self) -> impl Iterator<Item = (OddKind, &Odd)> {
        self.0.iter().map(|(kind, odd)| (*kind, odd))
    }

    /// Memory that the examples take.
    pub fn examples_bytes(&self) -> usize {
        self.0.values().filter_map(|odd| odd.first.as_ref()).map(|first| first.value.len() + first.reason.len()).sum()
    }

    /// Leaves the examples out; the numbers stay.
    pub fn drop_examples(&mut self) {
        self.0.values_mut().for_each(|odd| odd.first = None);
    }
}

impl FromIterator<(OddKind, Odd)> for Oddities {
    fn from_iter<T: IntoIterator<Item = (OddKind, Odd)>>(odd: T) -> Oddities {
        Oddities(odd.into_iter().filter(|(_, odd)| odd.rows > 0).collect())
    }
}

/// The beginning of a text of unknown origin, in at most `bytes_max` bytes of one line: what is no UTF-8 is replaced, control
/// characters (also those that turn the direction of writing) are escaped, `…` stands for the rest.
pub fn excerpt(bytes: &[u8], bytes_max: usize) -> String {
    const REST: &str = "…";
    // Whatever is beyond cannot be shown, so it need not be looked at.
    let seen = String::from_utf8_lossy(&bytes[..bytes.len().min(bytes_max + 4)]);
    let mut text = String::new();
    let mut fits = 0;
    for character in seen.chars() {
        match character {
            '\n' | '\r' | '\t' => text.extend(character.escape_default()),
            _ if character.is_control() || turns_direction(character) => text.extend(character.escape_unicode()),
            _ => text.push(character),
        }
        if text.len() + REST.len() <= bytes_max {
            fits = text.len();
        }
        if text.len() > bytes_max {
            break;
        }
    }
    if text.len() > bytes_max || bytes.len() > bytes_max + 4 {
        text.truncate(fits);
        text.push_str(REST);
    }
    text
}

/// Marks that reorder what follows them on a terminal.
fn turns_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_example_of_each_kind_is_kept_and_others_are_not_even_made() {
        let mut odd = Oddities::new();
        odd.add(OddKind::Rejected, || OddExample::new(b"first", "bad"));
        odd.add_rows(OddKind::Rejected, 4, || unreachable!("there is one"));
        odd.add_rows(OddKind::Late, 0, || unreachable!("no row, no example"));
        odd.add(OddKind::NoTime, || OddExample::new(b"x", "no field `tiem`"));
        assert_eq!((odd.rows(OddKind::Rejected), odd.rows(OddKind::Late), odd.total()), (5, 0, 6));
        assert_eq!(odd.get(OddKind::Rejected).unwrap().first.as_ref().unwrap().value, "first");
        assert_eq!(odd.iter().map(|(kind, _)| kind).collect::<Vec<_>>(), [OddKind::Rejected, OddKind::NoTime]);
    }

    #[test]
    fn merging_adds_and_keeps_an_example_wherever_there_is_one() {
        let (mut one, mut other) = (Oddities::new(), Oddities::new());
        one.add(OddKind::Late, || OddExample::new(b"mine", ""));
        other.add(OddKind::Late, || OddExample::new(b"theirs", ""));
        other.add(OddKind::LongLine, || OddExample::new(b"long", ""));
        one.merge(&other);
        assert_eq!((one.rows(OddKind::Late), one.rows(OddKind::LongLine)), (2, 1));
        assert_eq!(one.get(OddKind::Late).unwrap().first.as_ref().unwrap().value, "mine");
        assert_eq!(one.get(OddKind::LongLine).unwrap().first.as_ref().unwrap().value, "long");
        one.drop_examples();
        assert_eq!((one.total(), one.examples_bytes()), (3, 0));
        one.merge(&other);
        assert_eq!(one.get(OddKind::Late).unwrap().first.as_ref().unwrap().value, "theirs");
    }

    #[test]
    fn examples_are_one_short_line_whatever_the_row_holds() {
        assert_eq!(excerpt(b"plain", 20), "plain");
        assert_eq!(excerpt("häß".as_bytes(), 5), "häß", "five bytes fit");
        assert_eq!(excerpt(b"a\x1b[31m\n\x07\xff", 100), "a\\u{1b}[31m\\n\\u{7}\u{fffd}");
        assert_eq!(excerpt("\u{202e}abc".as_bytes(), 100), "\\u{202e}abc");
        assert_eq!(excerpt(b"0123456789", 8), "01234…");
        for max in 3..40 {
            let text = "ä\n€\u{1}xyz".repeat(50);
            let cut = excerpt(text.as_bytes(), max);
            assert!(cut.len() <= max && cut.ends_with('…'), "{max}: {cut:?}");
            assert!(excerpt(&[0xff; 4_000], max).len() <= max);
        }
        let example = OddExample::new(&vec![b'x'; 1 << 20], &"y".repeat(1 << 20));
        assert!(example.value.len() <= ODDITY_VALUE_BYTES_MAX && example.reason.len() <= ODDITY_REASON_BYTES_MAX);
    }

    #[test]
    fn names_are_those_of_the_json() {
        for kind in OddKind::ALL {
            let odd: Oddities = [(kind, Odd { rows: 1, first: None })].into_iter().collect();
            let json = format!("{{\"{kind}\":{{\"rows\":1,\"first\":null}}}}");
            assert_eq!(serde_json::to_string(&odd).unwrap(), json);
            assert_eq!(serde_json::from_str::<Oddities>(&json).unwrap(), odd);
        }
    }
}
