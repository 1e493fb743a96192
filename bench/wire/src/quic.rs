//! Over QUIC: one connection, one stream per channel, as between two workers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use weir_model::Attempt;
use weir_transport::{ChannelHeader, Endpoint, Identity, Incoming, NodeId, Settings};

use crate::RECEIVER;
use crate::link::Options;
use crate::work::{Tally, frame};

/// The receiver closes when the sender has; only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(10);

fn endpoint(identity: &Path, options: Options) -> Result<Endpoint> {
    let settings = Settings { packet_bytes_max: options.packet_bytes_max, ..Settings::default() };
    let identity = Arc::new(Identity::load(identity)?);
    Ok(Endpoint::bind(identity, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), settings, &Handle::current())?)
}

pub(crate) async fn send(identity: &Path, address: SocketAddr, options: Options) -> Result<(Tally, Value)> {
    let endpoint = endpoint(identity, options)?;
    let data = endpoint.connect_data(&address.to_string(), &NodeId::new(RECEIVER)?).await?;
    let frame = frame(options.frame_bytes);
    let until = Instant::now() + options.time;
    let mut channels = JoinSet::new();
    for channel in 0..options.channels {
        let (data, frame) = (data.clone(), frame.clone());
        channels.spawn(async move {
            let mut writer = data.open(&ChannelHeader { job: "bench".into(), attempt: Attempt(1), channel }).await?;
            let mut tally = Tally::default();
            while Instant::now() < until {
                let bytes = writer.send(frame.clone()).await?;
                tally.add(frame.rows_len(), bytes);
            }
            writer.finish().await?;
            Ok::<_, weir_transport::TransportError>(tally)
        });
    }
    let tallies = channels.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let metrics = data.metrics();
    data.close(0, "done");
    endpoint.close().await;
    let connection = json!({
        "packet_bytes": metrics.packet_bytes,
        "sent_packets": metrics.sent_packets,
        "lost_packets": metrics.lost_packets,
        "rtt_us": metrics.rtt.as_micros() as u64,
        "congestion_window_bytes": metrics.congestion_window_bytes,
    });
    Ok((Tally::sum(tallies), connection))
}

/// `told` is called when everything has been received, before the connection ends.
pub(crate) async fn receive(
    identity: &Path,
    options: Options,
    listening: impl Fn(SocketAddr),
    told: impl Fn(Tally) -> Result<Value>,
) -> Result<Value> {
    let endpoint = endpoint(identity, options)?;
    listening(endpoint.local_addr()?);
    let Some(Incoming::Data(data)) = endpoint.accept().await else { bail!("no data connection came") };
    let mut channels = JoinSet::new();
    for _ in 0..options.channels {
        let (_, mut reader) = data.accept().await?;
        channels.spawn(async move {
            let mut tally = Tally::default();
            while let Some(frame) = reader.recv().await? {
                tally.add(frame.rows_len(), 0);
            }
            Ok::<_, weir_transport::TransportError>(tally)
        });
    }
    let tallies = channels.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let line = told(Tally::sum(tallies))?;
    // The sender has yet to hear that all has arrived.
    tokio::time::timeout(PATIENCE, data.closed()).await.context("the sender does not close the connection")?;
    Ok(line)
}
