//! An engine on a thread of its own, for programs that ask from several tasks or threads. Owns the
//! thread; knows neither the model nor how it is made.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow};
use pollster::block_on;
use twoclock_core::clock::Clock;
use twoclock_core::engine::handle::StreamError;
use twoclock_core::engine::{EngineDriver, EngineHandle, HandleOptions, LlmEngine};
use twoclock_core::runner::ExecuteModel;

/// A running engine.
#[derive(Debug)]
pub struct EngineThread {
    handle: EngineHandle,
    thread: JoinHandle<Result<(), StreamError>>,
}

impl EngineThread {
    /// Makes an engine on a new thread, which it never leaves, and drives it there. `at_end` sees it
    /// when it has ended, whatever ended it.
    ///
    /// # Errors
    /// What `make` meets, or no thread to be had.
    pub fn spawn<R, C>(
        options: HandleOptions,
        make: impl FnOnce() -> anyhow::Result<LlmEngine<R, C>> + Send + 'static,
        at_end: impl FnOnce(&LlmEngine<R, C>) + Send + 'static,
    ) -> anyhow::Result<Self>
    where
        R: ExecuteModel + 'static,
        C: Clock + Clone + Send + Sync + 'static,
    {
        let (made, is_made) = mpsc::sync_channel(1);
        let body = move || {
            let made_it = catch_unwind(AssertUnwindSafe(make))
                .unwrap_or_else(|fault| Err(anyhow!("loading met a fault: {}", message(&*fault))));
            let engine = match made_it {
                Ok(engine) => engine,
                Err(error) => {
                    // Nobody waits for it only where the program ends anyway.
                    let _ = made.send(Err(error));
                    return Ok(());
                }
            };
            let (mut driver, handle) = EngineDriver::new(engine, options);
            // Were nobody there to take it, the engine would end as if the last handle had gone.
            let _ = made.send(Ok(handle));
            let ended = catch_unwind(AssertUnwindSafe(|| block_on(driver.run())));
            let ended = ended.unwrap_or_else(|fault| {
                let fault = message(&*fault);
                driver.fail(fault.clone());
                Err(StreamError::Panicked(fault))
            });
            at_end(driver.engine());
            ended
        };
        let thread = thread::Builder::new()
            .name("engine".into())
            .spawn(body)
            .context("the host gives no thread for the engine")?;
        match is_made.recv() {
            Ok(Ok(handle)) => Ok(Self { handle, thread }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(anyhow!(
                "the engine's thread ended before there was an engine"
            )),
        }
    }

    /// A handle to it.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Lets it finish what it has, and waits for that; other handles can ask nothing more.
    ///
    /// # Errors
    /// It could not go on.
    pub fn join(self) -> Result<(), StreamError> {
        self.handle.drain();
        match self.thread.join() {
            Ok(ended) => ended,
            Err(fault) => Err(StreamError::Panicked(message(&*fault))),
        }
    }
}

/// What a panic said.
fn message(fault: &(dyn Any + Send)) -> String {
    let text = fault.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| fault.downcast_ref().cloned())
        .unwrap_or_else(|| "without a word".to_owned())
}
