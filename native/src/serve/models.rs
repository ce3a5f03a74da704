//! The models by their names, of which one may have several: loaded when first asked for, once for all that wait; at most so many at once; unloaded
//! when nobody asks for long enough, or another needs the room; made anew when an engine failed. Knows not how a
//! model is loaded.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use axum::http::StatusCode;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::api_error::ApiError;
use super::backoff::Failure;
use super::lease::{Counted, Lease};
use super::loaded::Loaded;
use super::offered::Offered;
use super::request_record::RequestRecord;
use super::seats::{Seat, Seats};
use super::slot::{Ended, Found, Loading, Slot};
use crate::openai::Refusal;
use crate::output;

/// Bounds of what is loaded.
#[derive(Clone, Copy, Debug)]
pub struct ModelLimits {
    /// Models at once.
    pub max_loaded: usize,
    /// How long a request waits for one of them to be used no more.
    pub seat_wait: Duration,
    /// How long a model is not tried again after it could not be loaded or its engine failed, the first time.
    pub first_backoff: Duration,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            max_loaded: 4,
            seat_wait: Duration::from_secs(10),
            first_backoff: Duration::from_secs(1),
        }
    }
}

/// Why a model is not there.
enum NotLoaded {
    /// All that are loaded are in use.
    NoSeat,
    /// It cannot be loaded.
    Failed(anyhow::Error),
}

/// All models that can be asked for.
#[derive(Clone, Debug)]
pub struct Models {
    slots: Arc<[Arc<Slot>]>,
    seats: Arc<Seats>,
    limits: ModelLimits,
}

impl Models {
    /// These models, none of them loaded.
    pub fn new(offered: Vec<Offered>, limits: ModelLimits) -> Self {
        let seats = Seats::new(limits.max_loaded);
        let slot = |offered| {
            let seats = Arc::clone(&seats);
            Arc::new(Slot::new(offered, seats, limits.first_backoff))
        };
        Self {
            slots: offered.into_iter().map(slot).collect(),
            seats,
            limits,
        }
    }

    /// Their bounds.
    pub fn limits(&self) -> &ModelLimits {
        &self.limits
    }

    /// All of them, whether loaded or not.
    pub fn offered(&self) -> impl Iterator<Item = &Offered> {
        self.slots.iter().map(|slot| &slot.offered)
    }

    /// Those that are loaded, by name.
    pub fn loaded(&self) -> Vec<(&str, Arc<Loaded>)> {
        let loaded = self.slots.iter().filter_map(|slot| {
            let loaded = slot.loaded()?;
            Some((slot.offered.name.as_str(), loaded))
        });
        loaded.collect()
    }

    /// Those that are not loaded as that failed when it was last tried, by name.
    pub fn failed(&self) -> Vec<&str> {
        let failed = self.slots.iter().filter(|slot| slot.has_failed());
        failed.map(|slot| slot.offered.name.as_str()).collect()
    }

    /// The model of this name, if it `fits`, loaded for it if need be. Without a name it is the only one. The request's
    /// record has it also where it then is not served.
    ///
    /// # Errors
    /// There is no such model, it does not fit, it cannot be loaded or has no room, or its engine has failed just now.
    pub async fn lease(
        &self,
        name: Option<&str>,
        fits: impl FnOnce(&Offered) -> Result<(), Refusal>,
        record: &RequestRecord,
    ) -> Result<Lease, ApiError> {
        let slot = self.named(name)?;
        record.named(&slot.offered.name);
        fits(&slot.offered)?;
        let counted = Counted::new(slot);
        let deadline = Instant::now() + self.limits.seat_wait;
        loop {
            let found = slot.find();
            if matches!(found, Found::Loading(_) | Found::Absent(_)) {
                record.waits_for_model();
            }
            let ended = match found {
                Found::Loaded(loaded) => {
                    record.waited_for_model();
                    return Ok(counted.into_lease(loaded));
                }
                Found::Failed(Failure::Engine, left) => return Err(fallen(slot, left).await),
                Found::Failed(Failure::Load, left) => return Err(unavailable(slot, left)),
                Found::Loading(waiting) => waiting.ended().await,
                Found::Absent(loading) => {
                    let waiting = loading.waiting();
                    // A task of its own: it goes on when who asked first has gone, as others may wait for it.
                    tokio::spawn(self.clone().load(loading, deadline));
                    waiting.ended().await
                }
            };
            match ended {
                Ended::Failed => return Err(unavailable(slot, slot.backoff_left())),
                Ended::NoSeat if Instant::now() >= deadline => return Err(self.busy(slot)),
                // Who asked first had less time left.
                Ended::NoSeat | Ended::Loaded => {}
            }
        }
    }

    fn busy(&self, slot: &Slot) -> ApiError {
        let name = &slot.offered.name;
        let said = format!(
            "the model {name:?} has no room: as many are loaded as may be (--max-loaded-models {}), and all of them \
             are in use; try again later",
            self.limits.max_loaded
        );
        ApiError::unavailable("models_busy", said).retry_after(5)
    }

