//! Where connections come in: each is taken where there is a place for it, bounded in its head and times, and served by
//! one router until the server stops.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connection::Connection;
use super::connections::Connections;
use super::http_metrics::HttpMetrics;
use super::shutdown::{Phase, Shutdown};
use super::unread::Unread;
use super::unsent::Unsent;
use super::until::until;
use super::write_limit::{ReadsTooLittle, WriteLimit};

/// Most headers of a request.
const MAX_HEADERS: usize = 100;
/// Most bytes of a request's head.
const MAX_HEAD: usize = 32 << 10;
/// Bytes that are read or written ahead.
const MAX_AHEAD: usize = 64 << 10;
/// Before another connection is taken, where the host had nothing to take it with.
const NAP: Duration = Duration::from_millis(100);

/// For so long a connection keeps its place though nothing has come over it.
const FRESH: Duration = Duration::from_secs(1);

/// Bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time for a head, and to lie idle.
    pub header_timeout: Duration,
    /// Time a write may wait.
    pub write_timeout: Duration,
}

/// What a connection is to hyper.
type Io = TokioIo<Connection<TcpStream>>;

/// Where connections come in.
#[derive(Debug)]
pub struct Door {
    /// Bound to its address.
    pub listener: TcpListener,
    /// Who answers.
    pub router: Router,
    /// How many there are.
    pub connections: Connections,
    /// Of each.
    pub bounds: Bounds,
    /// Once it has begun to drain no connection lies idle: it ends when it has nothing more to answer.
    pub shutdown: Shutdown,
    /// Of requests.
    pub counts: HttpMetrics,
}

impl Door {
    /// Serves connections until `stopped` resolves, then lets those that are open end within `grace`. What is answered
    /// runs until it is written.
    pub async fn serve(self, stopped: impl Future<Output = ()>, grace: Duration) {
        let draining = self.shutdown.reached(Phase::Draining);
        let _ = until(draining, self.take(Phase::Open)).await;
        let _ = until(stopped, self.take(Phase::Draining)).await;
        let connections = self.connections.clone();
        // Nobody is heard any more.
        drop(self);
        if timeout(grace, connections.all_closed()).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut");
        }
    }

    /// Takes connections for as long as it is asked to, in this phase. Once it is no more open, they are for one request
    /// each.
    async fn take(&self, phase: Phase) {
        let (may_idle, next) = match phase {
            Phase::Open => (true, Phase::Draining),
            Phase::Draining | Phase::Stopped => (false, Phase::Stopped),
        };
        let mut is_short = false;
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(taken) => taken,
                Err(error) if is_of_a_connection(&error) => continue,
                Err(error) => {
                    // Said once, and not each time that is tried.
                    if !std::mem::replace(&mut is_short, true) {
                        tracing::warn!(%error, "no connection can be taken");
                    }
                    sleep(NAP).await;
                    continue;
                }
            };
            if std::mem::take(&mut is_short) {
                tracing::info!("connections are taken again");
            }
            // Who comes behind it waits in the host's queue, and costs nothing here.
            let mut place = self.connections.place().await;
            // Pieces of answers are small and are not to wait for each other.
            let _ = stream.set_nodelay(true);
            let unread = Unread::default();
            let came = unread.clone();
            let unsent = Unsent::new(self.shutdown.clone());
            let too_little = ReadsTooLittle::default();
            let write_limit = WriteLimit::new(self.bounds.write_timeout, too_little.clone());
            let stream = Connection::new(stream, write_limit, unread.clone(), unsent.clone());
            let io = TokioIo::new(stream);
            let router = TowerToHyperService::new(self.router.clone());
            let service = service_fn(move |mut request: hyper::Request<Incoming>| {
                request.extensions_mut().insert(ConnectInfo(peer));
                request.extensions_mut().insert(too_little.clone());
                let answer = router.call(request.map(|body| unread.watch(body)));
                let unsent = unsent.clone();
                async move {
                    let answer: Response = answer.await?;
                    Ok::<_, Infallible>(answer.map(|body| unsent.watch(body)))
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.bounds.header_timeout)
                .max_headers(MAX_HEADERS)
                .max_header_size(MAX_HEAD)
                .max_buf_size(MAX_AHEAD)
                .keep_alive(may_idle)
                .serve_connection(io, service);
            let (shutdown, counts) = (self.shutdown.clone(), self.counts.clone());
            let settled = Instant::now() + FRESH;
            tokio::spawn(async move {
                let leave = async {
                    let _ = until(place.is_wanted(), shutdown.reached(next)).await;
                    // Of one that has just come the first request may be on its way.
                    if came.is_silent() {
                        sleep_until(settled).await;
                    }
                };
                if let Err(error) = serve_until(leave, connection).await {
                    note(&counts, &error, peer.ip());
                }
                drop(place);
            });
        }
    }
}

/// Serves a connection. Once `leave` resolves it ends when it has nothing to answer.
async fn serve_until<S>(
    leave: impl Future<Output = ()>,
    connection: http1::Connection<Io, S>,
) -> hyper::Result<()>
where
    S: HttpService<Incoming, ResBody = Body, Error = Infallible>,
{
    let (mut leave, mut connection) = (pin!(leave), pin!(connection));
    let mut leaves = false;
    poll_fn(|cx| {
        // First what has come: a request that is there is answered.
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        if leaves || leave.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        leaves = true;
        connection.as_mut().graceful_shutdown();
        connection.as_mut().poll(cx)
    })
    .await
}

/// Notes why a connection ended: what came for a request and was none has been answered, and is counted. What else a
/// client does wrong on its connection is its own matter.
fn note(counts: &HttpMetrics, error: &hyper::Error, client: IpAddr) {
    let status = match (error.is_parse_too_large(), error.is_parse()) {
        (true, _) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        (_, true) => StatusCode::BAD_REQUEST,
        _ => return tracing::debug!(%error, %client, "a connection ended"),
    };
    counts.count("", status.as_u16());
    tracing::info!(%error, %client, "what came is no request, or too long a one");
}

/// Whether an error is one of the connection that was to be taken, and not of this host.
fn is_of_a_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
