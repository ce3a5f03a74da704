//! The first token of a fresh process, cold and warm. Owns what cold means: the program is started anew
//! with no pipeline cache of its own and with the driver's shader cache off, so that every shader is
//! compiled, in the variants that `tune` chose as ever; what the system keeps of files in memory stays, for only its owner may drop that.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// Variables that turn off the shader caches of drivers: Mesa's, and NVIDIA's.
const CACHES_OFF: [(&str, &str); 2] = [
    ("MESA_SHADER_CACHE_DISABLE", "true"),
    ("__GL_SHADER_DISK_CACHE", "0"),
];

/// The flag under which the program measures itself.
pub const FLAG: &str = "--first-token-of";

/// What a process met, seconds since it began to open the device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstToken {
    /// The model was loaded.
    pub load_s: f64,
    /// The first token was there.
    pub first_token_s: f64,
}

/// Which caches of compiled shaders a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Caches {
    /// None.
    Cold,
    /// All there are, as they were left.
    Warm,
}

/// Runs this program again with the same arguments, to its first token.
///
/// # Errors
/// It cannot be started, fails, or says something else.
pub fn measure(caches: Caches) -> anyhow::Result<FirstToken> {
    let program = env::current_exe().context("the program's own file is not to be found")?;
    let mut command = Command::new(program);
    command.args(env::args_os().skip(1));
    command.args([
        FLAG,
        match caches {
            Caches::Cold => "cold",
            Caches::Warm => "warm",
        },
    ]);
    if caches == Caches::Cold {
        command.envs(CACHES_OFF);
    }
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("the program cannot be started again")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("a fresh process gave no token: {}", said.trim());
    }
    serde_json::from_slice(&output.stdout).context("a fresh process gave no figures")
}
