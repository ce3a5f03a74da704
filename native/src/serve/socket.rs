//! The socket that a server listens at. Knows no connection.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, lookup_host};

/// Connections that wait to be taken, as far as the host lets them (`net.core.somaxconn`): who comes to more tries again
/// after a second.
const BACKLOG: u32 = 4096;

/// Listens at the first address of a host that can be.
///
/// # Errors
/// It has none, or what the last one met.
pub async fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for at in lookup_host((host, port)).await? {
        match listen_at(at) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn listen_at(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = match at {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Else a port is taken for a minute by connections of a server that ended; elsewhere this means another thing.
    if cfg!(unix) {
        socket.set_reuseaddr(true)?;
    }
    socket.bind(at)?;
    socket.listen(BACKLOG)
}
