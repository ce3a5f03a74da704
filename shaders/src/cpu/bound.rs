//! The buffers of one dispatch, as a reference kernel sees them.

use bytemuck::{cast_slice, cast_slice_mut};

/// One bound window, in 32-bit words.
#[derive(Debug)]
pub enum Window<'a> {
    /// Read-only.
    Read(&'a [u32]),
    /// Read and written; taken out by the kernel that writes it.
    ReadWrite(Option<&'a mut [u32]>),
}

/// The windows of a dispatch, by binding number.
///
/// # Panics
/// Every accessor panics when the binding does not exist, has the other access, or is taken
/// twice: the executor checks bindings against the kernel's table before a kernel runs.
#[derive(Debug)]
pub struct Bound<'a>(pub Vec<Window<'a>>);

impl<'a> Bound<'a> {
    /// A read-only window as words.
    pub fn u32s(&self, binding: usize) -> &'a [u32] {
        match self.0[binding] {
            Window::Read(words) => words,
            Window::ReadWrite(_) => panic!("binding {binding} is not read-only"),
        }
    }

    /// A read-only window as floats.
    pub fn f32s(&self, binding: usize) -> &'a [f32] {
        cast_slice(self.u32s(binding))
    }

    /// Takes a read-write window as words.
    pub fn u32s_mut(&mut self, binding: usize) -> &'a mut [u32] {
        match &mut self.0[binding] {
            Window::ReadWrite(words) => words.take().expect("taken once a dispatch"),
            Window::Read(_) => panic!("binding {binding} is read-only"),
        }
    }

    /// Takes a read-write window as floats.
    pub fn f32s_mut(&mut self, binding: usize) -> &'a mut [f32] {
        cast_slice_mut(self.u32s_mut(binding))
    }
}
