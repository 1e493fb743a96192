//! QUIC between the processes of a cluster.
