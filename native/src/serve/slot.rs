//! One model that can be asked for: whether it is loaded, who loads it, who uses it, and how its engine fares. Knows
//! no other model, and not how one is loaded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use twoclock_core::engine::handle::{Health, StreamError};

use super::backoff::{Backoff, Failure};
use super::loaded::Loaded;
use super::offered::Offered;
use super::seats::{Seat, Seats};
use crate::heap;

#[derive(Debug)]
struct State {
    /// Also one that has failed, until another takes its place.
    loaded: Option<Arc<Loaded>>,
    /// There while it is loaded.
    seat: Option<Seat>,
    /// The load that runs, for all that wait for it.
    loading: Option<watch::Receiver<Option<Ended>>>,
    leases: usize,
    last_used: Instant,
    backoff: Backoff,
}

impl State {
    /// The model, if its engine has (`true`) or has not failed.
    fn engine(&self, has_failed: bool) -> Option<Arc<Loaded>> {
        let loaded = self.loaded.as_ref()?;
        ((loaded.handle().health() == Health::Failed) == has_failed).then(|| Arc::clone(loaded))
    }

    /// Counts an engine that has failed, when it is first seen so. Gives the time until another is tried for.
    fn note_failure(&mut self) -> Option<Duration> {
        if self.backoff.has_failed() {
            return None;
        }
        self.engine(true)?;
        Some(self.backoff.fail(Failure::Engine, Instant::now()))
    }
}

/// A model and its state.
#[derive(Debug)]
pub struct Slot {
    /// What it is.
    pub offered: Offered,
    state: Mutex<State>,
    /// Where it sits while it is loaded, and who must hear when it can make room.
    seats: Arc<Seats>,
}

/// What whoever wants a model finds.
#[derive(Debug)]
pub enum Found {
    /// It is loaded and can compute, or will be able to.
    Loaded(Arc<Loaded>),
    /// Somebody loads it.
    Loading(Waiting),
    /// It or its engine failed, and it is not tried again so long.
    Failed(Failure, Duration),
    /// Nobody loads it: whoever found that does.
    Absent(Loading),
}

/// How a load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is loaded.
    Loaded,
    /// No seat came free for it.
    NoSeat,
    /// It could not be loaded.
    Failed,
}

