//! What a worker's process has for its connections to coordinators.

use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use weir_transport::{Endpoint, Identity};

use super::allegiance::Allegiance;
use super::components::FetchedComponents;
use super::hosted::AgentWorker;
use super::outbox::Outbox;

/// Everything a connection needs.
pub(super) struct Station {
    pub(super) identity: Arc<Identity>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) coordinators: Vec<String>,
    pub(super) advertise: Option<String>,
    pub(super) local_addr: SocketAddr,
    pub(super) slots: u32,
    pub(super) outbox: Arc<Outbox>,
    pub(super) components: Arc<FetchedComponents>,
    pub(super) allegiance: Allegiance,
    pub(super) worker: Arc<dyn AgentWorker>,
}

impl Station {
    /// Where other workers reach this one.
    pub(super) fn data_address(&self, coordinator: &str) -> String {
        if let Some(advertise) = &self.advertise {
            return advertise.clone();
        }
        if !self.local_addr.ip().is_unspecified() {
            return self.local_addr.to_string();
        }
        // It listens at all addresses: the one from which it reaches the coordinator will do for others.
        let towards = || {
            // Of the family that the endpoint has: nobody reaches an IPv4 socket at an IPv6 address.
            let reachable = |address: &SocketAddr| self.local_addr.is_ipv6() || address.is_ipv4();
            let coordinator = coordinator.to_socket_addrs()?.find(reachable).ok_or(std::io::ErrorKind::NotFound)?;
            let any: SocketAddr = if coordinator.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
            let socket = UdpSocket::bind(any)?;
            socket.connect(coordinator)?;
            socket.local_addr()
        };
        match towards() {
            Ok(address) => SocketAddr::new(address.ip(), self.local_addr.port()).to_string(),
            Err(error) => {
                tracing::warn!(%error, "cannot find out the address of this machine; name it with --advertise");
                self.local_addr.to_string()
            }
        }
    }
}
