//! The shared decoder: blocks of attention and a feed-forward network, each behind a norm (and in
//! some families before another), as commands over a workspace. Knows no family: what differs is
//! in the configuration and in which weights a block has.

use super::attention_out::AttentionOut;
use super::body::Body;
use super::feed_forward::{FeedForward, FeedForwardNorms};
use super::head::HeadPart;
use super::linear::Linear;
use super::row_fusion::Stream;
use super::{
    DECODES, LayerPages, NumericsClass, Pages, QUERIES, SEQS, TILES, TapBuffers, Workspace, copies,
    embedding, head, merges, parts,
};
use crate::config::ModelConfig;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::kernels::{
    attention_decode, attention_merge, attention_prefill, kv_copy, prepare,
};
use twoclock_shaders::program::{Command, Program, Slice};

/// A projection and its bias.
#[derive(Clone, Debug)]
pub struct Projection {
    /// Weights.
    pub linear: Linear,
    /// f32 `[out_features]`.
    pub bias: Option<Slice>,
}

/// One block.
#[derive(Clone, Debug)]
pub struct DecoderLayer {
    /// Gains of the norm before attention.
    pub input_norm: Slice,
    /// Queries, keys and values, stacked.
    pub qkv: Projection,
    /// Gains of the norms of query heads and of key heads, f32 `[2][head_dim]`.
    pub qk_norm: Option<Slice>,
    /// Rotary table, f32 `[positions][pairs][cos, sin]`; `None` where nothing is rotated.
    pub rope_table: Option<Slice>,
    /// Back to the residual stream.
    pub o: Projection,
    /// Gains of a norm of attention's output.
    pub post_attention_norm: Option<Slice>,
    /// Gains of the norm before the feed-forward network.
    pub ffn_norm: Slice,
    /// The feed-forward network.
    pub feed_forward: FeedForward,
    /// Gains of a norm of its output.
    pub post_ffn_norm: Option<Slice>,
}

/// A model on a device.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// Its shape.
    pub config: ModelConfig,
    /// How its matmuls compute.
    pub numerics: NumericsClass,
    /// Embedding table.
    pub embedding: Linear,
    /// Blocks.
    pub layers: Vec<DecoderLayer>,
    /// All small constants: gains, biases and, where they fit one binding with them, rotary tables.
    pub constants: Slice,
    /// Gains of the last norm.
    pub norm: Slice,
    /// Output projection; the embedding table where tied.
    pub head: Linear,
}

impl Decoder {
    /// From token ids to the residual stream after the last block, for up to `room` tokens: keys
    /// and values of every token land in their pages, and what is tapped in its buffers.
    pub fn body(
        &self,
        caps: &Caps,
        ws: &Workspace,
        pages: &Pages,
        taps: &TapBuffers,
        room: u32,
    ) -> Program {
        let body = Body {
            caps: &self.numerics.caps(caps),
            ws,
            constants: self.constants,
            act_format: self.numerics.act_format(),
            room,
            taps,
        };
        let groups = pages.layers.iter().map(|kv| kv.group as u32 + 1).max();
        let prepared = prepare::PrepareParams {
            groups: groups.unwrap_or(0),
            block_size: pages.block_size,
        };
        let mut commands =
            vec![prepare::dispatch(prepared, QUERIES, SEQS, ws.step, ws.state).into()];
        let scale = self.config.embedding_scale;
        commands.extend(embedding::commands(&self.embedding, scale, ws));
        commands.extend(pages.layers.iter().map(|kv| {
            let params = kv_copy::KvCopyParams {
                page16: (kv.page_bytes / 16) as u32,
                group: kv.group as u32,
            };
            let buffers = kv_copy::Buffers {
                step: ws.step,
                kcache: kv.keys,
                vcache: kv.values,
            };
            kv_copy::dispatch(params, copies(kv.group), buffers).into()
        }));
        let layers = || self.layers.iter().zip(&pages.layers);
        let mut next = layers().skip(1);
        let mut stream = Stream::Bare;
        for (number, (layer, kv)) in layers().enumerate() {
            let next_norm = next.next().and_then(|(layer, kv)| {
                let fused = body.row_qkv(layer, kv, pages.block_size, &self.config);
                fused.map(|_| layer.input_norm)
            });
            stream = self.attention(&body, layer, kv, pages.block_size, stream, &mut commands);
            stream = self.feed_forward(&body, layer, next_norm, stream, &mut commands);
            body.tap_layer(number, &self.config, &mut commands);
        }
        body.tap_hidden(self.norm, &self.config, &mut commands);
        Program::new(format!("body of {room} tokens"), commands)
    }

