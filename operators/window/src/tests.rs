#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;
use weir_sdk::serde_json;
use weir_sdk::testing::Harness;

fn error(config: &str) -> String {
    Harness::<Window>::try_new(config).unwrap_err()
}

/// Rows of a few keys whose times go up and down, by a small generator with a seed.
fn random_rows(seed: u64, count: usize, disorder: u64) -> Vec<(Timestamp, Vec<u8>, Vec<u8>)> {
    let mut state = seed;
    let mut next = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    (0..count)
        .map(|i| {
            let time = (i as i64) * 7 - next(disorder) as i64;
            let cents = next(10_000);
            let key = format!("key {}", next(5));
            (time, key.into_bytes(), format!("{{\"amount\":{}.{:02}}}", cents / 100, cents % 100).into_bytes())
        })
        .collect()
}

fn feed(harness: &mut Harness<Window>, rows: &[(Timestamp, Vec<u8>, Vec<u8>)]) {
    let rows: Vec<(Timestamp, &[u8], &[u8])> = rows.iter().map(|(time, key, value)| (*time, &key[..], &value[..])).collect();
    harness.input(0, &rows);
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

#[test]
fn s111_values_come_only_where_they_are_aggregated() {
    let columns = |config: &str| Harness::<Window>::new(config).operator().columns(0);
    let counted = columns(r#"{"kind":"tumbling","size":"5m"}"#);
    assert_eq!(counted, Columns::TIMESTAMPS | Columns::KEYS);
    assert_eq!(columns(r#"{"kind":"tumbling","size":"5m","aggregate":"sum","field":"n"}"#), Columns::ROWS);
}

#[test]
fn s110_the_schema_says_what_may_be_aggregated() {
    let schema: serde_json::Value = serde_json::from_str(&weir_sdk::config::schema::<Config>()).unwrap();
    assert_eq!(schema["required"], serde_json::json!(["kind"]));
    assert_eq!(schema["$defs"]["Aggregate"]["enum"], serde_json::json!(["count", "sum", "min", "max", "mean"]));
    let aggregate = &schema["properties"]["aggregate"];
    assert_eq!((&aggregate["default"], aggregate["anyOf"].as_array().map(Vec::len)), (&serde_json::json!("count"), Some(2)));
    assert_eq!(schema["properties"]["allowed_lateness"]["default"], "0s");
}

#[test]
fn a_tumbling_window_is_sent_when_the_watermark_reaches_its_end() {
    let mut window = Harness::<Window>::new(r#"{"kind":"tumbling","size":"10ms"}"#);
    window.row(0, "a", "").row(9, "a", "").row(10, "a", "").row(3, "b", "");
    window.advance(9);
    assert_eq!(window.take_text(0), Vec::<String>::new());
    window.advance(10);
    assert_eq!(sorted(window.take_text(0)), [r#"9 a {"start":0,"end":10,"count":2}"#, r#"9 b {"start":0,"end":10,"count":1}"#]);
    window.finish();
    assert_eq!(window.take_text(0), [r#"19 a {"start":10,"end":20,"count":1}"#]);
}

#[test]
fn times_before_the_epoch_have_windows_too() {
    let mut window = Harness::<Window>::new(r#"{"kind":"tumbling","size":"10ms"}"#);
    window.row(-1, "a", "").row(-10, "a", "").row(-11, "a", "").finish();
    assert_eq!(window.take_text(0), [r#"-11 a {"start":-20,"end":-10,"count":1}"#, r#"-1 a {"start":-10,"end":0,"count":2}"#]);
}

#[test]
fn late_rows_update_the_result_within_the_allowed_lateness_and_go_to_their_own_output_after_it() {
    let mut window = Harness::<Window>::new(r#"{"kind":"tumbling","size":"10ms","allowed_lateness":"5ms"}"#);
    window.row(1, "a", "x").advance(12);
    assert_eq!(window.take_text(0), [r#"9 a {"start":0,"end":10,"count":1}"#]);
    window.row(2, "a", "y");
    assert_eq!(window.take_text(0), [r#"9 a {"start":0,"end":10,"count":2}"#]);
    window.row(2, "new", "y");
    assert_eq!(window.take_text(0), [r#"9 new {"start":0,"end":10,"count":1}"#]);
    window.advance(15).row(3, "a", "z");
    assert_eq!(window.take_text(0), Vec::<String>::new());
    assert_eq!(window.take_text(1), ["3 a z"]);
    assert!(window.take_rejections().is_empty());
}

#[test]
fn sums_are_exact_to_the_cent() {
    let mut window = Harness::<Window>::new(
        r#"{"kind":"tumbling","size":"1h","field":"/amount","aggregate":["count","sum","min","max","mean"]}"#,
    );
    for _ in 0..10 {
        window.row(1, "a", r#"{"amount":0.1}"#);
    }
    window.row(1, "a", r#"{"amount":"-2.50"}"#).finish();
    assert_eq!(
        window.take_text(0),
        [r#"3599999 a {"start":0,"end":3600000,"count":11,"sum":-1.5,"min":-2.5,"max":0.1,"mean":-0.136363636}"#]
    );
}

#[test]
fn rows_without_the_number_are_rejected_and_change_nothing() {
    let mut window = Harness::<Window>::new(r#"{"kind":"tumbling","size":"1s","field":"a.b","aggregate":"sum"}"#);
    window.row(1, "k", "{}").row(1, "k", r#"{"a":{"b":true}}"#).row(1, "k", "{").row(1, "k", r#"{"a":{"b":"1.2.3"}}"#);
    window.row(1, "k", r#"{"a":{"b":1.7976931348623157e308}}"#).row(
        1,
        "k",
        format!("{{\"a\":{{\"b\":\"1{}\"}}}}", "x".repeat(5_000)),
    );
    let reasons: Vec<String> = window.take_rejections().into_iter().map(|rejected| rejected.reason).collect();
    assert_eq!(
        reasons,
        [
            "field `a.b` is missing",
            "field `a.b` is not a number",
            "reading the value: not JSON at byte 1",
            "field `a.b`: 1.2.3: not a number",
            "field `a.b`: 1.7976931348623157e308: more than 29 digits before the point",
            &format!("field `a.b`: 1{}... (5001 bytes): not a number", "x".repeat(119)),
        ]
    );
    window.finish();
    assert_eq!(window.take_text(0), Vec::<String>::new());
}

const ALL: &str = r#""field":"n","aggregate":["count","sum","min","max","mean"]"#;

fn numbers(harness: &mut Harness<Window>, time: Timestamp, numbers: &[&str]) {
    for number in numbers {
        harness.row(time, "a", format!("{{\"n\":{number}}}"));
    }
}

#[test]
fn a2_doubles_are_taken_rounded_by_default_and_counted() {
    let mut window = Harness::<Window>::new(&format!(r#"{{"kind":"tumbling","size":"10ms",{ALL}}}"#));
    numbers(&mut window, 1, &["0.30000000000000004", "0.12345678901", "1e-400", "2.5"]);
    assert!(window.take_rejections().is_empty());
    assert_eq!(window.counter("numbers_rounded"), 3);
    window.finish();
    let sums = r#""sum":2.923456789,"min":0,"max":2.5,"mean":0.730864197"#;
    assert_eq!(window.take_text(0), [format!(r#"9 a {{"start":0,"end":10,"count":4,{sums}}}"#)]);
}

#[test]
fn a2_exact_numbers_are_rejected_where_they_do_not_fit() {
    let mut window = Harness::<Window>::new(&format!(r#"{{"kind":"tumbling","size":"10ms","numbers":"exact",{ALL}}}"#));
    numbers(&mut window, 1, &["0.30000000000000004", "0.3"]);
    assert_eq!(window.take_rejections()[0].reason, "field `n`: 0.30000000000000004: more than 9 digits after the point");
    assert_eq!(window.counter("numbers_rounded"), 0);
    window.finish();
    assert!(window.take_text(0)[0].contains(r#""count":1,"sum":0.3,"#));
}

#[test]
fn a2_floats_take_what_a_double_holds() {
    let mut window =
        Harness::<Window>::new(&format!(r#"{{"kind":"sliding","size":"10ms","slide":"5ms","numbers":"float",{ALL}}}"#));
    numbers(&mut window, 1, &["1e200", "-2.5e-300"]);
    numbers(&mut window, 6, &["1e200", "1e308", "\"1e5x\""]);
    let reasons: Vec<String> = window.take_rejections().into_iter().map(|rejected| rejected.reason).collect();
    assert_eq!(reasons, ["field `n`: 1e308: beyond 1e288", "field `n`: 1e5x: not a number"]);
    window.advance(10);
    let rows = window.take_text(0);
    assert!(
        rows[1].ends_with(r#""count":3,"sum":2e+200,"min":-2.5e-300,"max":1e+200,"mean":6.666666666666667e+199}"#),
        "{rows:?}"
    );
    // No more than 2^64 rows can come, and so many of the greatest still have a sum.
    let greatest = (0..64).fold(1e288, |sum: f64, _| sum + sum);
    assert!(greatest.is_finite());
}

/// Whatever was accepted can be added up, across panes and sessions: no row makes a window fail later.
#[test]
fn sums_of_the_greatest_numbers_overflow_nowhere() {
    const GREATEST: &str = "170141183460469231731687303715.884105727";
    for window in [
        r#""kind":"sliding","size":"10ms","slide":"5ms""#,
        r#""kind":"tumbling","size":"10ms""#,
        r#""kind":"session","gap":"4ms""#,
    ] {
        let mut window = Harness::<Window>::new(&format!("{{{window},\"allowed_lateness\":\"1h\",{ALL}}}"));
        for time in [1, 7, 4] {
            numbers(&mut window, time, &["1e29", GREATEST, "-1e29", "1e29"]);
        }
        window.advance(50);
        numbers(&mut window, 8, &["1e29"]);
        window.finish();
        assert!(window.take_rejections().is_empty());
        let results = window.take_text(0);
        let all = results.iter().find(|row| row.contains("\"count\":13")).unwrap_or_else(|| panic!("{results:?}"));
        let sum = r#""sum":910423550381407695195061911147.652317181,"#;
        assert!(all.contains(sum) && all.contains("\"mean\":70032580798569822707312454703.66556286"), "{all}");
    }
}

#[test]
fn numbers_that_add_up_are_saved_and_go_on() {
    let config = format!(r#"{{"kind":"tumbling","size":"10ms",{ALL}}}"#);
    let mut window = Harness::<Window>::new(&config);
    numbers(&mut window, 1, &["1e29", "1e29", "1e29"]);
    let mut window = window.upgrade::<Window>(&config).unwrap();
    numbers(&mut window, 1, &["-1e29", "0.5"]);
    window.finish();
    assert!(window.take_text(0)[0].contains("\"sum\":200000000000000000000000000000.5,"));
}

#[test]
fn new_keys_and_windows_are_rejected_where_memory_is_full() {
    for window in [r#""kind":"sliding","size":"10ms","slide":"5ms""#, r#""kind":"session","gap":"4ms""#] {
        let mut window = Harness::<Window>::new(&format!("{{{window}}}"));
        let long = |n: usize| format!("a key that does not fit in the table {n}");
        window.row(1, long(0), "");
        window.set_room(Some(0));
        window.row(2, long(0), "").row(2, long(1), "");
        for n in 0..20 {
            window.row(1_000 * n, long(2), "");
        }
        window.row(50_000, long(0), "").row(60_000, "b", "");
        // Of a pane a few bytes are there already.
        if let Store::RowsInPanes(panes) = &window.operator().state.store {
            assert!(panes.len() <= 4, "{}", panes.len());
        }
        let rejected = window.take_rejections();
        assert!(rejected.len() == 23 && rejected[0].reason.contains("raise limits.memory"), "{rejected:?}");
        window.advance(50);
        let results = window.take_text(0);
        assert!(results.iter().all(|row| row.contains(&long(0)) && row.contains("\"count\":2")), "{results:?}");
        window.set_room(None);
        window.row(100, long(3), "").finish();
        assert!(window.take_text(0).iter().all(|row| row.contains(&long(3))));
    }
}

/// State may fill nearly all memory, so many keys are merged a part at a time: each still has one result.
#[test]
fn windows_of_many_keys_have_one_result_a_key() {
    let mut window = Harness::<Window>::new(r#"{"kind":"sliding","size":"10ms","slide":"5ms"}"#);
    for time in [1, 6] {
        let rows: Vec<(Timestamp, Vec<u8>, Vec<u8>)> =
            (0..60_000).map(|n| (time, format!("key {n}").into_bytes(), Vec::new())).collect();
        feed(&mut window, &rows);
    }
    window.advance(5);
    window.take(0);
    window.advance(10);
    let results = window.take(0);
    assert!(results.iter().all(|row| row.value.ends_with(b"\"count\":2}")));
    let keys: std::collections::BTreeSet<&[u8]> = results.iter().map(|row| row.key.as_slice()).collect();
    assert_eq!((results.len(), keys.len()), (60_000, 60_000));
}

/// A window is looked at once, when it is due: not all windows of all panes at each watermark.
#[test]
fn a10_many_panes_cost_no_more_than_their_rows() {
    // Each pane is in 5,000 windows. Looking at each window of each pane would be 5 * 10^9 steps.
    let mut window = Harness::<Window>::new(r#"{"kind":"sliding","size":"5000ms","slide":"1ms","allowed_lateness":"5s"}"#);
    let mut sent = 0;
    for time in (0..20_000).step_by(20) {
        window.row(time, if time % 4_000 == 0 { "often" } else { "x" }, "");
        window.advance(time - 20);
        sent += window.take(0).len();
    }
    window.finish();
    sent += window.take(0).len();
    assert!(sent > 24_000, "{sent}");
    assert!(window.take_text(1).is_empty());
}

/// All windows that hold any row, computed from all rows at once.
fn reference(rows: &[(Timestamp, Vec<u8>, Vec<u8>)], size: i64, slide: i64) -> Vec<String> {
    let mut counts: BTreeMap<(i64, &[u8]), u64> = BTreeMap::new();
    for (time, key, _) in rows {
        let mut start = time.div_euclid(slide) * slide;
        while start > time - size {
            *counts.entry((start, key)).or_default() += 1;
            start -= slide;
        }
    }
    let text = |((start, key), count): ((i64, &[u8]), u64)| {
        let (end, key) = (start + size, String::from_utf8_lossy(key));
        format!("{} {key} {{\"start\":{start},\"end\":{end},\"count\":{count}}}", end - 1)
    };
    sorted(counts.into_iter().map(text).collect())
}

#[test]
fn sliding_and_tumbling_windows_equal_the_reference_for_any_watermarks() {
    for seed in 0..40 {
        for (size, slide) in [(50, 50), (100, 25), (60, 40), (35, 10), (30, 1)] {
            let disorder = 90;
            let rows = random_rows(seed, 300, disorder);
            let mut window = Harness::<Window>::new(&format!(r#"{{"kind":"sliding","size":"{size}ms","slide":"{slide}ms"}}"#));
            let mut watermark = i64::MIN;
            for (i, chunk) in rows.chunks(11 + seed as usize).enumerate() {
                feed(&mut window, chunk);
                // Each row is at most `disorder` behind the row number it was made from.
                let safe = ((i + 1) * (11 + seed as usize)) as i64 * 7 - disorder as i64;
                if i % 3 != 0 && safe > watermark {
                    watermark = safe;
                    window.advance(watermark);
                }
            }
            window.finish();
            assert_eq!(window.take_text(1), Vec::<String>::new());
            assert_eq!(sorted(window.take_text(0)), reference(&rows, size, slide), "seed {seed}, {size}/{slide}");
        }
    }
}

#[test]
fn the_last_result_of_each_window_counts_its_late_rows() {
    for seed in 0..40 {
        for (size, slide) in [(50, 50), (100, 25), (60, 40)] {
            let rows = random_rows(seed, 300, 120);
            let config = format!(r#"{{"kind":"sliding","size":"{size}ms","slide":"{slide}ms","allowed_lateness":"1h"}}"#);
            let mut window = Harness::<Window>::new(&config);
            for (i, chunk) in rows.chunks(10).enumerate() {
                feed(&mut window, chunk);
                window.advance(i as i64 * 70);
            }
            window.finish();
            let mut last: BTreeMap<(i64, Vec<u8>), String> = BTreeMap::new();
            for row in window.take(0) {
                let text =
                    format!("{} {} {}", row.timestamp, String::from_utf8_lossy(&row.key), String::from_utf8_lossy(&row.value));
                last.insert((row.timestamp, row.key), text);
            }
            assert_eq!(sorted(last.into_values().collect()), reference(&rows, size, slide), "seed {seed}, {size}/{slide}");
        }
    }
}

#[test]
fn a_pause_of_the_gap_ends_a_session() {
    let mut window = Harness::<Window>::new(r#"{"kind":"session","gap":"10ms"}"#);
    window.row(0, "a", "").row(9, "a", "").row(19, "a", "").row(25, "a", "").row(3, "b", "");
    window.advance(18);
    assert_eq!(window.take_text(0), [r#"12 b {"start":3,"end":13,"count":1}"#]);
    window.advance(19);
    assert_eq!(window.take_text(0), [r#"18 a {"start":0,"end":19,"count":2}"#]);
    window.row(5, "a", "late");
    assert_eq!(window.take_text(1), ["5 a late"]);
    window.finish();
    assert_eq!(window.take_text(0), [r#"34 a {"start":19,"end":35,"count":2}"#]);
}

#[test]
fn a_row_between_two_sessions_makes_them_one() {
    let mut window = Harness::<Window>::new(r#"{"kind":"session","gap":"10ms","field":"n","aggregate":["sum","count"]}"#);
    window.row(0, "a", r#"{"n":1}"#).row(15, "a", r#"{"n":2}"#).row(7, "a", r#"{"n":4}"#).finish();
    assert_eq!(window.take_text(0), [r#"24 a {"start":0,"end":25,"sum":7,"count":3}"#]);
}

#[test]
fn sessions_equal_the_reference_for_any_watermarks() {
    for seed in 0..60 {
        let rows = random_rows(seed, 250, 60);
        let gap = 20 + seed as i64;
        let mut window = Harness::<Window>::new(&format!(r#"{{"kind":"session","gap":"{gap}ms"}}"#));
        let mut watermark = i64::MIN;
        for (i, chunk) in rows.chunks(13).enumerate() {
            feed(&mut window, chunk);
            let safe = (i as i64 + 1) * 13 * 7 - 60;
            if i % 2 == 0 && safe > watermark {
                watermark = safe;
                window.advance(watermark);
            }
        }
        window.finish();
        let mut times: BTreeMap<&[u8], Vec<i64>> = BTreeMap::new();
        rows.iter().for_each(|(time, key, _)| times.entry(key).or_default().push(*time));
        let mut expected = Vec::new();
        for (key, mut times) in times {
            times.sort_unstable();
            for session in times.chunk_by(|a, b| b - a < gap) {
                let (start, end) = (session[0], session[session.len() - 1] + gap);
                let key = String::from_utf8_lossy(key);
                expected.push(format!("{} {key} {{\"start\":{start},\"end\":{end},\"count\":{}}}", end - 1, session.len()));
            }
        }
        assert_eq!(sorted(window.take_text(0)), sorted(expected), "seed {seed}");
        assert_eq!(window.take_text(1), Vec::<String>::new());
    }
}

#[test]
fn state_goes_on_in_another_version_and_is_refused_by_another_window() {
    for config in [
        r#"{"kind":"tumbling","size":"10ms","aggregate":"sum","field":"n"}"#,
        r#"{"kind":"session","gap":"10ms","aggregate":"sum","field":"n"}"#,
    ] {
        let mut old = Harness::<Window>::new(config);
        old.row(1, "a", r#"{"n":1}"#).row(2, "a-much-longer-key-than-fits", r#"{"n":2}"#);
        let mut new = old.upgrade::<Window>(config).unwrap();
        new.row(1, "a", r#"{"n":1.5}"#).finish();
        let results = sorted(new.take_text(0));
        assert!(results.len() == 2 && results.iter().any(|row| row.contains("\"sum\":2.5")), "{results:?}");
        let mut other = old.upgrade::<Window>(r#"{"kind":"tumbling","size":"20ms"}"#).unwrap();
        let error = other.try_input(0, &[(1, b"a", b"")]).unwrap_err();
        assert!(error.contains("config.kind"), "{error}");
        let mut other = old.upgrade::<Window>(&config.replace("\"field\"", "\"numbers\":\"float\",\"field\"")).unwrap();
        let error = other.try_input(0, &[(1, b"a", b"")]).unwrap_err();
        assert!(error.contains("and numbers describe"), "{error}");
    }
}

#[test]
fn what_is_wrong_with_a_configuration_is_named() {
    for (config, expected) in [
        ("{}", "config: key `kind` is missing"),
        (r#"{"kind":"tumbling"}"#, "config: key `size` is missing, for example size = \"5m\""),
        (r#"{"kind":"tumbling","size":"0s"}"#, "config.size: must be longer than 0"),
        (r#"{"kind":"tumbling","size":"5m","slide":"1m"}"#, "config.slide: has no meaning for a tumbling window"),
        (r#"{"kind":"session","gap":"5m","size":"1m"}"#, "config.size: has no meaning for a session window"),
        (r#"{"kind":"tumbling","size":"5m","aggregate":"sum"}"#, "config.field: say which number"),
        (r#"{"kind":"tumbling","size":"5m","field":"x"}"#, "config.field: count alone"),
        (r#"{"kind":"tumbling","size":"5m","numbers":"float"}"#, "config.numbers: count alone"),
        (
            r#"{"kind":"tumbling","size":"5m","aggregate":"sum","field":"x","numbers":"floats"}"#,
            "config.numbers: unknown value `floats`; did you mean `float`?",
        ),
        (r#"{"kind":"tumbling","size":"99999999999d"}"#, "config.size: `99999999999d` is more than 1000000d"),
        (r#"{"kind":"tumbling","size":"5m","aggregate":[]}"#, "config.aggregate: name at least one"),
        (r#"{"kind":"sliding","size":"5m","slide":"10m"}"#, "config.slide: 600000 ms is longer than size"),
        (r#"{"kind":"sliding","size":"1d","slide":"1ms"}"#, "config.slide: 1 ms divides"),
        (r#"{"kind":"tumblin","size":"5m"}"#, "config.kind: unknown value `tumblin`; did you mean `tumbling`?"),
        (r#"{"kind":"tumbling","size":"5m","aggregate":"avg"}"#, "config.aggregate: unknown value `avg`"),
        (r#"{"kind":"tumbling","size":"5 min"}"#, "config.size: `5 min` is not a time span"),
        (
            r#"{"kind":"tumbling","size":"5m","alowed_lateness":"1s"}"#,
            "config: unknown key `alowed_lateness`; did you mean `allowed_lateness`?",
        ),
    ] {
        assert!(error(config).starts_with(expected), "{config}\n  {}\n  {expected}", error(config));
    }
}

#[test]
fn what_an_end_of_the_input_has_closed_stays_closed_when_more_comes() {
    let mut window = Harness::<Window>::new(r#"{"kind":"tumbling","size":"10ms","allowed_lateness":"1m"}"#);
    window.row(3, "a", "").row(12, "a", "").finish();
    assert_eq!(window.take_text(0).len(), 2);
    window.advance(12);
    window.row(4, "a", "").row(15, "a", "").row(20, "a", "").row(21, "b", "");
    assert_eq!(window.take_text(1).len(), 2, "those of 4 and 15");
    window.advance(30);
    let sent = [r#"29 a {"start":20,"end":30,"count":1}"#, r#"29 b {"start":20,"end":30,"count":1}"#];
    assert_eq!(sorted(window.take_text(0)), sent);
    window.row(22, "a", "");
    assert_eq!(window.take_text(0), [r#"29 a {"start":20,"end":30,"count":2}"#], "within the allowed lateness of what is open");
    window.finish();
    assert!(window.take_text(0).is_empty() && window.take_text(1).is_empty());

    let mut window = Harness::<Window>::new(r#"{"kind":"sliding","size":"20ms","slide":"10ms"}"#);
    window.row(12, "a", "").finish();
    assert_eq!(window.take_text(0).len(), 2, "from 0 and from 10");
    window.advance(12);
    window.row(25, "a", "");
    window.finish();
    assert_eq!(window.take_text(0), [r#"39 a {"start":20,"end":40,"count":1}"#], "that from 10 was closed");
    assert!(window.take_text(1).is_empty());

    let mut window = Harness::<Window>::new(r#"{"kind":"session","gap":"10ms"}"#);
    window.row(12, "a", "").finish();
    assert_eq!(window.take_text(0), [r#"21 a {"start":12,"end":22,"count":1}"#]);
    window.advance(12);
    window.row(11, "a", "").row(15, "a", "").finish();
    assert_eq!(window.take_text(0), [r#"24 a {"start":15,"end":25,"count":1}"#]);
    assert_eq!(window.take_text(1).len(), 1, "that of 11");
}

mod any_number {
    use proptest::prelude::*;
    use weir_sdk::{Decimal, Sum};

    /// Decimal numbers as texts, with their values in units of 10^-12.
    fn decimal() -> impl Strategy<Value = (String, i128)> {
        (any::<bool>(), 0u64..1_000_000_000_000_000, 0u32..13, 0u32..4).prop_map(|(negative, digits, places, form)| {
            let (whole, rest) = (digits / 10u64.pow(places), digits % 10u64.pow(places));
            let sign = if negative { "-" } else { "" };
            let plain = if places == 0 { format!("{whole}") } else { format!("{whole}.{rest:0width$}", width = places as usize) };
            let text = match form {
                0 => plain,
                1 => format!("{plain}e0"),
                2 => format!("{digits}E-{places}"),
                _ => format!("0.{digits:0>15}e{}", 15 - i64::from(places)),
            };
            let value = i128::from(digits) * 10i128.pow(12 - places);
            (format!("{sign}{text}"), if negative { -value } else { value })
        })
    }

    /// To units of 10^-9, halves away from zero.
    fn rounded(value: i128) -> i128 {
        (value.abs() + 500) / 1_000 * value.signum()
    }

    fn text(units: i128) -> String {
        let (whole, rest) = (units.abs() / 1_000_000_000, units.abs() % 1_000_000_000);
        let sign = if units < 0 { "-" } else { "" };
        let fraction = format!("{rest:09}");
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
    }

    proptest! {
        #[test]
        fn decimals_are_read_rounded_and_added_as_whole_numbers_are(numbers in proptest::collection::vec(decimal(), 1..12)) {
            let (mut sum, mut expected) = (Sum::default(), 0);
            for (number, value) in &numbers {
                let (decimal, was_rounded) = Decimal::parse_rounded(number).unwrap();
                prop_assert_eq!(decimal.to_string(), text(rounded(*value)), "{}", number);
                prop_assert_eq!(was_rounded, value % 1_000 != 0, "{}", number);
                prop_assert_eq!(Decimal::parse(number).is_ok(), !was_rounded, "{}", number);
                sum.add(decimal);
                expected += rounded(*value);
            }
            prop_assert_eq!(sum.to_string(), text(expected));
            let count = numbers.len() as i128;
            let mean = (expected.abs() * 2 + count) / (2 * count) * expected.signum();
            prop_assert_eq!(sum.divided_by(numbers.len() as u64).unwrap().to_string(), text(mean));
        }

        /// Any text of a number's characters is read or refused, and never panics.
        #[test]
        fn what_looks_like_a_number_is_one_or_not(number in "-?[0-9]{0,40}(\\.[0-9]{0,40})?([eE][+-]?[0-9]{0,25})?") {
            let _ = Decimal::parse(&number);
            let rounded = Decimal::parse_rounded(&number);
            let is_number = number.parse::<f64>().is_ok()
                && !number.contains(".e") && !number.contains(".E") && !number.ends_with('.') && !number.trim_start_matches('-').starts_with('.');
            prop_assert_eq!(rounded == Err(weir_sdk::DecimalError::NotANumber), !is_number, "{}", number);
        }
    }
}
