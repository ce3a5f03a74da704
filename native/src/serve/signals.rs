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
    /// Whether it ends with its terminal: it has one, and was not started to outlive it (`nohup`).
    ends_with_terminal: bool,
}

#[cfg(unix)]
impl Signals {
    /// Listens from now on; must be called inside the runtime.
    ///
    /// # Errors
    /// The host does not let it.
    pub fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        // Asked before it is listened to, which is then how it is handled.
        let ends_with_terminal = terminal().is_ok() && !ignores_hangup();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            ends_with_terminal,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Wish {
        use std::task::{Poll, ready};
        std::future::poll_fn(|cx| {
            // Who is asked and has one has given it away: one at a time, so that the others keep theirs.
            let ends = [&mut self.terminate, &mut self.interrupt];
            if ends.into_iter().any(|end| end.poll_recv(cx).is_ready()) {
                return Poll::Ready(Wish::End);
            }
            ready!(self.hangup.poll_recv(cx));
            // A terminal that goes says so too: nobody is left who would end the server.
            let gone = |error: io::Error| error.raw_os_error() == Some(libc::ENXIO);
            Poll::Ready(
                match self.ends_with_terminal && terminal().is_err_and(gone) {
                    true => Wish::End,
                    false => Wish::Reread,
                },
            )
        })
        .await
    }
}

/// The terminal that controls this process, wherever its input and output lead. Services and what `setsid` starts
/// have none; containers may.
#[cfg(unix)]
fn terminal() -> io::Result<std::fs::File> {
    std::fs::File::open("/dev/tty")
}

/// Whether who started it wished that it hear no hang-up.
#[cfg(unix)]
#[allow(
    unsafe_code,
    reason = "how a signal is handled has no interface that is safe"
)]
fn ignores_hangup() -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new one the call writes the one there is, and says whether it did.
    unsafe {
        libc::sigaction(libc::SIGHUP, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
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
    pub async fn next(&mut self) -> Wish {
        // Where it cannot be listened to, the host ends the program by itself.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Wish::End
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;
    use tokio::time::timeout;

    #[test]
    fn signals_that_come_together_are_all_heard() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let mut signals = Signals::listen().unwrap();
            let sent = Command::new("sh")
                .args(["-c", "kill -HUP $PPID && kill -TERM $PPID"])
                .status();
            assert!(sent.unwrap().success());
            let mut heard = Vec::new();
            for _ in 0..2 {
                let next = timeout(Duration::from_secs(20), signals.next()).await;
                heard.push(next.unwrap());
            }
            assert!(
                heard.contains(&Wish::End) && heard.contains(&Wish::Reread),
                "{heard:?}"
            );
        });
    }
}
