//! Which workers there are. Pure: time and connections are told, what follows is answered.
//!
//! A worker is its name (in its certificate), a process of it is its incarnation, and each of its connections has a number
//! that is never used again. Only the connection that a worker registered on last is listened to, so whatever an older
//! process or connection still says is refused here. A process is lost at most once; what it ran is then over for this
//! coordinator, even if the same process comes back.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::limits::{CLOCK_SKEW_MS_MAX, HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS};

/// While another process of a worker's name was heard within this time, a second one is refused. Shorter than the timeout, so
/// that a worker that is started again at once does not wait longer than it must.
pub(crate) const RIVAL_HEARD_MS: u64 = 3 * HEARTBEAT_INTERVAL_MS;

/// What a process that has ended said last may arrive this long after its end is known.
const LAST_WORDS_MS: u64 = 50;

/// A process that seems to have ended is lost if nothing but its last words is heard for so long: one heartbeat and some
/// patience.
const SUSPECTED_MS: u64 = HEARTBEAT_INTERVAL_MS + 2 * LAST_WORDS_MS;

/// Why a worker is lost whose process is gone.
const ENDED: &str = "its process has ended";

/// This process stood still where time was not told for so long.
const STOOD_STILL_MS: u64 = HEARTBEAT_TIMEOUT_MS / 2;

/// How long workers that are lost are shown.
pub(crate) const LOST_SHOWN_MS: u64 = 10 * 60 * 1_000;

const _: () = assert!(RIVAL_HEARD_MS < STOOD_STILL_MS);
const _: () = assert!(RIVAL_HEARD_MS < HEARTBEAT_TIMEOUT_MS);

/// Number of a connection, given by whoever accepts them.
pub type LinkId = u64;

/// What time it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since any fixed start; never goes back.
    pub steady_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub wall_ms: u64,
}

/// A worker that wants to register.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Random number of its process.
    pub(crate) incarnation: u64,
    /// Where it connects from, as the connection says.
    pub(crate) from: String,
    /// Its version of weir.
    pub(crate) version: String,
    /// Slots it offers.
    pub(crate) slots: u32,
    /// Where other workers reach it.
    pub(crate) address: String,
    /// Its wall clock.
    pub(crate) clock_ms: u64,
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberChange {
    /// A process of a worker is gone, as far as this coordinator is concerned.
    Lost {
        /// The worker.
        worker: Arc<str>,
        /// Its connection, to be closed.
        link: LinkId,
        /// How this is known.
        reason: String,
    },
    /// A worker is there.
    Joined {
        /// The worker.
        worker: Arc<str>,
        /// Its connection.
        link: LinkId,
    },
    /// A connection is not wanted.
    Refused {
        /// The connection.
        link: LinkId,
        /// Why, with a hint.
        reason: String,
    },
}

/// A worker that is or was there.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// What it said of itself.
    pub(crate) candidate: Candidate,
    /// Its connection; none where it is lost.
    pub(crate) link: Option<LinkId>,
    /// When it was heard last.
    pub(crate) heard: Now,
    /// When it registered or was lost.
    pub(crate) since: Now,
    /// Its clock minus ours when it registered.
    pub(crate) skew_ms: i64,
    /// Until when its certificate counts, as it has said; 0 before.
    pub(crate) certificate_until_ms: u64,
    /// Executions there that do not end, as it has said.
    pub(crate) stuck: u32,
    /// When its process seems to have ended, in steady time.
    suspected_ms: Option<u64>,
}

/// All workers.
#[derive(Debug)]
pub(crate) struct Registry {
    version: String,
    members: BTreeMap<Arc<str>, Member>,
    links: BTreeMap<LinkId, Arc<str>>,
    /// When time was told last.
    ticked_ms: Option<u64>,
}

impl Registry {
    /// No workers. `version` is that of this coordinator.
    pub(crate) fn new(version: &str) -> Registry {
        Registry { version: version.to_owned(), members: BTreeMap::new(), links: BTreeMap::new(), ticked_ms: None }
    }

