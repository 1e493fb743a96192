//! Which of the rows that were in flight at a checkpoint belong to which subtask now.
//!
//! Frames hold whole records, so at another parallelism they can be divided anew, edge by edge: over a hash exchange by key
//! group; over a broadcast, what a subtask had in flight goes to exactly the key groups that were its own; over any other, what
//! one subtask had in flight goes to one subtask, so that its order is kept.

use weir_channel::Frame;
use weir_model::{KeyGroupRange, KeyedBatch};
use weir_plan::Exchange;

use crate::build::RestoredInFlight;

/// A subtask, now or when the checkpoint was taken.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its index.
    pub subtask: u32,
    /// Number of subtasks.
    pub parallelism: u32,
    /// Number of key groups of the job.
    pub key_groups: u16,
}

impl Place {
    fn groups(self) -> KeyGroupRange {
        KeyGroupRange::of(self.subtask, self.key_groups, self.parallelism)
    }
}

/// What a subtask has to take of rows that were in flight to an earlier subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Nothing.
    None,
    /// Everything, for the instances of these key groups where it is said.
    All(Option<KeyGroupRange>),
    /// Rows of these key groups.
    Groups(KeyGroupRange),
}

/// The share of `now` in what was in flight to `then` over an edge of this exchange. `keyed`: the receiving operator has an
/// instance per key group. `groups`: those that rows for every instance still had to reach, where not all of `then`'s.
pub fn share(exchange: Exchange, keyed: bool, groups: Option<KeyGroupRange>, then: Place, now: Place) -> Share {
    let same = then.parallelism == now.parallelism;
    match exchange {
        Exchange::Hash => match then.groups().intersection(now.groups()) {
            Some(_) if same => Share::All(None),
            Some(groups) => Share::Groups(groups),
            None => Share::None,
        },
        Exchange::Broadcast if keyed => {
            let reach = groups.unwrap_or_else(|| then.groups());
            match reach.intersection(now.groups()) {
                Some(groups) => Share::All(Some(groups)),
                None => Share::None,
            }
        }
        // Its state comes from that subtask too.
        Exchange::Broadcast if now.subtask % then.parallelism == then.subtask => Share::All(None),
        Exchange::Rebalance | Exchange::Forward if then.subtask % now.parallelism == now.subtask => Share::All(None),
        Exchange::Broadcast | Exchange::Rebalance | Exchange::Forward => Share::None,
    }
}

/// Takes a share of frames.
pub fn take(share: Share, input: u32, frames: Vec<Frame>) -> Option<RestoredInFlight> {
    let (groups, frames) = match share {
        Share::None => return None,
        Share::All(groups) => (groups, frames),
        Share::Groups(groups) => {
            let within = |frame| match frame {
                Frame::Keyed(rows) => KeyedBatch::within(&rows, groups).map(Frame::Keyed),
                other => Some(other),
            };
            (None, frames.into_iter().filter_map(within).collect())
        }
    };
    (!frames.is_empty()).then_some(RestoredInFlight { input, groups, frames })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY_GROUPS: u16 = 12;

    fn place(subtask: u32, parallelism: u32) -> Place {
        Place { subtask, parallelism, key_groups: KEY_GROUPS }
    }

    const CHANGES: [(u32, u32); 8] = [(1, 2), (2, 1), (2, 3), (3, 7), (7, 3), (4, 8), (12, 5), (5, 5)];

    #[test]
    fn s21_every_key_group_of_a_hash_exchange_is_taken_once() {
        for (before, after) in CHANGES {
            for old in 0..before {
                let then = place(old, before);
                let takes = |new: u32, group: u16| match share(Exchange::Hash, true, None, then, place(new, after)) {
                    Share::None => false,
                    Share::All(_) => true,
                    Share::Groups(groups) => groups.contains(group),
                };
                for group in then.groups().start..then.groups().end {
                    let takers = (0..after).filter(|new| takes(*new, group)).count();
                    assert_eq!(takers, 1, "{before} -> {after}, group {group}");
                }
            }
        }
    }

    #[test]
    fn s22_a_broadcast_row_reaches_every_key_group_that_has_not_had_it_once() {
        for (before, after) in CHANGES {
            for old in 0..before {
                let then = place(old, before);
                let all = then.groups();
                // Half of them have had it already.
                let left = (all.start + (all.end - all.start) / 2, all.end);
                for (groups, reach) in [(None, (all.start, all.end)), (Some(KeyGroupRange { start: left.0, end: left.1 }), left)]
                {
                    let mut reached = vec![0; usize::from(KEY_GROUPS)];
                    for new in 0..after {
                        match share(Exchange::Broadcast, true, groups, then, place(new, after)) {
                            Share::All(Some(groups)) => {
                                (groups.start..groups.end).for_each(|group| reached[usize::from(group)] += 1);
                            }
                            Share::None => {}
                            other => panic!("{other:?}"),
                        }
                    }
                    let expected = |group: u16| i32::from(group >= reach.0 && group < reach.1);
                    assert!((0..KEY_GROUPS).all(|group| reached[usize::from(group)] == expected(group)), "{reached:?}");
                }
            }
        }
    }

    #[test]
    fn s21_what_was_in_flight_to_one_subtask_goes_whole_to_one() {
        for (before, after) in CHANGES {
            for exchange in [Exchange::Rebalance, Exchange::Forward] {
                for old in 0..before {
                    let share = |new| share(exchange, false, None, place(old, before), place(new, after));
                    assert_eq!((0..after).filter(|new| share(*new) == Share::All(None)).count(), 1);
                }
            }
        }
    }
}