impl Slot {
    /// A model that is not loaded. When loading it or its engine fails, it is tried again after `first_backoff` and
    /// then ever later.
    pub fn new(offered: Offered, seats: Arc<Seats>, first_backoff: Duration) -> Self {
        Self {
            offered,
            state: Mutex::new(State {
                loaded: None,
                seat: None,
                loading: None,
                leases: 0,
                last_used: Instant::now(),
                backoff: Backoff::new(first_backoff),
            }),
            seats,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model if it is loaded, also one whose engine has failed.
    pub fn loaded(&self) -> Option<Arc<Loaded>> {
        self.state().loaded.clone()
    }

    /// The model, if its engine has failed and no other has taken its place.
    pub fn dead(&self) -> Option<Arc<Loaded>> {
        self.state().engine(true)
    }

    /// Whether it is not there because it failed when it was last tried.
    pub fn has_failed(&self) -> bool {
        let state = self.state();
        state.loaded.is_none() && state.backoff.has_failed()
    }

    /// The model, or what there is in its place.
    pub fn find(self: &Arc<Self>) -> Found {
        let (noted, found) = {
            let mut state = self.state();
            let noted = state.note_failure();
            let found = match (state.engine(false), &state.loading) {
                (Some(loaded), _) => Found::Loaded(loaded),
                (None, Some(loading)) => Found::Loading(Waiting(loading.clone())),
                (None, None) => match state.backoff.left(Instant::now()) {
                    Some((failure, left)) => Found::Failed(failure, left),
                    None => Found::Absent(self.begin(&mut state)),
                },
            };
            (noted, found)
        };
        self.tell_failure(noted);
        found
    }

    /// Begins to load it anew where its engine has failed and it may be tried again.
    pub fn revive(self: &Arc<Self>) -> Option<Loading> {
        let (noted, begun) = {
            let mut state = self.state();
            let noted = state.note_failure();
            let is_due = state.engine(true).is_some()
                && state.loading.is_none()
                && state.backoff.left(Instant::now()).is_none();
            (noted, is_due.then(|| self.begin(&mut state)))
        };
        self.tell_failure(noted);
        begun
    }

    fn begin(self: &Arc<Self>, state: &mut State) -> Loading {
        let (told, waits) = watch::channel(None);
        state.loading = Some(waits);
        Loading {
            slot: Arc::clone(self),
            told,
        }
    }

    fn tell_failure(&self, noted: Option<Duration>) {
        if let Some(backoff) = noted {
            let (model, backoff) = (&self.offered.name, backoff.as_secs_f64());
            tracing::error!(model, backoff, "its engine has failed");
        }
    }

    /// How long it is not tried again, as it failed; nothing where it may be.
    pub fn backoff_left(&self) -> Duration {
        let left = self.state().backoff.left(Instant::now());
        left.map_or(Duration::ZERO, |(_, left)| left)
    }

    /// Somebody uses it from now on, or waits for it.
    pub fn begin_use(&self) {
        self.state().leases += 1;
    }

    /// Somebody uses it no more.
    pub fn end_use(&self) {
        let is_idle = {
            let mut state = self.state();
            state.leases -= 1;
            state.last_used = Instant::now();
            state.leases == 0
        };
        if is_idle {
            self.seats.tell();
        }
    }

    /// When it was last used, if it is loaded and nobody uses or loads it.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        let is_idle = state.leases == 0 && state.loading.is_none() && state.loaded.is_some();
        is_idle.then_some(state.last_used)
    }

    /// Unloads it if nobody has used it so long and nobody loads it; gives its seat.
    pub async fn unload(&self, idle: Duration, why: &'static str) -> Option<Seat> {
        let (loaded, seat) = {
            let mut state = self.state();
            if state.leases > 0 || state.loading.is_some() || state.last_used.elapsed() < idle {
                return None;
            }
            (state.loaded.take()?, state.seat.take())
        };
        let model = &self.offered.name;
        tracing::info!(model, why, "unloading");
        self.end_of(loaded).await;
        // Its memory is free with that.
        seat
    }

    /// Ends its engine and what it has.
    pub async fn end(&self) {
        let loaded = self.state().loaded.take();
        if let Some(loaded) = loaded {
            self.end_of(loaded).await;
        }
    }

    async fn end_of(&self, loaded: Arc<Loaded>) {
        let model = &self.offered.name;
        match join(loaded).await {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::error!(model, %error, "its engine had ended before"),
            None => tracing::error!(model, "ending its engine met a fault"),
        }
        heap::freed_much();
    }
}

/// Ends an engine and waits for its thread; `None` where that met a fault.
async fn join(loaded: Arc<Loaded>) -> Option<Result<(), StreamError>> {
    spawn_blocking(move || loaded.end()).await.ok()
}

/// Whoever has this loads the model, alone. Dropped before it has ended, it failed.
#[derive(Debug)]
pub struct Loading {
    slot: Arc<Slot>,
    told: watch::Sender<Option<Ended>>,
}

impl Loading {
    /// What is loaded.
    pub fn offered(&self) -> &Offered {
        &self.slot.offered
    }

    /// For who waits until this has ended.
    pub fn waiting(&self) -> Waiting {
        Waiting(self.told.subscribe())
    }

    /// Ends the engine that has failed, if this is to take its place, so that the memory it had is free. Gives whether
    /// there is one: its seat is taken over too.
    pub async fn end_dead(&self) -> bool {
        match self.slot.dead() {
            Some(dead) => {
                // Why it failed was said when it did.
                let _ = join(dead).await;
                true
            }
            None => false,
        }
    }

    /// It is loaded; without a seat it has that of the one before.
    pub fn succeed(self, loaded: Arc<Loaded>, seat: Option<Seat>) {
        // What was there before goes when the state is no longer locked.
        let _before = {
            let mut state = self.slot.state();
            state.loading = None;
            state.backoff.succeed(Instant::now());
            let seat_before = seat.and_then(|seat| state.seat.replace(seat));
            (state.loaded.replace(loaded), seat_before)
        };
        self.told.send_replace(Some(Ended::Loaded));
    }

    /// There is no seat for it.
    pub fn lack_seat(self) {
        self.slot.state().loading = None;
        self.told.send_replace(Some(Ended::NoSeat));
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if self.told.borrow().is_none() {
            let mut state = self.slot.state();
            state.loading = None;
            state.backoff.fail(Failure::Load, Instant::now());
            drop(state);
            self.told.send_replace(Some(Ended::Failed));
        }
        // Nobody may be left who uses it: it can make room.
        self.slot.seats.tell();
        // What files were read into, or all of it if it failed.
        heap::freed_much();
    }
}

/// Waits for a load of somebody else.
#[derive(Debug)]
pub struct Waiting(watch::Receiver<Option<Ended>>);

impl Waiting {
    /// Resolves when it has ended.
    pub async fn ended(mut self) -> Ended {
        let ended = self.0.wait_for(Option::is_some).await;
        // It always says so before it goes.
        ended.map_or(Ended::Failed, |ended| ended.unwrap_or(Ended::Failed))
    }
}
