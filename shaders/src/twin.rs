//! A device beside the reference: runs every dispatch of every program on both, each from equal inputs,
//! and compares what they wrote. So whatever an engine does with the device is checked kernel by kernel,
//! on inputs that kernels before gave. Knows no model; how far a kernel may be off is said by what its
//! outputs hold.

use crate::caps::Caps;
use crate::cpu::CpuExecutor;
use crate::executor::{Executor, ExecutorError, Ticket};
use crate::kernel::{Access, KernelKey};
use crate::kernels;
use crate::kernels::sample_scan;
use crate::program::{BufferId, Command, Dispatch, Program, Slice, StepArgs};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

/// How a variant compared, over all that was launched of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agreement {
    /// Times it was launched.
    pub launches: u64,
    /// Words that the device or the reference wrote.
    pub words: u64,
    /// Of them, those that differ in a bit.
    pub unequal: u64,
    /// Largest difference, as a share of what the tolerance allows: more than 1 is a fault.
    pub largest: f32,
    /// The first difference beyond the tolerance.
    pub fault: Option<String>,
}

/// What was compared so far, by variant; shared with the executor.
pub type Agreements = Rc<RefCell<HashMap<KernelKey, Agreement>>>;

/// Largest difference of an element, relative to it or to what its window spreads by. WGSL lets a division, a square root
/// and the functions made of them be off by a few units in the last place, and `fma` be rounded twice
/// (WGSL §15.7.4).
pub const TOLERANCE: f32 = 2e-5;

/// As [`TOLERANCE`], of `sample`: its noise is a logarithm of a logarithm near 1, and those have an
/// absolute error there (2⁻²¹, WGSL §15.7.4).
const NOISE_TOLERANCE: f32 = 1e-3;

/// What a word of an output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    /// A number that decides what is read and written: equal, or wrong.
    Integer,
    /// A single or such a number, by place: no number is so large that it is read as one.
    Mixed,
    /// Two words a sum of masses in fixed point, low first: those of `exp`.
    Mass,
    /// A single.
    F32,
    /// Two halves, or four codes, or a scale, by place.
    Packed,
    /// Groups of 12 words: codes, then scale and sums.
    Int8,
}

/// What a variant's outputs hold.
fn element(key: &KernelKey, binding: &str) -> Element {
    match key.kernel {
        "sample_scan" if sample_scan::Stage::of(key) == sample_scan::Stage::Mass => Element::Mass,
        "prepare" | "sample_state" | "sample_pick" | "sample_cut" | "sample_scan" | "kv_copy" => {
            Element::Integer
        }
        "sample" | "moe_route" => Element::Mixed,
        _ if key
            .modules
            .iter()
            .any(|(_, module)| module.starts_with("kv_store")) =>
        {
            Element::Packed
        }
        _ => match key.slot("act").filter(|_| binding == "act_out") {
            Some("act_f16") => Element::Packed,
            Some("act_int8") => Element::Int8,
            _ => Element::F32,
        },
    }
}

/// Runs everything on a device and on the reference.
#[derive(Debug)]
pub struct TwinExecutor<E> {
    device: E,
    reference: CpuExecutor,
    /// Of both, by the number given out.
    buffers: Vec<Option<(BufferId, BufferId)>>,
    agreements: Agreements,
}

impl<E: Executor> TwinExecutor<E> {
    /// Beside this device, the reference as it would run the same programs.
    pub fn new(device: E) -> (Self, Agreements) {
        let reference = CpuExecutor::new(device.caps().clone());
        Self::beside(device, reference)
    }

    /// As [`new`](Self::new), with a given reference.
    pub fn beside(device: E, reference: CpuExecutor) -> (Self, Agreements) {
        let agreements = Agreements::default();
        let twin = Self {
            device,
            reference,
            buffers: Vec::new(),
            agreements: Rc::clone(&agreements),
        };
        (twin, agreements)
    }

    fn both(&self, buffer: BufferId) -> Result<(BufferId, BufferId), ExecutorError> {
        let both = self.buffers.get(buffer.0 as usize).copied().flatten();
        both.ok_or_else(|| ExecutorError::Invalid(format!("{buffer:?} does not exist")))
    }

    fn slices(&self, slice: Slice) -> Result<[Slice; 2], ExecutorError> {
        let (device, reference) = self.both(slice.buffer)?;
        Ok([device, reference].map(|buffer| Slice { buffer, ..slice }))
    }

