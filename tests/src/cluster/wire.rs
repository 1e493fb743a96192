//! Ways between processes on which packets are late, lost or swallowed: what netem does, without the kernel's help.
//!
//! A process is told the address of a wire in place of that of another process. Packets (UDP) are taken along one by one, and
//! so are connections (TCP), on the same port.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::random::Random;

/// The largest packet there is.
const PACKET_MAX: usize = 65_536;

/// Packets on their way in one direction of one wire. More are lost, as in any network.
const ON_THE_WAY_MAX: usize = 4_096;

/// How often threads look whether the wire is gone.
const LOOK: Duration = Duration::from_millis(20);

/// What happens to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weather {
    /// How late each packet is.
    pub delay: Duration,
    /// Of ten thousand packets, how many are lost.
    pub loss: u64,
    /// Nothing gets through to the process at the end.
    pub swallows_there: bool,
    /// Nothing gets back.
    pub swallows_back: bool,
}

impl Weather {
    /// Nothing gets through at all, and nobody is told.
    pub const BLACKHOLE: Weather = Weather { delay: Duration::ZERO, loss: 0, swallows_there: true, swallows_back: true };

    fn swallows(&self, direction: Direction) -> bool {
        match direction {
            Direction::There => self.swallows_there,
            Direction::Back => self.swallows_back,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    There,
    Back,
}

/// A way to a process. Closed when it is dropped.
pub struct Wire {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
}

struct State {
    weather: Weather,
    random: Random,
    closed: bool,
}

struct Packet {
    due: Instant,
    bytes: Vec<u8>,
    to: SocketAddr,
}

impl Shared {
    fn weather(&self) -> Weather {
        self.state.lock().expect("no thread panics with it").weather
    }

    fn is_closed(&self) -> bool {
        self.state.lock().expect("no thread panics with it").closed
    }

    /// When a packet arrives, if it does.
    fn fate(&self, direction: Direction) -> Option<Instant> {
        let mut state = self.state.lock().expect("no thread panics with it");
        let weather = state.weather;
        let lost = weather.loss > 0 && state.random.below(10_000) < weather.loss;
        (!lost && !weather.swallows(direction)).then(|| Instant::now() + weather.delay)
    }
}

impl Wire {
    /// A wire at an address that leads to another.
    ///
    /// # Panics
    /// If the address is taken.
    pub fn new(address: SocketAddr, target: SocketAddr, seed: u64) -> Wire {
        let state = State { weather: Weather::default(), random: Random::new(seed), closed: false };
        let shared = Arc::new(Shared { target, state: Mutex::new(state) });
        let front = Arc::new(UdpSocket::bind(address).unwrap_or_else(|error| panic!("a wire at {address}: {error}")));
        front.set_read_timeout(Some(LOOK)).expect("a timeout");
        let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("a wire at {address}: {error}"));
        listener.set_nonblocking(true).expect("a socket that does not block");
        let (packets, connections) = (shared.clone(), shared.clone());
        std::thread::spawn(move || take_packets(&packets, &front));
        std::thread::spawn(move || take_connections(&connections, &listener));
        Wire { address, shared }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens to packets from now on.
    ///
    /// # Panics
    /// If one of its threads has.
    pub fn set(&self, weather: Weather) {
        self.shared.state.lock().expect("no thread panics with it").weather = weather;
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.state.lock().expect("no thread panics with it").closed = true;
    }
}

/// Takes packets along, and for each sender those that come back.
fn take_packets(shared: &Arc<Shared>, front: &Arc<UdpSocket>) {
    let mut flows: HashMap<SocketAddr, (Arc<UdpSocket>, SyncSender<Packet>)> = HashMap::new();
    let mut buffer = vec![0; PACKET_MAX];
    while !shared.is_closed() {
        let Ok((length, from)) = front.recv_from(&mut buffer) else { continue };
        let (_, way) = flows.entry(from).or_insert_with(|| flow(shared, front, from));
        send(shared, Direction::There, way, &buffer[..length], shared.target);
    }
}

/// The way of one sender's packets: a socket of its own, by which answers find back.
fn flow(shared: &Arc<Shared>, front: &Arc<UdpSocket>, from: SocketAddr) -> (Arc<UdpSocket>, SyncSender<Packet>) {
    let socket = Arc::new(UdpSocket::bind(SocketAddr::new(shared.target.ip(), 0)).expect("a free port"));
    socket.set_read_timeout(Some(LOOK)).expect("a timeout");
    let there = deliver(shared, socket.clone());
    let back = deliver(shared, front.clone());
    let (shared, answers) = (shared.clone(), socket.clone());
    std::thread::spawn(move || {
        let mut buffer = vec![0; PACKET_MAX];
        while !shared.is_closed() {
            let Ok((length, _)) = answers.recv_from(&mut buffer) else { continue };
            send(&shared, Direction::Back, &back, &buffer[..length], from);
        }
    });
    (socket, there)
}

fn send(shared: &Shared, direction: Direction, way: &SyncSender<Packet>, bytes: &[u8], to: SocketAddr) {
    let Some(due) = shared.fate(direction) else { return };
    match way.try_send(Packet { due, bytes: bytes.to_vec(), to }) {
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}

/// Delivers packets when they are due.
fn deliver(shared: &Arc<Shared>, socket: Arc<UdpSocket>) -> SyncSender<Packet> {
    let (sender, receiver): (_, Receiver<Packet>) = sync_channel(ON_THE_WAY_MAX);
    let shared = shared.clone();
    std::thread::spawn(move || {
        for Packet { due, bytes, to } in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if shared.is_closed() {
                return;
            }
            // Nobody may listen there any more.
            let _ = socket.send_to(&bytes, to);
        }
    });
    sender
}

/// Takes connections along. They are neither slow nor do they lose anything; only a wire that swallows holds them up.
fn take_connections(shared: &Arc<Shared>, listener: &TcpListener) {
    while !shared.is_closed() {
        let Ok((near, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        let shared = shared.clone();
        std::thread::spawn(move || {
            while shared.weather().swallows_there && !shared.is_closed() {
                std::thread::sleep(LOOK);
            }
            // If nobody listens, the one who asked learns it by the end of its connection.
            let Ok(far) = TcpStream::connect(shared.target) else { return };
            let (Ok(near_again), Ok(far_again)) = (near.try_clone(), far.try_clone()) else { return };
            let back = shared.clone();
            std::thread::spawn(move || pump(&back, Direction::Back, far_again, near_again));
            pump(&shared, Direction::There, near, far);
        });
    }
}

fn pump(shared: &Shared, direction: Direction, mut from: TcpStream, mut to: TcpStream) {
    let _ = from.set_nonblocking(false);
    let _ = from.set_read_timeout(Some(LOOK));
    let mut buffer = [0; 4096];
    while !shared.is_closed() {
        let read = from.read(&mut buffer);
        while shared.weather().swallows(direction) && !shared.is_closed() {
            std::thread::sleep(LOOK);
        }
        match read {
            Ok(0) => break,
            Ok(length) if to.write_all(&buffer[..length]).is_ok() => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Ok(_) | Err(_) => break,
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (UdpSocket, UdpSocket, Wire) {
        let near = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let far = UdpSocket::bind("127.0.0.1:0").expect("a port");
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        }
        // A port that was free a moment ago; it is tried again where another took it.
        let free = UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
        let wire = Wire::new(free, far.local_addr().expect("its address"), 1);
        near.connect(wire.address()).expect("a route");
        (near, far, wire)
    }

    #[test]
    fn packets_go_there_and_back_and_a_swallowing_wire_takes_one_direction_away() {
        let (near, far, wire) = ends();
        let mut buffer = [0; 16];
        near.send(b"there").expect("sent");
        let (length, from) = far.recv_from(&mut buffer).expect("a packet");
        assert_eq!(&buffer[..length], b"there");
        far.send_to(b"back", from).expect("sent");
        let length = near.recv(&mut buffer).expect("a packet");
        assert_eq!(&buffer[..length], b"back");

        wire.set(Weather { swallows_there: true, ..Weather::default() });
        near.send(b"swallowed").expect("sent");
        far.send_to(b"still", from).expect("sent");
        let length = near.recv(&mut buffer).expect("a packet");
        assert_eq!(&buffer[..length], b"still");
        // It does not come, and by then the wire has had it in its hands.
        far.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
        far.recv_from(&mut buffer).expect_err("it was swallowed");
        far.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        wire.set(Weather::default());
        near.send(b"again").expect("sent");
        let (length, _) = far.recv_from(&mut buffer).expect("a packet");
        assert_eq!(&buffer[..length], b"again");
    }

    #[test]
    fn packets_are_late_and_some_are_lost() {
        let (near, far, wire) = ends();
        let mut buffer = [0; 16];
        wire.set(Weather { delay: Duration::from_millis(50), ..Weather::default() });
        let sent = Instant::now();
        near.send(b"late").expect("sent");
        far.recv(&mut buffer).expect("a packet");
        assert!(sent.elapsed() >= Duration::from_millis(50));
        wire.set(Weather { loss: 5_000, ..Weather::default() });
        (0..100).for_each(|_| drop(near.send(b"some")));
        // The weather stays as it is until the packets are through; of so many last ones, one is.
        (0..60).for_each(|_| drop(near.send(b"end")));
        let mut arrived = 0;
        while far.recv(&mut buffer).expect("a packet") != 3 {
            arrived += 1;
        }
        assert!((10..90).contains(&arrived), "{arrived} of 100 arrived");
    }
}
