#![allow(clippy::unwrap_used)]

use super::*;

fn factory(settings: &Value) -> GeneratorFactory {
    GeneratorFactory::from_settings(settings.as_object().unwrap()).unwrap()
}

fn generator(settings: &Value, index: u32, parallelism: u32) -> Generator {
    Generator::new(factory(settings).0, index, parallelism)
}

/// Timestamp, key, value.
type Row = (i64, Vec<u8>, Vec<u8>);

/// Gen.java, line by line.
struct Gen {
    k: u64,
    p: u64,
    ts_num: u64,
    ts_den: u64,
    prefill: bool,
    value: Vec<u8>,
}

impl Gen {
    fn new(k: u64, value_size: usize, p: u64, ts_num: u64, ts_den: u64, prefill: bool) -> Gen {
        let mut seed = (42u64 ^ 0x5DEECE66D) & ((1 << 48) - 1);
        let mut value = Vec::new();
        while value.len() < value_size {
            seed = (u128::from(seed) * 0x5DEECE66D + 0xB) as u64 & ((1 << 48) - 1);
            let mut int = (seed >> 16) as u32;
            for _ in 0..4 {
                if value.len() < value_size {
                    value.push(int as u8);
                    int >>= 8;
                }
            }
        }
        Gen { k, p, ts_num, ts_den, prefill, value }
    }

    fn next(&self, i: u64) -> Row {
        let split_size = COUNT / self.p;
        let local = i % split_size;
        let key = if self.prefill && local < self.k / self.p {
            local * self.p + i / split_size
        } else {
            ((u128::from(mix64(i) >> 1) * u128::from(self.k << 1)) >> 64) as u64
        };
        let ts = (local * self.p * self.ts_num / self.ts_den) as i64;
        let mut value = self.value.clone();
        value[..8].copy_from_slice(&i.to_le_bytes());
        (ts, key.to_le_bytes().to_vec(), value)
    }
}

