//! Rows that did not go the normal way, as text for people: a few words for a status line, and for each vertex the first row
//! of each kind with its reason. Only words: the numbers come from the job.

use weir_model::{Odd, OddKind, Oddities};

use crate::output::number;

/// For a status line: "12 rejected, 3 late"; nothing where there are none.
pub(crate) fn words(oddities: &Oddities) -> Option<String> {
    let each: Vec<String> = oddities.iter().map(|(kind, odd)| format!("{} {}", number(odd.rows), kind.words())).collect();
    (!each.is_empty()).then(|| each.join(", "))
}

/// For a status line between two others: ` | 12 rejected, 3 late`, or nothing.
pub(crate) fn part(oddities: &Oddities) -> String {
    words(oddities).map(|words| format!(" | {words}")).unwrap_or_default()
}

/// All that is known, a paragraph for each vertex and kind. `letters` says where rejected rows are.
pub(crate) fn details<'a>(vertices: impl Iterator<Item = (&'a str, &'a Oddities)>, letters: Option<&str>) -> String {
    let mut text = String::new();
    let mut rejected = false;
    for (uid, oddities) in vertices {
        for (kind, odd) in oddities.iter() {
            text.push_str(&detail(uid, kind, odd));
            rejected |= kind == OddKind::Rejected;
        }
    }
    if let Some(letters) = letters.filter(|_| rejected) {
        text.push_str(&format!("rejected rows, each with its reason, are in {letters}\n"));
    }
    text
}

fn detail(uid: &str, kind: OddKind, odd: &Odd) -> String {
    let rows = format!("{uid}: {} {}", number(odd.rows), kind.words());
    match &odd.first {
        Some(first) if first.value.is_empty() => format!("{rows}; the first: {}\n", first.reason),
        Some(first) => format!("{rows}; the first: {}\n    {}\n", first.reason, first.value),
        None => format!("{rows}\n"),
    }
}

#[cfg(test)]
mod tests {
    use weir_model::OddExample;

    use super::*;

    #[test]
    fn each_kind_is_told_with_its_first_row_and_reason() {
        let mut odd = Oddities::new();
        assert_eq!((words(&odd), part(&odd)), (None, String::new()));
        odd.add_rows(OddKind::Late, 3, || OddExample::new(b"b", "event time had passed it"));
        odd.add_rows(OddKind::Rejected, 1_200, || OddExample::new(b"a\n", "no log line"));
        assert_eq!(part(&odd), " | 1,200 rejected, 3 late");
        let none = Oddities::new();
        let of_job = [("log", &none), ("parse", &odd)];
        assert_eq!(
            details(of_job.into_iter(), Some("/d")),
            "parse: 1,200 rejected; the first: no log line\n    a\\n\nparse: 3 late; the first: event time had passed it\n    b\n\
             rejected rows, each with its reason, are in /d\n"
        );
        assert_eq!(details(of_job.into_iter().take(1), Some("/d")), "");
    }
}
