//! Addresses as people write them: `10.0.0.5:7700`, `[::1]:7700`, `::1`, `weir.example`, with or without a port.
//!
//! Only reads them. Names are resolved, and each of their addresses tried, where a connection is made.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Port of a coordinator for its workers, unless it is told otherwise.
pub(crate) const WORKERS_PORT: u16 = 7700;

/// Port of a coordinator's API, unless it is told otherwise.
pub(crate) const API_PORT: u16 = 7701;

/// A host, without the brackets of an IPv6 address, and the port if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    host: String,
    port: Option<u16>,
}

impl Address {
    /// Reads `HOST`, `HOST:PORT`, and IPv6 addresses in brackets or, without a port, bare.
    pub(crate) fn parse(text: &str) -> Result<Address, String> {
        let text = text.trim();
        if text.contains("://") {
            return Err("this is a URL; expected HOST or HOST:PORT".to_owned());
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (host, after) = rest.split_once(']').ok_or("the bracket is not closed; write [::1]:7700")?;
            host.parse::<Ipv6Addr>().map_err(|_| format!("`{host}` is not an IPv6 address"))?;
            let port = match after.strip_prefix(':') {
                Some(port) => Some(port_of(port)?),
                None if after.is_empty() => None,
                None => return Err(format!("`{after}` behind the bracket is not a port; write [{host}]:7700")),
            };
            return Ok(Address { host: host.to_owned(), port });
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            return bare_ipv6(text);
        }
        let (host, port) = match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => {
                return Err("an IPv6 address with a port stands in brackets: [::1]:7700".to_owned());
            }
            Some((host, port)) => (host, Some(port_of(port)?)),
            None => (text, None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if host.is_empty() || !host.chars().all(is_name) {
            return Err("expected HOST or HOST:PORT, such as 10.0.0.5:7700 or [::1]:7700".to_owned());
        }
        Ok(Address { host: host.to_owned(), port })
    }

    /// `HOST:PORT`, with the port that stands for a missing one.
    pub(crate) fn with_port(&self, missing: u16) -> String {
        let port = self.port.unwrap_or(missing);
        if self.host.contains(':') { format!("[{}]:{port}", self.host) } else { format!("{}:{port}", self.host) }
    }

    /// Whether it certainly is this machine: a loopback address, or the name of one.
    pub(crate) fn is_here(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Its port, if it has one.
    pub(crate) fn port(&self) -> Option<u16> {
        self.port
    }

    /// The address in digits, if it is one.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether it is this machine whatever the network.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost") || self.ip().is_some_and(|ip| ip.to_canonical().is_loopback())
    }
}

/// `::1:7700` is an IPv6 address, but hardly what was meant.
fn bare_ipv6(text: &str) -> Result<Address, String> {
    if let Some((before, last)) = text.rsplit_once(':')
        && last.parse::<u16>().is_ok_and(|port| port >= 1_024)
        && before.parse::<Ipv6Addr>().is_ok()
    {
        return Err(format!("is {last} the port? Write [{before}]:{last}, or [{text}] if it is a part of the address"));
    }
    Ok(Address { host: text.to_owned(), port: None })
}

fn port_of(text: &str) -> Result<u16, String> {
    if text.is_empty() {
        return Err("there is no port behind the colon".to_owned());
    }
    text.parse().map_err(|_| format!("`{text}` is not a port; expected a number from 0 to 65535"))
}

/// The coordinator that a worker connects to.
pub(crate) fn coordinator_for_workers(text: &str) -> Result<String, String> {
    if text.contains("://") {
        return Err(format!(
            "a worker does not use the API: expected the address of the coordinator's --listen, HOST or HOST:PORT (default \
             port {WORKERS_PORT})"
        ));
    }
    let address = Address::parse(text)?;
    match (address.port(), address.ip()) {
        (Some(0), _) => Err("port 0 means any free port where one listens; nothing can be reached there".to_owned()),
        (_, Some(ip)) if ip.is_unspecified() => {
            Err(format!("{ip} means all addresses where one listens; name one at which the coordinator is reached"))
        }
        _ => Ok(address.with_port(WORKERS_PORT)),
    }
}

/// What other workers are told to connect to. Without a port it is that of --listen.
pub(crate) fn advertised(text: &str) -> Result<Address, String> {
    let address = Address::parse(text)?;
    match (address.port(), address.ip()) {
        (Some(0), _) => Err("port 0 means any free port where one listens; nobody can connect to it".to_owned()),
        (_, Some(ip)) if ip.is_unspecified() => {
            Err(format!("{ip} means all addresses where one listens; nobody can connect to it"))
        }
        _ => Ok(address),
    }
}

/// An address of this machine to listen at, with the port that stands for a missing one.
fn listen(text: &str, missing: u16) -> Result<SocketAddr, String> {
    if let Some(port) = text.trim().strip_prefix(':').filter(|rest| !rest.starts_with(':')) {
        return Err(format!("write 0.0.0.0:{port} for all IPv4 addresses of this machine, or [::]:{port} for IPv6 too"));
    }
    let address = Address::parse(text)?;
    let port = address.port().unwrap_or(missing);
    match address.ip() {
        Some(ip) => Ok(SocketAddr::new(ip, port)),
        None if address.is_loopback() => Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)),
        None => Err(format!(
            "expected an address of this machine in digits: 0.0.0.0:{port} for all of IPv4, [::]:{port} for IPv6 too, or one of its own"
        )),
    }
}

