//! The roof of the device that is served on. Owns when it is measured: once, on a device opened for that alone,
//! before the first model is loaded, so that nothing that is served waits for it or falsifies it.

use std::sync::OnceLock;

use twoclock_shaders::executor::ExecutorError;

use crate::device_rates::Rates;
use crate::host_executor::{DeviceChoice, HostExecutor, Pipelines};
use crate::keeping_executor::KeepingExecutor;
use crate::store::Store;

/// What a device reaches, once somebody asked.
#[derive(Debug)]
pub struct Roof {
    device: DeviceChoice,
    store: Store,
    rates: OnceLock<Option<Rates>>,
}

impl Roof {
    /// That of this device, not measured yet.
    pub fn new(device: DeviceChoice, store: Store) -> Self {
        Self {
            device,
            store,
            rates: OnceLock::new(),
        }
    }

    /// The rates of the device, measured at the first call; they block for less than a second. `None` of the
    /// reference kernels, whose time says nothing of a device, and where measuring failed.
    pub fn rates(&self) -> Option<Rates> {
        let measured = || match measure(self.device, &self.store) {
            Ok(rates) => rates,
            Err(error_message) => {
                tracing::warn!(%error_message, "the device's rates were not measured");
                None
            }
        };
        *self.rates.get_or_init(measured)
    }
}

fn measure(device: DeviceChoice, store: &Store) -> Result<Option<Rates>, ExecutorError> {
    if device == DeviceChoice::Cpu {
        return Ok(None);
    }
    let executor = HostExecutor::open(device, &store.caches(), Pipelines::Fresh)?;
    let rates = Rates::measure(&mut KeepingExecutor::new(executor))?;
    let tenths = |rate: f64| (rate / 1e8).round() / 10.0;
    let (gb_s, gflop_s) = (tenths(rates.copy), tenths(rates.fma));
    tracing::info!(gb_s, gflop_s, "what the device reaches");
    Ok(Some(rates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_is_measured_there_is_none() {
        let store = Store::at(&std::env::temp_dir());
        let rates = |device| Roof::new(device, store.clone()).rates();
        assert_eq!(rates(DeviceChoice::Cpu), None);
        assert_eq!(rates(DeviceChoice::Adapter(usize::MAX)), None);
    }
}
