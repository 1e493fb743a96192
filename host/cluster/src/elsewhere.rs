//! Workers that run what another coordinator began, and so do not join this one. Pure.
//!
//! They come again and again, as long as they do not find the one that leads them. Owns what is shown of them; nothing of what they run is
//! touched. Never decides that this coordinator takes the other's place: a person does (`weir cluster adopt`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_model::Epoch;
use weir_protocol::api::StrayWorker;
use weir_protocol::{Register, follows};

use crate::{Hello, Now};

/// How long a worker is shown that does not come again: it has found its coordinator, or is gone. Longer than several attempts at several
/// addresses take.
const SHOWN_MS: u64 = 60_000;

/// The fewest digits by which an origin may be named: as many as are shown.
const DIGITS_MIN: usize = 8;

/// Which coordinator this is, whose place it takes, and who follows others.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    epoch: Epoch,
    succeeds: Vec<Epoch>,
    seen: BTreeMap<Arc<str>, (Now, StrayWorker)>,
}

/// What a person has named cannot be adopted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AdoptionRefusal {
    /// It is too short, or no number at all.
    NoOrigin,
    /// No worker that was seen is led by such a coordinator.
    Unknown,
    /// Workers of several such coordinators were seen.
    Several,
}

impl Elsewhere {
    /// Of a coordinator that takes the place of those that are lost for good.
    pub(crate) fn new(epoch: Epoch, succeeds: Vec<Epoch>) -> Elsewhere {
        Elsewhere { epoch, succeeds, seen: BTreeMap::new() }
    }

    /// This coordinator.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Coordinators whose place it takes.
    pub(crate) fn succeeds(&self) -> &[Epoch] {
        &self.succeeds
    }

    /// Why a worker that registers stays with another coordinator; none where it may join. The flag says whether that is news.
    pub(crate) fn objection(&mut self, now: Now, hello: &Hello, register: &Register) -> Option<(String, bool)> {
        let led_by = register.led_by.filter(|_| !register.running.is_empty());
        let Some(led_by) = led_by.filter(|led_by| !follows(*led_by, self.epoch, &self.succeeds)) else {
            self.seen.remove(&hello.name);
            return None;
        };
        let jobs: BTreeSet<String> = register.running.iter().map(|running| running.execution.job.clone()).collect();
        let reason = format!(
            "worker {} at {} runs {}, which coordinator {led_by} began, and stays with it; this is coordinator {}. If that one is \
             lost for good: `weir cluster adopt {}`",
            hello.name,
            hello.from,
            jobs.iter().map(|job| format!("job {job}")).collect::<Vec<_>>().join(", "),
            self.epoch,
            led_by.origin_short()
        );
        let shown = StrayWorker {
            worker: hello.name.to_string(),
            from: hello.from.clone(),
            led_by,
            jobs: jobs.into_iter().collect(),
            seen_at_ms: now.wall_ms,
        };
        let before = self.seen.insert(hello.name.clone(), (now, shown.clone()));
        let is_news = before.is_none_or(|(_, before)| (before.led_by, before.jobs) != (led_by, shown.jobs));
        Some((reason, is_news))
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Now) {
        self.seen.retain(|_, (seen, _)| now.steady_ms.saturating_sub(seen.steady_ms) < SHOWN_MS);
    }

    /// Workers that do not join, by name.
    pub(crate) fn shown(&self) -> Vec<StrayWorker> {
        self.seen.values().map(|(_, shown)| shown.clone()).collect()
    }

    /// Whose place this coordinator would take, if it took that of the coordinator with this origin (the beginning of it) up to the
    /// last life of it that was seen. To be written durably, and then [`Elsewhere::adopt`]ed.
    pub(crate) fn with(&self, origin: &str) -> Result<Vec<Epoch>, AdoptionRefusal> {
        let origin = origin.to_ascii_lowercase();
        if origin.len() < DIGITS_MIN || !origin.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(AdoptionRefusal::NoOrigin);
        }
        let seen = self.seen.values().map(|(_, shown)| shown.led_by).chain(self.succeeds.iter().copied());
        let named: Vec<Epoch> = seen.filter(|epoch| epoch.origin_text().starts_with(&origin)).collect();
        let first = named.first().ok_or(AdoptionRefusal::Unknown)?;
        if named.iter().any(|epoch| epoch.origin != first.origin) {
            return Err(AdoptionRefusal::Several);
        }
        let last = Epoch { count: named.iter().map(|epoch| epoch.count).max().unwrap_or(first.count), ..*first };
        let others = self.succeeds.iter().copied().filter(|epoch| epoch.origin != last.origin);
        Ok(others.chain([last]).collect())
    }

    /// It takes their place from now on.
    pub(crate) fn adopt(&mut self, succeeds: Vec<Epoch>) {
        self.succeeds = succeeds;
    }
}

