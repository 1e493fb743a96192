//! Places for connections of strangers: those that have not shown who they are.
//!
//! They have places of their own, few for one network, and where there is none, the oldest of them goes. So whoever opens connections and waits is
//! gone before it is in anybody's way, and one that says at once who it is gets its turn, however many wait.
//!
//! Owns who has a place. Never a connection, nor a clock: whoever has a place is told to leave it, and says itself when it left.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use tokio::sync::Notify;

/// All places.
#[derive(Debug)]
pub struct Strangers {
    places_max: usize,
    per_network_max: usize,
    next: u64,
    /// By number, so the oldest comes first.
    all: BTreeMap<u64, Stranger>,
}

#[derive(Debug)]
struct Stranger {
    from: IpAddr,
    leave: Arc<Notify>,
}

/// A place that a stranger got.
#[derive(Clone, Debug)]
pub struct StrangerPlace {
    /// Its number, for [`Strangers::leave`].
    pub number: u64,
    /// Notified when it has to be left to another.
    pub leave: Arc<Notify>,
}

impl Strangers {
    /// So many places, and so many of them for one network: fewer, or others could be kept out.
    pub fn new(places_max: usize, per_network_max: usize) -> Strangers {
        Strangers { places_max, per_network_max, next: 0, all: BTreeMap::new() }
    }

    /// A place for a connection from an address. Another stranger may have to leave for it.
    pub fn enter(&mut self, from: IpAddr) -> StrangerPlace {
        let (from, leave) = (network(from), Arc::new(Notify::new()));
        let number = self.next;
        self.next += 1;
        let mut of_network = self.all.iter().filter(|(_, other)| other.from == from).map(|(number, _)| *number);
        let oldest = match of_network.clone().count() >= self.per_network_max {
            true => of_network.next(),
            false if self.all.len() >= self.places_max => self.all.keys().next().copied(),
            false => None,
        };
        if let Some(other) = oldest.and_then(|oldest| self.all.remove(&oldest)) {
            other.leave.notify_one();
        }
        self.all.insert(number, Stranger { from, leave: leave.clone() });
        StrangerPlace { number, leave }
    }

    /// Gives a place back: its connection is no stranger's any more, or has ended. False if it had to be left before.
    pub fn leave(&mut self, number: u64) -> bool {
        self.all.remove(&number).is_some()
    }

    /// Whether a place is still held.
    pub fn holds(&self, number: u64) -> bool {
        self.all.contains_key(&number)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
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

    #[test]
    fn s134_one_network_crowds_out_only_itself() {
        let mut strangers = Strangers::new(256, 64);
        let first = strangers.enter(address(1));
        let greedy: Vec<u64> = (0..2_560).map(|_| strangers.enter(address(3)).number).collect();
        assert!(strangers.holds(first.number));
        assert_eq!(greedy.iter().filter(|number| strangers.holds(**number)).count(), 64);
        assert!(greedy[2_496..].iter().all(|number| strangers.holds(*number)), "the newest");
        assert!(strangers.leave(first.number) && !strangers.leave(first.number));
        assert!(!strangers.leave(greedy[0]), "it had to leave before");
    }

    #[test]
    fn s134_of_many_networks_the_oldest_goes() {
        let mut strangers = Strangers::new(256, 64);
        let all: Vec<u64> =
            (0..=255).flat_map(|last| [address(last), address(last)]).map(|from| strangers.enter(from).number).collect();
        assert_eq!(strangers.count(), 256);
        assert!(!strangers.holds(all[0]) && strangers.holds(all[511]));
    }

    #[test]
    fn s134_all_addresses_of_one_network_count_as_one() {
        let v6 = |text: &str| network(text.parse().unwrap());
        assert_eq!(v6("2001:db8::1"), v6("2001:db8::ffff:1"));
        assert_ne!(v6("2001:db8::1"), v6("2001:db8:0:1::1"));
        assert_eq!(v6("::ffff:10.0.0.1"), address(1));
    }
}