    /// Runs one dispatch on both and compares; afterwards both hold what the device wrote.
    fn compare(&mut self, dispatch: &Dispatch, counts: &[u32]) -> Result<(), ExecutorError> {
        let key = &dispatch.key;
        let kernel = kernels::find(key.kernel)
            .ok_or_else(|| ExecutorError::Invalid(format!("{key}: there is no such kernel")))?;
        let grid = dispatch.resolve_grid(counts).unwrap_or_default();
        if grid.contains(&0) {
            return Ok(());
        }
        let mut twins = [dispatch.clone(), dispatch.clone()];
        for (i, &slice) in dispatch.bindings.iter().enumerate() {
            let [device, reference] = self.slices(slice)?;
            (twins[0].bindings[i], twins[1].bindings[i]) = (device, reference);
        }
        let args = StepArgs {
            upload: None,
            counts: counts.to_vec(),
        };
        let [on_device, on_reference] = twins;
        let bindings = kernel.bindings.iter().zip(&on_device.bindings);
        let bindings = bindings.zip(&on_reference.bindings);
        let written: Vec<_> = bindings
            .filter(|((def, _), _)| def.access == Access::ReadWrite)
            .map(|((def, device), reference)| (def.name, *device, *reference))
            .collect();
        let mut before = Vec::new();
        for (_, _, reference) in &written {
            before.push(words(&mut self.reference, *reference)?);
        }
        let program = |dispatch: Dispatch| Program::new(key.to_string(), vec![dispatch.into()]);
        self.device.launch(&program(on_device), &args)?;
        self.reference.launch(&program(on_reference), &args)?;
        for ((name, device, reference), before) in written.into_iter().zip(before) {
            let got = words(&mut self.device, device)?;
            let expected = words(&mut self.reference, reference)?;
            let found = agreement(key, name, &before, &got, &expected);
            self.reference.write(
                reference.buffer,
                reference.offset,
                bytemuck::cast_slice(&got),
            )?;
            let mut agreements = self.agreements.borrow_mut();
            let all = agreements.entry(key.clone()).or_default();
            all.words += found.words;
            all.unequal += found.unequal;
            all.largest = all.largest.max(found.largest);
            if all.fault.is_none() {
                all.fault = found.fault;
            }
        }
        self.agreements
            .borrow_mut()
            .entry(key.clone())
            .or_default()
            .launches += 1;
        Ok(())
    }
}

fn words(executor: &mut impl Executor, slice: Slice) -> Result<Vec<u32>, ExecutorError> {
    let range = slice.offset..slice.offset + slice.bytes;
    let bytes = wait(executor.read(slice.buffer, range))?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}

/// Polls to the end: natively a read waits where it is polled.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}

/// How far two numbers are apart, as a share of what the tolerance allows; infinite where one alone is
/// no number.
fn apart(got: f32, expected: f32, spread: f32) -> f32 {
    if got.to_bits() == expected.to_bits() || got == expected || (got.is_nan() && expected.is_nan())
    {
        return 0.0;
    }
    let apart = (got - expected).abs() / (TOLERANCE * expected.abs().max(spread));
    if apart.is_nan() { f32::INFINITY } else { apart }
}

/// Compares a written window, of which words that both left as they were say nothing.
fn agreement(
    key: &KernelKey,
    binding: &str,
    before: &[u32],
    got: &[u32],
    expected: &[u32],
) -> Agreement {
    let mut found = Agreement::default();
    let all = || before.iter().zip(got).zip(expected).enumerate();
    let written = || all().filter(|(_, ((b, g), e))| b != g || b != e);
    let element = element(key, binding);
    let numbers = written().map(|(_, (_, &e))| f64::from(f32::from_bits(e)));
    let squares = numbers.filter(|v| v.is_finite()).map(|v| v * v);
    let (sum, n) = squares.fold((0.0, 0.0), |(s, n), v| (s + v, n + 1.0));
    let spread = (sum / f64::max(n, 1.0)).sqrt() as f32;
    for (i, ((_, &g), &e)) in written() {
        found.words += 1;
        if g == e {
            continue;
        }
        found.unequal += 1;
        let apart = match element {
            Element::Integer => f32::INFINITY,
            // Small whole numbers are those singles that are not normal.
            Element::Mixed if !(f32::from_bits(g).is_normal() && f32::from_bits(e).is_normal()) => {
                f32::INFINITY
            }
            Element::Mixed if key.kernel == "sample" => {
                apart(f32::from_bits(g), f32::from_bits(e), spread) * TOLERANCE / NOISE_TOLERANCE
            }
            Element::F32 | Element::Mixed => apart(f32::from_bits(g), f32::from_bits(e), spread),
            Element::Mass => {
                let sum = |words: &[u32]| {
                    let [low, high] = [i & !1, i | 1].map(|i| words.get(i).copied().unwrap_or(0));
                    u64::from(high) << 32 | u64::from(low)
                };
                let (got, expected) = (sum(got), sum(expected));
                let allowed = (f64::from(TOLERANCE) * expected as f64).max(f64::from(1 << 20));
                (got.abs_diff(expected) as f64 / allowed) as f32
            }
            Element::Packed => packed(g, e, spread),
            Element::Int8 => int8(i % 12, &got[i - i % 12..], &expected[i - i % 12..]),
        };
        found.largest = found.largest.max(apart);
        if apart > 1.0 && found.fault.is_none() {
            found.fault = Some(match element {
                Element::F32 => format!(
                    "{binding}[{i}] is {:e}, expected {:e}",
                    f32::from_bits(g),
                    f32::from_bits(e)
                ),
                _ => format!("{binding}[{i}] is {g:#010x}, expected {e:#010x}"),
            });
        }
    }
    found
}

