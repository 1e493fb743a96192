//! What a stranger can make an endpoint say: nothing.

use std::net::UdpSocket;
use std::time::Duration;

use super::rig::{Cluster, address, control, soon};

/// Sends packets and gives whether anything came back, up to when a real peer was served after them.
async fn answers(packets: &[Vec<u8>]) -> bool {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    for packet in packets {
        stranger.send_to(packet, address(&b)).unwrap();
        // The endpoint has dealt with the packet when it has served a peer that came later.
        soon("a real peer", control(&a, &b)).await;
    }
    let mut buffer = [0; 2_000];
    stranger.recv_from(&mut buffer).is_ok()
}

/// A first packet as others would send it: `version`, `id` of the connection, and no encryption that fits.
fn initial(version: u32, id: &[u8], fill: u8) -> Vec<u8> {
    let mut packet = vec![0xc0];
    packet.extend(version.to_be_bytes());
    packet.push(id.len() as u8);
    packet.extend(id);
    packet.extend([8, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
    let rest = 1_200 - packet.len() - 2;
    packet.extend((rest as u16 | 0x4000).to_be_bytes());
    packet.resize(1_200, fill);
    packet
}

#[tokio::test]
async fn a_probe_for_versions_gets_no_answer() {
    assert!(!answers(&[initial(0x1a2a_3a4a, &[7; 8], 0), initial(0xbaba_baba, &[7; 20], 0)]).await);
}

#[tokio::test]
async fn first_packets_of_others_get_no_answer() {
    let packets: Vec<_> = (0..24).map(|fill| initial(1, &[fill; 8], fill)).collect();
    assert!(!answers(&packets).await);
    assert!(!answers(&[initial(1, &[], 0), initial(1, &[1], 0), initial(1, &[1; 7], 0)]).await, "ids that are too short");
}

#[tokio::test]
async fn packets_for_connections_that_never_were_get_no_answer() {
    let packets: Vec<_> = (0..24u8).map(|fill| [&[0x40], [fill; 400].as_slice()].concat()).collect();
    assert!(!answers(&packets).await);
}

/// A client of plain QUIC, with any certificate, learns as much as from a closed port: it times out.
#[tokio::test]
async fn a_plain_quic_client_gets_no_answer() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let server = cluster.endpoint("b");
    let tls = crate::quic::tls::client(&other.identity("x"), crate::quic::tls::alpn(1)).unwrap();
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let mut config = quinn::ClientConfig::new(std::sync::Arc::new(crypto));
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(Some(Duration::from_millis(400).try_into().unwrap()));
    config.transport_config(std::sync::Arc::new(transport));
    let mut client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    client.set_default_client_config(config);
    let connecting = client.connect(server.local_addr().unwrap(), "weir").unwrap();
    let error = soon("time out", connecting).await.unwrap_err();
    assert!(matches!(error, quinn::ConnectionError::TimedOut), "{error}");
}
