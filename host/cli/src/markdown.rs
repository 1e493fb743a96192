//! Markdown for terminals: headings, emphasis and code are styled, paragraphs wrapped to the terminal's width.
//!
//! Knows what the pages in docs/errors/ use, and no more: headings, paragraphs, lists, blocks of code. Never changes words.

use clap::builder::styling::{AnsiColor, Style};

/// Columns that are comfortable to read, however wide the terminal is.
const WIDTH_MAX: usize = 100;

/// Columns where the terminal does not say how many it has.
const WIDTH_DEFAULT: usize = 80;

/// Columns of the terminal at standard output, as many as are used.
pub(crate) fn width() -> usize {
    let columns = terminal_size::terminal_size().map_or(WIDTH_DEFAULT, |(width, _)| usize::from(width.0));
    columns.clamp(20, WIDTH_MAX)
}

/// A page as text of at most `width` columns (a longer word, or code, takes more), styled if `styled` says so.
pub(crate) fn for_terminal(page: &str, width: usize, styled: bool) -> String {
    let mut text = String::new();
    let mut paragraph = String::new();
    let mut in_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            flush(&mut paragraph, &mut text, width, styled);
            in_code = !in_code;
        } else if in_code {
            text.push_str(&format!("    {line}\n"));
        } else if let Some(heading) = line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')) {
            flush(&mut paragraph, &mut text, width, styled);
            let bold = if styled { Style::new().bold() } else { Style::new() };
            text.push_str(&format!("{bold}{heading}{bold:#}\n"));
        } else if line.trim().is_empty() {
            flush(&mut paragraph, &mut text, width, styled);
            text.push('\n');
        } else {
            if line.starts_with("- ") {
                flush(&mut paragraph, &mut text, width, styled);
            }
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line.trim());
        }
    }
    flush(&mut paragraph, &mut text, width, styled);
    text
}

/// Moves a paragraph, or an item of a list, to the text.
fn flush(paragraph: &mut String, text: &mut String, width: usize, styled: bool) {
    if paragraph.is_empty() {
        return;
    }
    let indent = if paragraph.starts_with("- ") { "  " } else { "" };
    let mut wrapped = String::new();
    let mut column = 0;
    for word in std::mem::take(paragraph).split_whitespace() {
        let length = word.chars().filter(|c| !styled || !matches!(c, '`')).count();
        if column == 0 {
        } else if column + 1 + length > width {
            wrapped.push('\n');
            wrapped.push_str(indent);
            column = indent.len();
        } else {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += length;
    }
    text.push_str(&if styled { spans(&wrapped) } else { wrapped });
    text.push('\n');
}

/// `code` and *emphasis* as styles; a mark without its partner stays as it is.
fn spans(text: &str) -> String {
    let mut rest = text;
    let mut styled = String::new();
    while let Some(at) = rest.find(['`', '*']) {
        let (before, from) = rest.split_at(at);
        styled.push_str(before);
        let mark = if from.starts_with("**") { "**" } else { &from[..1] };
        let inside = &from[mark.len()..];
        match inside.find(mark).filter(|end| *end > 0) {
            Some(end) => {
                let style = match mark {
                    "`" => Style::new().fg_color(Some(AnsiColor::Cyan.into())),
                    "**" => Style::new().bold(),
                    _ => Style::new().italic(),
                };
                styled.push_str(&format!("{style}{}{style:#}", &inside[..end]));
                rest = &inside[end + mark.len()..];
            }
            None => {
                styled.push_str(mark);
                rest = inside;
            }
        }
    }
    styled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# E0001: a title\n\nOne two three four\nfive six.\n\n- item one two three\n  goes on\n- next\n\n```toml\n[job]   x\n```\n";

    #[test]
    fn paragraphs_and_items_are_wrapped_and_code_is_not() {
        let expected =
            "E0001: a title\n\nOne two three\nfour five six.\n\n- item one two\n  three goes on\n- next\n\n    [job]   x\n";
        assert_eq!(for_terminal(PAGE, 15, false), expected);
    }

    #[test]
    fn styles_change_no_words() {
        let plain = "use `weir job ls` and *see* **much**, 2 * 3, a ` alone";
        let text = for_terminal(plain, 100, true);
        assert!(text.contains("\u{1b}[36mweir job ls\u{1b}[0m"), "{text:?}");
        assert!(text.contains("\u{1b}[3msee\u{1b}[0m") && text.contains("\u{1b}[1mmuch\u{1b}[0m"), "{text:?}");
        assert!(text.ends_with(", 2 * 3, a ` alone\n"), "{text:?}");
    }
}
