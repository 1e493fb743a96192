//! Finding a coordinator, again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::timeout;
use weir_transport::{Control, Expected};

use super::lease::Lease;
use super::session::{self, End};
use super::station::Station;

/// The first pause between two attempts, and the longest. The longest is short enough that a coordinator that was started again
/// still waits.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(1_000);

/// How long the first attempt waits for an answer; later ones wait longer, up to what the endpoint waits itself. A coordinator
/// that is started during an attempt may hear of it only at the end, so attempts begin short.
const ANSWER_MIN: Duration = Duration::from_secs(2);

/// How often the same trouble is said again.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// Connects and serves, for ever. Cancelling closes what there is.
pub(super) async fn run(station: &Station) {
    let mut pauses = Pauses::default();
    let mut troubles = Troubles::default();
    let mut lease = Lease::default();
    for address in station.coordinators.iter().cycle() {
        let patience = ANSWER_MIN.saturating_mul(1 + pauses.0 / 2);
        let trouble = match timeout(patience, station.endpoint.connect_control(address, Expected::Coordinator)).await {
            Err(_) => format!(
                "cannot connect to the coordinator at {address}: no answer; nothing listens there, a firewall drops UDP, or \
                     it is of another cluster than {}",
                station.identity.cluster()
            ),
            Ok(Err(error)) => format!("cannot connect to the coordinator at {address}: {error}"),
            Ok(Ok(control)) => match serve(station, address, control).await {
                End::Refused(reason) => format!("the coordinator at {address} does not take this worker: {reason}"),
                End::OtherLeader(why) => format!("does not join the coordinator at {address}: {why}"),
                End::Lost { reason, joined } => {
                    if joined {
                        (pauses, troubles) = (Pauses::default(), Troubles::default());
                        lease.lost(Instant::now());
                    }
                    format!("lost the coordinator at {address}: {reason}; tasks go on meanwhile")
                }
            },
        };
        if troubles.is_news(address, &trouble, Instant::now()) {
            tracing::warn!("{trouble}; trying again");
        }
        if let Some(absent) = lease.is_over(Instant::now()) {
            end_alone(station, absent).await;
        }
        tokio::time::sleep(pauses.next()).await;
    }
}

/// Ends what runs here: nobody has been there to take a checkpoint for too long.
async fn end_alone(station: &Station, absent: Duration) {
    let worker = station.worker.clone();
    let reason = format!(
        "there was no coordinator for {} s, and what is written without checkpoints must not grow for ever; the job goes on from its last \
             checkpoint",
        absent.as_secs()
    );
    match spawn_blocking(move || worker.end_all(&reason)).await {
        Ok(0) => {}
        Ok(ended) => tracing::warn!(ended, absent_s = absent.as_secs(), "no coordinator: what runs here is ended"),
        Err(error) => tracing::error!(%error, "the worker panicked; this is a bug in weir"),
    }
}

async fn serve(station: &Station, address: &str, control: Control) -> End {
    let end = session::serve(station, address, control).await;
    station.outbox.disconnect();
    end
}

/// Pauses between attempts: each twice as long as the one before, up to a bound.
#[derive(Debug, Default)]
struct Pauses(u32);

impl Pauses {
    fn next(&mut self) -> Duration {
        let pause = PAUSE_MIN.saturating_mul(1 << self.0.min(10)).min(PAUSE_MAX);
        self.0 += 1;
        pause
    }
}

/// What was said about troubles, by address: the same is not said with every attempt.
#[derive(Debug, Default)]
struct Troubles(BTreeMap<String, (String, Instant)>);

impl Troubles {
    fn is_news(&mut self, address: &str, trouble: &str, now: Instant) -> bool {
        let known = |(said, at): &(String, Instant)| said == trouble && now.saturating_duration_since(*at) < SAY_AGAIN;
        if self.0.get(address).is_some_and(known) {
            return false;
        }
        self.0.insert(address.to_owned(), (trouble.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_below_the_time_a_coordinator_waits() {
        let mut pauses = Pauses::default();
        let all: Vec<u128> = (0..50).map(|_| pauses.next().as_millis()).collect();
        assert_eq!(all[..5], [100, 200, 400, 800, 1_000]);
        assert_eq!(all[49], 1_000);
    }

    #[test]
    fn the_same_trouble_is_said_once_in_a_while() {
        let (mut troubles, start) = (Troubles::default(), Instant::now());
        let mut is_news = |address, trouble, s| troubles.is_news(address, trouble, start + Duration::from_secs(s));
        assert!(is_news("one", "a", 0));
        assert!(is_news("other", "c", 1));
        assert!(!is_news("one", "a", 29));
        assert!(is_news("one", "b", 29));
        assert!(is_news("one", "a", 29));
        assert!(!is_news("other", "c", 30), "two addresses in turn do not make each other's news");
        assert!(is_news("one", "a", 59));
    }
}