    /// A worker registers on a connection.
    pub(crate) fn register(&mut self, now: Now, link: LinkId, candidate: Candidate) -> Vec<MemberChange> {
        if let Some(worker) = self.links.get(&link) {
            let reason = format!("worker {worker} registered twice on one connection");
            return self.drop_link(now, link, &reason);
        }
        let skew_ms = candidate.clock_ms as i64 - now.wall_ms as i64;
        if let Some(reason) = self.objection(now, &candidate, skew_ms) {
            return vec![MemberChange::Refused { link, reason }];
        }
        let mut changes = Vec::new();
        if let Some(old) = self.members.get(&candidate.name).and_then(|member| member.link) {
            let same = self.members[&candidate.name].candidate.incarnation == candidate.incarnation;
            let reason = if same { "it connected anew" } else { "it was started anew" };
            changes = self.drop_link(now, old, reason);
        }
        let worker = candidate.name.clone();
        self.links.insert(link, worker.clone());
        self.members.insert(
            worker.clone(),
            Member {
                candidate,
                link: Some(link),
                heard: now,
                since: now,
                skew_ms,
                certificate_until_ms: 0,
                stuck: 0,
                suspected_ms: None,
            },
        );
        changes.push(MemberChange::Joined { worker, link });
        changes
    }

    /// Why a worker may not register.
    fn objection(&self, now: Now, candidate: &Candidate, skew_ms: i64) -> Option<String> {
        let Candidate { name, version, from, .. } = candidate;
        if *version != self.version {
            return Some(format!(
                "worker {name} at {from} is weir {version}, this coordinator is weir {}: all processes of a cluster must be of \
                 one version; install the same on both",
                self.version
            ));
        }
        if skew_ms.unsigned_abs() > CLOCK_SKEW_MS_MAX {
            let direction = if skew_ms > 0 { "ahead of" } else { "behind" };
            return Some(format!(
                "the clock of worker {name} at {from} is {}.{:03} s {direction} the coordinator's, and {} s are tolerated; set \
                 both clocks (for example with NTP)",
                skew_ms.unsigned_abs() / 1_000,
                skew_ms.unsigned_abs() % 1_000,
                CLOCK_SKEW_MS_MAX / 1_000
            ));
        }
        let rival = self.members.get(name).filter(|member| member.link.is_some())?;
        // An address belongs to one process: where the new one has it, the old one has ended. So it has where it seems to, and
        // another one is there.
        let replaced =
            rival.candidate.incarnation == candidate.incarnation || rival.candidate.from == *from || rival.suspected_ms.is_some();
        let is_heard = now.steady_ms.saturating_sub(rival.heard.steady_ms) < RIVAL_HEARD_MS;
        (!replaced && is_heard).then(|| {
            format!(
                "a worker named {name} is connected already, from {}, and this one is at {from}: two processes must not use one \
                 certificate; stop one of them, or make a certificate of its own for it with `weir cluster add-node`",
                rival.candidate.from
            )
        })
    }

    /// The worker of a connection; `None` where its words do not count. Says that it was heard.
    pub(crate) fn heard(&mut self, now: Now, link: LinkId) -> Option<Arc<str>> {
        let worker = self.links.get(&link)?;
        let member = self.members.get_mut(worker).filter(|member| member.link == Some(link))?;
        member.heard = now;
        if member.suspected_ms.is_some_and(|suspected| now.steady_ms >= suspected + LAST_WORDS_MS) {
            member.suspected_ms = None;
        }
        Some(worker.clone())
    }

    /// A worker says until when its certificate counts.
    pub(crate) fn certificate(&mut self, worker: &str, until_ms: u64) {
        if let Some(member) = self.members.get_mut(worker) {
            member.certificate_until_ms = until_ms;
        }
    }

