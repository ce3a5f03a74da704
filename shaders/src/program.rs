//! A step's work as plain data: dispatches and copies over buffer numbers, with points where the
//! executor may end a submit. Knows no device; built by the model, run by an executor.

use crate::kernel::KernelKey;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Names a buffer of one executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// A window of a buffer. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte; a multiple of [`Caps::binding_alignment`](crate::caps::Caps) where it is bound.
    pub offset: u64,
    /// Length; a multiple of 4.
    pub bytes: u64,
}

impl Slice {
    /// The first `bytes` of a buffer.
    pub fn whole(buffer: BufferId, bytes: u64) -> Self {
        Self {
            buffer,
            offset: 0,
            bytes,
        }
    }
}

/// Which of a step's counts a grid follows. What each means is the program builder's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CountId(pub usize);

/// Workgroups in one dimension of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The same in every step.
    Fixed(u32),
    /// ⌈count / tile⌉ of a step's count; 0 skips the dispatch.
    Count {
        /// The count.
        count: CountId,
        /// How many of it one workgroup covers.
        tile: u32,
    },
    /// ⌈count · times / tile⌉ + more of a step's count: tiles that are not all full. 0 where the count is.
    Tiles {
        /// The count.
        count: CountId,
        /// What each of it stands for.
        times: u32,
        /// How many of those one workgroup covers.
        tile: u32,
        /// Tiles that may be short.
        more: u32,
    },
}

impl Extent {
    /// Workgroups in a step with these counts; `None` where the count is not among them.
    pub fn resolve(self, counts: &[u32]) -> Option<u32> {
        match self {
            Self::Fixed(n) => Some(n),
            Self::Count { count, tile } => Some(counts.get(count.0)?.div_ceil(tile)),
            Self::Tiles {
                count,
                times,
                tile,
                more,
            } => Some(match *counts.get(count.0)? {
                0 => 0,
                n => n.saturating_mul(times).div_ceil(tile).saturating_add(more),
            }),
        }
    }
}

/// Work of one workgroup, for predicting a submit's time. Counted, not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Bytes read and written.
    pub bytes: f64,
    /// Floating-point operations.
    pub flops: f64,
}

/// One kernel run.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// Which variant.
    pub key: KernelKey,
    /// One window a binding, in the kernel's order.
    pub bindings: Vec<Slice>,
    /// Bytes of the kernel's parameter struct.
    pub params: Vec<u8>,
    /// Workgroups.
    pub grid: [Extent; 3],
    /// Work of one workgroup.
    pub cost: Cost,
}

impl Dispatch {
    /// Workgroups in a step with these counts; `None` where one it names is not among them.
    pub fn resolve_grid(&self, counts: &[u32]) -> Option<[u32; 3]> {
        let [x, y, z] = self.grid.map(|extent| extent.resolve(counts));
        Some([x?, y?, z?])
    }
}

/// One entry of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Run a kernel.
    Dispatch(Box<Dispatch>),
    /// Copy `src` to `dst`: windows of equal length, in different buffers.
    Copy {
        /// From.
        src: Slice,
        /// To.
        dst: Slice,
    },
    /// A submit may end here.
    Cut,
}

impl Command {
    /// The dispatch, if it is one.
    pub fn dispatch(&self) -> Option<&Dispatch> {
        match self {
            Self::Dispatch(dispatch) => Some(dispatch),
            Self::Copy { .. } | Self::Cut => None,
        }
    }
}

impl From<Dispatch> for Command {
    fn from(dispatch: Dispatch) -> Self {
        Self::Dispatch(Box::new(dispatch))
    }
}

/// Names a program for as long as the process lives, so that an executor can keep what it prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramId(u64);

/// A list of commands, run in order.
#[derive(Debug)]
pub struct Program {
    id: ProgramId,
    life: Arc<()>,
    /// What it is, for people.
    pub label: String,
    commands: Vec<Command>,
}

impl Program {
    /// A program of these commands.
    pub fn new(label: impl Into<String>, commands: Vec<Command>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: ProgramId(NEXT.fetch_add(1, Ordering::Relaxed)),
            life: Arc::default(),
            label: label.into(),
            commands,
        }
    }

    /// Its name for caches.
    pub fn id(&self) -> ProgramId {
        self.id
    }

    /// What cannot be upgraded any more once the program is gone, so that an executor can let go of what it
    /// prepared.
    pub fn life(&self) -> Weak<()> {
        Arc::downgrade(&self.life)
    }

    /// Its commands.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Its dispatches.
    pub fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        self.commands.iter().filter_map(Command::dispatch)
    }
}

/// What one step adds to a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepArgs {
    /// Bytes written to the start of a buffer before the first command.
    pub upload: Option<(BufferId, Vec<u8>)>,
    /// The counts that [`Extent::Count`] names.
    pub counts: Vec<u32>,
}
