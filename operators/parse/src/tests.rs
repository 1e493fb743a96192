#![allow(clippy::unwrap_used)]

use super::*;
use weir_sdk::testing::Harness;

const COMBINED: &str = r#"10.1.2.3 - ann [02/Mar/2026:00:04:59 +0100] "GET /a/b?x=1 HTTP/1.1" 200 0017 "-" "an \"agent\"""#;
const COMMON: &str = r#"::1 - - [02/Mar/2026:00:04:59 +0100] "GET / HTTP/1.1" 304 -"#;

fn one(config: &str, line: &str) -> String {
    let mut parse = Harness::<Parse>::new(config);
    parse.row(7, "old", line);
    let mut rows = parse.take_text(0);
    assert_eq!(rows.len(), 1, "{:?}", parse.take_rejections());
    rows.remove(0)
}

fn reason(config: &str, line: &str) -> String {
    let mut parse = Harness::<Parse>::new(config);
    parse.row(7, "old", line);
    assert_eq!(parse.take_text(0), Vec::<String>::new());
    assert_eq!(parse.take_text(1), Vec::<String>::new());
    let mut rejected = parse.take_rejections();
    assert_eq!(rejected.len(), 1);
    rejected.remove(0).reason
}

#[test]
fn a_combined_line_has_all_its_fields() {
    assert_eq!(
        one(r#"{"format":"combined","key":"/path"}"#, COMBINED),
        r#"7 /a/b {"host":"10.1.2.3","user":"ann","time":"02/Mar/2026:00:04:59 +0100","method":"GET","path":"/a/b","query":"x=1","protocol":"HTTP/1.1","status":200,"bytes":17,"agent":"an \\\"agent\\\""}"#
    );
}

#[test]
fn a_common_line_has_fewer() {
    assert_eq!(
        one(r#"{"format":"common","key":"host","value":["path","bytes","status"]}"#, COMMON),
        r#"7 ::1 {"path":"/","bytes":null,"status":304}"#
    );
    for line in [COMMON, COMBINED, &format!("{COMBINED} 0.003 \"extra\"")] {
        assert!(one(r#"{"format":"clf","key":"path","value":"status"}"#, line).starts_with("7 /"));
    }
}

#[test]
fn the_value_can_be_the_line_or_a_field() {
    assert_eq!(one(r#"{"format":"common","value":"line"}"#, COMMON), format!("7 old {COMMON}"));
    assert_eq!(one(r#"{"format":"common","value":"method"}"#, COMMON), r#"7 old "GET""#);
    assert_eq!(one(r#"{"format":"json","value":"/a/0"}"#, r#"{"a":[{"b":1}]}"#), r#"7 old {"b":1}"#);
    assert_eq!(one(r#"{"format":"json","value":["a.b","c"]}"#, r#"{"a":{"b":"x"}}"#), r#"7 old {"b":"x","c":null}"#);
    assert_eq!(one(r#"{"format":"json"}"#, "  {\"a\": 1}\r"), r#"7 old {"a": 1}"#);
}

#[test]
fn key_and_time_are_taken_from_the_line() {
    let config = r#"{"format":"json","key":"user.id","event_time":{"field":"at","format":"rfc3339"},"value":"line"}"#;
    assert_eq!(
        one(config, r#"{"user":{"id":42},"at":"1970-01-01T00:00:01.5Z"}"#),
        r#"1500 42 {"user":{"id":42},"at":"1970-01-01T00:00:01.5Z"}"#
    );
    let config = r#"{"format":"common","event_time":{"field":"time","format":"clf"},"value":"user"}"#;
    assert_eq!(one(config, COMMON), "1772406299000 old null");
}

#[test]
fn lines_that_are_no_log_lines_are_rejected_with_the_reason() {
    let spoiled = |from: &str, to: &str| reason(r#"{"format":"combined","key":"/path"}"#, &COMBINED.replace(from, to));
    assert_eq!(spoiled(" [", " "), "not a log line: no time in brackets after host, ident and user");
    assert_eq!(spoiled("Mar", "Foo"), "not a log line: the time is not one");
    assert_eq!(spoiled("GET /a/b?x=1 HTTP/1.1", "GET"), "not a log line: the request is not method, path and protocol");
    assert_eq!(spoiled("GET /a/b?x=1 HTTP/1.1", "-"), "field `path` is missing");
    assert_eq!(spoiled(" 200 ", " abc "), "not a log line: the status is not three digits");
    assert_eq!(spoiled(" 0017", " 1k"), "not a log line: the number of bytes is not one");
    assert_eq!(spoiled(" \"-\"", ""), "not a log line: no agent in quotes after the referer");
    assert_eq!(reason(r#"{"format":"combined"}"#, COMMON), "not a log line: no referer in quotes after the number of bytes");
    assert!(reason(r#"{"format":"common"}"#, COMBINED).contains("format \"clf\" ignores it"));
    assert_eq!(
        reason(r#"{"format":"combined"}"#, "Traceback (most recent call last):"),
        "not a log line: no time in brackets after host, ident and user"
    );
    assert_eq!(reason(r#"{"format":"json","key":"a"}"#, "{\"b\":1}"), "field `a` is missing");
    assert_eq!(reason(r#"{"format":"json","key":"a"}"#, "{\"a\":null}"), "field `a` is missing");
    assert_eq!(reason(r#"{"format":"json","key":"a"}"#, "{\"a\":{}}"), "field `a` is an object or array, no key");
    assert!(reason(r#"{"format":"json","key":"a"}"#, "{\"a\":1} x").starts_with("not JSON: trailing characters"));
    let config = r#"{"format":"json","event_time":{"field":"t","format":"unix-ms"}}"#;
    assert_eq!(reason(config, r#"{"t":"soon"}"#), "field `t`: `soon` is not a time like 971211336123");
}

#[test]
fn any_cut_of_a_line_is_rejected_not_misread() {
    let mut parse = Harness::<Parse>::new(r#"{"format":"combined","key":"/path"}"#);
    for cut in 0..COMBINED.len() {
        parse.row(0, "", &COMBINED[..cut]);
    }
    assert_eq!(parse.take_text(0), Vec::<String>::new());
    assert_eq!(parse.take_rejections().len(), COMBINED.len());
}

#[test]
fn malformed_lines_can_go_to_their_own_output() {
    let mut parse = Harness::<Parse>::new(r#"{"format":"json","malformed":"output"}"#);
    parse.row(3, "k", "{").row(4, "k", "{}");
    assert_eq!(parse.take_text(1), ["3 k {"]);
    assert_eq!(parse.take_text(0), ["4 k {}"]);
    assert!(parse.take_rejections().is_empty());
}

#[test]
fn what_is_wrong_with_a_configuration_is_named() {
    let error = |config: &str| Harness::<Parse>::try_new(config).unwrap_err();
    assert_eq!(
        error(r#"{"format":"combind"}"#),
        "config.format: unknown value `combind`; did you mean `combined`? (valid: json, common, combined, clf)"
    );
    assert!(error(r#"{"format":"clf","key":"/pth"}"#).starts_with("config.key: unknown field `pth`; did you mean `path`?"));
    assert!(error(r#"{"format":"clf","value":["path","user.id"]}"#).starts_with("config.value: unknown field `user.id`"));
    assert!(error(r#"{"format":"json","key":""}"#).starts_with("config.key: an empty path"));
    assert_eq!(error(r#"{"format":"json","value":[]}"#), "config.value: the list is empty");
    assert!(
        error(r#"{"format":"json","event_time":{"field":"t","format":"unixms"}}"#)
            .starts_with("config.event_time.format: unknown value `unixms`")
    );
    assert!(error(r#"{"format":"json","keys":"a"}"#).starts_with("config: unknown key `keys`; did you mean `key`?"));
}
