//! A process with much memory that is killed is noticed late: its kernel frees the memory first (some 150 ms a GiB) and closes
//! connections after that, and it is by its closed connection that a worker's end is noticed (decision 13).
//!
//! So a worker has a keeper: a process that shares its memory and does nothing but wait for the worker's end. Memory is freed with the
//! last process that has it, so the worker's connections close at once, and the keeper, which has none, ends after that.
//!
//! Owns the keeper; knows nothing of what the memory is for.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::ptr;

/// Stack of the keeper, which makes four system calls.
const STACK_BYTES: usize = 64 << 10;

/// What `ps` and `top` call the keeper.
const NAME: &[u8; 16] = b"weir-keeper\0\0\0\0\0";

/// From now on this process's memory outlives it by a moment. To be called once, before there are files or connections of which the
/// keeper must not have a copy for a moment: it closes all it inherits.
///
/// # Errors
/// If the system has no process for it or forbids it. Nothing has changed then, and nothing depends on it but how soon the end
/// of this process is noticed.
pub fn keep_memory_past_the_end() -> io::Result<()> {
    let own = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
    // For good: the keeper runs on it as long as this process does.
    let stack = Box::leak(vec![0u8; STACK_BYTES].into_boxed_slice());
    let all = all_signals();
    let mut before = all;
    // SAFETY: both point to signal sets. The keeper inherits that all signals are blocked, so that none is handled there.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    let made = clone(stack, &own);
    // SAFETY: as above, and `before` was filled in by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    if made.is_ok() {
        // The keeper closes its own copy with its end; this one it has to be able to name until then.
        let _ = own.into_raw_fd();
    }
    made
}

fn clone(stack: &'static mut [u8], own: &OwnedFd) -> io::Result<()> {
    // The descriptor's number, which is the same in the keeper's table, and not a pointer: nothing has to outlive this call.
    let argument = ptr::without_provenance_mut::<c_void>(own.as_raw_fd() as usize);
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: the stack is the keeper's alone, is as long-lived as it, grows down from its aligned end, and suffices. The keeper shares this process's memory
    // and, being no thread of it, the thread-local storage of this thread; it makes system calls only, all signals are blocked, and it
    // allocates, locks and returns nothing.
    let pid = unsafe { libc::clone(keep, top.map_addr(|top| top & !15).cast(), libc::CLONE_VM, argument) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What the keeper does.
extern "C" fn keep(own: *mut c_void) -> c_int {
    let own = own.addr() as u32;
    let forever = -1;
    let mut ended = libc::pollfd { fd: own as c_int, events: libc::POLLIN, revents: 0 };
    // SAFETY: system calls on numbers, on a constant text of sixteen bytes, and on one `pollfd` of this stack. `_exit` runs nothing of this process's.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        if own > 0 {
            libc::syscall(libc::SYS_close_range, 0u32, own - 1, 0u32);
        }
        libc::syscall(libc::SYS_close_range, own + 1, u32::MAX, 0u32);
        while libc::poll(&raw mut ended, 1, forever) < 1 {}
        libc::_exit(0)
    }
}

fn all_signals() -> libc::sigset_t {
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigfillset` fills the set in.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        all.assume_init()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stdout)]
    use std::fs;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    const MEMORY_BYTES: usize = 64 << 20;
    const ADDRESS: &str = "WEIR_TEST_KEEPER_ADDRESS";

    /// The process that is killed; does nothing where the other test does not start it.
    #[test]
    fn a_process_with_a_keeper() {
        let Ok(address) = std::env::var(ADDRESS) else { return };
        super::keep_memory_past_the_end().unwrap();
        let mut connection = TcpStream::connect(address).unwrap();
        let memory = vec![1u8; MEMORY_BYTES];
        connection.write_all(&memory[..1]).unwrap();
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn connections_of_a_killed_process_close_before_its_memory_is_freed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let this = "memory::keeper::tests::a_process_with_a_keeper";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", this, "--nocapture"]).env(ADDRESS, listener.local_addr().unwrap().to_string());
        let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (mut connection, _) = listener.accept().unwrap();
        connection.read_exact(&mut [0]).unwrap();
        let keeper = keeper_of(killed.id());
        assert_eq!(fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().count(), 1, "it has no file but the one it waits for");

        // Stopped, it cannot end: were it not for it, nothing would keep the memory.
        signal(keeper, libc::SIGSTOP);
        killed.kill().unwrap();
        assert_eq!(killed.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(connection.read(&mut [0]).unwrap(), 0, "the connection is closed");
        assert!(resident_bytes(keeper) >= MEMORY_BYTES, "the memory is there");
        signal(keeper, libc::SIGCONT);
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(format!("/proc/{keeper}/stat")).is_ok_and(|stat| !stat.contains(") Z")) {
            assert!(Instant::now() < deadline, "the keeper outlives the process");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn keeper_of(process: u32) -> u32 {
        let parent = |stat: &str| stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse::<u32>().unwrap();
        let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let mut children =
            processes.filter(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| parent(&stat) == process));
        children.next().expect("a keeper")
    }

    fn resident_bytes(process: u32) -> usize {
        let pages: usize =
            fs::read_to_string(format!("/proc/{process}/statm")).unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        pages * crate::memory::PAGE_BYTES
    }

    fn signal(process: u32, signal: i32) {
        // SAFETY: a system call on numbers.
        assert_eq!(unsafe { libc::kill(process as i32, signal) }, 0);
    }
}