/// `--listen` of a coordinator.
pub(crate) fn listen_for_workers(text: &str) -> Result<SocketAddr, String> {
    listen(text, WORKERS_PORT)
}

/// `--api` of a coordinator.
pub(crate) fn listen_for_api(text: &str) -> Result<SocketAddr, String> {
    listen(text, API_PORT)
}

/// `--listen` of a worker: any port will do.
pub(crate) fn listen_for_peers(text: &str) -> Result<SocketAddr, String> {
    listen(text, 0)
}

/// Where a process that listens there is reached, for people.
pub(crate) fn reached_at(listening: SocketAddr) -> String {
    match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => format!("port {} of every IPv4 address of this machine", listening.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => format!("port {} of every address of this machine", listening.port()),
        _ => listening.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_with_and_without_a_port_in_all_families() {
        for (text, expected) in [
            ("10.0.0.5:7700", "10.0.0.5:7700"),
            ("10.0.0.5", "10.0.0.5:1"),
            ("weir.example:80", "weir.example:80"),
            ("localhost", "localhost:1"),
            (" a_b-c.d ", "a_b-c.d:1"),
            ("[::1]:7700", "[::1]:7700"),
            ("[::1]", "[::1]:1"),
            ("::1", "[::1]:1"),
            ("2001:db8::5", "[2001:db8::5]:1"),
            ("fe80::1234", "[fe80::1234]:1"),
            ("[2001:db8::5:7700]", "[2001:db8::5:7700]:1"),
            ("::ffff:10.0.0.5", "[::ffff:10.0.0.5]:1"),
        ] {
            assert_eq!(Address::parse(text).map(|address| address.with_port(1)), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for (text, part) in [
            ("", "expected HOST"),
            (":7700", "expected HOST"),
            ("a:", "no port behind the colon"),
            ("a:b", "`b` is not a port"),
            ("a:65536", "from 0 to 65535"),
            ("::1:7700", "Write [::1]:7700"),
            ("2001:db8::5:7700", "Write [2001:db8::5]:7700"),
            ("1:2:3", "stands in brackets"),
            ("[::1", "not closed"),
            ("[::1]7700", "write [::1]:7700"),
            ("[a]:1", "not an IPv6 address"),
            ("http://a:1", "this is a URL"),
            ("user@a:1", "expected HOST"),
            ("a/b:1", "expected HOST"),
            ("a b:1", "expected HOST"),
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_worker_is_told_what_it_can_reach_and_what_others_can() {
        assert_eq!(coordinator_for_workers("weir.example"), Ok("weir.example:7700".to_owned()));
        assert_eq!(coordinator_for_workers("::1"), Ok("[::1]:7700".to_owned()));
        for (text, part) in [("https://a:7701", "does not use the API"), ("a:0", "port 0"), ("0.0.0.0", "all addresses")] {
            let error = coordinator_for_workers(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(advertised("[::]:7700").is_err() && advertised("a:0").is_err() && advertised("a").is_ok());
    }

    #[test]
    fn one_listens_at_addresses_of_this_machine() {
        let listen = |text: &str| listen_for_workers(text).map(|address| address.to_string());
        for (text, expected) in [
            ("0.0.0.0", "0.0.0.0:7700"),
            ("[::]:1", "[::]:1"),
            ("::", "[::]:7700"),
            ("localhost:0", "127.0.0.1:0"),
            ("10.0.0.5:9", "10.0.0.5:9"),
        ] {
            assert_eq!(listen(text), Ok(expected.to_owned()), "{text}");
        }
        assert_eq!(listen_for_api("::1").map(|address| address.to_string()), Ok("[::1]:7701".to_owned()));
        for (text, part) in [(":7700", "write 0.0.0.0:7700"), ("weir.example", "in digits"), ("7700", "in digits")] {
            let error = listen(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(reached_at(([0, 0, 0, 0], 7).into()), "port 7 of every IPv4 address of this machine");
        assert_eq!(reached_at(([10, 0, 0, 5], 7).into()), "10.0.0.5:7");
    }
}
