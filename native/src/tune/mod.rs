//! The `tune` command: times the bodies of a matrix product by tokens on this machine's adapter and
//! keeps which is fastest from where on. Knows bodies only by the choices that lead to them.

pub mod args;
mod choice;
pub mod file;

use serde_json::json;
use thiserror::Error;
use twoclock_core::model::ComputeDtype;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::matmul::{self, Buffers, MatmulParams};
use twoclock_shaders::kernels::weight::WeightFormat;
use twoclock_shaders::program::{BufferId, Command, CountId, Dispatch, Extent, Slice};
use twoclock_shaders::tuning::{MOST_GEMV_TOKENS, MOST_ROW_TOKENS, Tuning};

use crate::bench::keeping::KeepingExecutor;
use crate::host_executor::{DeviceChoice, HostExecutor};
use crate::report::Reporter;
use crate::store::Store;
use args::TuneArgs;
use choice::Times;
use file::TuningError;

/// Why nothing was tuned.
#[derive(Debug, Error)]
pub enum TuneError {
    /// The reference kernels have no variants.
    #[error("the reference kernels have nothing to tune: choose an adapter of `twoclock devices`")]
    NothingToTune,
    /// The device's.
    #[error(transparent)]
    Device(#[from] ExecutorError),
    /// There is no such class on it.
    #[error(transparent)]
    Class(#[from] twoclock_core::model::NoCoop),
    /// The file's.
    #[error(transparent)]
    File(#[from] TuningError),
}

/// A way to compute a product, and the choices that lead to it.
type Body = (&'static str, Tuning);

/// What was found.
struct Found {
    bodies: Vec<Body>,
    times: Vec<Times>,
}

/// Times bodies, chooses, and writes the choices. Gives what there is to print.
///
/// # Errors
/// [`TuneError`].
pub fn run(args: &TuneArgs, store: &Store, report: &Reporter) -> Result<String, TuneError> {
    let device = args.device.unwrap_or_default();
    if device == DeviceChoice::Cpu {
        return Err(TuneError::NothingToTune);
    }
    let caches = store.caches();
    let host = HostExecutor::open(device, Some(&caches))?;
    let adapter = host.to_string();
    let key = host
        .adapter_key()
        .map(str::to_owned)
        .ok_or(TuneError::NothingToTune)?;
    let mut executor = KeepingExecutor::new(host);
    let found = measure(&mut executor, report)?;
    let tuning = choose(executor.caps().kind, &found);
    executor.inner().save_pipelines();
    let path = file::path(&caches, &key);
    if !args.dry_run {
        file::write(&path, &adapter, &tuning)?;
    }
    let mut text = match args.json {
        true => {
            let mut value = file::as_json(&adapter, &tuning);
            value["times"] = found
                .times
                .iter()
                .map(|t| as_json(t, &found.bodies))
                .collect();
            return Ok(format!("{value:#}\n"));
        }
        false => table(&adapter, &found, &tuning),
    };
    text += &match args.dry_run {
        true => "\nNothing was written (--dry-run).\n".to_owned(),
        false => format!("\nKept in {}\n", path.display()),
    };
    Ok(text)
}

/// Each way to compute a product on such a device, from the one for fewest tokens on.
fn bodies(caps: &Caps) -> Vec<Body> {
    let with = |fields: &[(&str, u32)]| {
        let all = fields.iter();
        all.fold(Tuning::default(), |tuning, &(field, value)| {
            tuning.with(field, value).unwrap_or(tuning)
        })
    };
    const ALL: u32 = 1 << 20;
    match caps.kind {
        DeviceKind::Cpu => vec![
            ("rows, 1 token", with(&[("row_tokens", 1)])),
            ("rows, 2 tokens", with(&[("row_tokens", 2)])),
            ("rows, 4 tokens", with(&[("row_tokens", MOST_ROW_TOKENS)])),
        ],
        DeviceKind::Gpu => vec![
            ("matrix × vector", with(&[("gemv_tokens", ALL)])),
            (
                "tiles of 16",
                with(&[("gemv_tokens", 0), ("skinny_tokens", ALL)]),
            ),
            (
                "tiles of 32",
                with(&[("gemv_tokens", 0), ("skinny_tokens", 0)]),
            ),
        ],
    }
}

/// Tokens that are timed.
fn tokens(kind: DeviceKind) -> &'static [u32] {
    match kind {
        DeviceKind::Cpu => &[4, 8, 64],
        DeviceKind::Gpu => &[1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256],
    }
}

/// Rows and columns of the matrices: of a feed-forward network, up and down.
fn shapes(kind: DeviceKind) -> [[u32; 2]; 2] {
    match kind {
        DeviceKind::Cpu => [[1536, 576], [576, 1536]],
        DeviceKind::Gpu => [[14336, 4096], [4096, 14336]],
    }
}

fn measure<E: Executor>(
    executor: &mut KeepingExecutor<E>,
    report: &Reporter,
) -> Result<Found, TuneError> {
    let caps = executor.caps().clone();
    let act = ComputeDtype::Auto.resolve(&caps)?.act_format();
    let (bodies, tokens) = (bodies(&caps), tokens(caps.kind));
    let mut times: Vec<Times> = tokens
        .iter()
        .map(|&tokens| Times {
            tokens,
            seconds: vec![0.0; bodies.len()],
        })
        .collect();
    let formats = [WeightFormat::Q4_0, WeightFormat::Q4K];
    let shapes = shapes(caps.kind);
    let bar = report.counter(
        "timing",
        formats.len() * shapes.len() * tokens.len() * bodies.len(),
    );
    for format in formats {
        for [rows, columns] in shapes {
            let product = Product::new(executor, format, act, rows, columns, tokens)?;
            for times in &mut times {
                for (seconds, (_, tuning)) in times.seconds.iter_mut().zip(&bodies) {
                    let caps = Caps {
                        tuning: *tuning,
                        ..caps.clone()
                    };
                    let dispatch = product.dispatch(&caps, times.tokens);
                    *seconds += executor.time(&[Command::from(dispatch)], product.y)?;
                    bar.inc(1);
                }
            }
            product.destroy(executor);
        }
    }
    bar.finish_and_clear();
    Ok(Found { bodies, times })
}

/// A product of a matrix, with room for the most tokens.
struct Product {
    format: WeightFormat,
    act_format: ActFormat,
    rows: u32,
    groups: u32,
    weights: Slice,
    scales: Option<Slice>,
    act: Slice,
    rstd: Slice,
    y: BufferId,
    y_bytes: u64,
    buffers: Vec<BufferId>,
}

impl Product {
    fn new<E: Executor>(
        executor: &mut E,
        format: WeightFormat,
        act_format: ActFormat,
        rows: u32,
        columns: u32,
        tokens: &[u32],
    ) -> Result<Self, ExecutorError> {
        let groups = columns.div_ceil(32);
        let most = u64::from(tokens.iter().copied().max().unwrap_or(1)).next_multiple_of(64);
        let mut buffers = Vec::new();
        let mut buffer = |label: &str, bytes: u64| {
            let bytes = bytes.next_multiple_of(16);
            let buffer = executor.create_buffer(label, bytes)?;
            buffers.push(buffer);
            // Pages that were never written need not be there; and small numbers, whatever their type.
            let chunk = vec![0x11; bytes.min(1 << 20) as usize];
            for at in (0..bytes).step_by(1 << 20) {
                let n = (bytes - at).min(1 << 20) as usize;
                executor.write(buffer, at, &chunk[..n])?;
            }
            Ok::<_, ExecutorError>(Slice::whole(buffer, bytes))
        };
        let words = |n: u32| 4 * u64::from(n) * u64::from(rows);
        let y_bytes = 4 * u64::from(rows) * most;
        let weights = buffer("weights", words(format.row_words(groups)))?;
        let scales = match format.row_scale_words(groups) {
            0 => None,
            n => Some(buffer("scales", words(n))?),
        };
        let act = buffer("act", act_format.row_bytes(columns) * most)?;
        let rstd = buffer("rstd", 4 * most)?;
        let y = buffer("y", y_bytes)?;
        Ok(Self {
            format,
            act_format,
            rows,
            groups,
            weights,
            scales,
            act,
            rstd,
            y: y.buffer,
            y_bytes,
            buffers,
        })
    }

    fn dispatch(&self, caps: &Caps, tokens: u32) -> Dispatch {
        let params = MatmulParams {
            rows: self.rows,
            groups: self.groups,
            tokens,
            act_stride: self.act_format.stride(32 * self.groups),
            y_stride: self.rows,
            y_offset: 0,
            norm: 0,
            bias: 0,
            add: 0,
        };
        let buffers = Buffers {
            act: self.act,
            w: self.weights,
            ws: self.scales,
            rstd: Some(self.rstd),
            bias: None,
            y: Slice::whole(self.y, self.y_bytes),
        };
        let dispatch = matmul::dispatch(
            caps,
            self.format,
            self.act_format,
            params,
            CountId(0),
            buffers,
        );
        let grid = dispatch.resolve_grid(&[tokens]).unwrap_or([1; 3]);
        Dispatch {
            grid: grid.map(Extent::Fixed),
            ..dispatch
        }
    }

    fn destroy<E: Executor>(self, executor: &mut E) {
        for buffer in self.buffers {
            executor.destroy_buffer(buffer);
        }
    }
}

fn choose(kind: DeviceKind, found: &Found) -> Tuning {
    let tuning = Tuning::default();
    match kind {
        DeviceKind::Cpu => {
            let best = choice::best(&found.times).and_then(|best| found.bodies.get(best));
            best.map_or(tuning, |(_, tuning)| *tuning)
        }
        DeviceKind::Gpu => {
            let borders = choice::borders(&found.times);
            let [gemv, skinny] = borders[..] else {
                return tuning;
            };
            // Times end somewhere; beyond, more tokens want larger tiles.
            let most = found.times.last().map_or(MOST_GEMV_TOKENS, |t| t.tokens);
            let fields = [
                ("gemv_tokens", gemv.min(most)),
                ("skinny_tokens", skinny.min(most)),
            ];
            let all = fields.into_iter();
            all.fold(tuning, |tuning, (field, value)| {
                tuning.with(field, value).unwrap_or(tuning)
            })
        }
    }
}

fn as_json(times: &Times, bodies: &[Body]) -> serde_json::Value {
    let seconds: serde_json::Map<_, _> = bodies
        .iter()
        .zip(&times.seconds)
        .map(|((name, _), seconds)| ((*name).to_owned(), json!(seconds)))
        .collect();
    json!({"tokens": times.tokens, "seconds": seconds})
}

/// Times a token, and the choices.
fn table(adapter: &str, found: &Found, tuning: &Tuning) -> String {
    let mut text = format!("{adapter}\n\nµs of four products, a token:\n  tokens");
    for (name, _) in &found.bodies {
        text += &format!("{name:>18}");
    }
    text += "\n";
    for times in &found.times {
        let least = times.seconds.iter().copied().fold(f64::INFINITY, f64::min);
        text += &format!("{:>8}", times.tokens);
        for &seconds in &times.seconds {
            let mark = if seconds <= least { '*' } else { ' ' };
            let each = 1e6 * seconds / f64::from(times.tokens);
            text += &format!("{each:>17.1}{mark}");
        }
        text += "\n";
    }
    text += "\n";
    for (name, value) in tuning.fields() {
        text += &format!("  {name:<20}{value}\n");
    }
    text
}
