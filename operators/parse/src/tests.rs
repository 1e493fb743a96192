#![allow(clippy::unwrap_used)]

use super::*;
use weir_sdk::testing::Harness;
use weir_sdk::{Batch, KEY_ABSENT, NewRow};

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
        r#"7 /a/b {"host":"10.1.2.3","user":"ann","time":"02/Mar/2026:00:04:59 +0100","method":"GET","path":"/a/b","query":"x=1","protocol":"HTTP/1.1","status":200,"bytes":17,"agent":"an \"agent\""}"#
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

const CLF_PATH: &str = r#"{"format":"clf","key":"path"}"#;

/// A line of the combined format with another request.
fn requesting(request: &str) -> String {
    format!(r#"192.0.2.1 - - [02/Mar/2026:00:04:59 +0100] "{request}" 400 157 "-" "-""#)
}

#[test]
fn lines_that_are_no_log_lines_are_rejected_with_the_reason() {
    let spoiled = |from: &str, to: &str| reason(r#"{"format":"combined","key":"/path"}"#, &COMBINED.replace(from, to));
    assert_eq!(spoiled(" [", " "), "not a log line: no time in brackets after host, ident and user");
    assert_eq!(spoiled("+0100]", "+0100"), "not a log line: the time has no closing bracket");
    assert_eq!(spoiled("Mar", "Foo"), "not a log line: the time is not one");
    assert_eq!(spoiled("GET /a/b?x=1 HTTP/1.1", "GET"), "field `path` is missing: the request is \"GET\"");
    assert_eq!(spoiled("GET /a/b?x=1 HTTP/1.1", "-"), "field `path` is missing");
    assert_eq!(spoiled(" 200 ", " abc "), "not a log line: the status is not three digits");
    assert_eq!(spoiled(" 0017", " 1k"), "not a log line: the number of bytes is not one");
    assert_eq!(spoiled(" \"-\"", ""), "not a log line: no agent in quotes after the referer");
    assert_eq!(spoiled("\"\"", "\"x"), "not a log line: no agent in quotes after the referer");
    assert_eq!(reason(r#"{"format":"combined"}"#, COMMON), "not a log line: no referer in quotes after the number of bytes");
    assert_eq!(
        reason(r#"{"format":"combined"}"#, "Traceback (most recent call last):"),
        "not a log line: no time in brackets after host, ident and user"
    );
    assert_eq!(reason(CLF_PATH, &COMMON.replace("::1 - -", "::1 -")), "not a log line: no host, ident and user before the time");
    let config = r#"{"format":"json","event_time":{"field":"t","format":"unix-ms"}}"#;
    assert_eq!(reason(config, r#"{"t":"soon"}"#), "field `t`: `soon` is not a time like 971211336123");
}

#[test]
fn a4_further_fields_are_ignored_in_every_format() {
    // `main` of nginx.org's packages and images is combined and one more.
    let main = format!("{COMBINED} \"203.0.113.7, 10.0.0.1\"");
    assert!(one(r#"{"format":"combined","key":"agent","value":"status"}"#, &main).ends_with("agent\" 200"));
    assert_eq!(one(r#"{"format":"combined","value":"referer"}"#, &format!("{COMBINED} 0.003 x\" [")), "7 old null");
    assert_eq!(one(r#"{"format":"common","value":["bytes","agent"]}"#, COMBINED), r#"7 old {"bytes":17,"agent":null}"#);
    assert_eq!(
        one(r#"{"format":"clf","value":["bytes","agent"]}"#, &format!("{COMMON} 1234")),
        r#"7 old {"bytes":null,"agent":null}"#
    );
    // A quote that is not at the end of a field does not end it.
    let agent = requesting("GET / HTTP/1.1").replace("\"-\" \"-\"", r#""-" "a "quoted" agent""#);
    assert_eq!(one(r#"{"format":"combined","value":"agent"}"#, &agent), r#"7 old "a \"quoted""#);
}

#[test]
fn a8_a_virtual_host_in_front_is_read_or_refused() {
    let line = r#"vhost:443 192.0.2.1 - - [02/Mar/2026:00:04:59 +0100] "GET /a HTTP/1.1" 200 17 "-" "curl""#;
    let config = |format: &str| format!(r#"{{"format":"{format}","value":["vhost","port","host","ident","user","agent"]}}"#);
    for format in ["vhost", "clf", "combined"] {
        let expected = r#"{"vhost":"vhost","port":443,"host":"192.0.2.1","ident":null,"user":null,"agent":"curl"}"#;
        assert_eq!(one(&config(format), line), format!("7 old {expected}"), "{format}");
    }
    let front = |front: &str, format: &str| {
        let line = line.replace("vhost:443 192.0.2.1 - -", front);
        one(&format!(r#"{{"format":"{format}","value":["vhost","port","host","user"]}}"#), &line)
    };
    for (text, format, expected) in [
        ("[::1]:8080 2001:db8::7 - ann", "clf", r#"{"vhost":"[::1]","port":8080,"host":"2001:db8::7","user":"ann"}"#),
        ("example.org 192.0.2.1 - -", "clf", r#"{"vhost":"example.org","port":null,"host":"192.0.2.1","user":null}"#),
        ("a:80 client.example - john doe", "clf", r#"{"vhost":"a","port":80,"host":"client.example","user":"john doe"}"#),
        ("a:80 localhost - -", "clf", r#"{"vhost":"a","port":80,"host":"localhost","user":null}"#),
        ("a localhost - -", "vhost", r#"{"vhost":"a","port":null,"host":"localhost","user":null}"#),
        // Not a virtual host.
        ("192.0.2.1 - john doe", "clf", r#"{"vhost":null,"port":null,"host":"192.0.2.1","user":"john doe"}"#),
        ("2001:db8::80 - john doe", "clf", r#"{"vhost":null,"port":null,"host":"2001:db8::80","user":"john doe"}"#),
        ("192.0.2.1:5555 - john doe", "clf", r#"{"vhost":null,"port":null,"host":"192.0.2.1:5555","user":"john doe"}"#),
        ("192.0.2.1 - [odd", "clf", r#"{"vhost":null,"port":null,"host":"192.0.2.1","user":"[odd"}"#),
    ] {
        assert_eq!(front(text, format), format!("7 old {expected}"), "{text}");
    }
    let refused = |front: &str, format: &str| {
        reason(&format!(r#"{{"format":"{format}"}}"#), &line.replace("vhost:443 192.0.2.1 - -", front))
    };
    assert_eq!(
        refused("a localhost - -", "clf"),
        "not a log line: more than host, ident and user before the time; if a virtual host comes first, use the format \"vhost\""
    );
    let missing = "not a log line: no host, ident and user between the virtual host and the time";
    assert_eq!(refused("192.0.2.1 - -", "vhost"), missing);
}

#[test]
fn a9_odd_requests_are_log_lines() {
    let config = r#"{"format":"combined","key":"status","value":["request","method","path","protocol"]}"#;
    for (request, expected) in [
        (r"\x16\x03\x01", r#"{"request":"\u0016\u0003\u0001","method":null,"path":null,"protocol":null}"#),
        (r"\x16\x03\x01\xFC", r#"{"request":"\\x16\\x03\\x01\\xFC","method":null,"path":null,"protocol":null}"#),
        ("GET /a b HTTP/1.1", r#"{"request":"GET /a b HTTP/1.1","method":"GET","path":"/a b","protocol":"HTTP/1.1"}"#),
        ("GET /", r#"{"request":"GET /","method":"GET","path":"/","protocol":null}"#),
        (r#"GET /\" HTTP/1.1"#, r#"{"request":"GET /\" HTTP/1.1","method":"GET","path":"/\"","protocol":"HTTP/1.1"}"#),
        // A server that escapes nothing, and a path that ends in a backslash.
        (r"GET /\", r#"{"request":"GET /\\","method":"GET","path":"/\\","protocol":null}"#),
        (r#"GET /"x" HTTP/1.1"#, r#"{"request":"GET /\"x\" HTTP/1.1","method":"GET","path":"/\"x\"","protocol":"HTTP/1.1"}"#),
        ("-", r#"{"request":null,"method":null,"path":null,"protocol":null}"#),
        ("", r#"{"request":null,"method":null,"path":null,"protocol":null}"#),
        ("quit", r#"{"request":"quit","method":null,"path":null,"protocol":null}"#),
    ] {
        if request == r#"GET /"x" HTTP/1.1"# {
            // Cannot be told from a request that ends before the blank: refused, not misread.
            assert!(reason(config, &requesting(request)).starts_with("not a log line"), "{request}");
            continue;
        }
        assert_eq!(one(config, &requesting(request)), format!("7 400 {expected}"), "{request}");
    }
    assert_eq!(reason(CLF_PATH, &requesting(r"\x16\x03")), r#"field `path` is missing: the request is "\x16\x03""#);
    assert_eq!(one(CLF_PATH, &requesting("GET /a b HTTP/1.1")).split('{').next(), Some("7 /a b "));
    // The object of all fields has the request only where its parts do not say everything.
    assert!(!one(r#"{"format":"clf"}"#, COMBINED).contains("\"request\""));
    assert!(one(r#"{"format":"clf"}"#, &requesting("GET /")).contains(r#""request":"GET /","method":"GET","path":"/","#));
    // A server may not know the status of a request it could not read.
    assert!(one(r#"{"format":"clf","value":"status"}"#, &requesting("-").replace(" 400 ", " - ")).ends_with(" null"));
}

#[test]
fn escapes_are_decoded_alike_in_key_and_value() {
    let both = |path: &[u8]| {
        let line = [b"h - - [02/Mar/2026:00:04:59 +0100] \"GET ", path, b" HTTP/1.1\" 200 1"].concat();
        let mut parse = Harness::<Parse>::new(r#"{"format":"common","key":"path","value":"path"}"#);
        parse.row(7, "", line);
        parse.take_text(0).remove(0)
    };
    assert_eq!(both(br"/caf\xC3\xA9"), "7 /café \"/café\"");
    assert_eq!(both("/café".as_bytes()), "7 /café \"/café\"");
    // Not UTF-8: shown as servers show such bytes.
    assert_eq!(both(b"/caf\xE9"), r#"7 /caf\xE9 "/caf\\xE9""#);
    assert_eq!(both(br"/caf\xE9"), r#"7 /caf\xE9 "/caf\\xE9""#);
    assert_eq!(both(br"/a\\b\zc\xg1"), r#"7 /a\b\zc\xg1 "/a\\b\\zc\\xg1""#);
}

#[test]
fn a16_a_field_that_is_no_key_says_why() {
    let key = |line: &str| reason(r#"{"format":"json","key":"a"}"#, line);
    assert_eq!(key("{\"b\":1}"), "field `a` is missing");
    assert_eq!(key("{\"a\":null}"), "field `a` is missing");
    assert_eq!(key("{\"a\":{}}"), "field `a` is an object or array, no key");
    assert_eq!(key("{\"a\":\"\"}"), "field `a` is empty, no key");
    let surrogate = "has half of a surrogate pair (as in \"\\ud800\"), which is no character";
    assert_eq!(key(r#"{"a":"\ud800"}"#), format!("field `a` {surrogate}, no key"));
    assert!(key("{\"a\":1} x").starts_with("not JSON: trailing characters"));
    let config = r#"{"format":"json","event_time":{"field":"a","format":"rfc3339"}}"#;
    assert_eq!(reason(config, "{}"), "field `a` is missing");
    assert_eq!(reason(config, "{\"a\":[]}"), "field `a` is an object or array");
    assert_eq!(reason(config, r#"{"a":"\udc00"}"#), format!("field `a` {surrogate}"));
    let mut parse = Harness::<Parse>::new(r#"{"format":"json","key":"a"}"#);
    parse.row(1, "", b"{\"a\":\"caf\xE9\"}");
    assert_eq!(parse.take_rejections()[0].reason, "not JSON: not UTF-8 at byte 9");
}

#[test]
fn no_line_is_too_long_for_an_answer() {
    let long = |bytes: usize| "x".repeat(bytes);
    let mut parse = Harness::<Parse>::new(CLF_PATH);
    parse.row(7, "", requesting(&format!("GET /{} HTTP/1.1", long(65_535))));
    assert_eq!(parse.take(0)[0].key.len(), 65_536);
    assert_eq!(
        reason(CLF_PATH, &requesting(&format!("GET /{} HTTP/1.1", long(70_000)))),
        "field `path` has 70001 bytes; as a key at most 65536 are possible"
    );
    let json = format!("{{\"a\":\"{}\"}}", long(70_000));
    assert_eq!(reason(r#"{"format":"json","key":"a"}"#, &json), "field `a` has 70000 bytes; as a key at most 65536 are possible");
    // 25 MiB, as a host with another bound could send it; and what only escaping makes too long.
    let json = format!("{{\"a\":\"{}\"}}", long(25 << 20));
    assert!(reason(r#"{"format":"json"}"#, &json).starts_with("the value of what is sent on has 26214408 bytes; at most"));
    let escaped = requesting(&"\u{1}".repeat(3 << 20));
    assert!(reason(r#"{"format":"clf"}"#, &escaped).starts_with("written as JSON the value may have 1887"));
    assert!(one(r#"{"format":"clf","value":"status"}"#, &escaped).ends_with(" 400"));
    // It goes where malformed lines go.
    let mut parse = Harness::<Parse>::new(r#"{"format":"json","key":"a","malformed":"output"}"#);
    parse.row(7, "k", format!("{{\"a\":\"{}\"}}", long(70_000)));
    assert_eq!((parse.take(0).len(), parse.take(1).len(), parse.take_rejections().len()), (0, 1, 0));
}

#[test]
fn a13_times_and_paths_are_those_of_sources() {
    let at = |format: &str, field: &str, line: &str| {
        let config = format!(r#"{{"format":"json","event_time":{{"field":"{field}","format":"{format}"}},"value":"line"}}"#);
        let row = one(&config, line);
        row.split(' ').next().unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(at("unix-ms", "events.0.at", r#"{"events":[{"at":1e3}]}"#), 1_000);
    assert_eq!(at("unix-ms", "/a~1b", r#"{"a/b":"1700000000123.9"}"#), 1_700_000_000_123);
    assert_eq!(at("unix-s", "t", r#"{"t":1.7e9}"#), 1_700_000_000_000);
    assert_eq!(at("unix-us", "t", r#"{"t":1700000000123456}"#), 1_700_000_000_123);
    assert_eq!(at("unix-ns", "t", r#"{"t":1700000000123456789}"#), 1_700_000_000_123);
    assert_eq!(at("rfc3339", "t", r#"{"t":"1970-01-01 00:00:01,5 +0000"}"#), 1_500);
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
        "config.format: unknown value `combind`; did you mean `combined`? (valid: json, common, combined, clf, vhost)"
    );
    assert!(error(r#"{"format":"clf","key":"/pth"}"#).starts_with("config.key: unknown field `pth`; did you mean `path`?"));
    assert!(error(r#"{"format":"clf","value":["path","user.id"]}"#).starts_with("config.value: unknown field `user.id`"));
    assert!(error(r#"{"format":"json","key":""}"#).starts_with("config.key: an empty path"));
    assert!(error(r#"{"format":"json","key":"a..b"}"#).starts_with("config.key: an empty name in a path"));
    assert_eq!(error(r#"{"format":"json","value":[]}"#), "config.value: the list is empty");
    assert!(
        error(r#"{"format":"json","event_time":{"field":"t","format":"unixms"}}"#)
            .starts_with("config.event_time.format: unknown value `unixms`")
    );
    assert!(error(r#"{"format":"json","keys":"a"}"#).starts_with("config: unknown key `keys`; did you mean `key`?"));
}

mod any_text {
    use super::*;
    use proptest::prelude::*;

    /// What a client may send, as a server writes it: no blank, no quote or backslash but escaped.
    const WORD: &str = r#"([!#-\[\]-~]|\\\\|\\"|\\x[0-9A-F]{2}){1,12}"#;

    proptest! {
        /// Against taking the text apart by the regular way a line is put together.
        #[test]
        fn a_line_is_read_as_it_was_written(
            host in "[0-9a-f:.]{1,20}", user in "-|[a-z]{1,5}( [a-z]{1,5})?", path in WORD, agent in WORD, referer in WORD,
            status in 100u32..1_000, bytes in 0u64..1_000_000, more in "( [ -~]{0,10})?",
        ) {
            prop_assume!(host != "-" && path != "-" && !path.contains('?') && agent != "-");
            let line = format!(
                "{host} - {user} [02/Mar/2026:00:04:59 +0100] \"GET {path} HTTP/1.1\" {status} {bytes} \"{referer}\" \"{agent}\"{more}"
            );
            let mut parse = Harness::<Parse>::new(
                r#"{"format":"combined","value":["host","user","path","status","bytes","agent"]}"#
            );
            parse.row(7, "", &line);
            prop_assert!(parse.take_rejections().is_empty(), "{}", line);
            let row: serde_json::Value = serde_json::from_slice(&parse.take(0)[0].value).unwrap();
            prop_assert_eq!(row["host"].as_str(), Some(host.as_str()));
            prop_assert_eq!(row["user"].as_str(), Some(user.as_str()).filter(|user| *user != "-"));
            prop_assert_eq!((row["status"].as_u64(), row["bytes"].as_u64()), (Some(u64::from(status)), Some(bytes)));
            let path_text = decoded(&path);
            prop_assert_eq!(row["path"].as_str(), Some(path_text.as_str()));
            let agent_text = decoded(&agent);
            prop_assert_eq!(row["agent"].as_str(), Some(agent_text.as_str()));
        }

        /// Every line has exactly one answer, whatever it holds, and what is sent on is JSON.
        #[test]
        fn every_line_is_sent_on_or_rejected(
            text in "[ -~\\x00-\\x1F\u{80}-\u{FF}]{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..60), cut in 0usize..200,
            json in r#"[{}\[\]":,0-9a-z\\u.+-]{0,40}"#,
        ) {
            let spliced = {
                let mut line = COMBINED.as_bytes()[..cut.min(COMBINED.len())].to_vec();
                line.extend_from_slice(&bytes);
                line.extend_from_slice(&COMBINED.as_bytes()[cut.min(COMBINED.len())..]);
                line
            };
            let lines = [text.into_bytes(), bytes, spliced, format!("{{\"a\":{json}}}").into_bytes(), json.into_bytes()];
            for format in ["json", "common", "combined", "clf", "vhost"] {
                let mut parse = Harness::<Parse>::new(&format!(r#"{{"format":"{format}"}}"#));
                for line in &lines {
                    parse.row(7, "k", line);
                    let (rows, rejected) = (parse.take(0), parse.take_rejections());
                    prop_assert_eq!(rows.len() + rejected.len(), 1);
                    if let Some(row) = rows.first() {
                        prop_assert!(serde_json::from_slice::<IgnoredAny>(&row.value).is_ok());
                        prop_assert!(std::str::from_utf8(&row.value).is_ok());
                    }
                }
            }
        }

        /// Fields of JSON, against serde_json.
        #[test]
        fn fields_are_those_that_serde_finds(
            names in proptest::collection::hash_set("[a-c\"\\\\é😀/~]{1,3}", 1..4), text in "[ -~é😀\n\u{1}]{0,10}", number in any::<f64>(),
        ) {
            prop_assume!(number.is_finite());
            let mut inner = serde_json::Map::new();
            inner.insert("deep".into(), serde_json::json!([number, text, null]));
            let value: serde_json::Map<String, serde_json::Value> = names
                .iter()
                .map(|name| (name.clone(), serde_json::Value::Object(inner.clone())))
                .collect();
            let line = serde_json::to_vec(&value).unwrap();
            for name in &names {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                let at = |index: usize| Path::new(&format!("/{escaped}/deep/{index}"));
                let raw = at(0).find(&line).unwrap().unwrap();
                prop_assert_eq!(raw.number().unwrap().parse::<f64>().unwrap(), number);
                prop_assert_eq!(&*at(1).find(&line).unwrap().unwrap().text().unwrap(), text.as_bytes());
                prop_assert!(at(2).find(&line).unwrap().unwrap().is_null());
                prop_assert!(at(3).find(&line).unwrap().is_none());
            }
        }
    }

    /// The escapes of a field, by a reader of its own.
    fn decoded(text: &str) -> String {
        let mut bytes = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if let Some(hex) = rest.strip_prefix("\\x") {
                bytes.push(u8::from_str_radix(&hex[..2], 16).unwrap());
                rest = &hex[2..];
            } else {
                let escaped = c == '\\';
                bytes.push(rest.as_bytes()[usize::from(escaped)]);
                rest = &rest[1 + usize::from(escaped)..];
            }
        }
        String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
    }
}

#[test]
fn s114_a_row_without_a_key_stays_without_one_unless_the_line_has_it() {
    let keyless = |config: &str| {
        let mut parse = Harness::<Parse>::new(config);
        let mut batch = Batch::default();
        let value = Some(&br#"{"a":"x","at":5}"#[..]);
        batch.push_row(NewRow { timestamp: 7, key: None, value, headers: &[("trace", b"1")] });
        batch.push_row(NewRow { timestamp: 8, key: Some(b""), value, headers: &[] });
        parse.try_batch(0, &batch).unwrap();
        let rows = parse.take(0);
        assert_eq!(rows.len(), 2);
        rows.into_iter().map(|row| (row.timestamp, row.key, row.absent, row.headers.len())).collect::<Vec<_>>()
    };
    assert_eq!(keyless(r#"{"format":"json"}"#), [(7, b"".to_vec(), KEY_ABSENT, 1), (8, b"".to_vec(), 0, 0)]);
    let timed = r#"{"format":"json","event_time":{"field":"at","format":"unix-ms"}}"#;
    assert_eq!(keyless(timed), [(5, b"".to_vec(), KEY_ABSENT, 0), (5, b"".to_vec(), 0, 0)]);
    let keyed = r#"{"format":"json","key":"a"}"#;
    assert_eq!(keyless(keyed), [(7, b"x".to_vec(), 0, 0), (8, b"x".to_vec(), 0, 0)]);
}

#[test]
fn s110_the_schema_says_what_lines_and_values_may_be() {
    let schema: weir_sdk::serde_json::Value = serde_json::from_str(&weir_sdk::config::schema::<Config>()).unwrap();
    assert_eq!(schema["required"], serde_json::json!(["format"]));
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["value"]["default"], "fields");
    assert_eq!(schema["properties"]["malformed"]["default"], "reject");
}
