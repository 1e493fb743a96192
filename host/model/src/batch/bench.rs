//! Figures, printed: what a row costs that is pushed, copied, gathered and divided, beside the plainest way to copy it, in the same process.
//! `cargo test --release -p weir-model --lib bench -- --ignored --nocapture`.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use crate::{Batch, BatchRef, Blobs, Extras, Partitioner, RowRef};

const ROWS: usize = 16_384;
const ROUNDS: usize = 60;

/// Nanoseconds a row: the best of many rounds, since others use the machine as well.
fn row_ns(mut round: impl FnMut() -> usize) -> f64 {
    let one = |_| {
        let started = Instant::now();
        let rows = black_box(round());
        started.elapsed().as_nanos() as f64 / rows as f64
    };
    (0..ROUNDS).map(one).fold(f64::MAX, f64::min)
}

/// Keys of 8 bytes and values of 64, or of many widths.
fn rows(uniform: bool) -> Batch {
    let mut rows = Batch::default();
    for n in 0..ROWS as u64 {
        let key = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        let width = if uniform { 64 } else { 48 + (n % 33) as usize };
        rows.push(n as i64, &key[..if uniform { 8 } else { 4 + (n % 5) as usize }], &[n as u8; 80][..width]);
    }
    rows
}

/// Row by row, as if nothing else could be in a batch: what a push was before there were extras.
fn row_by_row(out: &mut (Vec<i64>, Blobs, Blobs), rows: BatchRef<'_>, numbers: impl Iterator<Item = usize>) {
    for row in numbers {
        out.0.push(rows.timestamps[row]);
        out.1.push(rows.keys.get(row));
        out.2.push(rows.values.get(row));
    }
}

#[test]
#[ignore = "prints figures"]
fn bench_of_rows() {
    for (what, uniform) in [("one width", true), ("many widths", false)] {
        let rows = rows(uniform);
        let view = rows.view();
        let mut plain = (Vec::new(), Blobs::default(), Blobs::default());
        let mut clear_then = |numbers: &mut dyn Iterator<Item = usize>| {
            plain.0.clear();
            plain.1.clear();
            plain.2.clear();
            row_by_row(&mut plain, view, numbers);
            plain.0.len()
        };
        let before = row_ns(|| clear_then(&mut (0..ROWS)));
        let half: Vec<u32> = (0..ROWS as u32).filter(|n| n % 2 == 0).collect();
        let runs: Vec<u32> = (0..ROWS as u32).filter(|n| n % 64 < 48).collect();
        let before_half = row_ns(|| clear_then(&mut half.iter().map(|&row| row as usize)));

        let mut out = Batch::default();
        let mut timed = |fill: &dyn Fn(&mut Batch)| {
            row_ns(|| {
                out.clear();
                fill(&mut out);
                out.len()
            })
        };
        let push =
            timed(&|out| (0..ROWS).for_each(|row| out.push(view.timestamps[row], view.keys.get(row), view.values.get(row))));
        let push_row = timed(&|out| view.rows().for_each(|row| out.push_row(row)));
        let without_key = timed(&|out| view.rows().for_each(|row| out.push_row(RowRef { key: None, ..row })));
        let range = timed(&|out| out.extend_range(view, 1..ROWS));
        let gather_half = timed(&|out| out.gather(view, &half));
        let gather_runs = timed(&|out| out.gather(view, &runs));
        let mut odd = rows.clone();
        odd.extras = Some(Box::new(Extras {
            absent: vec![Extras::KEY_ABSENT; ROWS],
            headers: Blobs { ends: vec![0; ROWS], bytes: Vec::new() },
        }));
        let mut partitioner = Partitioner::new(128, 2);
        let mut partition = |rows: BatchRef<'_>| {
            row_ns(|| {
                let mut count = 0;
                partitioner.partition(rows, |_, keyed| count += black_box(keyed).len());
                count
            })
        };
        let (divide, divide_odd) = (partition(view), partition(odd.view()));
        let valid = row_ns(|| {
            assert!(black_box(view).is_valid());
            ROWS
        });
        println!("{what}: row by row without extras {before:.2} ns a row, every other row {before_half:.2}");
        println!("  push {push:.2} ({:.2} of it), push_row {push_row:.2} ({:.2})", push / before, push_row / before);
        println!("  push_row without a key {without_key:.2}");
        println!("  extend_range {range:.2} ({:.2}), is_valid {valid:.2}", range / before);
        println!("  gather every other {gather_half:.2} ({:.2}), runs of 48 {gather_runs:.2}", gather_half / before_half);
        println!("  partition {divide:.2}, with extras {divide_odd:.2}");
    }
}