/// K, value bytes, P, numerator, denominator, prefill, i, and what Gen.java gives for it: key, timestamp, value.
/// Printed by the Java class itself (JDK 17).
type JavaRow = (u64, usize, u64, u64, u64, bool, u64, u64, i64, &'static str);
const BY_JAVA: [JavaRow; 9] = [
    (
        10000,
        64,
        2,
        6,
        100,
        false,
        0,
        8833,
        0,
        "0000000000000000e1bbe7ae28c0450ce43c084f4bbb2bf1839dee466d852cb5be6a61aa9a0c6117bd6743e7dc978573998e685e885cb361f86c974620bebfb0",
    ),
    (
        10000,
        64,
        2,
        6,
        100,
        false,
        123456789,
        1337,
        14814814,
        "15cd5b0700000000e1bbe7ae28c0450ce43c084f4bbb2bf1839dee466d852cb5be6a61aa9a0c6117bd6743e7dc978573998e685e885cb361f86c974620bebfb0",
    ),
    (
        10000,
        64,
        2,
        6,
        100,
        false,
        2200010909873,
        8229,
        118518518,
        "b168de3a00020000e1bbe7ae28c0450ce43c084f4bbb2bf1839dee466d852cb5be6a61aa9a0c6117bd6743e7dc978573998e685e885cb361f86c974620bebfb0",
    ),
    (1000000, 24, 3, 7, 11, true, 5, 15, 9, "0500000000000000e1bbe7ae28c0450ce43c084f4bbb2bf1"),
    (1000000, 24, 3, 7, 11, true, 1466015837033, 999997, 636361, "696b5a5555010000e1bbe7ae28c0450ce43c084f4bbb2bf1"),
    (1000000, 24, 3, 7, 11, true, 1466015837034, 994413, 636363, "6a6b5a5555010000e1bbe7ae28c0450ce43c084f4bbb2bf1"),
    (
        2000000,
        100,
        1,
        1,
        1,
        true,
        1999999,
        1999999,
        1999999,
        "7f841e0000000000e1bbe7ae28c0450ce43c084f4bbb2bf1839dee466d852cb5be6a61aa9a0c6117bd6743e7dc978573998e685e885cb361f86c974620bebfb01100b276545718c30f406cc8e3a188fff11059eb6fbce62655dfbd6f83b89670d6d9f9bf",
    ),
    (
        2000000,
        100,
        1,
        1,
        1,
        true,
        2000000,
        1860614,
        2000000,
        "80841e0000000000e1bbe7ae28c0450ce43c084f4bbb2bf1839dee466d852cb5be6a61aa9a0c6117bd6743e7dc978573998e685e885cb361f86c974620bebfb01100b276545718c30f406cc8e3a188fff11059eb6fbce62655dfbd6f83b89670d6d9f9bf",
    ),
    (2305843009213693952, 8, 5, 1000, 1, false, 3518437208881, 540796978086536866, 5000, "3133333333030000"),
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn rows_are_those_that_java_gives() {
    for (k, value_bytes, p, num, den, prefill, i, key, ts, value) in BY_JAVA {
        let split = i / (COUNT / p);
        let settings =
            json!({"keys": k, "value_bytes": value_bytes, "ts_numerator": num, "ts_denominator": den, "prefill": prefill});
        let mut generator = generator(&settings, split as u32, p as u32);
        let splits = (0..p).map(|s| (s.to_string(), json!({"next": i % (COUNT / p), "splits": p}))).collect();
        generator.restore(&splits).unwrap();
        let mut rows = Batch::default();
        assert_eq!(generator.poll(&mut rows, 1, 1).unwrap(), Polled::Rows);
        let found = rows.view().row(0);
        assert_eq!(
            (found.timestamp, found.key_bytes(), hex(found.value_bytes()).as_str()),
            (ts, &key.to_le_bytes()[..], value),
            "row {i}"
        );
    }
}

#[test]
fn the_first_rows_of_all_splits_hash_to_what_java_says() {
    let (mut hash, mut rows) = (0_u64, Batch::default());
    for split in 0..4 {
        let mut generator = generator(&json!({"keys": 10_000, "prefill": true}), split, 4);
        rows.clear();
        while rows.len() < 5_000 {
            let left = 5_000 - rows.len();
            generator.poll(&mut rows, left.min(977), usize::MAX).unwrap();
        }
        for row in rows.rows() {
            let mut add = |word: u64| hash = hash.wrapping_mul(31).wrapping_add(word);
            add(u64::from_le_bytes(row.key_bytes().try_into().unwrap()));
            add(row.timestamp as u64);
            row.value_bytes().iter().for_each(|&byte| add(u64::from(byte)));
        }
    }
    assert_eq!(hash, 9_731_078_897_438_960_973);
}

#[test]
fn any_polls_and_restores_at_any_parallelism_give_each_row_once_and_in_order() {
    for seed in 0..60_u64 {
        let random = |salt: u64, below: u64| mix64(seed * 1_000 + salt) % below;
        let (p, rows_total, k) = (1 + random(0, 6), random(1, 4_000), 1 + random(2, 900));
        let (num, den, value_bytes, prefill) = (random(3, 50), 1 + random(4, 50), 8 + random(5, 70) as usize, random(6, 2) == 0);
        let settings = json!({"rows": rows_total, "keys": k, "splits": p, "value_bytes": value_bytes, "prefill": prefill,
            "ts_numerator": num, "ts_denominator": den, "start": 1_000});
        let mut found: BTreeMap<u64, Vec<Row>> = BTreeMap::new();
        let mut splits = BTreeMap::new();
        let mut rows = Batch::default();
        for round in 0..100 {
            let parallelism = 1 + random(10 + round, 4) as u32;
            let (mut next, mut ended) = (BTreeMap::new(), 0);
            for index in 0..parallelism {
                let mut generator = generator(&settings, index, parallelism);
                if round > 0 {
                    generator.restore(&splits).unwrap();
                }
                for poll in 0..random(20 + round, 5) {
                    rows.clear();
                    let before = rows.len();
                    let polled = generator.poll(&mut rows, 1 + random(30 + round + poll, 300) as usize, 20_000).unwrap();
                    assert!(rows.view().is_valid() && (polled == Polled::Rows) == (rows.len() > before));
                    for row in rows.rows() {
                        let (ts, key, value) = (row.timestamp, row.key_bytes(), row.value_bytes());
                        let i = u64::from_le_bytes(value[..8].try_into().unwrap());
                        found.entry(i / (COUNT / p)).or_default().push((ts, key.to_vec(), value.to_vec()));
                    }
                    ended += u32::from(polled == Polled::Ended);
                }
                next.extend(generator.position());
            }
            splits = next;
            assert_eq!(splits.len(), p as usize);
            if round == 99 || ended == parallelism && round > 90 {
                break;
            }
        }
        let gen_java = Gen::new(k, value_bytes, p, num, den, prefill);
        for split in 0..p {
            let rows = rows_total / p + u64::from(split < rows_total % p);
            let first = split * (COUNT / p);
            let shifted = |(ts, key, value): Row| (ts + 1_000, key, value);
            let expected: Vec<_> = (first..first + rows).map(|i| shifted(gen_java.next(i))).collect();
            assert_eq!(found.remove(&split).unwrap_or_default(), expected, "seed {seed}, split {split}");
        }
    }
}

#[test]
fn a_rate_is_held_without_drift_and_shared_by_subtasks() {
    let started = Instant::now();
    let mut generators: Vec<Generator> = (0..3).map(|i| generator(&json!({"rows_per_second": 10_000}), i, 3)).collect();
    let (mut rows, mut given) = (Batch::default(), 0);
    while given < 1_000 {
        for generator in &mut generators {
            rows.clear();
            if let Polled::Idle { retry_in } = generator.poll(&mut rows, 1_000, 1 << 20).unwrap() {
                assert!(retry_in > Duration::ZERO && retry_in <= RATE_WAIT_MAX);
            }
            given += rows.len();
        }
        // One more for each subtask: the shares are rounded up.
        let most = started.elapsed().as_secs_f64() * 10_000.0 + 3.0;
        assert!(given as f64 <= most, "{given} rows, {most} allowed");
    }
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused() {
    let position = |value: Value| BTreeMap::from([("0".to_owned(), value)]);
    let mut generator = generator(&json!({"splits": 2}), 0, 1);
    let error = generator.restore(&position(json!({"next": 5, "splits": 3}))).unwrap_err().to_string();
    assert!(error.contains("3 splits") && error.contains("splits = 2"), "{error}");
    assert!(generator.restore(&position(json!({"offset": 5}))).is_err());
    assert!(generator.restore(&position(json!({"next": 5, "splits": 2}))).unwrap_err().to_string().contains("split 1"));
}

#[test]
fn wrong_settings_are_named() {
    let key = |value: Value| GeneratorFactory::from_settings(value.as_object().unwrap()).err().unwrap().key;
    assert_eq!(key(json!({"value_bytes": 7})), "value_bytes");
    assert_eq!(key(json!({"keys": 0})), "keys");
    assert_eq!(key(json!({"ts_denominator": 0})), "ts_denominator");
    assert_eq!(key(json!({"start": "tomorrow"})), "start");
    assert_eq!(key(json!({"rate": 5})), "rate");
}

#[test]
fn s114_rows_without_key_or_value_and_with_headers_are_the_same_at_every_position() {
    let plain = json!({"rows": 1_000, "splits": 2, "keys": 50});
    let odd = json!({"rows": 1_000, "splits": 2, "keys": 50, "no_key_every": 4, "empty_key_every": 6, "no_value_every": 5, "headers_every": 3});
    let all = |settings: &Value, steps: usize| {
        let mut rows = Batch::default();
        for index in 0..2 {
            let mut source = generator(settings, index, 2);
            while source.poll(&mut rows, steps, usize::MAX).unwrap() == Polled::Rows {
                let position = source.position();
                source = generator(settings, index, 2);
                source.restore(&position).unwrap();
            }
        }
        rows
    };
    let (plain, odd) = (all(&plain, 1_000), all(&odd, 7));
    assert!(odd.view().is_valid());
    for (row, expected) in odd.rows().zip(plain.rows()) {
        let i = u64::from_le_bytes(expected.value_bytes()[..8].try_into().unwrap());
        assert_eq!(row.timestamp, expected.timestamp);
        let key = if i % 4 == 0 {
            None
        } else if i % 6 == 0 {
            Some(&b""[..])
        } else {
            expected.key
        };
        assert_eq!((row.key, row.value), (key, if i % 5 == 0 { None } else { expected.value }));
        let headers: Vec<_> = weir_model::headers_of(row.headers).collect();
        let number = i.to_string();
        let expected: &[(&[u8], &[u8])] = if i % 3 == 0 { &[(b"row", number.as_bytes())] } else { &[] };
        assert_eq!(headers, expected);
    }
    assert_eq!(odd.len(), 1_000);
    assert!(GeneratorFactory::from_settings(json!({"no_key_every": 0}).as_object().unwrap()).is_err());
}
