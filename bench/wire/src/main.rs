//! `weir-bench-wire LINK`: how fast the frames of a data channel move from one process to another, and what that costs both.
//!
//! The links are `quic` (weir-transport as workers use it), `tcp` and `tls` (TCP with TLS 1.3, AES-128-GCM), which nothing but
//! this program uses. All move the same frames, encoded and decoded by the same code, over as many channels: one QUIC stream
//! each, or one TCP connection each. Prints one line of JSON. For `cargo xtask bench`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its standard streams")]

mod link;
mod plain;
mod quic;
mod secure;
mod work;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use weir_transport::pki::{self, Validity};

use crate::link::{Link, Options};
use crate::work::{Tally, cpu_s};

const USAGE: &str = "usage: weir-bench-wire quic|tcp|tls [--packet BYTES] [--frame BYTES] [--channels N] [--seconds N]";

/// Names of both ends in their certificates.
const SENDER: &str = "sender";
const RECEIVER: &str = "receiver";

/// The first argument of the process that receives; the second is the folder of its certificate.
const AS_RECEIVER: &str = "receive-with";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, rest)) if first == AS_RECEIVER => rest.split_first().context(USAGE).and_then(|(identity, rest)| {
            let (link, options) = parse(rest)?;
            runtime()?.block_on(receive(link, Path::new(identity), options))
        }),
        _ => parse(&arguments).and_then(|(link, options)| measure(link, options, &arguments)),
    };
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<(Link, Options)> {
    let (link, rest) = arguments.split_first().context(USAGE)?;
    let link = Link::named(link).context(USAGE)?;
    let mut options = Options::default();
    for pair in rest.chunks(2) {
        let [name, value] = pair else { bail!("{} needs a value\n{USAGE}", pair[0]) };
        let number: u32 = value.parse().with_context(|| format!("{name}: `{value}` is no number"))?;
        match name.as_str() {
            "--packet" => options.packet_bytes_max = number.try_into().context("--packet: too large")?,
            "--frame" => options.frame_bytes = number as usize,
            "--channels" => options.channels = number,
            "--seconds" => options.time = Duration::from_secs(number.into()),
            other => bail!("unknown argument `{other}`\n{USAGE}"),
        }
    }
    Ok((link, options))
}

/// As many threads as a worker has for the network.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().context("cannot start a runtime")
}

/// The other process. Killed when dropped.
struct Receiver {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Receiver {
    fn start(identity: &Path, arguments: &[String]) -> Result<Receiver> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg(AS_RECEIVER).arg(identity).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the receiving process")?;
        let lines = BufReader::new(child.stdout.take().context("a child without a stdout")?);
        Ok(Receiver { child, lines })
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).context("cannot read what the receiving process says")?;
        serde_json::from_str(&line).with_context(|| format!("the receiving process said {line:?}"))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It has ended by itself, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends to a second process, and gives what it cost both.
fn measure(link: Link, options: Options, arguments: &[String]) -> Result<Value> {
    let folder = tempfile::tempdir().context("cannot make a folder for certificates")?;
    let [ca, ours, theirs]: [PathBuf; 3] = ["ca", SENDER, RECEIVER].map(|name| folder.path().join(name));
    let validity = Validity::days(1);
    pki::create_cluster(&ca, &validity)?;
    for (folder, name) in [(&ours, SENDER), (&theirs, RECEIVER)] {
        pki::add_node(&ca, folder, name, weir_transport::Role::Worker, &[secure::HOST.to_owned()], &validity)?;
    }
    let mut receiver = Receiver::start(&theirs, arguments)?;
    let said = receiver.line()?;
    let address = said["address"].as_str().and_then(|text| text.parse::<SocketAddr>().ok());
    let address = address.with_context(|| format!("the receiving process said {said}"))?;
    let (cpu_before, started) = (cpu_s()?, Instant::now());
    let (sent, connection) = runtime()?.block_on(async {
        match link {
            Link::Quic => quic::send(&ours, address, options).await,
            Link::Tcp => plain::send(address, options).await,
            Link::Tls => secure::send(&ours, address, options).await,
        }
    })?;
    let (seconds, sender_cpu_s) = (started.elapsed().as_secs_f64(), cpu_s()? - cpu_before);
    let received = receiver.line()?;
    if received["rows"] != sent.rows {
        bail!("{} rows were sent, but this arrived: {received}", sent.rows);
    }
    Ok(json!({
        "link": link.name(),
        "channels": options.channels,
        "frame_bytes": options.frame_bytes,
        "seconds": seconds,
        "rows": sent.rows,
        "bytes": sent.bytes,
        "sender_cpu_s": sender_cpu_s,
        "receiver_cpu_s": received["cpu_s"],
        "connection": connection,
    }))
}

/// Says where it listens, receives all channels of one sender to their ends, and gives what that was.
async fn receive(link: Link, identity: &Path, options: Options) -> Result<Value> {
    let (cpu_before, listening) = (cpu_s()?, |address: SocketAddr| println!("{}", json!({ "address": address.to_string() })));
    let told = |tally: Tally| -> Result<Value> { Ok(json!({ "rows": tally.rows, "cpu_s": cpu_s()? - cpu_before })) };
    match link {
        Link::Quic => quic::receive(identity, options, listening, told).await,
        Link::Tcp => plain::receive(options, listening).await.and_then(told),
        Link::Tls => secure::receive(identity, options, listening).await.and_then(told),
    }
}
