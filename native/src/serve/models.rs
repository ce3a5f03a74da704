//! The models by their names: loaded when first asked for, by one request for all that wait, and unloaded
//! when nobody asked for long enough. Knows not how a model is loaded.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use axum::http::StatusCode;
use tokio::task::spawn_blocking;

use super::api_error::ApiError;
use super::loaded::Loaded;
use crate::output;

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
    loaded: Option<Arc<Loaded>>,
    leases: usize,
    last_used: Instant,
}

#[derive(Debug)]
struct Slot {
    offered: Offered,
    state: Mutex<State>,
    /// Held by whoever loads or unloads it.
    turn: tokio::sync::Mutex<()>,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the model unless somebody has.
    async fn load(self: Arc<Self>) -> anyhow::Result<Arc<Loaded>> {
        let _turn = self.turn.lock().await;
        if let Some(loaded) = &self.state().loaded {
            return Ok(Arc::clone(loaded));
        }
        let name = &self.offered.name;
        tracing::info!(model = name, "loading");
        let load = Arc::clone(&self.offered.load);
        let loaded = spawn_blocking(move || load()).await;
        match loaded.unwrap_or_else(|_| Err(anyhow!("loading met a fault"))) {
            Ok(loaded) => {
                let loaded = Arc::new(loaded);
                self.state().loaded = Some(Arc::clone(&loaded));
                tracing::info!(model = name, "loaded");
                Ok(loaded)
            }
            Err(error) => {
                let because = output::sentence(&error);
                tracing::error!(model = name, because, "it cannot be loaded");
                Err(error)
            }
        }
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
struct Counted(Arc<Slot>);

impl Counted {
    fn new(slot: &Arc<Slot>) -> Self {
        slot.state().leases += 1;
        Self(Arc::clone(slot))
    }

    /// The lease takes over the count.
    fn into_lease(self, loaded: Arc<Loaded>) -> Lease {
        let slot = Arc::clone(&self.0);
        slot.state().leases += 1;
        Lease { slot, loaded }
    }
}

fn give_back(slot: &Slot) {
    let mut state = slot.state();
    state.leases -= 1;
    state.last_used = Instant::now();
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

/// All models that can be asked for.
#[derive(Debug)]
pub struct Models {
    slots: Vec<Arc<Slot>>,
}

impl Models {
    /// These models, none of them loaded.
    pub fn new(offered: Vec<Offered>) -> Self {
        let slots = offered.into_iter().map(|offered| {
            Arc::new(Slot {
                offered,
                state: Mutex::new(State {
                    loaded: None,
                    leases: 0,
                    last_used: Instant::now(),
                }),
                turn: tokio::sync::Mutex::default(),
            })
        });
        Self {
            slots: slots.collect(),
        }
    }

    /// All of them, whether loaded or not.
    pub fn offered(&self) -> impl Iterator<Item = &Offered> {
        self.slots.iter().map(|slot| &slot.offered)
    }

    /// Those that are loaded, by name.
    pub fn loaded(&self) -> Vec<(&str, Arc<Loaded>)> {
        let loaded = self.slots.iter().filter_map(|slot| {
            let loaded = slot.state().loaded.clone()?;
            Some((slot.offered.name.as_str(), loaded))
        });
        loaded.collect()
    }

    /// The model of this name, loaded for it if need be. Without a name it is the only one.
    ///
    /// # Errors
    /// There is no such model, or it cannot be loaded.
    pub async fn lease(&self, name: Option<&str>) -> Result<Lease, ApiError> {
        let slot = self.find(name)?;
        let counted = Counted::new(slot);
        let loaded = slot.state().loaded.clone();
        let loaded = match loaded {
            Some(loaded) => loaded,
            // A task of its own: it goes on when who asked first has gone, as others may wait for it.
            None => match tokio::spawn(Arc::clone(slot).load()).await {
                Ok(Ok(loaded)) => loaded,
                // Where its files lie and what this machine has is for the operator alone.
                Ok(Err(_)) | Err(_) => {
                    let name = &slot.offered.name;
                    let said =
                        format!("the model {name:?} cannot be loaded; the server's log says why");
                    return Err(ApiError::unavailable("model_unavailable", said).retry_after(30));
                }
            },
        };
        Ok(counted.into_lease(loaded))
    }

    /// Loads the model, if there is but one.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub async fn load_alone(&self) -> anyhow::Result<()> {
        if let [only] = &self.slots[..] {
            Arc::clone(only).load().await?;
        }
        Ok(())
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

    /// Unloads the models that nobody asked for so long.
    pub async fn unload_idle(&self, idle: Duration) {
        for slot in &self.slots {
            let Ok(_turn) = slot.turn.try_lock() else {
                continue;
            };
            let unused = {
                let mut state = slot.state();
                let is_idle = state.leases == 0 && state.last_used.elapsed() >= idle;
                is_idle.then(|| state.loaded.take()).flatten()
            };
            if let Some(loaded) = unused {
                let name = &slot.offered.name;
                tracing::info!(model = name, "unloading, as nobody asks for it");
                end(name, loaded).await;
            }
        }
    }

    /// Ends all engines and what they have.
    pub async fn end(&self) {
        for slot in &self.slots {
            let loaded = slot.state().loaded.take();
            if let Some(loaded) = loaded {
                end(&slot.offered.name, loaded).await;
            }
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
