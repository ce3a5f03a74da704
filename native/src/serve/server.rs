//! The server's life: it listens, serves, is asked to end, lets what runs end, and stops. Knows no command line.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::app::App;
use super::lingering::LINGER;
use super::listener::{Bounds, Door};
use super::router::router;
use super::shutdown::Phase;
use super::telemetry::Telemetry;
use super::until::until;
use crate::heap;

/// Longest time between two looks at what is loaded.
const LOOK: Duration = Duration::from_secs(1);
/// Between two times that memory is given back.
const GIVE_BACK: Duration = Duration::from_secs(5);
/// Between two words on what is waited for.
const TELL: Duration = Duration::from_secs(5);
/// Time for connections to say what is left after the engines have stopped.
const LAST_WORDS: Duration = Duration::from_secs(1).saturating_add(LINGER);

/// A server that is bound to its address.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
    bounds: Bounds,
    drain_timeout: Duration,
    idle_unload: Option<Duration>,
}

impl Server {
    /// Serves `app` at `listener`.
    pub fn new(
        listener: TcpListener,
        app: App,
        bounds: Bounds,
        drain_timeout: Duration,
        idle_unload: Option<Duration>,
    ) -> Self {
        Self {
            listener,
            app: Arc::new(app),
            bounds,
            drain_timeout,
            idle_unload,
        }
    }

    /// Where it is heard.
    ///
    /// # Errors
    /// The host does not say.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What its handlers share.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Serves until the phase [`Phase::Stopped`] is reached, by itself `drain_timeout` after it began to
    /// drain or once nothing runs; then all engines have ended.
    pub async fn run(self) {
        let Self {
            listener,
            app,
            bounds,
            drain_timeout,
            idle_unload,
        } = self;
        let keeping = {
            let app = Arc::clone(&app);
            tokio::spawn(async move { keep(&app, idle_unload).await })
        };
        let giving_back = tokio::spawn(give_back());
        let draining = {
            let app = Arc::clone(&app);
            tokio::spawn(async move { drain(&app, drain_timeout).await })
        };
        let stopped = async {
            app.shutdown.reached(Phase::Stopped).await;
            // What still runs is told so by its engine.
            app.models.end().await;
        };
        let door = Door {
            router: router(Arc::clone(&app)),
            connections: app.connections.clone(),
            bounds,
            shutdown: app.shutdown.clone(),
            counts: app.http_metrics.clone(),
        };
        door.serve(listener, stopped, LAST_WORDS).await;
        keeping.abort();
        giving_back.abort();
        // It has seen that the server stops, and says what that cuts.
        let _ = draining.await;
        // One that was loaded meanwhile.
        app.models.end().await;
        if app.telemetry.is_some() {
            let sent = spawn_blocking(move || app.telemetry.as_ref().map(Telemetry::end));
            // It has told what kept it.
            let _ = sent.await;
        }
    }
}

/// Looks after what is loaded: engines that failed are made anew, models that nobody asks for are unloaded.
async fn keep(app: &App, idle_unload: Option<Duration>) {
    let backoff = app.models.limits().first_backoff / 2;
    let idle = idle_unload.map_or(LOOK, |idle| idle / 4);
    let mut ticks = interval(idle.min(backoff).clamp(Duration::from_millis(50), LOOK));
    loop {
        ticks.tick().await;
        if app.shutdown.phase() == Phase::Open {
            app.models.revive();
        }
        if let Some(idle) = idle_unload {
            app.models.unload_idle(idle);
        }
    }
}

/// Gives memory back to the host that models, bodies and answers had.
async fn give_back() {
    let mut ticks = interval(GIVE_BACK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if heap::is_due() {
            // On a thread of its own, as it may take longer than anybody else is to wait.
            let _ = spawn_blocking(heap::give_back).await;
        }
    }
}

/// Seconds, as people read them.
fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

/// Once the server drains, waits for what runs, so long, and stops it. Says how that goes.
async fn drain(app: &App, most: Duration) {
    let shutdown = &app.shutdown;
    shutdown.reached(Phase::Draining).await;
    let running = shutdown.num_running();
    let left_s = tenths(most);
    tracing::info!(running, left_s, "draining; a second signal stops at once");
    let end = Instant::now() + most;
    loop {
        let next = end.min(Instant::now() + TELL);
        let stopped = shutdown.reached(Phase::Stopped);
        match timeout_at(next, until(stopped, shutdown.idle())).await {
            Ok(Some(())) => tracing::info!("drained: all requests have ended"),
            Ok(None) => {
                let running = shutdown.num_running();
                tracing::warn!(
                    running,
                    "stopped before all requests have ended: they are cut"
                );
            }
            Err(_) if next < end => {
                let running = shutdown.num_running();
                let left_s = tenths(end - next);
                tracing::info!(running, left_s, "draining");
                continue;
            }
            Err(_) => {
                let running = shutdown.num_running();
                tracing::warn!(running, "the time to drain is over: requests are cut");
            }
        }
        break;
    }
    shutdown.advance(Phase::Stopped);
}