    /// Logits of a group of the step's rows, draws, or both.
    pub fn head(
        &self,
        caps: &Caps,
        ws: &Workspace,
        first_row: u32,
        room: u32,
        part: HeadPart,
    ) -> Program {
        let mut commands = Vec::new();
        if part != HeadPart::Draw {
            commands = head::logits(caps, self, ws, first_row, room);
        }
        if part != HeadPart::Logits {
            commands.extend(head::draw(caps, &self.config, ws, first_row));
        }
        Program::new(format!("head of rows {first_row}..: {part:?}"), commands)
    }

    fn attention(
        &self,
        body: &Body<'_>,
        layer: &DecoderLayer,
        kv: &LayerPages,
        block_size: u32,
        stream: Stream,
        commands: &mut Vec<Command>,
    ) -> Stream {
        let Body { caps, ws, .. } = *body;
        let config = &self.config;
        let head_dim = config.head_dim as u32;
        let heads = config.num_attention_heads as u32;
        let kv_heads = config.num_key_value_heads as u32;
        let stride = (heads + 2 * kv_heads) * head_dim;
        let scale = config.attention_scale;
        let softcap = config.attention_logit_softcapping.unwrap_or(0.0);
        let (kcache, vcache, dtype) = (kv.keys, kv.values, kv.dtype);
        let (window, group) = (kv.window, kv.group as u32);

        body.queries_and_pages(layer, kv, block_size, config, stream, commands);

        let to = AttentionOut::new(body, heads, head_dim);
        let (act_stride, out) = (to.act_stride, to.out);
        let prefill = attention_prefill::AttentionPrefillParams {
            stride4: stride / 4,
            q_at4: 0,
            heads,
            kv_heads,
            block_size,
            act_stride,
            scale,
            window,
            softcap,
            group,
        };
        let prefill_buffers = attention_prefill::Buffers {
            qkv: ws.qkv,
            kcache,
            vcache,
            dtype,
            step: ws.step,
            out,
            act_format: to.format,
        };
        let context = ws.sizes.max_model_len;
        commands.push(
            attention_prefill::dispatch(caps, head_dim, prefill, TILES, context, prefill_buffers)
                .into(),
        );
        let max_parts = ws.sizes.max_parts(window);
        let decode = attention_decode::AttentionDecodeParams {
            stride4: stride / 4,
            q_at4: 0,
            kv_heads,
            block_size,
            max_parts,
            scale,
            window,
            softcap,
            group,
            act_stride,
        };
        let decode_buffers = attention_decode::Buffers {
            qkv: ws.qkv,
            kcache,
            vcache,
            dtype,
            step: ws.step,
            parts: ws.parts,
            out,
            act_format: to.format,
        };
        commands.push(
            attention_decode::dispatch(
                caps,
                head_dim,
                heads / kv_heads,
                decode,
                DECODES,
                parts(kv.group),
                decode_buffers,
            )
            .into(),
        );
        let merge = attention_merge::AttentionMergeParams {
            heads,
            max_parts,
            act_stride,
            window,
        };
        let merge_buffers = attention_merge::Buffers {
            parts: ws.parts,
            step: ws.step,
            out,
            act_format: to.format,
        };
        let several = merges(kv.group);
        commands.push(
            attention_merge::dispatch(head_dim, merge, several, context, merge_buffers).into(),
        );
        to.finish(body, commands);
        let takes_gained = layer.feed_forward.takes_gained(body, config);
        let norms = (
            layer.post_attention_norm,
            takes_gained.then_some(layer.ffn_norm),
        );
        body.join(&layer.o, ws.act_heads, norms, config, commands)
    }

    fn feed_forward(
        &self,
        body: &Body<'_>,
        layer: &DecoderLayer,
        next_norm: Option<Slice>,
        stream: Stream,
        commands: &mut Vec<Command>,
    ) -> Stream {
        let norms = FeedForwardNorms {
            before: layer.ffn_norm,
            after: layer.post_ffn_norm,
            next: next_norm,
        };
        layer
            .feed_forward
            .commands(body, &self.config, norms, stream, commands)
    }
}
