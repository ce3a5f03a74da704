//! What the host wishes of the server: that it end (SIGTERM, Ctrl-C, its terminal is gone), or read anew what may
//! change meanwhile (SIGHUP).

use std::io;

/// A wish of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is to end; wished again, at once.
    End,
    /// It is to read its files anew.
    Reread,
}

/// Resolves at each such wish.
#[cfg(unix)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    /// Whether it was started from a terminal.
    had_terminal: bool,
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
            hangup: signal(SignalKind::hangup())?,
            had_terminal: has_terminal(),
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Wish {
        use std::task::Poll;
        std::future::poll_fn(|cx| {
            let terminate = self.terminate.poll_recv(cx);
            let interrupt = self.interrupt.poll_recv(cx);
            let hangup = self.hangup.poll_recv(cx);
            if terminate.is_ready() || interrupt.is_ready() {
                return Poll::Ready(Wish::End);
            }
            // A terminal that goes says so too: nobody is left who would end the server.
            match hangup.is_ready() {
                true if self.had_terminal && !has_terminal() => Poll::Ready(Wish::End),
                true => Poll::Ready(Wish::Reread),
                false => Poll::Pending,
            }
        })
        .await
    }
}

/// Whether there is a terminal to be read from or written to.
#[cfg(unix)]
fn has_terminal() -> bool {
    use std::io::IsTerminal as _;
    io::stdin().is_terminal() || io::stderr().is_terminal()
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
    pub async fn next(&mut self) -> Wish {
        // Where it cannot be listened to, the host ends the program by itself.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Wish::End
    }
}
