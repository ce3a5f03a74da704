//! What a kernel is: its bodies in WGSL, its bindings, its parameters, and the key that names one
//! variant of it. Knows no device and no particular kernel.

use std::fmt;

/// How a kernel uses one of its storage buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    ReadWrite,
}

/// One storage buffer of a kernel; its place in [`Kernel::bindings`] is its binding number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingDef {
    /// Name of the variable in every body.
    pub name: &'static str,
    /// How it is used.
    pub access: Access,
}

/// Type of a parameter. Every parameter is one 32-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// `u32`
    U32,
    /// `f32`
    F32,
}

/// A scalar that may stand in a parameter struct.
pub trait ParamScalar: bytemuck::Pod {
    /// Its WGSL type.
    const SCALAR: Scalar;
}

impl ParamScalar for u32 {
    const SCALAR: Scalar = Scalar::U32;
}

impl ParamScalar for f32 {
    const SCALAR: Scalar = Scalar::F32;
}

/// A kernel's parameters: a `repr(C)` struct of 32-bit words, bound as a uniform after the storage
/// buffers. Made by [`params!`](crate::params).
pub trait Params: bytemuck::Pod {
    /// Names and types of the words, in order.
    const FIELDS: &'static [(&'static str, Scalar)];
}

/// Declares a parameter struct and its field table, which the shader lint holds against the WGSL.
#[macro_export]
macro_rules! params {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $ty:ty),* $(,)? }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
        pub struct $name { $($(#[$field_meta])* pub $field: $ty),* }

        impl $crate::kernel::Params for $name {
            const FIELDS: &'static [(&'static str, $crate::kernel::Scalar)] = &[
                $((stringify!($field), <$ty as $crate::kernel::ParamScalar>::SCALAR)),*
            ];
        }
    };
}

/// One WGSL entry point `main` that computes the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    /// File name without `.wgsl`: the kernel's name, or that and `_` and a suffix.
    pub name: &'static str,
    /// Text of the file.
    pub source: &'static str,
}

/// A kernel: one computation, one or more bodies that give the same bits on one device.
#[derive(Debug)]
pub struct Kernel {
    /// Name of its files.
    pub name: &'static str,
    /// Its WGSL bodies.
    pub bodies: &'static [Body],
    /// Its storage buffers, in binding order; the parameters follow as a uniform.
    pub bindings: &'static [BindingDef],
    /// Its parameters, in order.
    pub params: &'static [(&'static str, Scalar)],
    /// Keys of every variant the engine may ask for, for the lint.
    pub variants: fn() -> Vec<KernelKey>,
}

impl Kernel {
    /// Bytes of the parameter struct.
    pub fn params_bytes(&self) -> usize {
        self.params.len() * 4
    }

    /// The body of that name.
    pub fn body(&self, name: &str) -> Option<&'static Body> {
        self.bodies.iter().find(|body| body.name == name)
    }
}

/// Names one variant: which body, which module fills each slot, which constants head the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelKey {
    /// [`Kernel::name`].
    pub kernel: &'static str,
    /// [`Body::name`].
    pub body: &'static str,
    /// (slot, module) for every slot the body names.
    pub modules: Vec<(&'static str, &'static str)>,
    /// `const NAME: u32 = VALUE;` lines of the header.
    pub consts: Vec<(&'static str, u32)>,
}

impl KernelKey {
    /// A variant without slots or constants.
    pub fn plain(kernel: &'static str, body: &'static str) -> Self {
        Self {
            kernel,
            body,
            modules: Vec::new(),
            consts: Vec::new(),
        }
    }

    /// Fills a slot.
    #[must_use]
    pub fn module(mut self, slot: &'static str, module: &'static str) -> Self {
        self.modules.push((slot, module));
        self
    }

    /// Adds a constant.
    #[must_use]
    pub fn constant(mut self, name: &'static str, value: u32) -> Self {
        self.consts.push((name, value));
        self
    }

    /// The value of a constant, if the key has it.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.consts
            .iter()
            .find(|(n, _)| *n == name)
            .map(|&(_, value)| value)
    }

    /// The value of a constant that every variant of the kernel has.
    ///
    /// # Panics
    /// When the key lacks it: keys are made by the kernel's own file.
    pub fn value(&self, name: &str) -> u32 {
        self.get(name)
            .unwrap_or_else(|| panic!("{self} lacks the constant {name}"))
    }

    /// The module in a slot, if the key fills it.
    pub fn slot(&self, name: &str) -> Option<&'static str> {
        self.modules
            .iter()
            .find(|(n, _)| *n == name)
            .map(|&(_, module)| module)
    }
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.body)?;
        for (slot, module) in &self.modules {
            write!(f, " {slot}={module}")?;
        }
        for (name, value) in &self.consts {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}
