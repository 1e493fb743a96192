//! Whatever happens, in any order: the machine never contradicts itself, and comes to an end once somebody wants that.

use weir_protocol::FailureKind;

use super::bench::{Bench, Settings, adopted};
use super::places::running;
use crate::StoreFailureKind::{Broken, Damaged, Fenced, Permanent, TimedOut, Transient};
use crate::{Input, Wish};

/// Numbers that look random (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }
}

/// One thing that may happen.
fn step(bench: &mut Bench, dice: &mut Dice) {
    match dice.roll(24) {
        0..5 => bench.work(),
        5..9 => bench.store(),
        9..13 => bench.answer(),
        13 => bench.pass(dice.roll(3_000) as u64),
        14 => bench.pass(dice.roll(100_000) as u64),
        15 => bench.fail([FailureKind::Transient, FailureKind::Damaged, FailureKind::PeerLost][dice.roll(3)]),
        16 => bench.lose(["a", "b"][dice.roll(2)]),
        17 => bench.wish(Wish::Rescale(1 + dice.roll(2) as u32)),
        18 if !bench.asked.is_empty() => bench.refuse([Transient, TimedOut, Broken][dice.roll(3)]),
        19 if dice.roll(4) == 0 && !bench.asked.is_empty() => bench.refuse([Permanent, Damaged, Fenced][dice.roll(3)]),
        20 => bench.tell(Input::SlotsChanged),
        21 => bench.tell(Input::Recorded(if dice.roll(2) == 0 { Ok(()) } else { Err("full".to_owned()) })),
        // Requests, or what workers were told, are lost.
        22 => bench.asked.clear(),
        23 => bench.commands.clear(),
        _ => {}
    }
}

#[test]
fn whatever_happens_in_any_order_the_machine_holds_its_invariants_and_ends_when_it_is_told_to() {
    let mut ends = std::collections::BTreeMap::<String, u32>::new();
    for seed in 1..2_000_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut bench = match dice.roll(4) {
            0 => running(),
            1 => Bench::new(Settings { fresh: true, ..Settings::default() }),
            2 => {
                let mut bench = Bench::new(Settings { adopted: Some(adopted(7, 6)), ..Settings::default() });
                bench.attempts = 3;
                bench
            }
            _ => Bench::new(Settings { impatient: dice.roll(2) == 0, ..Settings::default() }),
        };
        for _ in 0..dice.roll(120) {
            if bench.over.is_none() {
                step(&mut bench, &mut dice);
            }
        }
        let wish = [Wish::Stop, Wish::Cancel][dice.roll(2)];
        if bench.over.is_none() {
            bench.wish(wish);
            // The storage answers or does not; nobody waits for it longer than is said. Workers do what they are told.
            bench.hangs = dice.roll(2) == 0;
            for _ in 0..20 {
                bench.settle();
                if bench.over.is_none() {
                    bench.pass(60_000);
                }
            }
        }
        assert!(bench.over.is_some(), "seed {seed}, {wish:?}: {:#?}", &bench.log[bench.log.len().saturating_sub(30)..]);
        let end = bench.end();
        *ends.entry(end.split(':').next().unwrap_or_default().to_owned()).or_default() += 1;
    }
    for end in ["stopped", "stopped between", "stopped by a failure", "cancelled", "error"] {
        assert!(ends.get(end).is_some_and(|count| *count > 10), "too few that are {end}: {ends:?}");
    }
}
