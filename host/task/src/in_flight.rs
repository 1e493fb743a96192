//! Which of the rows that were in flight at a checkpoint belong to which subtask now.
//!
//! Frames hold whole records, so at another parallelism they can be divided anew, edge by edge: over a hash exchange by key
//! group; over a broadcast, what a subtask had in flight goes to exactly the key groups that were its own; over any other, what
//! one subtask had in flight goes to one subtask, so that its order is kept.

use weir_channel::Frame;
use weir_model::{KeyGroup, KeyGroupRange, KeyedBatch};
use weir_plan::Exchange;

use crate::spec::RestoredInFlight;

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

/// What cannot have been in flight over an edge. Frames come from files, so they are looked at before they are worked off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongFrame {
    /// A frame of a kind that the exchange does not send, or that is never captured.
    #[error("{kind} cannot be in flight by exchange \"{exchange}\"")]
    Kind {
        /// What it is.
        kind: &'static str,
        /// The edge's exchange.
        exchange: Exchange,
    },
    /// Rows of a key group that the subtask did not own.
    #[error("rows of key group {group} cannot be in flight to the owner of {groups}")]
    Group {
        /// The key group.
        group: KeyGroup,
        /// What the subtask owned.
        groups: KeyGroupRange,
    },
}

fn check(exchange: Exchange, then: Place, frame: &Frame) -> Result<(), WrongFrame> {
    match (frame, exchange) {
        (Frame::Keyed(rows), Exchange::Hash) => match outside(rows, then.groups()) {
            Some(group) => Err(WrongFrame::Group { group, groups: then.groups() }),
            None => Ok(()),
        },
        (Frame::Rows(_), Exchange::Rebalance | Exchange::Forward | Exchange::Broadcast) => Ok(()),
        (frame, exchange) => Err(WrongFrame::Kind { kind: kind_of(frame), exchange }),
    }
}

/// A key group of which there are rows and that is not one of these. Looks at two sections only, since they are in order.
pub(crate) fn outside(rows: &KeyedBatch, groups: KeyGroupRange) -> Option<KeyGroup> {
    let ends = rows.section_ends();
    let edges = ends.first().into_iter().chain(ends.last());
    edges.map(|section| section.key_group).find(|group| !groups.contains(*group))
}

/// A frame, for messages.
pub(crate) fn kind_of(frame: &Frame) -> &'static str {
    match frame {
        Frame::Rows(_) => "rows that are not divided by key group",
        Frame::Keyed(_) => "rows divided by key group",
        Frame::Watermark(_) => "a watermark",
        Frame::Idle => "a sign of idleness",
        Frame::Barrier(_) => "a barrier",
        Frame::End => "an end",
    }
}

/// Takes a share of what was in flight to `then`.
///
/// # Errors
/// If the frames cannot be what they are said to be.
pub fn take(
    share: Share,
    exchange: Exchange,
    then: Place,
    input: u32,
    frames: Vec<Frame>,
) -> Result<Option<RestoredInFlight>, WrongFrame> {
    frames.iter().try_for_each(|frame| check(exchange, then, frame))?;
    let (groups, frames) = match share {
        Share::None => return Ok(None),
        Share::All(groups) => (groups, frames),
        Share::Groups(groups) => {
            let within = |frame| match frame {
                Frame::Keyed(rows) => KeyedBatch::within(&rows, groups).map(Frame::Keyed),
                _ => unreachable!("only a hash exchange is divided by key group, and its frames were looked at"),
            };
            (None, frames.into_iter().filter_map(within).collect())
        }
    };
    Ok((!frames.is_empty()).then_some(RestoredInFlight { input, groups, frames }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use weir_model::{Batch, Section};

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

    fn rows() -> Batch {
        let mut rows = Batch::default();
        rows.push(1, b"key", b"value");
        rows
    }

    fn keyed(key_group: u16) -> Frame {
        let section = Section { key_group, rows_end: 1, key_bytes_end: 3, value_bytes_end: 5, header_bytes_end: 0 };
        Frame::Keyed(KeyedBatch::from_parts(rows(), vec![section]).unwrap())
    }

    #[test]
    fn s83_frames_that_cannot_have_been_in_flight_are_refused_and_none_is_taken_twice() {
        let (then, all) = (place(0, 2), KeyGroupRange { start: 0, end: 12 });
        let take = |share, exchange, frame: Frame| take(share, exchange, then, 0, vec![frame]);
        let plain = || Frame::Rows(Arc::new(rows()));
        for share in [Share::None, Share::All(None), Share::Groups(all)] {
            let error = take(share, Exchange::Hash, plain()).unwrap_err();
            assert_eq!(error.to_string(), "rows that are not divided by key group cannot be in flight by exchange \"hash\"");
            let error = take(share, Exchange::Hash, keyed(6)).unwrap_err();
            assert_eq!(error, WrongFrame::Group { group: 6, groups: KeyGroupRange { start: 0, end: 6 } });
        }
        for exchange in [Exchange::Rebalance, Exchange::Forward, Exchange::Broadcast] {
            assert!(take(Share::All(None), exchange, keyed(0)).is_err());
            assert!(take(Share::All(None), exchange, Frame::End).is_err());
            assert!(take(Share::All(None), exchange, plain()).unwrap().is_some());
        }
        assert!(take(Share::All(None), Exchange::Hash, keyed(5)).unwrap().is_some());
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
