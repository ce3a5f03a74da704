//! Every variant of every kernel as a browser reads it: a JSON array of `{key, text}`.
//!
//! `cargo run -p twoclock-tests --example dump_shaders > shaders.json`

use twoclock_shaders::caps::Dialect;
use twoclock_shaders::kernels::ALL;
use twoclock_shaders::link::{LinkError, link};

fn main() -> Result<(), LinkError> {
    let mut variants = Vec::new();
    for kernel in ALL {
        for key in (kernel.variants)() {
            let text = link(kernel, &key, Dialect::Browser)?;
            variants.push(serde_json::json!({"key": key.to_string(), "text": text}));
        }
    }
    println!("{}", serde_json::Value::Array(variants));
    Ok(())
}
