//! What the device reaches when it does one thing alone: copies, multiply-adds, and the matrix products
//! of the model, each by itself. Rates are measured in the run whose figures are held against them.

use std::collections::BTreeMap;

use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::kernels::fma_rate::{self, FmaRateParams, LANES};
use twoclock_shaders::program::{Command, Slice};
use twoclock_shaders::recording::Launched;

use crate::device_rates::Rates;
use crate::keeping_executor::{KeepingExecutor, matrix, param, weight_bytes};

/// A dense matrix product of the model, alone.
#[derive(Clone, Debug)]
pub struct Product {
    /// Body and weight format.
    pub name: String,
    /// All of the variant's key.
    pub variant: String,
    /// Rows and columns of the matrix.
    pub matrix: [u32; 2],
    /// Tokens of the step it is of.
    pub step: usize,
    /// Of them, those it is computed for: the head computes the rows that want logits.
    pub tokens: usize,
    /// How many of them a step has.
    pub count: usize,
    /// Seconds of one.
    pub seconds: f64,
    /// Bytes of weights a second.
    pub bandwidth: f64,
    /// Operations a second.
    pub flops: f64,
}

/// What the device reaches.
#[derive(Clone, Debug)]
pub struct Ceilings {
    /// Of copies and multiply-adds.
    pub rates: Rates,
    /// Seconds a dispatch takes that does nothing and waits for the one before it.
    pub dispatch: f64,
    /// As `dispatch`, where it waits for none of the seven before it.
    pub free_dispatch: f64,
    /// Seconds from launching nothing to reading four bytes of it.
    pub round_trip: f64,
    /// The matrix products of a decode step.
    pub gemv: Vec<Product>,
    /// The matrix products of longer steps.
    pub gemm: Vec<Product>,
}

impl Ceilings {
    /// Bytes of weights a second of the best matrix product of a decode step.
    pub fn best_gemv(&self) -> f64 {
        self.gemv.iter().map(|p| p.bandwidth).fold(0.0, f64::max)
    }

    /// Seconds of a decode step's matrix products, were each as fast as the best of its variant.
    pub fn best_gemv_seconds(&self) -> f64 {
        let best = |name: &str| {
            let alike = self.gemv.iter().filter(|p| p.variant == name);
            alike.map(|p| p.bandwidth).fold(0.0, f64::max)
        };
        let seconds = |p: &Product| p.count as f64 * p.seconds * p.bandwidth / best(&p.variant);
        self.gemv.iter().map(seconds).sum()
    }

    /// Operations a second: the most of what was seen.
    pub fn best_flops(&self) -> f64 {
        let products = self.gemm.iter().chain(&self.gemv);
        products.map(|p| p.flops).fold(self.rates.fma, f64::max)
    }
}

/// Times what a device reaches.
///
/// # Errors
/// The device's.
pub fn measure<E: Executor>(
    executor: &mut KeepingExecutor<E>,
    decode: &[Launched],
    longer: &[(Vec<Launched>, usize)],
) -> Result<Ceilings, ExecutorError> {
    let mut gemm = Vec::new();
    for (step, tokens) in longer {
        gemm.extend(products(executor, step, *tokens)?);
    }
    let [dispatch, free_dispatch, round_trip] = dispatches(executor)?;
    Ok(Ceilings {
        gemv: products(executor, decode, 1)?,
        gemm,
        dispatch,
        free_dispatch,
        round_trip,
        rates: Rates::measure(executor)?,
    })
}

/// The matrix products among what a step of so many tokens launched, by shape.
fn products<E: Executor>(
    executor: &mut KeepingExecutor<E>,
    step: &[Launched],
    tokens: usize,
) -> Result<Vec<Product>, ExecutorError> {
    let mut by_shape: BTreeMap<(String, [u32; 2]), Vec<Launched>> = BTreeMap::new();
    for launched in step {
        if let Some(matrix) = matrix(&launched.dispatch) {
            let name = launched.dispatch.key.to_string();
            by_shape
                .entry((name, matrix))
                .or_default()
                .push(launched.clone());
        }
    }
    let mut products = Vec::new();
    let step_tokens = tokens;
    for ((variant, matrix), all) in by_shape {
        // One after the other over the layers, as in a step, so that no cache holds them for the next; over
        // no more than say the same, as drivers keep something of each.
        let seconds = executor.time_alone(&all[..all.len().min(64)])?;
        let bytes: u64 = all.iter().filter_map(|l| weight_bytes(&l.dispatch)).sum();
        let [rows, columns] = matrix.map(f64::from);
        // The head computes the rows that want logits.
        let room = param(&all[0].dispatch, "tokens").unwrap_or(1) as usize;
        let tokens = tokens.min(room);
        products.push(Product {
            name: short(&all[0]),
            variant,
            matrix,
            step: step_tokens,
            tokens,
            count: all.len(),
            seconds,
            bandwidth: bytes as f64 / all.len() as f64 / seconds,
            flops: 2.0 * rows * columns * tokens as f64 / seconds,
        });
    }
    products.sort_by(|a, b| (b.seconds * b.count as f64).total_cmp(&(a.seconds * a.count as f64)));
    Ok(products)
}

/// A body with what tells its formats.
fn short(launched: &Launched) -> String {
    let key = &launched.dispatch.key;
    let slots = ["codes", "scale"].map(|slot| key.slot(slot).unwrap_or_default());
    format!("{} {} {}", key.body, slots[0], slots[1])
}

/// What a dispatch and a round trip cost, whatever they do.
fn dispatches<E: Executor>(executor: &mut KeepingExecutor<E>) -> Result<[f64; 3], ExecutorError> {
    const MANY: usize = 512;
    let bytes = u64::from(4 * LANES);
    let buffers: Vec<_> = (0..8)
        .map(|_| executor.create_buffer("nothing", bytes))
        .collect::<Result<_, _>>()?;
    let nothing = |i: usize| -> Command {
        let y = Slice::whole(buffers[i % buffers.len()], bytes);
        fma_rate::dispatch(FmaRateParams { rounds: 0 }, y).into()
    };
    let same: Vec<Command> = (0..MANY).map(|_| nothing(0)).collect();
    let others: Vec<Command> = (0..MANY).map(nothing).collect();
    let one = executor.once(&same[..1], buffers[0])?;
    let same = executor.time(&same, buffers[0])?;
    let others = executor.time(&others, buffers[0])?;
    for buffer in buffers {
        executor.destroy_buffer(buffer);
    }
    Ok([same / MANY as f64, others / MANY as f64, one])
}
