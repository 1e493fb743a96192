//! `weir coordinator`: the process that jobs are given to.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_api::{ApiError, ApiOptions, TlsFiles, Token};
use weir_coordinator::{OpenStorage, ServeOptions};
use weir_model::ErrorNumber;
use weir_storage::JobStorage;
use weir_worker::{Beneath, Storages};

use crate::address;
use crate::cluster::TOKEN;
use crate::component::describe;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output;

/// Threads that serve the API; calls into the cluster have their own.
const API_THREADS: usize = 2;

/// `weir coordinator`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of this node's certificate, as `weir cluster init` makes it
    #[arg(long, value_name = "DIR")]
    identity: PathBuf,
    /// Where workers connect to (UDP, and TCP beside it)
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7700", value_parser = address::listen_for_workers)]
    listen: SocketAddr,
    /// Where the API is served; any address but a loopback has HTTPS and asks everybody for a token
    #[arg(long, value_name = "ADDRESS", default_value = crate::client::DEFAULT, value_parser = address::listen_for_api)]
    api: SocketAddr,
    /// Where checkpoints of jobs are that name no storage: a folder that all workers share, under the same path
    #[arg(long, value_name = "URL")]
    checkpoints: String,
    /// A folder below which checkpoints of jobs may be that name a storage themselves, other than that of --checkpoints; may be given several
    /// times [default: any path, if the API is on a loopback address; none otherwise]
    #[arg(long, value_name = "DIR")]
    allow_path: Vec<PathBuf>,
    /// File with the first admin's token; with this flag, the user that runs the coordinator needs one too [default: `token` in the
    /// identity folder, if there is one]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(crate) fn execute(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    // Whatever is wrong with the API is found before jobs are touched.
    let (tls, token, owner_passes) = protection(args)?;
    let data_dir = global.data_dir.join("coordinator");
    // Where there is no metadata yet, there is no token in it either.
    if token.is_none() && !owner_passes && !data_dir.exists() {
        return Err(of_api(&ApiError::Unprotected { listen: args.api, missing: "token that counts" }).into());
    }
    let default_storage = storage(&args.checkpoints)?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let server = weir_coordinator::serve(ServeOptions {
        data_dir,
        identity_dir: args.identity.clone(),
        listen: args.listen,
        storage: open_storage(args, default_storage.clone())?,
        default_storage,
        token: token.as_ref().map(Token::digest),
        describe: describe::for_coordinator()?,
    })
    .map_err(|error| Failure::new(ErrorNumber::ProcessDoesNotStart, Exit::Failed, error.to_string()))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(API_THREADS).thread_name("api").enable_all().build()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let options = ApiOptions { listen: args.api, tls, owner_passes, cluster: server.cluster.clone() };
    let api = match weir_api::serve(options, runtime.handle()) {
        Ok(api) => api,
        Err(error) => {
            server.shutdown();
            return Err(of_api(&error).into());
        }
    };
    let url = format!("{scheme}://{}", api.local_addr);
    if global.json {
        output::print(&format!("{}\n", json!({ "event": "listening", "workers": server.local_addr, "api": url })))?;
    } else {
        global.note(&format!(
            "coordinator of cluster {}: workers connect to {}, the API is at {url}",
            server.cluster.status().cluster,
            address::reached_at(server.local_addr)
        ));
    }
    signals.forever().next();
    global.note("ending; jobs go on, and the next coordinator on this data folder takes them over");
    // A second signal ends the process at once, which loses nothing.
    std::thread::spawn(move || {
        signals.forever().next();
        std::process::exit(130);
    });
    api.shutdown();
    server.shutdown();
    Ok(ExitCode::SUCCESS)
}

/// Certificate of the API, the token in the token file, and whether processes of this user need none. On a loopback address they do not,
/// unless a token file was named for it; other users of the machine need one there too.
fn protection(args: &Args) -> Result<(Option<TlsFiles>, Option<Token>, bool), Failure> {
    let in_identity = args.identity.join(TOKEN);
    let owner_passes = args.api.ip().is_loopback() && args.token_file.is_none();
    let file = args.token_file.clone().or_else(|| in_identity.exists().then_some(in_identity));
    let token = file.map(|file| Token::read(&file)).transpose().map_err(|error| of_api(&error))?;
    if args.api.ip().is_loopback() {
        return Ok((None, token, owner_passes));
    }
    let tls = TlsFiles { certificate: args.identity.join("node.pem"), key: args.identity.join("node-key.pem") };
    Ok((Some(tls), token, false))
}

