//! One dispatch with its buffers, to be run on any executor and compared.

use twoclock_shaders::executor::Executor;
use twoclock_shaders::program::{Command, Dispatch, Program, Slice, StepArgs};

/// Contents of one buffer before the dispatch.
#[derive(Clone, Debug)]
pub struct Input(Vec<u8>);

impl Input {
    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<T: bytemuck::NoUninit> From<&[T]> for Input {
    fn from(values: &[T]) -> Self {
        Self(bytemuck::cast_slice(values).to_vec())
    }
}

impl<T: bytemuck::NoUninit> From<Vec<T>> for Input {
    fn from(values: Vec<T>) -> Self {
        values.as_slice().into()
    }
}

/// Makes dispatches from the windows of a case's buffers.
pub type MakeDispatches<'a> = Box<dyn Fn(&[Slice]) -> Vec<Dispatch> + 'a>;

/// Buffers, the dispatches over them, and the step's counts.
pub struct Case<'a> {
    /// One buffer each, bound whole.
    pub inputs: Vec<Input>,
    /// Makes the dispatches from the buffers' windows.
    pub dispatches: MakeDispatches<'a>,
    /// The step's counts.
    pub counts: Vec<u32>,
}

impl Case<'_> {
    /// Makes its buffers.
    ///
    /// # Panics
    /// When the executor refuses.
    pub fn upload(&self, executor: &mut impl Executor) -> Vec<Slice> {
        self.inputs
            .iter()
            .map(|Input(bytes)| {
                let buffer = executor
                    .create_buffer("case", bytes.len() as u64)
                    .expect("memory for a test");
                executor.write(buffer, 0, bytes).expect("writes");
                Slice::whole(buffer, bytes.len() as u64)
            })
            .collect()
    }

    /// Its commands over those buffers.
    pub fn commands(&self, slices: &[Slice]) -> Vec<Command> {
        (self.dispatches)(slices)
            .into_iter()
            .map(|d| Command::Dispatch(Box::new(d)))
            .collect()
    }

    /// Runs it and gives the contents of buffer `output` afterwards.
    ///
    /// # Panics
    /// When the executor refuses.
    pub fn run(&self, executor: &mut impl Executor, output: usize) -> Vec<f32> {
        let slices = self.upload(executor);
        let commands = self.commands(&slices);
        let program = Program::new("case", commands);
        let args = StepArgs {
            upload: None,
            counts: self.counts.clone(),
        };
        executor.launch(&program, &args).expect("launches");
        let Slice { buffer, bytes, .. } = slices[output];
        let bytes = pollster::block_on(executor.read(buffer, 0..bytes)).expect("reads");
        for slice in slices {
            executor.destroy_buffer(slice.buffer);
        }
        bytemuck::pod_collect_to_vec(&bytes)
    }
}

/// Asserts that two runs agree within `tolerance` × max(1, |expected|), and that nothing is NaN.
///
/// # Panics
/// When they do not, naming the first place.
pub fn assert_close(what: &str, got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len(), "{what}: lengths");
    for (i, (&g, &e)) in got.iter().zip(expected).enumerate() {
        assert!(
            (g - e).abs() <= tolerance * e.abs().max(1.0),
            "{what}: at {i} got {g}, expected {e}"
        );
    }
}
