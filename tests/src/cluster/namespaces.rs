//! Machines as far as the network goes: network namespaces behind a router, whose kernel delays, loses and swallows packets.
//!
//! Needs root and iproute2. What cannot be had is said with the reason, so that a test can be skipped.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Place;

/// A router and machines, each with an address of its own. They are gone when this is dropped.
pub struct Namespaces {
    prefix: String,
    machines: u8,
}

fn run(arguments: &[&str]) -> Result<(), String> {
    let done = Command::new(arguments[0]).args(&arguments[1..]).output().map_err(|error| format!("{}: {error}", arguments[0]))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("`{}`: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim())),
    }
}

impl Namespaces {
    /// Makes them.
    ///
    /// # Errors
    /// What this machine does not allow.
    pub fn new(machines: u8) -> Result<Namespaces, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("weir-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let made = Namespaces { prefix, machines };
        let router = made.router();
        run(&["ip", "netns", "add", &router])?;
        made.inside(&router, &["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])?;
        (0..machines).try_for_each(|machine| made.connect(machine))?;
        Ok(made)
    }

    fn connect(&self, machine: u8) -> Result<(), String> {
        let (router, name) = (self.router(), self.name(machine));
        let (way, address, gateway) = (format!("m{machine}"), self.address(machine), format!("10.77.{machine}.1"));
        run(&["ip", "netns", "add", &name])?;
        let router_end = ["ip", "link", "add", &way, "netns", &router, "type", "veth"];
        run(&[&router_end[..], &["peer", "name", "eth0", "netns", &name]].concat())?;
        self.inside(&router, &["ip", "address", "add", &format!("{gateway}/24"), "dev", &way])?;
        self.inside(&router, &["ip", "link", "set", &way, "up"])?;
        self.inside(&name, &["ip", "link", "set", "lo", "up"])?;
        self.inside(&name, &["ip", "address", "add", &format!("{address}/24"), "dev", "eth0"])?;
        self.inside(&name, &["ip", "link", "set", "eth0", "up"])?;
        self.inside(&name, &["ip", "route", "add", "default", "via", &gateway])
    }

    fn router(&self) -> String {
        format!("{}-r", self.prefix)
    }

    fn name(&self, machine: u8) -> String {
        format!("{}-{machine}", self.prefix)
    }

    fn address(&self, machine: u8) -> String {
        format!("10.77.{machine}.2")
    }

    fn inside(&self, namespace: &str, command: &[&str]) -> Result<(), String> {
        run(&[&["ip", "netns", "exec", namespace][..], command].concat())
    }

    /// A place on a machine.
    ///
    /// # Panics
    /// Never: its address is one.
    pub fn place(&self, machine: u8) -> Place {
        let address = self.address(machine).parse().expect("an address");
        let enter = ["ip", "netns", "exec", &self.name(machine)].map(str::to_owned).to_vec();
        Place { address, enter }
    }

    /// From now on, or no longer, packets from one machine to another get lost on their way, and nobody is told.
    ///
    /// # Panics
    /// If the router does not take that.
    pub fn swallow(&self, from: u8, to: u8, does: bool) {
        let (action, from, to) = (if does { "add" } else { "delete" }, self.address(from), self.address(to));
        let rule = ["ip", "rule", action, "from", &from, "to", &to, "priority", "100", "blackhole"];
        self.inside(&self.router(), &rule).unwrap_or_else(|error| panic!("{error}"));
    }

    /// What netem is to do with packets to a machine.
    ///
    /// # Errors
    /// If this kernel has no netem.
    pub fn netem(&self, machine: u8, options: &[&str]) -> Result<(), String> {
        let discipline = ["tc", "qdisc", "replace", "dev", &format!("m{machine}"), "root", "netem"];
        self.inside(&self.router(), &[&discipline[..], options].concat())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in (0..self.machines).map(|machine| self.name(machine)).chain([self.router()]) {
            // It may not have been made.
            let _ = run(&["ip", "netns", "delete", &name]);
        }
    }
}
