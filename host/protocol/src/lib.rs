//! What the processes of a cluster say to each other.
