//! Rust source without its comments and literals, so that a rule about code does not stumble over prose.

/// The code of a source file: comments, and what strings and characters hold, are spaces. Lines and columns stay where they are.
pub(crate) fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' | b'b' | b'c' if !is_word(bytes, at.wrapping_sub(1)) => match raw_string_end(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            b'\'' => char_end(bytes, at),
            _ => {
                at += 1;
                continue;
            }
        };
        let end = end.min(bytes.len());
        code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end;
    }
    // Whole literals and comments were replaced, so no character was cut.
    String::from_utf8(code).unwrap_or_default()
}

/// The part of a file's code before the module of its unit tests.
pub(crate) fn without_tests(code: &str) -> &str {
    let inline = test_modules(code).find(|(_, after)| after.trim_start().starts_with('{'));
    inline.map_or(code, |(before, _)| &code[..before.len()])
}

/// The names of modules in files of their own that are compiled for tests only.
pub(crate) fn test_files(code: &str) -> impl Iterator<Item = &str> {
    test_modules(code).filter(|(_, after)| after.starts_with(';')).filter_map(|(before, after)| {
        let declaration = &code[before.len()..code.len() - after.len()];
        declaration.rsplit(' ').next()
    })
}

/// The path, without its extension, of a module that the file `path` declares.
pub(crate) fn beside(path: &str, module: &str) -> String {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let is_root = ["lib", "main", "mod"].iter().any(|name| stem.ends_with(&format!("/{name}")));
    let folder = if is_root { stem.rsplit_once('/').map_or("", |(folder, _)| folder) } else { stem };
    format!("{folder}/{module}")
}

/// For each `#[cfg(test)] mod name`, what stands before and after it.
fn test_modules(code: &str) -> impl Iterator<Item = (&str, &str)> {
    const MARK: &str = "#[cfg(test)]";
    code.match_indices(MARK).filter_map(move |(at, _)| {
        let rest = &code[at + MARK.len()..];
        let end = rest.find([';', '{'])?;
        has_word(&rest[..end], "mod").then(|| {
            let name_end = rest[..end].trim_end().len();
            (&code[..at], &rest[name_end..])
        })
    })
}

/// Whether the word `word` stands in `line` on its own.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let bytes = line.as_bytes();
        !is_word(bytes, at.wrapping_sub(1)) && !is_word(bytes, at + word.len())
    })
}

fn is_word(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0usize);
    while at < bytes.len() {
        match &bytes[at..(at + 2).min(bytes.len())] {
            b"/*" => (at, depth) = (at + 2, depth + 1),
            b"*/" => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// The end of `r".."`, `r#".."#`, `br".."`, `b".."`, `c".."` or `b'.'` if one starts here.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    if bytes[start] != b'r' && bytes.get(at) == Some(&b'r') {
        at += 1;
    }
    let is_raw = bytes[at - 1] == b'r';
    let hashes = bytes[at..].iter().take_while(|byte| is_raw && **byte == b'#').count();
    match bytes.get(at + hashes) {
        Some(b'"') if !is_raw => Some(string_end(bytes, at)),
        Some(b'\'') if bytes[start] == b'b' && !is_raw => Some(char_end(bytes, at)),
        Some(b'"') => {
            let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
            let body = at + hashes + 1;
            let length = bytes[body..].windows(close.len()).position(|window| window == close);
            Some(length.map_or(bytes.len(), |length| body + length + close.len()))
        }
        _ => None,
    }
}

/// The end of a character literal, or of the quote alone if it starts a lifetime.
fn char_end(bytes: &[u8], start: usize) -> usize {
    match bytes.get(start + 1) {
        Some(b'\\') => {
            let close = bytes[(start + 3).min(bytes.len())..].iter().position(|byte| *byte == b'\'');
            close.map_or(bytes.len(), |length| start + 3 + length + 1)
        }
        Some(first) => {
            let width = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            if bytes.get(start + 1 + width) == Some(&b'\'') { start + width + 2 } else { start + 1 }
        }
        None => start + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays_in_place() {
        let text = "let a = \"x \\\" y\"; // z\nlet b = r#\"q \" q\"#; /* c /* d */ e */ let f: &'a str = 'g';\nlet h = b'i'; let j = br\"k\"; l";
        let code = code_of(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.lines().count(), 3);
        for gone in ["x", "y", "z", "q", "c", "d", "g", "i", "k"] {
            assert!(!has_word(&code, gone), "{gone} in {code}");
        }
        for kept in ["let", "a", "b", "f", "str", "h", "j", "l"] {
            assert!(has_word(&code, kept), "no {kept} in {code}");
        }
    }

    #[test]
    fn a_quote_character_opens_no_string() {
        assert!(has_word(&code_of("match c { '\"' => one, '\\'' => two, '€' => three }"), "three"));
        assert!(has_word(&code_of("fn f<'a>(x: &'a str) -> four"), "four"));
    }

    #[test]
    fn test_modules_are_told_from_other_code() {
        let code =
            "#[cfg(test)]\nmod simulation;\n#[cfg(test)] use a;\nfn f() {}\n#[cfg(test)]\npub(crate) mod tests {\n fn g() {} }";
        assert_eq!(test_files(code).collect::<Vec<_>>(), ["simulation"]);
        assert!(without_tests(code).contains("fn f()") && !without_tests(code).contains("fn g()"));
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe {", "unsafe") && !has_word("unsafe_code", "unsafe"));
    }
}
