//! Whose process is at the other end of a connection on this machine, as the kernel knows it.
//!
//! A loopback address keeps other machines out, not other users of this one. The kernel lists each TCP socket with the user who
//! made it (`/proc/net/tcp`); a connection's own line cannot be made up by its other end while it stands. What is not found is
//! nobody's: then the token decides.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use weir_protocol::access::Person;

/// State of a socket whose connection stands. Of others the kernel does not know the user any more, and lists 0.
const ESTABLISHED: &str = "01";

/// The user of a socket at `peer`, connected to `here`, if it is this process's own, or root. Reads files of the kernel.
pub(crate) fn own_user(peer: SocketAddr, here: SocketAddr) -> Option<Person> {
    let own = rustix::process::geteuid().as_raw();
    let lists = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let user = lists.iter().find_map(|list| user_in(&fs::read_to_string(list).ok()?, peer, here))?;
    let users = || fs::read_to_string("/etc/passwd").unwrap_or_default();
    (user == own || user == 0).then(|| Person::User(name_in(&users(), user).unwrap_or_else(|| user.to_string())))
}

/// The name of a user in a list of users as `/etc/passwd` is one. Users from elsewhere are shown by their number.
fn name_in(list: &str, user: u32) -> Option<String> {
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(user) && !name.is_empty()).then(|| name.to_owned())
    };
    list.lines().find_map(of_line)
}

/// The user of the socket between `local` and `remote` in a list as the kernel writes it.
fn user_in(list: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let line = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (of, to, state) = (address(fields.next()?)?, address(fields.next()?)?, fields.next()?);
        let is_it = state == ESTABLISHED && of == canonical(local) && to == canonical(remote);
        // Queues, timer and retransmissions come between.
        is_it.then(|| fields.nth(3)?.parse().ok())?
    };
    list.lines().find_map(line)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// `0100007F:1E15`: words of an address as this machine orders bytes, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(8 * at..8 * at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match address.len() {
        8 => word(0)?.into(),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            <[u8; 16]>::try_from(words.as_flattened()).ok()?.into()
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_as_their_machine_names_them() {
        let list = "root:x:0:0:root:/root:/bin/sh\n# a remark\n:x:7:7::/:\nweir:x:998:998::/var/lib/weir:/bin/false\nodd:x\n";
        assert_eq!(
            [0, 998, 7, 1].map(|user| name_in(list, user)),
            [Some("root".to_owned()), Some("weir".to_owned()), None, None]
        );
    }

    #[test]
    fn s136_the_user_is_that_of_the_one_socket_whose_connection_stands() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let v4 = word([127, 0, 0, 1]);
        let mapped = format!("{0}{0}{1}{2}", word([0; 4]), word([0, 0, 255, 255]), v4);
        let line = |local: &str, state: &str, user: u32| {
            format!(
                "   0: {local}:C001 {v4}:1E15 {state} 00000000:00000000 00:00000000 00000000 {user:5}        0 12345 1 0 20 4 30 10 -1\n"
            )
        };
        let (peer, here) = ("127.0.0.1:49153".parse().unwrap(), "127.0.0.1:7701".parse().unwrap());
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let list = |lines: &[String]| format!("{header}{}", lines.concat());
        assert_eq!(user_in(&list(&[line(&v4, "01", 1000)]), peer, here), Some(1000));
        let of_v6 = format!("   0: {mapped}:C001 {mapped}:1E15 01 0:0 00:0 0  1001 0 12345\n");
        assert_eq!(user_in(&list(&[of_v6]), peer, here), Some(1001), "a socket for both kinds of addresses");
        // One that waits for its end is listed as root's.
        assert_eq!(user_in(&list(&[line(&v4, "06", 0), line(&v4, "05", 0)]), peer, here), None);
        assert_eq!(user_in(&list(&[line(&v4, "01", 0)]), here, peer), None, "the other direction is ours");
        for nonsense in ["", "x", "0: 1 2 3", "   0: 0100007F:C001", &"é ".repeat(9)] {
            assert_eq!(user_in(nonsense, peer, here), None, "{nonsense}");
        }
    }
}
