//! What a model's `generation_config.json` recommends for the draw of tokens. Owns the meaning of its
//! fields; the ends of generation in it are the configuration's.

use super::WeightsError;
use super::fields::Fields;
use crate::types::SamplingParams;
use serde_json::Value;

/// Recommended parameters, where the file names them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// [`SamplingParams::temperature`]; 1 where the file asks for draws and says no more.
    pub temperature: Option<f32>,
    /// [`SamplingParams::top_k`].
    pub top_k: Option<usize>,
    /// [`SamplingParams::top_p`].
    pub top_p: Option<f32>,
    /// [`SamplingParams::min_p`].
    pub min_p: Option<f32>,
    /// [`SamplingParams::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
}

impl GenerationDefaults {
    /// Reads the file's fields. With `"do_sample": false` those of the draw are not in force.
    pub(super) fn read(file: &str, value: &Value) -> Result<Self, WeightsError> {
        let fields = Fields::of(file, value)?;
        let greedy = Self {
            repetition_penalty: fields.float("repetition_penalty")?,
            ..Self::default()
        };
        let sample = fields.bool("do_sample")?;
        if sample == Some(false) {
            return Ok(greedy);
        }
        // Some files write -1 for all.
        let top_k = match fields.double("top_k")? {
            Some(-1.0) => Some(0),
            Some(k) if k < 0.0 || k.fract() != 0.0 || k > f64::from(u32::MAX) => {
                let must = "a whole number of tokens, or -1 for all";
                return Err(fields.unsupported("top_k", k, must));
            }
            k => k.map(|k| k as usize),
        };
        Ok(Self {
            temperature: fields.float("temperature")?.or(sample.map(|_| 1.0)),
            top_k,
            top_p: fields.float("top_p")?,
            min_p: fields.float("min_p")?,
            ..greedy
        })
    }

    /// Puts what is recommended into `params`.
    pub fn apply(&self, params: &mut SamplingParams) {
        fn set<T: Copy>(to: &mut T, from: Option<T>) {
            *to = from.unwrap_or(*to);
        }
        set(&mut params.temperature, self.temperature);
        set(&mut params.top_k, self.top_k);
        set(&mut params.top_p, self.top_p);
        set(&mut params.min_p, self.min_p);
        set(&mut params.repetition_penalty, self.repetition_penalty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn applied(value: &Value) -> SamplingParams {
        let mut params = SamplingParams::default();
        let defaults = GenerationDefaults::read("generation_config.json", value);
        defaults.unwrap().apply(&mut params);
        params
    }

    #[test]
    fn what_is_named_is_taken() {
        let plain = SamplingParams::default();
        let all = json!({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
            "min_p": 0.125, "repetition_penalty": 1.5, "eos_token_id": [1, 2]});
        let expected = SamplingParams {
            temperature: 0.6,
            top_k: 20,
            top_p: 0.95,
            min_p: 0.125,
            repetition_penalty: 1.5,
            ..plain.clone()
        };
        assert_eq!(applied(&all), expected);
        assert_eq!(applied(&json!({})), plain);
        assert_eq!(applied(&json!({"do_sample": true})).temperature, 1.0);
        let greedy = json!({"do_sample": false, "temperature": 0.6, "top_k": 50});
        assert_eq!(applied(&greedy), plain);
        assert_eq!(applied(&json!({"top_k": -1})).top_k, 0);
        for k in [json!(-5), json!(1e30), json!(2.5)] {
            let refused = GenerationDefaults::read("generation_config.json", &json!({"top_k": k}));
            let said = refused.expect_err("no number of tokens").to_string();
            assert!(
                said.contains("generation_config.json") && said.contains("top_k"),
                "{said}"
            );
        }
        let wrong = json!({"top_p": "high"});
        let error = GenerationDefaults::read("generation_config.json", &wrong).unwrap_err();
        assert!(error.to_string().contains("top_p"), "{error}");
    }
}
