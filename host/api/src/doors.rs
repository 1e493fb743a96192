//! Places for connections: those of strangers apart from those that have shown who they are.
//!
//! Until its first request has passed the rules, a connection is a stranger's. Strangers have places of their own, few for one address,
//! and a short time; where there is no place, the oldest of them goes. So whoever opens sockets and waits is gone before it is in
//! anybody's way, and one that asks at once is served, however many wait.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::limits::{CONNECTIONS_MAX, STRANGER_MAX, STRANGERS_MAX, STRANGERS_PER_ADDRESS_MAX};

/// All places.
#[derive(Debug, Default)]
pub(crate) struct Doors(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    next: u64,
    /// By number, so the oldest comes first.
    strangers: BTreeMap<u64, Stranger>,
    known: usize,
}

#[derive(Debug)]
struct Stranger {
    from: IpAddr,
    leave: Arc<Notify>,
}

/// The place of one connection. It is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    doors: Arc<Doors>,
    number: u64,
    leave: Arc<Notify>,
    is_known: AtomicBool,
    /// Whether the other end is a process of this one's user.
    is_owner: bool,
}

impl Doors {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection from an address. Another stranger may have to leave for it.
    pub(crate) fn enter(self: &Arc<Doors>, from: IpAddr, is_owner: bool) -> Arc<Seat> {
        let (from, leave) = (network(from), Arc::new(Notify::new()));
        let mut places = self.places();
        let number = places.next;
        places.next += 1;
        let mut of_address = places.strangers.iter().filter(|(_, other)| other.from == from).map(|(number, _)| *number);
        let crowded = of_address.clone().count() >= STRANGERS_PER_ADDRESS_MAX;
        let oldest = match crowded {
            true => of_address.next(),
            false if places.strangers.len() >= STRANGERS_MAX => places.strangers.keys().next().copied(),
            false => None,
        };
        if let Some(other) = oldest.and_then(|oldest| places.strangers.remove(&oldest)) {
            other.leave.notify_one();
        }
        places.strangers.insert(number, Stranger { from, leave: leave.clone() });
        Arc::new(Seat { doors: self.clone(), number, leave, is_known: AtomicBool::new(false), is_owner })
    }
}

impl Seat {
    /// Whether the other end is a process of this one's user.
    pub(crate) fn is_owner(&self) -> bool {
        self.is_owner
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
        if places.strangers.remove(&self.number).is_none() {
            return false;
        }
        places.known += 1;
        self.is_known.store(true, Ordering::Release);
        true
    }

    /// Waits until the connection has to end: another takes its place, or its time as a stranger is over.
    pub(crate) async fn must_leave(&self) {
        tokio::select! {
            () = self.leave.notified() => {}
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
            false => drop(places.strangers.remove(&self.number)),
        }
    }
}

/// What counts as one address: whoever has an IPv6 address mostly has a whole /64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn has_to_leave(seat: &Seat) -> bool {
        !seat.doors.places().strangers.contains_key(&seat.number) && !seat.is_known.load(Ordering::Acquire)
    }

    #[test]
    fn s134_strangers_make_room_for_each_other_and_never_take_that_of_others() {
        let doors = Arc::<Doors>::default();
        let first = doors.enter(address(1), false);
        let known: Vec<_> = (0..CONNECTIONS_MAX).map(|_| doors.enter(address(2), false)).collect();
        // Each is admitted while it is among the newest of its address.
        assert!(known.iter().rev().take(STRANGERS_PER_ADDRESS_MAX).all(|seat| seat.admit()));
        assert!(!has_to_leave(&first), "another address is not crowded out");
        let greedy: Vec<_> = (0..10 * STRANGERS_MAX).map(|_| doors.enter(address(3), false)).collect();
        assert!(!has_to_leave(&first) && first.admit());
        assert_eq!(greedy.iter().filter(|seat| !has_to_leave(seat)).count(), STRANGERS_PER_ADDRESS_MAX);
        drop(greedy);
        // Many addresses: the oldest goes.
        let many: Vec<_> =
            (0..=255u8).flat_map(|last| [doors.enter(address(last), false), doors.enter(address(last), false)]).collect();
        assert_eq!(many.iter().filter(|seat| !has_to_leave(seat)).count(), STRANGERS_MAX);
        assert!(has_to_leave(&many[0]) && !has_to_leave(&many[511]));
        drop((many, known, first));
        let places = doors.places();
        assert_eq!((places.strangers.len(), places.known), (0, 0), "every place is given back");
    }

    #[test]
    fn s134_who_was_told_to_leave_is_not_admitted() {
        let doors = Arc::<Doors>::default();
        let gone = doors.enter(address(1), false);
        let others: Vec<_> = (0..STRANGERS_PER_ADDRESS_MAX).map(|_| doors.enter(address(1), false)).collect();
        assert!(has_to_leave(&gone) && !gone.admit());
        assert!(others[0].admit() && others[0].admit(), "once for all requests");
        drop((gone, others));
        let places = doors.places();
        assert_eq!((places.strangers.len(), places.known), (0, 0), "every place is given back");
    }

    #[test]
    fn s134_all_addresses_of_one_network_count_as_one() {
        let v6 = |text: &str| network(text.parse().unwrap());
        assert_eq!(v6("2001:db8::1"), v6("2001:db8::ffff:1"));
        assert_ne!(v6("2001:db8::1"), v6("2001:db8:0:1::1"));
        assert_eq!(v6("::ffff:10.0.0.1"), address(1));
    }
}
