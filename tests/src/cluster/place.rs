//! Where a process of a cluster runs: an address, and what has to be entered to be there.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::process::World;

/// Where a process runs.
#[derive(Clone, Debug)]
pub struct Place {
    /// What it listens at.
    pub address: IpAddr,
    /// The command line before `weir`, such as that which enters a network namespace. Ends in becoming `weir`.
    pub enter: Vec<String>,
}

impl Place {
    /// This machine, at a loopback address that no other test uses at the time. (Linux has all of 127.0.0.0/8.)
    pub fn loopback() -> Place {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let process = (std::process::id() % 0xFDFD) as u16 + 0x101;
        let [high, low] = process.to_be_bytes();
        let address = Ipv4Addr::new(127, high, low, NEXT.fetch_add(1, Ordering::Relaxed).max(2));
        Place { address: address.into(), enter: Vec::new() }
    }

    /// A `weir` command there.
    pub(super) fn command<A: AsRef<OsStr>>(&self, world: &World, arguments: impl IntoIterator<Item = A>) -> Command {
        match self.enter.split_first() {
            None => world.weir(arguments),
            Some((program, before)) => world.weir_by(program, before, arguments),
        }
    }
}
