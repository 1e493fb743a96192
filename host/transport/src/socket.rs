//! The UDP socket, with buffers that hold a burst.

use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use crate::TransportError;

/// A bound socket, and how large its buffers (receive, send) have become.
pub(crate) fn bind(address: SocketAddr, buffer_bytes: u32) -> Result<(UdpSocket, [usize; 2]), TransportError> {
    let failed = |source| TransportError::Bind { address, source };
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    if address.is_ipv6() {
        // Not all systems can do both; then it is one.
        let _ = socket.set_only_v6(false);
    }
    socket.bind(&address.into()).map_err(failed)?;
    let wanted = buffer_bytes as usize;
    // Asking for too much is no error anywhere we know; what counts is what is there afterwards.
    let _ = socket.set_recv_buffer_size(wanted);
    let _ = socket.set_send_buffer_size(wanted);
    let sizes = [socket.recv_buffer_size().map_err(failed)?, socket.send_buffer_size().map_err(failed)?];
    if sizes.iter().any(|&size| size < wanted) {
        tracing::warn!(
            wanted,
            receive = sizes[0],
            send = sizes[1],
            "the kernel gives smaller socket buffers than wanted, which costs throughput: raise net.core.rmem_max and \
             net.core.wmem_max"
        );
    }
    Ok((socket.into(), sizes))
}
