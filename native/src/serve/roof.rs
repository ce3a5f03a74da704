//! The roof of the device that is served on. Owns when it is measured: once, on a device opened for that alone,
//! before the first model is loaded, so that nothing that is served waits for it or falsifies it.

use std::sync::OnceLock;

use twoclock_shaders::executor::ExecutorError;

use crate::device_rates::Rates;
use crate::host_executor::{DeviceChoice, HostExecutor, Pipelines};
use crate::keeping_executor::KeepingExecutor;
use crate::store::Store;

/// What the device reaches, once somebody asked.
#[derive(Debug, Default)]
pub struct Roof(OnceLock<Option<Rates>>);

impl Roof {
    /// The rates of the device, measured at the first call; they block for less than a second. `None` of the
    /// reference kernels, whose time says nothing of a device, and where measuring failed.
    pub fn rates(&self, device: DeviceChoice, store: &Store) -> Option<Rates> {
        *self.0.get_or_init(|| match measure(device, store) {
            Ok(rates) => rates,
            Err(because) => {
                tracing::warn!(%because, "the device's rates were not measured");
                None
            }
        })
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
        let rates = |device| Roof::default().rates(device, &store);
        assert_eq!(rates(DeviceChoice::Cpu), None);
        assert_eq!(rates(DeviceChoice::Adapter(usize::MAX)), None);
    }
}
