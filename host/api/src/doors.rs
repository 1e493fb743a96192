//! Places for connections: those of strangers apart from those that have shown who they are.
//!
//! Until its first request has passed the rules, a connection is a stranger's: it has one of their places ([`Strangers`]), and a short time.

use std::future::pending;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::sleep;
use weir_protocol::access::Person;
use weir_transport::strangers::{StrangerPlace, Strangers};

use crate::limits::{CONNECTIONS_MAX, STRANGER_MAX, STRANGERS_MAX, STRANGERS_PER_ADDRESS_MAX};

/// All places.
#[derive(Debug)]
pub(crate) struct Doors(Mutex<Places>);

impl Default for Doors {
    fn default() -> Doors {
        Doors(Mutex::new(Places { strangers: Strangers::new(STRANGERS_MAX, STRANGERS_PER_ADDRESS_MAX), known: 0 }))
    }
}

#[derive(Debug)]
struct Places {
    strangers: Strangers,
    known: usize,
}

/// The place of one connection. It is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    doors: Arc<Doors>,
    stranger: StrangerPlace,
    is_known: AtomicBool,
    /// The user at the other end, if they may everything.
    owner: Option<Person>,
}

impl Doors {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection from an address. Another stranger may have to leave for it.
    pub(crate) fn enter(self: &Arc<Doors>, from: IpAddr, owner: Option<Person>) -> Arc<Seat> {
        let stranger = self.places().strangers.enter(from);
        Arc::new(Seat { doors: self.clone(), stranger, is_known: AtomicBool::new(false), owner })
    }
}

impl Seat {
    /// The user at the other end, if they may everything: that of this process, or root.
    pub(crate) fn owner(&self) -> Option<&Person> {
        self.owner.as_ref()
    }

    /// A request of it has passed the rules. False if all places of those who may ask are taken, or it was told to leave before.
    pub(crate) fn admit(&self) -> bool {
        let mut places = self.doors.places();
        if self.is_known.load(Ordering::Acquire) {
            return true;
        }
        if places.known >= CONNECTIONS_MAX {
            return false;
        }
        if !places.strangers.leave(self.stranger.number) {
            return false;
        }
        places.known += 1;
        self.is_known.store(true, Ordering::Release);
        true
    }

    /// Waits until the connection has to end: another takes its place, or its time as a stranger is over.
    pub(crate) async fn must_leave(&self) {
        tokio::select! {
            () = self.stranger.leave.notified() => {}
            () = sleep(STRANGER_MAX) => if self.is_known.load(Ordering::Acquire) {
                pending::<()>().await;
            },
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut places = self.doors.places();
        match *self.is_known.get_mut() {
            true => places.known -= 1,
            false => drop(places.strangers.leave(self.stranger.number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn has_to_leave(seat: &Seat) -> bool {
        !seat.doors.places().strangers.holds(seat.stranger.number) && !seat.is_known.load(Ordering::Acquire)
    }

    #[test]
    fn s134_strangers_make_room_for_each_other_and_never_take_that_of_others() {
        let doors = Arc::<Doors>::default();
        let first = doors.enter(address(1), None);
        let known: Vec<_> = (0..CONNECTIONS_MAX).map(|_| doors.enter(address(2), None)).collect();
        // Each is admitted while it is among the newest of its address.
        assert!(known.iter().rev().take(STRANGERS_PER_ADDRESS_MAX).all(|seat| seat.admit()));
        assert!(!has_to_leave(&first), "another address is not crowded out");
        let greedy: Vec<_> = (0..10 * STRANGERS_MAX).map(|_| doors.enter(address(3), None)).collect();
        assert!(!has_to_leave(&first) && first.admit());
        assert_eq!(greedy.iter().filter(|seat| !has_to_leave(seat)).count(), STRANGERS_PER_ADDRESS_MAX);
        drop(greedy);
        drop((known, first));
        let places = doors.places();
        assert_eq!((places.strangers.count(), places.known), (0, 0), "every place is given back");
    }

    #[test]
    fn s134_who_was_told_to_leave_is_not_admitted() {
        let doors = Arc::<Doors>::default();
        let gone = doors.enter(address(1), None);
        let others: Vec<_> = (0..STRANGERS_PER_ADDRESS_MAX).map(|_| doors.enter(address(1), None)).collect();
        assert!(has_to_leave(&gone) && !gone.admit());
        assert!(others[0].admit() && others[0].admit(), "once for all requests");
        drop((gone, others));
        let places = doors.places();
        assert_eq!((places.strangers.count(), places.known), (0, 0), "every place is given back");
    }
}
