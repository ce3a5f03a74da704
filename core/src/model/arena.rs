//! The constant arena: norms, biases, rotary tables and whatever else is small and read by many kernels,
//! in one buffer of windows.

use crate::error::Result;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::program::{BufferId, Slice};

/// Collects vectors before the buffer exists.
#[derive(Debug)]
pub struct ArenaBuilder {
    words: Vec<f32>,
    alignment: usize,
}

/// A vector's place in the arena.
#[derive(Clone, Copy, Debug)]
pub struct ArenaRef {
    offset: u64,
    bytes: u64,
}

/// The arena on its device.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    buffer: BufferId,
    bytes: u64,
}

impl ArenaBuilder {
    /// An empty arena whose windows start at multiples of `alignment` bytes.
    pub fn new(alignment: u64) -> Self {
        Self {
            words: Vec::new(),
            alignment: (alignment as usize / 4).max(4),
        }
    }

    /// Adds a vector, padded with zeros to a multiple of 4.
    pub fn push(&mut self, values: &[f32]) -> ArenaRef {
        let start = self.words.len().next_multiple_of(self.alignment);
        self.words.resize(start, 0.0);
        self.words.extend_from_slice(values);
        self.words.resize(self.words.len().next_multiple_of(4), 0.0);
        ArenaRef {
            offset: 4 * start as u64,
            bytes: 4 * (self.words.len() - start) as u64,
        }
    }

    /// Bytes it would have with a vector of so many more, beyond those it has.
    pub fn bytes_of(&self, more: u64) -> u64 {
        let start = self.words.len().next_multiple_of(self.alignment);
        4 * start as u64 + more.next_multiple_of(16) - self.bytes()
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        4 * self.words.len() as u64
    }

    /// Makes the buffer.
    ///
    /// # Errors
    /// The device's.
    pub fn upload(self, executor: &mut impl Executor) -> Result<Arena> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        let buffer = executor.create_buffer("constants", bytes.len() as u64)?;
        executor.write(buffer, 0, bytes)?;
        Ok(Arena {
            buffer,
            bytes: bytes.len() as u64,
        })
    }
}

impl Arena {
    /// All of it.
    pub fn whole(&self) -> Slice {
        Slice::whole(self.buffer, self.bytes)
    }

    /// The window of a vector.
    pub fn slice(&self, at: ArenaRef) -> Slice {
        Slice {
            buffer: self.buffer,
            offset: at.offset,
            bytes: at.bytes,
        }
    }
}