/// Two words of a packed output: a single, two halves or four codes, whichever is nearest. Rounding may
/// fall to the other side where what is rounded differs in its last bit.
fn packed(g: u32, e: u32, spread: f32) -> f32 {
    let half = |w: u32, i: u32| f32::from(half::f16::from_bits((w >> (16 * i)) as u16));
    // A step of a half is 2⁻¹⁰ of it; the smallest is 2⁻²⁴.
    let step = |v: f32| v.abs().max(6.2e-5) * 9.8e-4;
    let halves = (0..2).map(|i| (half(g, i) - half(e, i)).abs() / (1.01 * step(half(e, i))));
    let codes = (0..4).map(|i| {
        let code = |w: u32| f32::from((w >> (8 * i)) as u8 as i8);
        (code(g) - code(e)).abs()
    });
    let worst = |a: f32, b: f32| if b.is_nan() { f32::INFINITY } else { a.max(b) };
    let as_single = match f32::from_bits(e).is_normal() {
        true => apart(
            f32::from_bits(g),
            f32::from_bits(e),
            spread.min(f32::from_bits(e).abs()),
        ),
        false => f32::INFINITY,
    };
    halves
        .fold(0.0, worst)
        .min(codes.fold(0.0, worst))
        .min(as_single)
}

/// A word of a group of 8-bit codes: those may fall to the other side, and the sums with them.
fn int8(word: usize, got: &[u32], expected: &[u32]) -> f32 {
    let code = |w: u32, i: u32| i32::from((w >> (8 * i)) as u8 as i8);
    let apart = |w: usize| (0..4).map(move |i| code(got[w], i).abs_diff(code(expected[w], i)));
    if word < 8 {
        return apart(word).max().unwrap_or(0) as f32;
    }
    let moved: u32 = (0..8).flat_map(apart).sum();
    let single = |of: &[u32]| f32::from_bits(of[word]);
    let scale = f32::from_bits(expected[8]).abs();
    match word {
        8 => (single(got) - single(expected)).abs() / (TOLERANCE * scale),
        9 => {
            let allowed = TOLERANCE * single(expected).abs() + moved as f32 * 1.01 * scale;
            (single(got) - single(expected)).abs() / allowed
        }
        _ => {
            let half = |w: u32, i: u32| i32::from((w >> (16 * i)) as u16 as i16);
            let halves = (0..2).map(|i| half(got[word], i).abs_diff(half(expected[word], i)));
            halves.max().unwrap_or(0) as f32 / moved.max(1) as f32
        }
    }
}

impl<E: Executor> Executor for TwinExecutor<E> {
    fn caps(&self) -> &Caps {
        self.device.caps()
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        let device = self.device.create_buffer(label, bytes)?;
        let reference = self.reference.create_buffer(label, bytes)?;
        self.buffers.push(Some((device, reference)));
        let id = u32::try_from(self.buffers.len() - 1);
        id.map(BufferId)
            .map_err(|_| ExecutorError::Invalid("too many buffers".into()))
    }

    fn destroy_buffer(&mut self, buffer: BufferId) {
        if let Some((device, reference)) = self
            .buffers
            .get_mut(buffer.0 as usize)
            .and_then(Option::take)
        {
            self.device.destroy_buffer(device);
            self.reference.destroy_buffer(reference);
        }
    }

    fn release(&mut self) {
        self.device.release();
        self.reference.release();
        self.buffers.clear();
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError> {
        let (device, reference) = self.both(buffer)?;
        self.device.write(device, offset, data)?;
        self.reference.write(reference, offset, data)
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        if let Some((buffer, data)) = &args.upload {
            self.write(*buffer, 0, data)?;
        }
        let mut ticket = Ticket(0);
        for command in program.commands() {
            match command {
                Command::Dispatch(dispatch) => self.compare(dispatch, &args.counts)?,
                Command::Copy { src, dst } => {
                    let (src, dst) = (self.slices(*src)?, self.slices(*dst)?);
                    let copy = |i: usize| {
                        let (src, dst) = (src[i], dst[i]);
                        Program::new("copy", vec![Command::Copy { src, dst }])
                    };
                    ticket = self.device.launch(&copy(0), &StepArgs::default())?;
                    self.reference.launch(&copy(1), &StepArgs::default())?;
                }
                Command::Cut => {}
            }
        }
        Ok(ticket)
    }

    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        type Read = Pin<Box<dyn Future<Output = Result<Vec<u8>, ExecutorError>>>>;
        let read: Read = match self.both(buffer) {
            Ok((device, _)) => Box::pin(self.device.read(device, range)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        };
        read
    }
}