#[cfg(test)]
mod tests {
    use weir_model::{Attempt, CheckpointId};
    use weir_protocol::{Execution, Running};

    use super::*;

    fn epoch(origin: u8, count: u64) -> Epoch {
        Epoch { origin: [origin; 16], count }
    }

    fn at(ms: u64) -> Now {
        Now { steady_ms: ms, wall_ms: ms }
    }

    fn hello(name: &str) -> Hello {
        Hello { name: name.into(), incarnation: 1, from: "x:1".to_owned() }
    }

    fn register(led_by: Option<Epoch>, jobs: &[&str]) -> Register {
        let running = jobs.iter().map(|job| Running {
            execution: Execution { job: (*job).to_owned(), attempt: Attempt(1) },
            tasks: Vec::new(),
            started: true,
            restored: Vec::new(),
            finished: Vec::new(),
            committed: Vec::new(),
            last_checkpoint: CheckpointId(0),
            failure: None,
        });
        let (version, data_address) = ("1".to_owned(), "x:2".to_owned());
        Register { version, slots: 1, data_address, clock_ms: 0, running: running.collect(), led_by }
    }

    #[test]
    fn s88_who_runs_what_another_coordinator_began_does_not_join_until_a_person_says_so() {
        let mut elsewhere = Elsewhere::new(epoch(1, 1), Vec::new());
        let theirs = register(Some(epoch(2, 7)), &["a", "b", "a"]);
        let (reason, is_news) = elsewhere.objection(at(0), &hello("w"), &theirs).unwrap();
        assert!(is_news && reason.contains("job a, job b") && reason.contains("weir cluster adopt 02020202"), "{reason}");
        assert!(!elsewhere.objection(at(1), &hello("w"), &theirs).unwrap().1, "said once");
        assert_eq!(elsewhere.shown()[0].led_by, epoch(2, 7));
        assert!(elsewhere.objection(at(2), &hello("idle"), &register(Some(epoch(2, 7)), &[])).is_none(), "it runs nothing");
        assert!(elsewhere.objection(at(2), &hello("own"), &register(Some(epoch(1, 1)), &["a"])).is_none());

        let succeeds = elsewhere.with("02020202").unwrap();
        assert_eq!(succeeds, [epoch(2, 7)]);
        assert!(elsewhere.objection(at(3), &hello("w"), &theirs).is_some(), "not before it is written");
        elsewhere.adopt(succeeds);
        assert!(elsewhere.objection(at(4), &hello("w"), &theirs).is_none());
        assert!(elsewhere.shown().is_empty());
        assert!(elsewhere.objection(at(5), &hello("w"), &register(Some(epoch(2, 8)), &["a"])).is_some(), "it lives on");
        assert_eq!(elsewhere.with("02020202").unwrap(), [epoch(2, 8)], "and again up to the last life that was seen");
    }

    #[test]
    fn only_a_coordinator_whose_workers_were_seen_is_adopted_and_only_where_it_is_clear_which() {
        let mut elsewhere = Elsewhere::new(epoch(1, 3), Vec::new());
        assert_eq!(elsewhere.with("02020202"), Err(AdoptionRefusal::Unknown));
        let similar = Epoch { origin: std::array::from_fn(|index| if index < 8 { 2 } else { 3 }), count: 1 };
        elsewhere.objection(at(0), &hello("a"), &register(Some(epoch(2, 1)), &["a"]));
        elsewhere.objection(at(0), &hello("b"), &register(Some(similar), &["a"]));
        assert_eq!(elsewhere.with("02020202"), Err(AdoptionRefusal::Several));
        assert_eq!(elsewhere.with(&epoch(2, 1).origin_text()), Ok(vec![epoch(2, 1)]));
        assert_eq!(elsewhere.with("0202"), Err(AdoptionRefusal::NoOrigin));
        assert_eq!(elsewhere.with("weir-coordinator"), Err(AdoptionRefusal::NoOrigin));
        // An older folder of the same coordinator was put in place.
        elsewhere.objection(at(0), &hello("c"), &register(Some(epoch(1, 9)), &["a"]));
        assert_eq!(elsewhere.with("01010101"), Ok(vec![epoch(1, 9)]));
        elsewhere.tick(at(SHOWN_MS));
        assert!(elsewhere.shown().is_empty());
    }
}