    /// Loads the model, if there is but one.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub async fn load_alone(&self) -> anyhow::Result<()> {
        let [only] = &self.slots[..] else {
            return Ok(());
        };
        let Found::Absent(loading) = only.find() else {
            return Ok(());
        };
        match self.clone().load(loading, Instant::now()).await {
            Ok(()) => Ok(()),
            Err(NotLoaded::Failed(error)) => Err(error),
            Err(NotLoaded::NoSeat) => Err(anyhow!("no model may be loaded")),
        }
    }

    fn named(&self, name: Option<&str>) -> Result<&Arc<Slot>, ApiError> {
        let names = || {
            let names = self.offered().flat_map(Offered::names);
            let names = names.map(|name| format!("{name:?}"));
            names.collect::<Vec<_>>().join(", ")
        };
        match (name, &self.slots[..]) {
            (None, [only]) => Ok(only),
            (None, _) => {
                let said = format!("model must be one of {}", names());
                Err(ApiError::bad_request(said).param("model"))
            }
            (Some(name), slots) => {
                let found = slots
                    .iter()
                    .find(|slot| slot.offered.names().any(|it| it == name));
                found.ok_or_else(|| {
                    let name = output::beginning(name);
                    let said = format!("there is no model {name:?} here, but {}", names());
                    ApiError::new(StatusCode::NOT_FOUND, said)
                        .param("model")
                        .code("model_not_found")
                })
            }
        }
    }

    /// Loads a model: in the place of one whose engine has failed, or in a seat that is free by the deadline.
    async fn load(self, loading: Loading, deadline: Instant) -> Result<(), NotLoaded> {
        let seat = if loading.end_dead().await {
            None
        } else {
            let Some(seat) = self.seat(deadline).await else {
                loading.lack_seat();
                return Err(NotLoaded::NoSeat);
            };
            Some(seat)
        };
        let model = loading.offered().name.clone();
        tracing::info!(model, "loading");
        let load = Arc::clone(&loading.offered().load);
        let loaded = spawn_blocking(move || load()).await;
        match loaded.unwrap_or_else(|_| Err(anyhow!("loading met a fault"))) {
            Ok(loaded) => {
                loading.succeed(Arc::new(loaded), seat);
                tracing::info!(model, "loaded");
                Ok(())
            }
            Err(error) => {
                let error_message = output::sentence(&error);
                tracing::error!(model, error_message, "it cannot be loaded");
                Err(NotLoaded::Failed(error))
            }
        }
    }

    /// Room for one more model: a free seat, or that of the one that was not used for longest.
    async fn seat(&self, deadline: Instant) -> Option<Seat> {
        loop {
            let mut changed = std::pin::pin!(self.seats.changed());
            // Heard from now on, so that nothing is missed while it is looked for.
            changed.as_mut().enable();
            if let Some(seat) = self.seats.try_take() {
                return Some(seat);
            }
            let idle = self.slots.iter();
            let mut idle: Vec<_> = idle.filter_map(|s| Some((s.idle_since()?, s))).collect();
            idle.sort_by_key(|(since, _)| *since);
            for (_, slot) in idle {
                let seat = slot.unload(Duration::ZERO, "another needs its room").await;
                if seat.is_some() {
                    return seat;
                }
            }
            timeout_at(deadline, changed).await.ok()?;
        }
    }

    /// Begins to unload the models that nobody asked for so long.
    pub fn unload_idle(&self, idle: Duration) {
        for slot in &*self.slots {
            if slot
                .idle_since()
                .is_some_and(|since| since.elapsed() >= idle)
            {
                let slot = Arc::clone(slot);
                // Its seat is free with that.
                tokio::spawn(async move { drop(slot.unload(idle, "nobody asks for it").await) });
            }
        }
    }

    /// Begins to make engines anew that failed, where they may be tried again.
    pub fn revive(&self) {
        for loading in self.slots.iter().filter_map(Slot::revive) {
            tokio::spawn(self.clone().load(loading, Instant::now()));
        }
    }

    /// Ends all engines and what they have.
    pub async fn end(&self) {
        for slot in &*self.slots {
            slot.end().await;
        }
    }
}

/// What a request gets while a model is not tried again whose engine has failed.
async fn fallen(slot: &Slot, left: Duration) -> ApiError {
    let name = &slot.offered.name;
    let why = match slot.dead() {
        // It ended when it failed, so that nothing is waited for.
        Some(dead) => dead.handle().closed().await.err(),
        None => None,
    };
    let why = why.as_ref().map(ApiError::from);
    let code = why.as_ref().and_then(|why| why.code);
    let why = why.map(|why| format!(" ({})", why.message));
    let said = format!(
        "the engine of the model {name:?} has failed{}; try again later",
        why.unwrap_or_default()
    );
    let error = ApiError::unavailable(code.unwrap_or("engine_failed"), said);
    error.retry_after(seconds(left))
}

/// What a request gets whose model could not be loaded. Where its files lie and what this machine has is for the
/// operator alone.
fn unavailable(slot: &Slot, left: Duration) -> ApiError {
    let name = &slot.offered.name;
    let said = format!("the model {name:?} cannot be loaded; the server's log says why");
    ApiError::unavailable("model_unavailable", said).retry_after(seconds(left))
}

/// Whole seconds in which a time is over, at least one.
fn seconds(time: Duration) -> u32 {
    let seconds = time.as_millis().div_ceil(1000).max(1);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}
