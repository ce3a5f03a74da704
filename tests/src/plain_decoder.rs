//! A decoder of the plainest kind (Llama's, without scaled rotation, window or bias) in f64, straight
//! from its definition: an account of what is inside a model that owes the engine nothing.

use crate::golden;
use half::f16;
use safetensors::SafeTensors;
use std::collections::BTreeMap;

/// A checkpoint of `tests/golden/models`, in f64.
pub struct PlainDecoder {
    config: serde_json::Value,
    tensors: BTreeMap<String, Vec<f64>>,
}

/// What a prompt's tokens become, `[token][..]` each.
pub struct PlainStates {
    /// The residual stream after each layer.
    pub layers: Vec<Vec<Vec<f64>>>,
    /// The final hidden state, after the last norm.
    pub hidden: Vec<Vec<f64>>,
    /// Logits.
    pub logits: Vec<Vec<f64>>,
}

impl PlainDecoder {
    /// Reads a checkpoint in float16.
    ///
    /// # Panics
    /// When it is not there.
    pub fn golden(name: &str) -> Self {
        let read = |file| {
            let path = golden("models").join(name).join(file);
            std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let weights = read("model.safetensors");
        let file = SafeTensors::deserialize(&weights).expect("safetensors");
        let values = |bytes: &[u8]| {
            let halves: Vec<u16> = bytemuck::pod_collect_to_vec(bytes);
            let values = halves.into_iter().map(|h| f16::from_bits(h).to_f64());
            values.collect()
        };
        let tensors = file.tensors().into_iter();
        Self {
            config: serde_json::from_slice(&read("config.json")).expect("JSON"),
            tensors: tensors.map(|(n, t)| (n, values(t.data()))).collect(),
        }
    }

    fn number(&self, key: &str) -> f64 {
        self.config[key].as_f64().expect("a number")
    }

    fn tensor(&self, name: &str) -> &[f64] {
        &self.tensors[&format!("{name}.weight")]
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let rows = self.tensor(name).chunks_exact(x.len());
        rows.map(|row| dot(row, x)).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = dot(x, x) / x.len() as f64;
        let rstd = 1.0 / (mean + self.number("rms_norm_eps")).sqrt();
        let gains = self.tensor(name);
        x.iter().zip(gains).map(|(x, g)| x * rstd * g).collect()
    }

    fn rotate(&self, heads: &mut [f64], dim: usize, position: usize) {
        for head in heads.chunks_exact_mut(dim) {
            for i in 0..dim / 2 {
                let power = -2.0 * i as f64 / dim as f64;
                let angle = position as f64 * self.number("rope_theta").powf(power);
                let (a, b) = (head[i], head[i + dim / 2]);
                head[i] = a * angle.cos() - b * angle.sin();
                head[i + dim / 2] = b * angle.cos() + a * angle.sin();
            }
        }
    }

    /// Computes a prompt.
    pub fn states(&self, ids: &[u32]) -> PlainStates {
        let hidden_size = self.number("hidden_size") as usize;
        let table = self.tensor("model.embed_tokens");
        let rows = ids.iter().map(|&id| &table[id as usize * hidden_size..]);
        let mut x: Vec<Vec<f64>> = rows.map(|row| row[..hidden_size].to_vec()).collect();
        let mut layers = Vec::new();
        for layer in 0..self.number("num_hidden_layers") as usize {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            self.attention(&mut x, &name);
            for x in &mut x {
                let normed = self.norm(&name("post_attention_layernorm"), x);
                let gate = self.linear(&name("mlp.gate_proj"), &normed);
                let up = self.linear(&name("mlp.up_proj"), &normed);
                let pairs = gate.iter().zip(&up);
                let glu: Vec<f64> = pairs.map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                add(x, &self.linear(&name("mlp.down_proj"), &glu));
            }
            layers.push(x.clone());
        }
        let hidden: Vec<_> = x.iter().map(|x| self.norm("model.norm", x)).collect();
        let logits = hidden.iter().map(|x| self.linear("lm_head", x)).collect();
        PlainStates {
            layers,
            hidden,
            logits,
        }
    }

    fn attention(&self, x: &mut [Vec<f64>], name: &impl Fn(&str) -> String) {
        let dim = self.number("head_dim") as usize;
        let heads = self.number("num_attention_heads") as usize;
        let group = heads / self.number("num_key_value_heads") as usize;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (position, x) in x.iter_mut().enumerate() {
            let normed = self.norm(&name("input_layernorm"), x);
            let project = |part| self.linear(&name(part), &normed);
            let (mut q, mut k) = (project("self_attn.q_proj"), project("self_attn.k_proj"));
            self.rotate(&mut q, dim, position);
            self.rotate(&mut k, dim, position);
            keys.push(k);
            values.push(project("self_attn.v_proj"));
            let mut out = Vec::new();
            for (head, q) in q.chunks_exact(dim).enumerate() {
                let at = head / group * dim..(head / group + 1) * dim;
                let scale = (dim as f64).sqrt();
                let scores: Vec<f64> = keys
                    .iter()
                    .map(|k| (dot(q, &k[at.clone()]) / scale).exp())
                    .collect();
                let mut sum = vec![0.0; dim];
                for (score, value) in scores.iter().zip(&values) {
                    let share = score / scores.iter().sum::<f64>();
                    let value: Vec<f64> = value[at.clone()].iter().map(|v| share * v).collect();
                    add(&mut sum, &value);
                }
                out.extend(sum);
            }
            add(x, &self.linear(&name("self_attn.o_proj"), &out));
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
