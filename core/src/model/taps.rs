//! Taps: what a step records besides its logits, for a drafter on the device (EAGLE, Medusa) or to be
//! read back. Owns which rows are recorded and the buffers they go to; knows no request.

use super::body::Body;
use super::{TOKENS, Workspace};
use crate::config::ModelConfig;
use crate::error::Result;
use std::fmt;
use thiserror::Error;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::tap_rows;
use twoclock_shaders::program::{Command, Slice};

/// One thing a step may record of each of its tokens: f32 `[tokens][hidden_size]`, in the step's
/// order of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tap {
    /// The residual stream after a layer, counted from 0.
    Layer(usize),
    /// The final hidden state: after the last norm, what the output projection takes.
    Hidden,
}

impl fmt::Display for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layer(layer) => write!(f, "the residual stream after layer {layer}"),
            Self::Hidden => write!(f, "the final hidden state"),
        }
    }
}

/// What a step records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Taps {
    /// Layers, counted from 0, whose residual stream is recorded after them.
    pub layers: Vec<usize>,
    /// Whether the final hidden state is.
    pub hidden: bool,
}

/// Why something is not recorded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TapsError {
    /// The model is not so deep.
    #[error("{tap} was to be recorded, but the model has {layers} layers, counted from 0")]
    NoSuchLayer {
        /// What.
        tap: Tap,
        /// Layers there are.
        layers: usize,
    },
    /// There is no buffer for it.
    #[error("{0} is not recorded: load the model with it among the taps, and record it")]
    NotRecorded(Tap),
    /// Beyond the longest step.
    #[error("rows {start}..{end} were asked for, but a step records {tokens} at most")]
    NoSuchRows {
        /// The first.
        start: usize,
        /// After the last.
        end: usize,
        /// Rows of a buffer.
        tokens: usize,
    },
}

impl Taps {
    /// One by one, each once, the layers in order.
    pub fn iter(&self) -> impl Iterator<Item = Tap> {
        let mut layers = self.layers.clone();
        layers.sort_unstable();
        layers.dedup();
        let hidden = self.hidden.then_some(Tap::Hidden);
        layers.into_iter().map(Tap::Layer).chain(hidden)
    }

    /// Holds them against a model.
    ///
    /// # Errors
    /// [`TapsError::NoSuchLayer`].
    pub fn check(&self, config: &ModelConfig) -> Result<(), TapsError> {
        let layers = config.num_hidden_layers;
        match self.layers.iter().find(|layer| **layer >= layers) {
            None => Ok(()),
            Some(&layer) => Err(TapsError::NoSuchLayer {
                tap: Tap::Layer(layer),
                layers,
            }),
        }
    }

    /// Bytes of each buffer, for steps of at most so many tokens.
    pub fn buffer_bytes(config: &ModelConfig, tokens: usize) -> u64 {
        4 * tokens as u64 * config.hidden_size as u64
    }
}

/// Where taps go: a buffer each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapBuffers {
    buffers: Vec<(Tap, Slice)>,
}

impl TapBuffers {
    /// Makes a buffer for each tap.
    ///
    /// # Errors
    /// A layer the model does not have; a device without room.
    pub fn create(
        executor: &mut impl Executor,
        config: &ModelConfig,
        taps: &Taps,
        tokens: usize,
    ) -> Result<Self> {
        taps.check(config)?;
        let bytes = Taps::buffer_bytes(config, tokens);
        let mut buffers = Vec::new();
        for tap in taps.iter() {
            let buffer = executor.create_buffer("tap", bytes)?;
            buffers.push((tap, Slice::whole(buffer, bytes)));
        }
        Ok(Self { buffers })
    }

    /// The buffers of some of the taps.
    ///
    /// # Errors
    /// [`TapsError::NotRecorded`] for one that has none.
    pub fn of(&self, taps: &Taps) -> Result<Self, TapsError> {
        let buffer = |tap| Ok((tap, self.get(tap)?));
        let buffers = taps.iter().map(buffer).collect::<Result<_, TapsError>>()?;
        Ok(Self { buffers })
    }

    /// Where a tap goes, for kernels to bind: a row a token of the step, [`Tap`] says of what.
    ///
    /// # Errors
    /// [`TapsError::NotRecorded`].
    pub fn get(&self, tap: Tap) -> Result<Slice, TapsError> {
        let mut buffers = self.buffers.iter();
        let found = buffers.find(|(known, _)| *known == tap);
        found
            .map(|&(_, slice)| slice)
            .ok_or(TapsError::NotRecorded(tap))
    }

    /// What they are of, in order.
    pub fn taps(&self) -> Vec<Tap> {
        self.buffers.iter().map(|&(tap, _)| tap).collect()
    }
}

impl Body<'_> {
    /// Records the residual stream as it is, where a tap asks for it here.
    pub(super) fn tap_layer(
        &self,
        layer: usize,
        config: &ModelConfig,
        commands: &mut Vec<Command>,
    ) {
        if let Ok(out) = self.taps.get(Tap::Layer(layer)) {
            let stride = config.hidden_size as u32 / 4;
            commands.push(self.tap(self.ws.x, stride, false, out, config));
        }
    }

    /// Records the final hidden state, where a tap asks for it.
    pub(super) fn tap_hidden(
        &self,
        norm: Slice,
        config: &ModelConfig,
        commands: &mut Vec<Command>,
    ) {
        if let Ok(out) = self.taps.get(Tap::Hidden) {
            // Singles: no matmul reads it.
            let body = Body {
                act_format: ActFormat::F32,
                ..*self
            };
            body.norm(norm, config, commands);
            let stride = body.hidden_stride(config);
            commands.push(self.tap(self.ws.act_hidden, stride, true, out, config));
        }
    }

    fn tap(
        &self,
        x: Slice,
        act_stride: u32,
        normed: bool,
        out: Slice,
        config: &ModelConfig,
    ) -> Command {
        let Workspace { rstd, .. } = *self.ws;
        let params = tap_rows::TapRowsParams {
            dim4: config.hidden_size as u32 / 4,
            act_stride,
        };
        let buffers = tap_rows::Buffers { x, rstd, out };
        tap_rows::dispatch(normed, params, TOKENS, buffers).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tap_once_in_order() {
        let taps = Taps {
            layers: vec![4, 1, 4],
            hidden: true,
        };
        let expected = [Tap::Layer(1), Tap::Layer(4), Tap::Hidden];
        assert_eq!(taps.iter().collect::<Vec<_>>(), expected);
        assert_eq!(Taps::default().iter().count(), 0);
    }
}
