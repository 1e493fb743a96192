//! Sockets: accepting connections, TLS, HTTP/1 with bounds, and the end of it all.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::access::Rules;
use crate::calls::Calls;
use crate::doors::{Doors, Seat};
use crate::limits::{
    CONNECTIONS_MAX, FOLLOW_STEP, GOODBYE_MAX, HEAD_BYTES_MAX, HEAD_MAX, HEADERS_MAX, LEAVING_MAX, STRANGERS_MAX,
};
use crate::paced::Paced;
use crate::routes;
use crate::site::{Site, left};
use crate::{ApiError, ApiOptions, peer, tls};

/// Connections of all kinds.
const SOCKETS_MAX: usize = STRANGERS_MAX + CONNECTIONS_MAX + LEAVING_MAX;

/// An API server that runs.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub local_addr: SocketAddr,
    leaving: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl Server {
    /// Ends it: no new connections; requests that are at work get 3 seconds. Blocks until then, so it must not be called on a
    /// thread of the runtime.
    pub fn shutdown(self) {
        let _ = self.leaving.send(true);
        // The sender is dropped when the last connection is gone.
        let _ = self.ended.blocking_recv();
    }
}

/// Starts an API server on `handle`'s runtime. It listens when this returns.
///
/// # Errors
/// If it would not be protected, the address cannot be had, or the certificate cannot be used.
pub fn serve(options: ApiOptions, handle: &Handle) -> Result<Server, ApiError> {
    let ApiOptions { listen, tls, owner_passes, cluster } = options;
    let loopback = listen.ip().is_loopback();
    let owner_passes = owner_passes && loopback;
    let unknown = cluster.tokens().is_empty() && !owner_passes;
    for (missing, is_missing) in [("TLS certificate", tls.is_none() && !loopback), ("token that counts", unknown)] {
        if is_missing {
            return Err(ApiError::Unprotected { listen, missing });
        }
    }
    let acceptor = tls.as_ref().map(tls::config).transpose()?.map(TlsAcceptor::from);
    let bind = |reason| ApiError::Bind { listen, reason };
    let listener = std::net::TcpListener::bind(listen).map_err(bind)?;
    listener.set_nonblocking(true).map_err(bind)?;
    let local_addr = listener.local_addr().map_err(bind)?;
    let listener = {
        let _context = handle.enter();
        TcpListener::from_std(listener).map_err(bind)?
    };
    let (leaving, left) = watch::channel(false);
    let (ending, ended) = oneshot::channel::<()>();
    let router =
        routes::router(Site { calls: Calls::new(cluster), rules: Rules { loopback_only: loopback }, leaving: left.clone() });
    handle.spawn(async move {
        let site = Entry { acceptor, router, owner_passes, doors: Arc::default() };
        accept(listener, site, left).await;
        drop(ending);
    });
    Ok(Server { local_addr, leaving, ended })
}

/// What a new connection needs.
#[derive(Clone)]
struct Entry {
    acceptor: Option<TlsAcceptor>,
    router: Router,
    owner_passes: bool,
    doors: Arc<Doors>,
}

async fn accept(listener: TcpListener, entry: Entry, mut leaving: watch::Receiver<bool>) {
    let connections = Arc::new(Semaphore::new(SOCKETS_MAX));
    loop {
        let accepted = async {
            let turn = Arc::clone(&connections).acquire_owned().await;
            (turn, listener.accept().await)
        };
        let (turn, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = left(&mut leaving) => break,
        };
        let (stream, from) = match accepted {
            Ok((stream, from)) => (stream, from),
            Err(error) => {
                // Out of file descriptors, mostly: others have to end first.
                tracing::warn!(%error, "the API cannot accept a connection");
                sleep(FOLLOW_STEP).await;
                continue;
            }
        };
        let (entry, leaving) = (entry.clone(), leaving.clone());
        tokio::spawn(async move {
            let _turn = turn;
            enter(stream, from, entry, leaving).await;
        });
    }
    drop(listener);
    let all = connections.acquire_many(SOCKETS_MAX as u32);
    if timeout(GOODBYE_MAX, all).await.is_err() {
        tracing::warn!("the API ends while requests are at work");
    }
}

async fn enter(stream: TcpStream, from: SocketAddr, entry: Entry, leaving: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let owner = match stream.local_addr() {
        Ok(here) if entry.owner_passes => match spawn_blocking(move || peer::own_user(from, here)).await {
            Ok(owner) => owner,
            // The process ends: no answer is better than one that refuses.
            Err(_) => return,
        },
        _ => None,
    };
    let seat = entry.doors.enter(from.ip(), owner);
    tokio::select! {
        () = connection(stream, entry, seat.clone(), leaving) => {}
        () = seat.must_leave() => tracing::debug!(%from, "a connection to the API ends: it asked for nothing in time"),
    }
}

async fn connection(stream: TcpStream, entry: Entry, seat: Arc<Seat>, leaving: watch::Receiver<bool>) {
    let Entry { acceptor, router, .. } = entry;
    let Some(acceptor) = acceptor else { return requests(stream, router, seat, leaving).await };
    match timeout(HEAD_MAX, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, router, seat, leaving).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake with a client of the API failed"),
        Err(_) => tracing::debug!("a client of the API did not finish its TLS handshake in time"),
    }
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    seat: Arc<Seat>,
    mut leaving: watch::Receiver<bool>,
) {
    let routes = TowerToHyperService::new(router);
    let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(seat.clone());
        routes.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let connection = http.serve_connection(TokioIo::new(Paced::new(stream)), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = left(&mut leaving) => {
            connection.as_mut().graceful_shutdown();
            match timeout(GOODBYE_MAX, connection).await {
                Ok(result) => result,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection to the API broke");
    }
}