    /// A worker says how many executions do not end there.
    pub(crate) fn stuck(&mut self, worker: &str, executions: u32) {
        if let Some(member) = self.members.get_mut(worker) {
            member.stuck = executions;
        }
    }

    /// A process seems to have ended: the kernel of its machine has closed a connection that watches it. It is lost unless
    /// it is heard again soon, because other things close connections too. Gives the address that only it would answer at.
    pub(crate) fn suspect(&mut self, now: Now, worker: &str, incarnation: u64) -> Option<String> {
        let member = self.members.get_mut(worker).filter(|member| member.candidate.incarnation == incarnation);
        let member = member.filter(|member| member.link.is_some())?;
        member.suspected_ms = Some(now.steady_ms);
        Some(member.candidate.address.clone())
    }

    /// A process that was suspected certainly has ended, even if words of it have been read since.
    pub(crate) fn ended(&mut self, now: Now, worker: &str, incarnation: u64) -> Vec<MemberChange> {
        let member = self.members.get(worker).filter(|member| member.candidate.incarnation == incarnation);
        member.and_then(|member| member.link).map_or_else(Vec::new, |link| self.drop_link(now, link, ENDED))
    }

    /// A connection is closed.
    pub(crate) fn closed(&mut self, now: Now, link: LinkId, reason: &str) -> Vec<MemberChange> {
        self.drop_link(now, link, reason)
    }

    /// Time has passed. To be called much more often than the timeout: where it was not, this process stood still itself, what
    /// workers said is not read yet, and they are given the timeout once more.
    pub(crate) fn tick(&mut self, now: Now) -> Vec<MemberChange> {
        let stood_still = self.ticked_ms.is_some_and(|before| now.steady_ms.saturating_sub(before) > STOOD_STILL_MS);
        if stood_still {
            self.members.values_mut().filter(|member| member.link.is_some()).for_each(|member| member.heard = now);
        }
        self.ticked_ms = Some(now.steady_ms);
        let gone = |member: &Member| {
            let passed = |since: u64, ms: u64| now.steady_ms.saturating_sub(since) >= ms;
            match member.suspected_ms {
                Some(suspected) if passed(suspected, SUSPECTED_MS) => Some(ENDED.to_owned()),
                _ if passed(member.heard.steady_ms, HEARTBEAT_TIMEOUT_MS) => {
                    Some(format!("it was not heard for {HEARTBEAT_TIMEOUT_MS} ms"))
                }
                _ => None,
            }
        };
        let late: Vec<(LinkId, String)> =
            self.members.values().filter_map(|member| Some((member.link?, gone(member)?))).collect();
        self.members
            .retain(|_, member| member.link.is_some() || now.steady_ms.saturating_sub(member.since.steady_ms) < LOST_SHOWN_MS);
        late.into_iter().flat_map(|(link, reason)| self.drop_link(now, link, &reason)).collect()
    }

    fn drop_link(&mut self, now: Now, link: LinkId, reason: &str) -> Vec<MemberChange> {
        let Some(worker) = self.links.remove(&link) else { return Vec::new() };
        let Some(member) = self.members.get_mut(&worker).filter(|member| member.link == Some(link)) else { return Vec::new() };
        member.link = None;
        member.since = now;
        vec![MemberChange::Lost { worker, link, reason: reason.to_owned() }]
    }

    /// Whether a connection is that of a worker which is there.
    pub(crate) fn is_joined(&self, link: LinkId) -> bool {
        self.links.contains_key(&link)
    }

    /// The connection of a worker that is there.
    pub(crate) fn link(&self, worker: &str) -> Option<LinkId> {
        self.members.get(worker)?.link
    }

    /// Everything known of a worker.
    pub(crate) fn member(&self, worker: &str) -> Option<&Member> {
        self.members.get(worker)
    }

    /// All workers, by name, also those lost a short time ago.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&Arc<str>, &Member)> {
        self.members.iter()
    }
}

#[cfg(test)]
mod tests;