fn of_api(error: &ApiError) -> Failure {
    let (number, exit) = match error {
        ApiError::Unprotected { .. } => (ErrorNumber::ApiUnprotected, Exit::Usage),
        ApiError::Token { .. } => (ErrorNumber::TokenWrong, Exit::Usage),
        _ => (ErrorNumber::ProcessDoesNotStart, Exit::Failed),
    };
    let failure = Failure::new(number, exit, error.to_string());
    error.hint().into_iter().fold(failure, |failure, hint| failure.hint(hint))
}

/// How checkpoints are opened. A job may name another place for its own, and the coordinator writes there as its user.
fn open_storage(args: &Args, default: String) -> Result<OpenStorage, Failure> {
    if args.api.ip().is_loopback() && args.allow_path.is_empty() {
        return Ok(Arc::new(JobStorage::open));
    }
    let beneath = |folders: &[PathBuf]| {
        Beneath::new(folders).map_err(|error| {
            let message = format!("--allow-path names a folder that is not there: {error}");
            Failure::new(ErrorNumber::FileInaccessible, Exit::Usage, message)
        })
    };
    let named = beneath(&args.allow_path)?;
    Ok(Arc::new(move |url, job| {
        // Its folder may not be there yet, and is its owner's choice.
        if url == default { JobStorage::open(url, job) } else { named.open(url, job) }
    }))
}

/// The place of checkpoints of jobs that name none. One that no job could use is refused before there are any.
fn storage(url: &str) -> anyhow::Result<String> {
    let url = absolute(url)?;
    weir_storage::local_folder(&url).map_err(|error| {
        Failure::new(ErrorNumber::CheckpointStorage, Exit::Usage, format!("cannot use --checkpoints: {error}"))
    })?;
    Ok(url)
}

/// A place of checkpoints that means the same wherever a worker was started.
fn absolute(url: &str) -> anyhow::Result<String> {
    let path = match url.strip_prefix("file:") {
        Some(rest) if rest.starts_with('/') => return Ok(url.to_owned()),
        Some(rest) => rest,
        None if url.contains("://") => return Ok(url.to_owned()),
        None => url,
    };
    Ok(std::path::absolute(Path::new(path))?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn checkpoints_are_named_the_same_on_every_machine() {
        let here = std::env::current_dir().unwrap();
        for (url, expected) in [
            ("/var/weir", "/var/weir".to_owned()),
            ("file:///var/weir", "file:///var/weir".to_owned()),
            ("s3://bucket/weir", "s3://bucket/weir".to_owned()),
            ("data/c", here.join("data/c").to_string_lossy().into_owned()),
            ("file:data", here.join("data").to_string_lossy().into_owned()),
        ] {
            assert_eq!(absolute(url).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn a_place_that_no_job_could_use_is_refused_at_the_start() {
        assert_eq!(storage("/var/weir").unwrap(), "/var/weir");
        let failure = storage("s3://bucket/weir").unwrap_err();
        let failure = failure.downcast_ref::<Failure>().unwrap();
        assert!(failure.number == "E0031" && failure.message.contains("s3"), "{} {}", failure.number, failure.message);
    }

    #[test]
    fn other_machines_are_not_let_in_without_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let args = |api: &str| Args {
            identity: folder.path().to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            api: api.parse().unwrap(),
            checkpoints: "/c".to_owned(),
            allow_path: Vec::new(),
            token_file: None,
        };
        assert!(matches!(protection(&args("127.0.0.1:0")), Ok((None, None, true))));
        assert!(matches!(protection(&args("0.0.0.0:7701")), Ok((Some(_), None, false))), "then one that was created is needed");
        Token::generate().unwrap().create(&folder.path().join(TOKEN)).unwrap();
        assert!(matches!(protection(&args("0.0.0.0:7701")), Ok((Some(_), Some(_), false))));
        // The same token lets other users of this machine in.
        assert!(matches!(protection(&args("127.0.0.1:0")), Ok((None, Some(_), true))));
    }
}
