//! The browser's monotonic clock, for the engine. Knows nothing of what is timed.

use std::time::Duration;

use twoclock_core::clock::Clock;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;
}

/// `performance.now()`, in windows and workers alike.
#[derive(Debug)]
pub(crate) struct WebClock;

impl Clock for WebClock {
    fn now(&self) -> Duration {
        Duration::from_secs_f64(performance_now().max(0.0) / 1000.0)
    }
}
