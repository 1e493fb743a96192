//! `weir explain`: the pages of docs/errors/, which are part of the binary.

use serde_json::json;
use weir_model::ErrorNumber;

use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::sdk::{ERROR_PAGES, EmbeddedFile};
use crate::{markdown, output};

/// `weir explain`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Numbers of errors, such as E0034; without one, all are listed
    #[arg(value_name = "NUMBER")]
    numbers: Vec<String>,
}

pub(crate) fn execute(args: &Args, global: &Global) -> anyhow::Result<()> {
    if args.numbers.is_empty() {
        return list(global);
    }
    let numbers = args.numbers.iter().map(|text| named(text)).collect::<Result<Vec<_>, _>>()?;
    if global.json {
        let page = |number: &ErrorNumber| json!({ "number": number.as_str(), "title": title(*number), "page": page(*number) });
        return output::print_json(&numbers.iter().map(page).collect::<Vec<_>>());
    }
    let formatted = |number: &ErrorNumber| match output::stdout_is_terminal() {
        true => markdown::for_terminal(page(*number), markdown::width(), global.colour.on_stdout()),
        false if global.colour.on_stdout() => markdown::for_terminal(page(*number), markdown::width(), true),
        false => page(*number).to_owned(),
    };
    output::print_styled(&numbers.iter().map(formatted).collect::<Vec<_>>().join("\n"))
}

fn list(global: &Global) -> anyhow::Result<()> {
    if global.json {
        let line = |number: &ErrorNumber| json!({ "number": number.as_str(), "title": title(*number) });
        return output::print_json(&ErrorNumber::ALL.iter().map(line).collect::<Vec<_>>());
    }
    let line = |number: &ErrorNumber| format!("{number}  {}\n", title(*number));
    output::print(&ErrorNumber::ALL.iter().map(line).collect::<String>())
}

/// The number that a user means: `E0034`, `e34` or `34`.
fn named(text: &str) -> Result<ErrorNumber, Failure> {
    let digits = text.strip_prefix(['E', 'e']).unwrap_or(text);
    if let Some(number) = ErrorNumber::parse(&format!("E{digits:0>4}")) {
        return Ok(number);
    }
    let failure = Failure::new(ErrorNumber::NoSuchName, Exit::Usage, format!("there is no error `{text}`"));
    let near = digits.parse::<i64>().ok().filter(|_| digits.len() <= 4).and_then(|wanted| {
        let distance =
            |number: &&ErrorNumber| number.as_str()[1..].parse::<i64>().map_or(i64::MAX, |there| (there - wanted).abs());
        ErrorNumber::ALL.iter().min_by_key(distance)
    });
    Err(match near {
        Some(near) => failure.hint(format!("the nearest is {near}: {}; `weir explain` lists all", title(*near))),
        None => failure.hint("a number is E and four digits, as in error[E0034]; `weir explain` lists all"),
    })
}

/// The page about a number, in Markdown.
fn page(number: ErrorNumber) -> &'static str {
    let file = |(path, _): &&EmbeddedFile| path.strip_suffix(".md") == Some(number.as_str());
    ERROR_PAGES.iter().find(file).map_or("", |(_, text)| text)
}

/// The title of a page, without its number.
fn title(number: ErrorNumber) -> &'static str {
    let first = page(number).lines().next().unwrap_or_default();
    first.split_once(": ").map_or("", |(_, title)| title)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn every_number_has_a_page_and_every_page_a_number() {
        let pages: Vec<&str> = ERROR_PAGES.iter().filter_map(|(path, _)| path.strip_suffix(".md")).collect();
        assert_eq!(pages, ErrorNumber::ALL.iter().map(|number| number.as_str()).collect::<Vec<_>>());
    }

    #[test]
    fn every_page_begins_with_its_number_and_a_title_and_says_what_to_do() {
        for number in ErrorNumber::ALL {
            let page = page(*number);
            assert!(page.starts_with(&format!("# {number}: ")), "{number}: {page}");
            let title = title(*number);
            assert!(title.starts_with(|c: char| c.is_uppercase() || c == '`') && !title.ends_with('.'), "{number}: {title}");
            assert!(page.contains("What to do: "), "{number} does not say what to do");
        }
    }

    #[test]
    fn numbers_are_known_as_people_type_them_and_a_wrong_one_names_the_nearest() {
        for text in ["E0034", "e0034", "34", "E34", "0034"] {
            assert_eq!(named(text).unwrap(), ErrorNumber::JobFailed, "{text}");
        }
        assert!(named("E0036").unwrap_err().hint.unwrap().contains("E0035"));
        for text in ["", "E", "x", "E00341", "E-034", "E99999999999999999999"] {
            let failure = named(text).unwrap_err();
            assert!(failure.number == "E0029" && failure.hint.unwrap().contains("weir explain"), "{text}");
        }
    }
}
