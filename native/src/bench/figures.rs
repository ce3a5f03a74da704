//! The figures of a benchmark: as one JSON object for programs, as a table for people. Measures nothing.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::ceilings::{Ceilings, Product};
use super::first_token::FirstToken;
use crate::picture::digits;
use crate::store::human_bytes;

/// What came out.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The model and its weights' types.
    pub model: String,
    /// The device.
    pub device: String,
    /// Numerics class.
    pub class: &'static str,
    /// Type of keys and values.
    pub kv_dtype: &'static str,
    /// Tokens drawn of a request.
    pub tokens: usize,
    /// Tokens a second by tokens of the prompt; there is one.
    pub prefill: Vec<(usize, f64)>,
    /// Tokens a second.
    pub decode_tok_s: f64,
    /// Tokens a second of all, by requests together.
    pub parallel: Vec<(usize, f64)>,
    /// Seconds.
    pub load_s: f64,
    /// In fresh processes, cold and warm.
    pub first_token: Option<[FirstToken; 2]>,
    /// Bytes of buffers.
    pub gpu_bytes: u64,
    /// Of weights on the device.
    pub weight_bytes: u64,
    /// Of files.
    pub file_bytes: u64,
    /// Of the process.
    pub peak_rss_bytes: Option<u64>,
    /// Counted by the executor: dispatches a layer; and a decoded token: dispatches, submits, bytes
    /// read back.
    pub counted: Option<[f64; 4]>,
    /// Bytes a decode step must move; operations a prompt needs.
    pub needs: [f64; 2],
    /// What the device reaches.
    pub ceilings: Ceilings,
}

impl Figures {
    /// Share of the copy's bytes a second.
    pub fn bandwidth_fraction(&self) -> f64 {
        self.needs[0] * self.decode_tok_s / self.ceilings.rates.copy
    }

    /// Share of a decode step's time that its matrix products would take at their best.
    pub fn best_gemv_fraction(&self) -> f64 {
        self.ceilings.best_gemv_seconds() * self.decode_tok_s
    }

    /// Operations a second of prefill.
    pub fn prefill_flops(&self) -> f64 {
        let (prompt, rate) = self.prefill[0];
        self.needs[1] * rate / prompt as f64
    }

    /// Share of the operations a second that were seen.
    pub fn flops_fraction(&self) -> f64 {
        self.prefill_flops() / self.ceilings.best_flops()
    }

    /// For programs.
    pub fn as_json(&self) -> Value {
        let counted = |i: usize| self.counted.map(|counted| counted[i]);
        let first = |i: usize| self.first_token.map(|times| times[i].first_token_s);
        let products = |products: &[Product]| -> Vec<Value> {
            let product = |p: &Product| {
                json!({
                    "kernel": p.name, "rows": p.matrix[0], "columns": p.matrix[1],
                    "step_tokens": p.step, "tokens": p.tokens, "count": p.count, "seconds": p.seconds,
                    "weight_bytes_s": p.bandwidth, "flops": p.flops,
                })
            };
            products.iter().map(product).collect()
        };
        json!({
            "prefill_tok_s": self.prefill[0].1,
            "decode_tok_s": self.decode_tok_s,
            "parallel_tok_s": self.parallel.first().map(|(_, rate)| rate),
            "load_s": self.load_s,
            "first_token_cold_s": first(0),
            "first_token_warm_s": first(1),
            "gpu_bytes": self.gpu_bytes,
            "weight_bytes": self.weight_bytes,
            "file_bytes": self.file_bytes,
            "peak_rss_bytes": self.peak_rss_bytes,
            "dispatches_per_layer": counted(0),
            "dispatches_per_token": counted(1),
            "submits_per_token": counted(2),
            "readback_bytes_per_token": counted(3),
            "bandwidth_fraction": self.bandwidth_fraction(),
            "flops_fraction": self.flops_fraction(),
            "best_gemv_fraction": self.best_gemv_fraction(),
            "model": self.model,
            "device": self.device,
            "class": self.class,
            "kv_cache_dtype": self.kv_dtype,
            "tokens": self.tokens,
            "prefill": self.prefill.iter().map(|(prompt, rate)| json!({
                "prompt": prompt, "tok_s": rate,
            })).collect::<Vec<_>>(),
            "parallel": self.parallel.iter().map(|(requests, rate)| json!({
                "requests": requests, "tok_s": rate,
            })).collect::<Vec<_>>(),
            "ceilings": {
                "copy_bytes_s": self.ceilings.rates.copy,
                "fma_flops": self.ceilings.rates.fma,
                "dispatch_s": self.ceilings.dispatch,
                "free_dispatch_s": self.ceilings.free_dispatch,
                "round_trip_s": self.ceilings.round_trip,
                "best_gemv_bytes_s": self.ceilings.best_gemv(),
                "best_flops": self.ceilings.best_flops(),
                "gemv": products(&self.ceilings.gemv),
                "gemm": products(&self.ceilings.gemm),
            },
        })
    }

