//! Wishes of the host that the server end: SIGTERM and Ctrl-C.

use std::io;

/// Resolves at each such wish.
#[cfg(unix)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Listens from now on; must be called inside the runtime.
    ///
    /// # Errors
    /// The host does not let it.
    pub fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) {
        std::future::poll_fn(|cx| {
            let terminate = self.terminate.poll_recv(cx);
            let interrupt = self.interrupt.poll_recv(cx);
            match terminate.is_ready() || interrupt.is_ready() {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
    }
}

/// Resolves at each such wish.
#[cfg(not(unix))]
pub struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// None.
    pub fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// The next one.
    pub async fn next(&mut self) {
        // Where it cannot be listened to, the host ends the program by itself.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
