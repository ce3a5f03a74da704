//! Where connections come in: each is taken where there is a place for it, bounded in its head and times, and served by
//! one router until the server stops. Who is still in the host's queue then is taken too, and told so.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
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
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::connection::Connection;
use super::connections::{Connections, Place};
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

/// For so long a connection keeps its place though nothing has come over it; and one that is to make room, or whose
/// server ends, though nothing is to be answered: the rest of a head may be on its way, which is mostly one packet, or
/// an answer that was given on its way to who still sends.
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
    /// Serves connections until `stopped` resolves, then lets those that were taken, or wait to be, end within `grace`.
    /// What is answered runs until it is written.
    pub async fn serve(
        self,
        listener: TcpListener,
        stopped: impl Future<Output = ()>,
        grace: Duration,
    ) {
        let (alive, mut all_ended) = mpsc::channel(1);
        let _ = until(stopped, self.take(&listener, &alive)).await;
        let end = Instant::now() + grace;
        match listener.into_std() {
            Ok(listener) => drop(timeout_at(end, self.take_rest(listener, &alive)).await),
            Err(error) => tracing::warn!(%error, "who waited to be heard is not"),
        }
        // Nobody is heard any more.
        drop((self, alive));
        if timeout_at(end, all_ended.recv()).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut");
        }
    }

    /// Takes connections for as long as it is asked to; each has `alive` until it ends.
    async fn take(&self, listener: &TcpListener, alive: &mpsc::Sender<Infallible>) {
        let mut is_short = false;
        loop {
            let (stream, peer) = match listener.accept().await {
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
            self.place(stream, peer, alive).await;
        }
    }

    /// Takes those that are in the host's queue, which would else be reset with it.
    async fn take_rest(&self, listener: StdListener, alive: &mpsc::Sender<Infallible>) {
        loop {
            let taken = listener.accept().and_then(|(stream, peer)| {
                stream.set_nonblocking(true)?;
                Ok((TcpStream::from_std(stream)?, peer))
            });
            match taken {
                Ok((stream, peer)) => self.place(stream, peer, alive).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_of_a_connection(&error) => {}
                // Those that end leave the host something to take others with.
                Err(_) => sleep(NAP).await,
            }
        }
    }

    /// Has a connection served once there is a place for it, and resolves then: who comes behind it waits in the host's
    /// queue, and costs nothing here.
    async fn place(&self, stream: TcpStream, peer: SocketAddr, alive: &mpsc::Sender<Infallible>) {
        let taken = Taken {
            stream,
            peer,
            router: self.router.clone(),
            bounds: self.bounds,
            shutdown: self.shutdown.clone(),
            counts: self.counts.clone(),
        };
        let (alive, connections) = (alive.clone(), self.connections.clone());
        let (placed, is_placed) = oneshot::channel();
        // It has its stream already while it waits, so that whatever ends this drops nobody who was taken.
        tokio::spawn(async move {
            // A server that drains does not wait for those who have places: they may have them until it ends.
            let drains = taken.shutdown.reached(Phase::Draining);
            let place = match until(drains, connections.place()).await {
                Some(place) => place,
                None => connections.late_place().await,
            };
            let _ = placed.send(());
            taken.serve(place).await;
            drop(alive);
        });
        let _ = is_placed.await;
    }
}

/// A connection that was taken, and what serves it.
struct Taken {
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    bounds: Bounds,
    shutdown: Shutdown,
    counts: HttpMetrics,
}

impl Taken {
    /// Serves it in its place; for one request alone where the server drains already.
    async fn serve(self, mut place: Place) {
        let Self {
            stream,
            peer,
            router,
            bounds,
            shutdown,
            counts,
        } = self;
        let may_idle = shutdown.phase() == Phase::Open;
        // Pieces of answers are small and are not to wait for each other.
        let _ = stream.set_nodelay(true);
        let unread = Unread::default();
        let came = unread.clone();
        let unsent = Unsent::new(shutdown.clone());
        let too_little = ReadsTooLittle::default();
        let write_limit = WriteLimit::new(bounds.write_timeout, too_little.clone());
        let stream = Connection::new(stream, write_limit, unread.clone(), unsent.clone());
        let (answers, of_it) = (unsent.clone(), unsent.clone());
        let router = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(too_little.clone());
            unsent.ask();
            let answer = router.call(request.map(|body| unread.watch(body)));
            let unsent = unsent.clone();
            async move {
                let answer: Response = answer.await?;
                Ok::<_, Infallible>(answer.map(|body| unsent.watch(body)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.header_timeout)
            .max_headers(MAX_HEADERS)
            .max_header_size(MAX_HEAD)
            .max_buf_size(MAX_AHEAD)
            .keep_alive(may_idle)
            .serve_connection(TokioIo::new(stream), service);
        let settled = Instant::now() + FRESH;
        let leave = async {
            let _ = until(place.is_wanted(), shutdown.reached(Phase::Draining)).await;
            let end = Instant::now() + FRESH;
            // Of one that has just come the first request may be on its way, and of half a head the rest, with which a
            // connection that was kept would end at once.
            if came.is_silent() {
                sleep_until(settled).await;
            } else if came.is_of_another() && !of_it.is_some() {
                sleep_until(end).await;
            }
            end.max(settled)
        };
        if let Err(error) = serve_until(leave, connection, &answers).await {
            note(&counts, &error, peer.ip());
        }
        drop(place);
    }
}

/// Serves a connection. Once `leave` resolves it ends when it has nothing to answer: what is whole by then, or by the time
/// that this says.
async fn serve_until<S>(
    leave: impl Future<Output = Instant>,
    connection: http1::Connection<Io, S>,
    answers: &Unsent,
) -> hyper::Result<()>
where
    S: HttpService<Incoming, ResBody = Body, Error = Infallible>,
{
    let (mut leave, mut connection) = (pin!(leave), pin!(connection));
    let left = poll_fn(|cx| {
        // First what has come: a request that is there is answered.
        match connection.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Err(ended)),
            Poll::Pending => leave.as_mut().poll(cx).map(Ok),
        }
    });
    let end = match left.await {
        Ok(end) => end,
        Err(ended) => return ended,
    };
    connection.as_mut().graceful_shutdown();
    match timeout_at(end, connection.as_mut()).await {
        Ok(ended) => ended,
        Err(_) if answers.is_some() => connection.await,
        // A head that is not whole, or an answer that was given.
        Err(_) => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;

    use super::*;

    /// What lies there when a connection is to leave is answered, also where that is seen at the same moment.
    #[test]
    fn what_has_come_is_answered_before_a_connection_leaves() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let at = listener.local_addr().unwrap();
            let mut client = std::net::TcpStream::connect(at).unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
            client.write_all(request).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            stream.readable().await.unwrap();
            let write_limit = WriteLimit::new(FRESH, ReadsTooLittle::default());
            let unsent = Unsent::new(Shutdown::default());
            let unread = Unread::default();
            let stream = Connection::new(stream, write_limit, unread.clone(), unsent.clone());
            let service = service_fn(async |request: hyper::Request<Incoming>| {
                let body = unread.watch(request.into_body());
                Ok::<_, Infallible>(Response::new(body))
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let end = Instant::now() + FRESH;
            serve_until(std::future::ready(end), connection, &unsent)
                .await
                .unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
        });
    }
}
