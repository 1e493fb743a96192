//! What a channel promises, in any weather: frames in order, none lost, none twice, and never an end that is none.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use weir_channel::Frame;

use super::garbage::Random;
use super::net::{Net, Weather};
use super::rig::{Cluster, control, data, header, rows};
use crate::{ChannelReader, CloseCause, Data, TransportError};

const SEEDS: u64 = 40;
const CHANNELS: u32 = 3;
const FRAMES: i64 = 25;

fn frame(channel: u32, number: i64, random: &mut Random) -> Frame {
    if random.below(5) == 0 {
        return Frame::Watermark(number);
    }
    rows(number, 1 + random.below(40) as i64 * 10, 1 + (channel as usize * 37 + number as usize) % 90)
}

/// What is sent on a channel: the same for the same seed.
fn frames(seed: u64, channel: u32) -> impl Iterator<Item = Frame> {
    let mut random = Random(seed ^ u64::from(channel) << 32);
    (0..FRAMES).map(move |number| frame(channel, number, &mut random)).chain([Frame::End])
}

async fn write(data: Data, seed: u64, channel: u32) -> Result<(), TransportError> {
    let mut writer = data.open(&header(channel)).await?;
    for frame in frames(seed, channel) {
        writer.send(frame).await?;
    }
    writer.finish().await
}

/// Reads in fits and starts. Whatever arrives must be what was sent, from the first on. Gives why it ended, if not well.
async fn read(mut reader: ChannelReader, seed: u64, channel: u32) -> Option<TransportError> {
    let mut random = Random(seed + 1);
    for expected in frames(seed, channel) {
        if random.below(8) == 0 {
            sleep(Duration::from_millis(random.below(200))).await;
        }
        match reader.recv().await {
            Ok(Some(frame)) => assert_eq!(frame, expected, "seed {seed}, channel {channel}"),
            Ok(None) => panic!("seed {seed}, channel {channel}: an end before the end"),
            Err(error) => return Some(error),
        }
    }
    match reader.recv().await {
        Ok(None) => None,
        Ok(Some(frame)) => panic!("seed {seed}, channel {channel}: {frame:?} after the end"),
        Err(error) => Some(error),
    }
}

async fn run(cluster: &Cluster, seed: u64) {
    let mut random = Random(seed);
    let weather = Weather {
        lost_of_1000: random.below(80),
        delay: Duration::from_micros(200 + random.below(10_000)),
        jitter: Duration::from_micros(random.below(8_000)),
    };
    let cut_after = (seed % 2 == 1).then(|| Duration::from_millis(1 + random.below(400)));
    let net = Net::new(seed, weather);
    let (a, b) = (net.endpoint(cluster.identity("a"), 1), net.endpoint(cluster.identity("b"), 2));
    let (ours, theirs) = data(&a, &b, "b").await;
    let (ours_control, theirs_control) = control(&a, &b).await;

    let mut writers = JoinSet::new();
    (0..CHANNELS).for_each(|channel| {
        writers.spawn(write(ours.clone(), seed, channel));
    });
    let accept = theirs.clone();
    let readers = tokio::spawn(async move {
        let mut readers = JoinSet::new();
        let mut accepted = 0;
        while accepted < CHANNELS {
            let Ok((header, reader)) = accept.accept().await else { break };
            readers.spawn(read(reader, seed, header.channel));
            accepted += 1;
        }
        (accepted, readers.join_all().await)
    });

    let Some(cut_after) = cut_after else {
        assert!(writers.join_all().await.iter().all(Result::is_ok), "seed {seed}: {weather:?}");
        let (accepted, ends) = readers.await.unwrap();
        assert!(accepted == CHANNELS && ends.iter().all(Option::is_none), "seed {seed}: {weather:?}: {ends:?}");
        return;
    };
    sleep(cut_after).await;
    net.cut();
    let cut = Instant::now();
    for closed in [ours.closed().await, theirs.closed().await] {
        assert!(matches!(closed, TransportError::Closed { cause: CloseCause::Silent, .. }), "seed {seed}: {closed}");
    }
    let (sender, _receiver) = ours_control.split();
    sender.closed().await;
    let (_sender, mut receiver) = theirs_control.split();
    receiver.recv().await.unwrap_err();
    assert!(cut.elapsed() < Duration::from_secs(15), "seed {seed}: noticed after {:?}", cut.elapsed());
    // Whoever had not finished learns that it will not.
    writers.join_all().await;
    readers.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn channels_keep_their_promise_in_any_weather() {
    let cluster = Cluster::new();
    for seed in 0..SEEDS {
        run(&cluster, seed).await;
    }
}
