//! Twoclock in a browser: what JavaScript may call. Owns the host's clock and the conversion of
//! errors; knows nothing of pages.

mod clock;
mod self_check;

use twoclock_shaders::gpu::{DeviceOptions, GpuDevice, WgpuExecutor};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

/// Opens the browser's WebGPU device, runs two kernels on it and on the reference, and says in
/// one line of text how they compare.
///
/// # Errors
/// There is no device, it fails, or its results differ from the reference's.
#[wasm_bindgen]
pub async fn self_check() -> Result<String, JsError> {
    let gpu = GpuDevice::open(DeviceOptions::default()).await?;
    let name = match gpu.summary.name.as_str() {
        "" => "an adapter the browser does not name".to_owned(),
        name => name.to_owned(),
    };
    let outcome = self_check::run(&mut WgpuExecutor::new(gpu), &clock::WebClock).await?;
    Ok(format!("{outcome} on {name}"))
}
