//! How fast channels are. Not run by default; prints numbers to compare before and after a change.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::rig::{Cluster, data, header, rows};
use crate::{Endpoint, Settings};

const CHANNELS: u32 = 4;
const ROWS: i64 = 16_384;
const FRAMES: i64 = 150;

fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn rows_over_channels() {
    let cluster = Cluster::new();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    for packet_bytes_max in [1_452, 6_500] {
        let settings = Settings { packet_bytes_max, ..Settings::default() };
        let bind = |name: &str| Endpoint::bind(cluster.identity(name), any, settings, &Handle::current()).unwrap();
        let (a, b) = (bind("a"), bind("b"));
        let (ours, theirs) = data(&a, &b, "b").await;
        let frame = rows(0, ROWS, 56);
        let (started, cpu_before) = (Instant::now(), cpu());
        let mut tasks = JoinSet::new();
        for channel in 0..CHANNELS {
            let (ours, frame) = (ours.clone(), frame.clone());
            tasks.spawn(async move {
                let mut writer = ours.open(&header(channel)).await.unwrap();
                for _ in 0..FRAMES {
                    writer.send(frame.clone()).await.unwrap();
                }
                writer.finish().await.unwrap();
            });
            let theirs = theirs.clone();
            tasks.spawn(async move {
                let (_, mut reader) = theirs.accept().await.unwrap();
                while reader.recv().await.unwrap().is_some() {}
            });
        }
        tasks.join_all().await;
        let (elapsed, cpu) = (started.elapsed(), cpu() - cpu_before);
        let rows = (i64::from(CHANNELS) * FRAMES * ROWS) as f64 / 1e6;
        let metrics = ours.metrics();
        println!(
            "packets up to {packet_bytes_max}: {rows:.1} M rows of 80 bytes in {elapsed:.2?}: {:.1} M rows/s, {:.2} Gbit/s, {:.3} CPU s per M rows, \
             {} of {} packets lost, packet size {}",
            rows / elapsed.as_secs_f64(),
            metrics.sent_bytes as f64 * 8e-9 / elapsed.as_secs_f64(),
            cpu.as_secs_f64() / rows,
            metrics.lost_packets,
            metrics.sent_packets,
            metrics.packet_bytes
        );
    }
}
