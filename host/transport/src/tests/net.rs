//! A network in memory: delays, loses, reorders and cuts off packets, by a seed. Time is tokio's, so a paused clock drives it.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, TokioRuntime, UdpPoller};

use super::garbage::Random;
use super::rig::settings;
use crate::endpoint::Parts;
use crate::quic::tls::PROTOCOL_VERSION;
use crate::{Endpoint, Identity};

/// How bad the network is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Of a thousand packets, how many are lost.
    pub(super) lost_of_1000: u64,
    /// Each packet takes this long.
    pub(super) delay: Duration,
    /// And up to this much more: packets overtake each other.
    pub(super) jitter: Duration,
}

#[derive(Debug)]
pub(super) struct Net {
    weather: Weather,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: u64,
    cut: bool,
    inboxes: HashMap<SocketAddr, Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    packets: VecDeque<(SocketAddr, Vec<u8>)>,
    waker: Option<Waker>,
    /// Which socket it belongs to, of those that had the address one after the other.
    owner: u64,
}

/// More waiting packets are lost, as in a kernel's buffer.
const INBOX_PACKETS_MAX: usize = 2_000;

impl Net {
    pub(super) fn new(seed: u64, weather: Weather) -> Arc<Net> {
        Arc::new(Net { weather, state: Mutex::new(State { random: seed, cut: false, inboxes: HashMap::new() }) })
    }

    /// From now on nothing arrives any more.
    pub(super) fn cut(&self) {
        self.state.lock().unwrap().cut = true;
    }

    /// An endpoint in this network. One that had the address before is dead: it says and hears nothing any more.
    pub(super) fn endpoint(self: &Arc<Net>, identity: Arc<Identity>, host: u8) -> Endpoint {
        let address = SocketAddr::from(([10, 0, 0, host], 1));
        let owner = {
            let mut state = self.state.lock().unwrap();
            let owner = state.inboxes.get(&address).map_or(0, |inbox| inbox.owner + 1);
            state.inboxes.insert(address, Inbox { owner, ..Inbox::default() });
            owner
        };
        let socket = Arc::new(Socket { net: self.clone(), address, owner });
        let parts = Parts { socket, runtime: Arc::new(TokioRuntime), buffers: [0, 0], version: PROTOCOL_VERSION };
        Endpoint::with_parts(identity, settings(), parts).unwrap()
    }

    fn send(self: &Arc<Net>, from: SocketAddr, to: SocketAddr, packet: &[u8]) {
        let delay = {
            let mut state = self.state.lock().unwrap();
            let mut random = Random(state.random);
            let lost = state.cut || random.below(1_000) < self.weather.lost_of_1000;
            let jitter = random.below(self.weather.jitter.as_micros() as u64 + 1);
            state.random = random.0;
            if lost {
                return;
            }
            self.weather.delay + Duration::from_micros(jitter)
        };
        let (net, packet) = (self.clone(), packet.to_vec());
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let mut state = net.state.lock().unwrap();
            if state.cut {
                return;
            }
            let Some(inbox) = state.inboxes.get_mut(&to) else { return };
            if inbox.packets.len() < INBOX_PACKETS_MAX {
                inbox.packets.push_back((from, packet));
                inbox.waker.take().into_iter().for_each(Waker::wake);
            }
        });
    }
}

#[derive(Debug)]
struct Socket {
    net: Arc<Net>,
    address: SocketAddr,
    owner: u64,
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if self.net.state.lock().unwrap().inboxes[&self.address].owner != self.owner {
            return Ok(());
        }
        let size = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        transmit.contents.chunks(size).for_each(|packet| self.net.send(self.address, transmit.destination, packet));
        Ok(())
    }

    fn poll_recv(&self, cx: &mut Context<'_>, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> Poll<io::Result<usize>> {
        let mut state = self.net.state.lock().unwrap();
        let inbox = state.inboxes.get_mut(&self.address).unwrap();
        if inbox.owner != self.owner {
            return Poll::Pending;
        }
        let Some((from, packet)) = inbox.packets.pop_front() else {
            inbox.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        bufs[0][..packet.len()].copy_from_slice(&packet);
        meta[0] = RecvMeta::default();
        meta[0].addr = from;
        meta[0].len = packet.len();
        meta[0].stride = packet.len();
        Poll::Ready(Ok(1))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
