//! A flood of packets that mean nothing.

use std::net::UdpSocket;

use super::rig::{Cluster, address, bind, control, soon};
use crate::Expected;

const PACKETS: u64 = 1_000_000;

/// A small generator of numbers that look random, from a seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Real first packets of the cluster: what a client sends to a port that never answers.
async fn real_first_packets(cluster: &Cluster) -> Vec<Vec<u8>> {
    let deaf = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let client = bind(cluster.identity("a"), "127.0.0.1:0".parse().unwrap());
    let target = deaf.local_addr().unwrap().to_string();
    let connecting = tokio::spawn(async move { client.connect_control(&target, Expected::Anyone).await.map(|_| ()) });
    let mut packets = Vec::new();
    let mut buffer = vec![0; 65_536];
    while packets.len() < 3 {
        let (len, _) = soon("first packet", deaf.recv_from(&mut buffer)).await.unwrap();
        packets.push(buffer[..len].to_vec());
    }
    connecting.abort();
    packets
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

async fn flood(count: u64) {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let real = real_first_packets(&cluster).await;
    soon("a real peer before", control(&a, &b)).await;
    let before = resident_bytes();

    let to = address(&b);
    let sender = tokio::task::spawn_blocking(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut random = Random(7);
        for number in 0..count {
            let packet: Vec<u8> = match number % 4 {
                0 => (0..1 + random.below(64)).map(|_| random.next() as u8).collect(),
                1 => {
                    // Looks like a first packet, but nothing in it fits.
                    let mut packet = real[0].clone();
                    packet[6..].iter_mut().for_each(|byte| *byte = random.next() as u8);
                    packet[5] = 8;
                    packet
                }
                _ => {
                    let mut packet = real[random.below(real.len() as u64) as usize].clone();
                    for _ in 0..=random.below(8) {
                        let at = random.below(packet.len() as u64) as usize;
                        packet[at] = random.next() as u8;
                    }
                    packet.truncate(packet.len() - random.below(8).saturating_sub(6) as usize * 300);
                    packet
                }
            };
            // A full buffer is no reason to stop: the endpoint is to be kept busy.
            let _ = socket.send_to(&packet, &to);
        }
    });
    sender.await.unwrap();

    soon("a real peer afterwards", control(&a, &b)).await;
    let metrics = b.metrics();
    assert!(metrics.strangers > 1_000, "what the kernel did not drop was looked at: {metrics:?}");
    assert_eq!(metrics.accepted, 2, "only the real peer: {metrics:?}");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "memory grew by {grown} bytes: {metrics:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_packets_of_garbage_cost_nothing_but_time() {
    flood(PACKETS).await;
}
