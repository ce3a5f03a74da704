//! The models by their names: loaded when first asked for, by one request for all that wait; at most so many at
//! once; unloaded when nobody asked for long enough, or another needs the room; made anew when an engine failed.
//! Knows not how a model is loaded.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use axum::http::StatusCode;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::api_error::ApiError;
use super::loaded::Loaded;
use super::seats::{Seat, Seats};
use super::slot::{Counted, Slot};
use crate::output;

pub use super::slot::{Lease, Load, Offered};

/// Bounds of what is loaded.
#[derive(Clone, Copy, Debug)]
pub struct ModelLimits {
    /// Models at once.
    pub max_loaded: usize,
    /// How long a request waits for one of them to be used no more.
    pub seat_wait: Duration,
    /// How long a model rests after its engine failed, the first time.
    pub first_rest: Duration,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            max_loaded: 4,
            seat_wait: Duration::from_secs(10),
            first_rest: Duration::from_secs(1),
        }
    }
}

/// Why a model is not there.
enum NotLoaded {
    /// All that are loaded are in use.
    NoSeat,
    /// Another engine was tried for and failed just now.
    Rests,
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
            Arc::new(Slot::new(offered, seats, limits.first_rest))
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

    /// The model of this name, loaded for it if need be. Without a name it is the only one.
    ///
    /// # Errors
    /// There is no such model, it cannot be loaded or has no room, or its engine has failed just now.
    pub async fn lease(&self, name: Option<&str>) -> Result<Lease, ApiError> {
        let slot = self.find(name)?;
        let counted = Counted::new(slot);
        let loaded = match slot.alive() {
            Some(loaded) => loaded,
            None if slot.rests().is_some() => return Err(fallen(slot).await),
            None => {
                let deadline = Instant::now() + self.limits.seat_wait;
                let load = self.clone().load(Arc::clone(slot), deadline);
                // A task of its own: it goes on when who asked first has gone, as others may wait for it.
                let loaded = tokio::spawn(load).await;
                let name = &slot.offered.name;
                match loaded.unwrap_or_else(|_| Err(NotLoaded::Failed(anyhow!("a fault")))) {
                    Ok(loaded) => loaded,
                    Err(NotLoaded::NoSeat) => {
                        let said = format!(
                            "the model {name:?} has no room: as many are loaded as may be \
                             (--max-loaded-models {}), and all of them are in use; try again later",
                            self.limits.max_loaded
                        );
                        return Err(ApiError::unavailable("models_busy", said).retry_after(5));
                    }
                    Err(NotLoaded::Rests) => return Err(fallen(slot).await),
                    // Where its files lie and what this machine has is for the operator alone.
                    Err(NotLoaded::Failed(_)) => {
                        let said = format!(
                            "the model {name:?} cannot be loaded; the server's log says why"
                        );
                        let error = ApiError::unavailable("model_unavailable", said);
                        return Err(error.retry_after(30));
                    }
                }
            }
        };
        Ok(counted.into_lease(loaded))
    }

    /// Loads the model, if there is but one.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub async fn load_alone(&self) -> anyhow::Result<()> {
        let [only] = &self.slots[..] else {
            return Ok(());
        };
        match self.clone().load(Arc::clone(only), Instant::now()).await {
            Ok(_) => Ok(()),
            Err(NotLoaded::Failed(error)) => Err(error),
            Err(NotLoaded::NoSeat | NotLoaded::Rests) => Err(anyhow!("no model may be loaded")),
        }
    }

    fn find(&self, name: Option<&str>) -> Result<&Arc<Slot>, ApiError> {
        let names = || {
            let names = self.offered().map(|offered| format!("{:?}", offered.name));
            names.collect::<Vec<_>>().join(", ")
        };
        match (name, &self.slots[..]) {
            (None, [only]) => Ok(only),
            (None, _) => {
                let said = format!("model must be one of {}", names());
                Err(ApiError::bad_request(said).param("model"))
            }
            (Some(name), slots) => {
                let found = slots.iter().find(|slot| slot.offered.name == name);
                found.ok_or_else(|| {
                    let name: String = name.chars().take(100).collect();
                    let said = format!("there is no model {name:?} here, but {}", names());
                    ApiError::new(StatusCode::NOT_FOUND, said)
                        .param("model")
                        .code("model_not_found")
                })
            }
        }
    }

    /// Loads a model unless somebody has; in the place of one whose engine has failed, or in a seat that is free
    /// by the deadline.
    async fn load(self, slot: Arc<Slot>, deadline: Instant) -> Result<Arc<Loaded>, NotLoaded> {
        let _turn = slot.turn.lock().await;
        if let Some(loaded) = slot.alive() {
            return Ok(loaded);
        }
        let is_again = slot.loaded().is_some();
        // Whoever had the turn before tried in vain.
        if slot.rests().is_some() {
            return Err(NotLoaded::Rests);
        }
        let seat = match is_again {
            true => None,
            false => Some(self.seat(deadline).await.ok_or(NotLoaded::NoSeat)?),
        };
        let name = &slot.offered.name;
        tracing::info!(model = name, "loading");
        let load = Arc::clone(&slot.offered.load);
        let loaded = spawn_blocking(move || load()).await;
        match loaded.unwrap_or_else(|_| Err(anyhow!("loading met a fault"))) {
            Ok(loaded) => {
                let loaded = Arc::new(loaded);
                slot.put(Arc::clone(&loaded), seat);
                tracing::info!(model = name, "loaded");
                Ok(loaded)
            }
            Err(error) => {
                if is_again {
                    slot.fall_again();
                }
                let because = output::sentence(&error);
                tracing::error!(model = name, because, "it cannot be loaded");
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

    /// Unloads the models that nobody asked for so long.
    pub async fn unload_idle(&self, idle: Duration) {
        for slot in &*self.slots {
            // Its seat is free with that.
            let _ = slot.unload(idle, "nobody asks for it").await;
        }
    }

    /// Makes engines anew that failed and have rested.
    pub fn revive(&self) {
        for slot in &*self.slots {
            let is_due = slot.dead().is_some() && slot.rests().is_none();
            // Who has the turn does it.
            if is_due && slot.turn.try_lock().is_ok() {
                tokio::spawn(self.clone().load(Arc::clone(slot), Instant::now()));
            }
        }
    }

    /// Ends all engines and what they have.
    pub async fn end(&self) {
        for slot in &*self.slots {
            slot.end().await;
        }
    }
}

/// What a request gets while a model rests whose engine has failed.
async fn fallen(slot: &Slot) -> ApiError {
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
        "the engine of the model {name:?} has failed{}; another is made soon",
        why.unwrap_or_default()
    );
    let left = slot.rests().unwrap_or_default().as_secs() + 1;
    let error = ApiError::unavailable(code.unwrap_or("engine_failed"), said);
    error.retry_after(u32::try_from(left).unwrap_or(60))
}