    /// For people.
    pub fn as_text(&self) -> String {
        let tokens = self.tokens;
        let ceilings = &self.ceilings;
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut text = format!(
            "{}\non {}; class {}, keys and values in {}\n\n",
            self.model, self.device, self.class, self.kv_dtype
        );
        let mut line = |name: &str, value: String, remark: String| {
            let _ = writeln!(text, "  {name:13} {value:>13}  {remark}");
        };
        for (i, (prompt, rate)) in self.prefill.iter().enumerate() {
            let remark = match i {
                0 => format!(
                    "{prompt} tokens; {} GFLOP/s, {} of the best seen",
                    digits(self.prefill_flops() / 1e9),
                    percent(self.flops_fraction())
                ),
                _ => format!("{prompt} tokens"),
            };
            line("prefill", format!("{} tok/s", digits(*rate)), remark);
        }
        line(
            "decode",
            format!("{} tok/s", digits(self.decode_tok_s)),
            format!(
                "{tokens} tokens; {} GB/s, {} of a copy's; {} of the best matrix products'",
                digits(self.needs[0] * self.decode_tok_s / 1e9),
                percent(self.bandwidth_fraction()),
                percent(self.best_gemv_fraction())
            ),
        );
        for (requests, rate) in &self.parallel {
            line(
                "parallel",
                format!("{} tok/s", digits(*rate)),
                format!(
                    "{requests} requests together: {} times one",
                    digits(rate / self.decode_tok_s)
                ),
            );
        }
        line("load", format!("{:.2} s", self.load_s), String::new());
        if let Some([cold, warm]) = self.first_token {
            line(
                "first token",
                format!("{:.2} s", cold.first_token_s),
                format!(
                    "cold, without compiled shaders; warm {:.2} s; loading included",
                    warm.first_token_s
                ),
            );
        }
        line(
            "on the device",
            human_bytes(self.gpu_bytes),
            format!(
                "weights {}, {:.2} times the file's {}",
                human_bytes(self.weight_bytes),
                self.weight_bytes as f64 / self.file_bytes.max(1) as f64,
                human_bytes(self.file_bytes)
            ),
        );
        if let Some(peak) = self.peak_rss_bytes {
            line("process", human_bytes(peak), "at most".to_owned());
        }
        if let Some([layer, token, submits, bytes]) = self.counted {
            line(
                "dispatches",
                format!("{} a layer", digits(layer)),
                format!(
                    "{} a token, in {} submits; {} bytes read back",
                    digits(token),
                    digits(submits),
                    digits(bytes)
                ),
            );
        }
        let _ = writeln!(
            text,
            "\nAlone: copy {} GB/s, multiply-adds {} GFLOP/s; a dispatch {} µs behind another, {} µs \
             beside;\n{} µs from a launch to its bytes; matrix products, by the step they are of:\n  \
             {:44} {:>14} {:>6} {:>5} {:>9} {:>7} {:>8} {:>8} {:>7}",
            digits(ceilings.rates.copy / 1e9),
            digits(ceilings.rates.fma / 1e9),
            digits(1e6 * ceilings.dispatch),
            digits(1e6 * ceilings.free_dispatch),
            digits(1e6 * ceilings.round_trip),
            "kernel",
            "rows × columns",
            "tokens",
            "count",
            "ms",
            "GB/s",
            "GFLOP/s",
            "of copy",
            "of fma"
        );
        let mut group = String::new();
        let of = |p: &Product, is_decode: bool| match (is_decode, self.prefill[0].0) {
            (true, _) => "decode, a step of 1 token".to_owned(),
            // A prompt longer than a step comes in several.
            (false, prompt) if p.step == prompt => format!("prefill of {prompt} tokens"),
            (false, _) => format!("a step of {} tokens", p.step),
        };
        let decode = ceilings.gemv.iter().map(|p| (p, of(p, true)));
        let longer = ceilings.gemm.iter().map(|p| (p, of(p, false)));
        for (p, of_group) in decode.chain(longer) {
            if group != of_group {
                let _ = writeln!(text, " {of_group}:");
                group = of_group;
            }
            let _ = writeln!(
                text,
                "  {:44} {:>14} {:>6} {:>5} {:>9.3} {:>7} {:>8} {:>8} {:>7}",
                p.name,
                format!("{} × {}", p.matrix[0], p.matrix[1]),
                p.tokens,
                p.count,
                1e3 * p.seconds,
                digits(p.bandwidth / 1e9),
                digits(p.flops / 1e9),
                percent(p.bandwidth / ceilings.rates.copy),
                percent(p.flops / ceilings.rates.fma)
            );
        }
        text
    }
}
