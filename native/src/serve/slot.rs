//! One model that can be asked for: whether it is loaded, who uses it, and how its engine fares. Knows no other
//! model, and not how one is loaded.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use twoclock_core::engine::handle::Health;

use super::loaded::Loaded;
use super::seats::{Seat, Seats};

/// Longest rest of a model whose engines fail.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// An engine that lived so long has nothing to do with those that failed before it.
const STEADY: Duration = Duration::from_secs(300);

/// Loads a model: blocks, for minutes if need be.
pub type Load = Arc<dyn Fn() -> anyhow::Result<Loaded> + Send + Sync>;

/// A model that can be asked for.
#[derive(Clone)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// Longest sequence, tokens.
    pub context_length: usize,
    /// How it comes.
    pub load: Load,
}

impl fmt::Debug for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offered")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    /// Also one that has failed, until another takes its place.
    loaded: Option<Arc<Loaded>>,
    /// There while it is loaded.
    seat: Option<Seat>,
    /// When it was loaded.
    since: Instant,
    leases: usize,
    last_used: Instant,
    /// Engines that failed in a row.
    num_falls: u32,
    /// One has failed, and until then no other is made.
    rests_until: Option<Instant>,
}

impl State {
    /// The model, if its engine has not failed.
    fn alive(&self) -> Option<Arc<Loaded>> {
        let loaded = self.loaded.as_ref()?;
        (loaded.handle().health() != Health::Failed).then(|| Arc::clone(loaded))
    }

    fn fall(&mut self, first_rest: Duration) {
        self.num_falls = self.num_falls.saturating_add(1);
        self.rests_until = Some(Instant::now() + rest(first_rest, self.num_falls));
    }
}

/// How long a model rests after so many engines failed in a row: each time twice as long.
fn rest(first: Duration, num_falls: u32) -> Duration {
    let factor = 2u32.saturating_pow(num_falls.saturating_sub(1));
    first.saturating_mul(factor).min(LONGEST_REST)
}

/// A model and its state.
#[derive(Debug)]
pub struct Slot {
    /// What it is.
    pub offered: Offered,
    state: Mutex<State>,
    /// Held by whoever loads or unloads it.
    pub turn: tokio::sync::Mutex<()>,
    /// Where it sits while it is loaded, and who must hear when nobody uses it.
    seats: Arc<Seats>,
    first_rest: Duration,
}

impl Slot {
    /// A model that is not loaded. When its engine fails for good, the first rest before another is made.
    pub fn new(offered: Offered, seats: Arc<Seats>, first_rest: Duration) -> Self {
        let now = Instant::now();
        Self {
            offered,
            state: Mutex::new(State {
                loaded: None,
                seat: None,
                since: now,
                leases: 0,
                last_used: now,
                num_falls: 0,
                rests_until: None,
            }),
            turn: tokio::sync::Mutex::default(),
            seats,
            first_rest,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model if it is loaded, also one whose engine has failed.
    pub fn loaded(&self) -> Option<Arc<Loaded>> {
        self.state().loaded.clone()
    }

    /// The model if it is loaded and can compute, or will be able to.
    pub fn alive(&self) -> Option<Arc<Loaded>> {
        self.state().alive()
    }

    /// The model, if its engine has failed and no other has taken its place.
    pub fn dead(&self) -> Option<Arc<Loaded>> {
        let state = self.state();
        let loaded = state.loaded.as_ref()?;
        (loaded.handle().health() == Health::Failed).then(|| Arc::clone(loaded))
    }

    /// How long no other engine is made yet, as the last one failed; none where it did not.
    pub fn rests(&self) -> Option<Duration> {
        let mut state = self.state();
        if state.loaded.is_some() && state.alive().is_none() && state.rests_until.is_none() {
            if state.since.elapsed() >= STEADY {
                state.num_falls = 0;
            }
            state.fall(self.first_rest);
            let name = &self.offered.name;
            let rest = rest(self.first_rest, state.num_falls).as_secs_f64();
            tracing::error!(model = name, rest, "its engine has failed; another is made");
        }
        let left = state.rests_until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Puts a model in its place; without a seat in that of the one before.
    pub fn put(&self, loaded: Arc<Loaded>, seat: Option<Seat>) {
        let mut state = self.state();
        state.seat = seat.or_else(|| state.seat.take());
        state.loaded = Some(loaded);
        state.since = Instant::now();
        state.rests_until = None;
    }

    /// No other engine could be made in the place of one that failed.
    pub fn fall_again(&self) {
        self.state().fall(self.first_rest);
    }

    /// When it was last used, if it is loaded and nobody uses it.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.leases == 0 && state.loaded.is_some()).then_some(state.last_used)
    }

    /// Unloads it if nobody has used it so long; gives its seat. Nothing happens where somebody loads or unloads it.
    pub async fn unload(&self, idle: Duration, why: &'static str) -> Option<Seat> {
        let _turn = self.turn.try_lock().ok()?;
        let (loaded, seat) = {
            let mut state = self.state();
            if state.leases > 0 || state.last_used.elapsed() < idle {
                return None;
            }
            (state.loaded.take()?, state.seat.take())
        };
        let model = &self.offered.name;
        tracing::info!(model, why, "unloading");
        end(model, loaded).await;
        seat
    }

    /// Ends its engine and what it has.
    pub async fn end(&self) {
        let loaded = self.state().loaded.take();
        if let Some(loaded) = loaded {
            end(&self.offered.name, loaded).await;
        }
    }
}

async fn end(name: &str, loaded: Arc<Loaded>) {
    match spawn_blocking(move || loaded.end()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(model = name, %error, "its engine had ended before"),
        Err(_) => tracing::error!(model = name, "ending its engine met a fault"),
    }
}

/// A model in use: it stays loaded as long as this is there.
#[derive(Debug)]
pub struct Lease {
    slot: Arc<Slot>,
    loaded: Arc<Loaded>,
}

impl Lease {
    /// The model.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.slot.offered.name
    }
}

/// Keeps count of a model's leases, from before it is loaded.
pub struct Counted(Arc<Slot>);

impl Counted {
    /// Somebody is about to use it.
    pub fn new(slot: &Arc<Slot>) -> Self {
        slot.state().leases += 1;
        Self(Arc::clone(slot))
    }

    /// The lease takes over the count.
    pub fn into_lease(self, loaded: Arc<Loaded>) -> Lease {
        let slot = Arc::clone(&self.0);
        slot.state().leases += 1;
        Lease { slot, loaded }
    }
}

fn give_back(slot: &Slot) {
    let is_idle = {
        let mut state = slot.state();
        state.leases -= 1;
        state.last_used = Instant::now();
        state.leases == 0
    };
    if is_idle {
        slot.seats.tell();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        give_back(&self.0);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        give_back(&self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_and_have_an_end() {
        let first = Duration::from_secs(1);
        let rests = (1..9).map(|n| rest(first, n).as_secs());
        assert_eq!(rests.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(rest(first, u32::MAX), LONGEST_REST);
    }
}
