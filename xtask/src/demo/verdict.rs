//! The comparison of the job's output with the recount, and the table that shows it.

use super::recount::{Recount, Views};
use super::results::Results;
use std::collections::BTreeSet;
use std::fmt::Write;

/// How the job's output differs from the recount.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) pairs: usize,
    /// Window, page, views in the log, counted, late; of the pairs that differ.
    pub(crate) wrong: Vec<(i64, String, u64, u64, u64)>,
    pub(crate) twice: u64,
    pub(crate) malformed: u64,
    pub(crate) dead_letters: u64,
}

impl Verdict {
    /// A view is counted in its window or handed out as late, exactly once; a malformed line is a dead letter.
    pub(crate) fn of(recount: &Recount, results: &Results) -> Verdict {
        let pairs: BTreeSet<&(i64, String)> =
            recount.views.keys().chain(results.counted.keys()).chain(results.late.keys()).collect();
        let of = |views: &Views, pair: &(i64, String)| views.get(pair).copied().unwrap_or_default();
        let mut wrong = Vec::new();
        for pair in &pairs {
            let (views, counted, late) = (of(&recount.views, pair), of(&results.counted, pair), of(&results.late, pair));
            if views != counted + late {
                wrong.push((pair.0, pair.1.clone(), views, counted, late));
            }
        }
        let (malformed, dead_letters) = (recount.malformed, results.dead_letters);
        Verdict { pairs: pairs.len(), wrong, twice: results.twice, malformed, dead_letters }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.wrong.is_empty() && self.twice == 0 && self.malformed == self.dead_letters && self.pairs > 0
    }

    /// The table that a person reads.
    pub(crate) fn table(&self, recount: &Recount, results: &Results) -> String {
        let sum = |views: &Views| views.values().sum::<u64>();
        let (views, counted, late) = (sum(&recount.views), sum(&results.counted), sum(&results.late));
        let mut text = String::new();
        let mut row = |what: &str, log: u64, job: &str, is_equal: bool| {
            let mark = if is_equal { "equal" } else { "DIFFERENT" };
            let _ = writeln!(text, "  {what:<34} {:>12} {job:>30}   {mark}", grouped(log));
        };
        row(
            "page views (job: counted + late)",
            views,
            &format!("{} + {}", grouped(counted), grouped(late)),
            views == counted + late,
        );
        row(
            "malformed lines (job: dead letters)",
            self.malformed,
            &grouped(self.dead_letters),
            self.malformed == self.dead_letters,
        );
        let agreeing = (self.pairs - self.wrong.len()) as u64;
        row("pairs of window and page", self.pairs as u64, &format!("{} agree", grouped(agreeing)), self.wrong.is_empty());
        row("windows given twice", 0, &self.twice.to_string(), self.twice == 0);
        for (window, page, views, counted, late) in self.wrong.iter().take(5) {
            let _ = writeln!(text, "    window {window}, page {page}: {views} in the log, {counted} counted + {late} late");
        }
        format!("  {:<34} {:>12} {:>30}\n{text}", "", "recount", "job")
    }
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views(count: u64) -> Views {
        Views::from([((0, "/a".to_string()), count)])
    }

    fn case(in_log: u64, counted: u64, late: u64, dead_letters: u64) -> Verdict {
        let recount = Recount { lines: in_log + 1, malformed: 1, views: views(in_log) };
        Verdict::of(&recount, &Results { counted: views(counted), late: views(late), twice: 0, dead_letters })
    }

    #[test]
    fn a_view_lost_or_counted_twice_is_seen() {
        assert!(case(5, 5, 0, 1).is_good());
        assert!(case(5, 3, 2, 1).is_good());
        assert_eq!(case(5, 4, 0, 1).wrong, [(0, "/a".to_string(), 5, 4, 0)]);
        assert!(!case(5, 5, 1, 1).is_good());
        assert!(!case(5, 5, 0, 0).is_good());
    }

    #[test]
    fn an_empty_output_is_not_good() {
        assert!(!Verdict::of(&Recount::default(), &Results::default()).is_good());
        let lost = Verdict::of(&Recount { lines: 1, malformed: 0, views: views(1) }, &Results::default());
        assert!(!lost.is_good() && lost.wrong.len() == 1);
    }

    #[test]
    fn the_table_names_what_differs() {
        let recount = Recount { lines: 6, malformed: 1, views: views(5) };
        let results = Results { counted: views(4), late: Views::new(), twice: 0, dead_letters: 1 };
        let table = Verdict::of(&recount, &results).table(&recount, &results);
        assert!(table.contains("DIFFERENT") && table.contains("page /a: 5 in the log, 4 counted + 0 late"), "{table}");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
