//! Seeds of the fuzz targets, and mutations of them: every change is checked without a nightly compiler.

use std::path::Path;

use super::garbage::Random;
use crate::{ChannelHeader, fuzz};

fn each(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let seeds: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(seeds.len() >= 3, "the corpus is there");
    let mut random = Random(1);
    for seed in seeds {
        run(&seed);
        for _ in 0..3_000 {
            let mut bytes = seed.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            bytes.truncate(random.below(2 * bytes.len() as u64).max(1) as usize);
            run(&bytes);
        }
    }
}

#[test]
fn headers_of_channels() {
    each("channel_header", |bytes| {
        if let Ok(header) = fuzz::channel_header(bytes) {
            assert_eq!(again(&header), bytes);
        }
    });
}

fn again(header: &ChannelHeader) -> Vec<u8> {
    crate::data::header::encode(header).unwrap()
}

#[test]
fn hellos() {
    each("hello", |bytes| {
        if let Ok(hello) = fuzz::hello(bytes) {
            assert_eq!(hello.encode()[2..], *bytes);
        }
    });
}
