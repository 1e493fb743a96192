//! Frames come in order and completely, and a receiver that is behind stops its senders and nobody else.

use weir_channel::Frame;
use weir_model::limits::{CHANNEL_BYTES_MAX, STREAM_WINDOW_BYTES_MAX};
use weir_model::{Batch, Partitioner};

use super::rig::{Cluster, Lost, attempt, row, until};
use crate::Network;

const CHANNELS: usize = 24;

/// From one byte to more than a stream's window.
const SIZES: [usize; 8] = [1, 0, 100, 9_000, 70_000, 300, 600_000, 3 << 20];

/// The frame of a channel with this number: of any kind and size.
fn frame(channel: usize, number: usize) -> Frame {
    match number % 20 {
        17 => Frame::Watermark(number as i64),
        18 => Frame::Idle,
        19 => keyed(channel, number),
        // Most frames are small, or the test would only measure how fast bytes are copied.
        _ => row(
            channel * 1_000_000 + number,
            if number % 16 == 15 { SIZES[(channel + number / 16) % SIZES.len()] } else { number },
        ),
    }
}

fn keyed(channel: usize, number: usize) -> Frame {
    let mut rows = Batch::default();
    (0..40u64).for_each(|row| rows.push(row as i64, &row.to_le_bytes(), &[channel as u8, number as u8]));
    let mut keyed = None;
    Partitioner::new(8, 1).partition(rows.view(), |_, batch| keyed = Some(batch));
    Frame::Keyed(keyed.unwrap())
}

#[test]
fn frames_of_all_kinds_and_sizes_come_completely_and_in_order_on_many_channels() {
    const FRAMES: usize = 120;
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let lost = Lost::default();
    let channels: Vec<u32> = (0..CHANNELS as u32).collect();
    let mut receiving = b.expect(&attempt(1), &a, &channels, &lost);
    let mut sending = a.connect(&attempt(1), &b.address, &channels, &lost);

    let (mut sent, mut received) = ([0; CHANNELS], [0; CHANNELS]);
    until("everything arrives", || {
        for (channel, sender) in sending.senders.iter_mut().enumerate() {
            while sent[channel] <= FRAMES && sender.flush() {
                sender.send(if sent[channel] == FRAMES { Frame::End } else { frame(channel, sent[channel]) });
                sent[channel] += 1;
            }
            sender.flush();
        }
        while let Some((channel, came)) = receiving.gate.poll() {
            let number = received[channel];
            let expected = if number == FRAMES { Frame::End } else { frame(channel, number) };
            assert!(came == expected, "channel {channel}, frame {number}");
            received[channel] += 1;
        }
        received.iter().all(|&count| count == FRAMES + 1)
    });

    let (sent_bytes, _) = a.network.counts(&attempt(1));
    assert!(sent_bytes > 20 << 20, "{sent_bytes}");
    until("both ends count the same", || (0, a.network.counts(&attempt(1)).0) == b.network.counts(&attempt(1)));
    assert_eq!(lost.all(), []);
    assert_eq!(b.connections(), 2, "all channels share a connection, and there is one for messages");
}

#[test]
fn a_task_that_does_not_read_stops_its_sender_and_no_other() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let lost = Lost::default();
    let mut blocked = b.expect(&attempt(1), &a, &[0], &lost);
    let mut free = b.expect(&attempt(1), &a, &[1], &lost);
    let mut sending = a.connect(&attempt(1), &b.address, &[0, 1], &lost);

    const VALUE_BYTES: usize = 50_000;
    let (mut into_blocked, mut into_free, mut out_of_free) = (0, 0, 0);
    until("the other channel carries many times what a channel holds", || {
        while sending.senders[0].flush() {
            sending.senders[0].send(row(into_blocked, VALUE_BYTES));
            into_blocked += 1;
        }
        while sending.senders[1].flush() {
            sending.senders[1].send(row(into_free, VALUE_BYTES));
            into_free += 1;
        }
        while let Some((_, frame)) = free.gate.poll() {
            assert_eq!(frame, row(out_of_free, VALUE_BYTES));
            out_of_free += 1;
        }
        out_of_free * VALUE_BYTES > 8 * CHANNEL_BYTES_MAX
    });
    let bound = 2 * CHANNEL_BYTES_MAX + STREAM_WINDOW_BYTES_MAX as usize + 4 * VALUE_BYTES;
    assert!(into_blocked * VALUE_BYTES < bound, "{into_blocked} frames were taken that nobody read");
    assert!(!sending.senders[0].is_flushed(), "the sending task waits");

    sending.senders[0].send(Frame::End);
    (0..into_blocked).for_each(|number| {
        sending.senders[0].flush();
        let mut came = None;
        until("it goes on where it stopped", || {
            sending.senders[0].flush();
            came = blocked.gate.poll();
            came.is_some()
        });
        assert_eq!(came, Some((0, row(number, VALUE_BYTES))));
    });
    assert_eq!(blocked.next(), (0, Frame::End));
    assert_eq!(lost.all(), []);
}
