//! What a model's files say about embeddings: sentence-transformers' `modules.json` and the folder of
//! its pooling, or a GGUF file's `pooling_type`. Owns the meaning of those fields; pools nothing.

use super::WeightsError;
use super::checkpoint::{MAX_CONFIG, parse_json};
use super::fields::Fields;
use super::gguf::Gguf;
use super::keys::keys;
use super::safetensors::open_if_there;
use super::source::ModelFiles;
use crate::types::{PoolingParams, PoolingType};
use serde_json::Value;

const MODULES: &str = "modules.json";
/// Where the pooling stands unless `modules.json` says otherwise.
const POOLING: &str = "1_Pooling";
const SUPPORTED: &str = "the mean of all tokens, or the last token, then perhaps a normalization";

/// How a model's texts become vectors, as far as its files say so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolingDefaults {
    /// Which tokens they come from.
    pub pooling: Option<PoolingType>,
    /// Whether they are scaled to length 1.
    pub normalize: Option<bool>,
    /// What the files ask for that is not computed here: file, field, what it says.
    refused: Option<[String; 3]>,
}

impl PoolingDefaults {
    /// What the files say. Where they say nothing it is the last token, as for a decoder it alone has
    /// seen the whole text, and normalized: vLLM's defaults.
    ///
    /// # Errors
    /// [`WeightsError::Unsupported`] where they ask for what is not computed here; the vectors would
    /// be others than the model's.
    pub fn params(&self) -> Result<PoolingParams, WeightsError> {
        if let Some([file, field, found]) = &self.refused {
            return Err(WeightsError::unsupported(file, field, found, SUPPORTED));
        }
        let defaults = PoolingParams::default();
        Ok(PoolingParams {
            pooling: self.pooling.unwrap_or(defaults.pooling),
            normalize: self.normalize.unwrap_or(defaults.normalize),
            ..defaults
        })
    }

    fn refuse(&mut self, file: &str, field: &str, found: impl ToString) {
        let found: String = found.to_string().chars().take(80).collect();
        self.refused
            .get_or_insert([file.to_owned(), field.to_owned(), found]);
    }

    /// Of a GGUF file.
    pub(super) fn gguf(gguf: &Gguf) -> Result<Self, WeightsError> {
        let keys = keys(gguf)?;
        let mut defaults = Self::default();
        // llama.cpp's numbers: none, mean, first token, last token, rank.
        match keys.count("pooling_type")? {
            None | Some(0) => {}
            Some(1) => defaults.pooling = Some(PoolingType::Mean),
            Some(3) => defaults.pooling = Some(PoolingType::Last),
            Some(other) => defaults.refuse(keys.file(), &keys.full("pooling_type"), other),
        }
        Ok(defaults)
    }

    /// Of a Hugging Face directory.
    pub(super) fn hf(files: &dyn ModelFiles) -> Result<Self, WeightsError> {
        let mut defaults = Self::default();
        let mut folder = POOLING.to_owned();
        if let Some(source) = open_if_there(files, MODULES)? {
            let modules = parse_json(&*source, MODULES, MAX_CONFIG)?;
            let Value::Array(modules) = &modules else {
                let must = "it must be a list of modules";
                return Err(WeightsError::malformed(
                    MODULES, "the file", "no list", must,
                ));
            };
            defaults.normalize = Some(false);
            for module in modules {
                let fields = Fields::of(MODULES, module)?;
                let text = |field| {
                    fields
                        .get(field)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                };
                let kind = text("type");
                match kind.rsplit('.').next() {
                    Some("Transformer") => {}
                    Some("Pooling") => folder = text("path").to_owned(),
                    Some("Normalize") => defaults.normalize = Some(true),
                    _ => defaults.refuse(MODULES, "type", kind),
                }
            }
        }
        let file = format!("{folder}/config.json");
        if let Some(source) = open_if_there(files, &file)? {
            let config = parse_json(&*source, &file, MAX_CONFIG)?;
            defaults.read_modes(&Fields::of(&file, &config)?)?;
        }
        Ok(defaults)
    }

    fn read_modes(&mut self, fields: &Fields<'_>) -> Result<(), WeightsError> {
        for (field, value) in fields.object {
            let mode = match field.strip_prefix("pooling_mode") {
                // Older files have a switch for each mode, newer ones the mode's name.
                Some("") => value.as_str().unwrap_or_default(),
                Some(mode) if fields.bool(field)? == Some(true) => mode,
                _ => continue,
            };
            let pooling = match mode.trim_start_matches('_') {
                "mean" | "mean_tokens" => PoolingType::Mean,
                "lasttoken" => PoolingType::Last,
                other => {
                    self.refuse(fields.file, field, other);
                    continue;
                }
            };
            match self.pooling.replace(pooling) {
                Some(other) if other != pooling => {
                    self.refuse(fields.file, field, "one of several that are joined");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::source::ByteSource;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::io;
    use std::sync::Arc;

    struct Files(BTreeMap<&'static str, Value>);

    impl ModelFiles for Files {
        fn name(&self) -> &str {
            "files"
        }

        fn open(&self, file: &str) -> io::Result<Option<Arc<dyn ByteSource>>> {
            let json = self.0.get(file).map(Value::to_string);
            Ok(
                json.map(|j| -> Arc<dyn ByteSource> {
                    Arc::new((file.to_owned(), j.into_bytes()))
                }),
            )
        }
    }

    fn hf(files: &[(&'static str, Value)]) -> Result<PoolingParams, WeightsError> {
        PoolingDefaults::hf(&Files(files.iter().cloned().collect()))?.params()
    }

    fn modules(last: &str, path: &str) -> Value {
        json!([
            {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "path": path, "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "path": "2_Last", "type": format!("sentence_transformers.models.{last}")},
        ])
    }

    #[test]
    fn what_the_files_say_is_done() {
        assert_eq!(hf(&[]).unwrap(), PoolingParams::default());
        let mean = json!({"word_embedding_dimension": 64, "pooling_mode_cls_token": false,
            "pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false});
        let last = json!({"pooling_mode": "lasttoken"});
        let mode = |files: &[_]| hf(files).map(|params| (params.pooling, params.normalize));
        let alone = mode(&[("1_Pooling/config.json", mean.clone())]).unwrap();
        assert_eq!(alone, (PoolingType::Mean, true));
        let named = mode(&[
            ("modules.json", modules("Normalize", "pool")),
            ("pool/config.json", last),
            ("1_Pooling/config.json", mean.clone()),
        ]);
        assert_eq!(named.unwrap(), (PoolingType::Last, true));
        // Without a module that normalizes nothing is.
        let bare = json!([{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]);
        let bare = mode(&[("modules.json", bare), ("1_Pooling/config.json", mean)]);
        assert_eq!(bare.unwrap(), (PoolingType::Mean, false));
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        let mean = json!({"pooling_mode_mean_tokens": true});
        let both = json!({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true});
        let first = json!({"pooling_mode_cls_token": true});
        for (files, words) in [
            (
                vec![
                    ("modules.json", modules("Dense", "1_Pooling")),
                    ("1_Pooling/config.json", mean),
                ],
                "models.Dense",
            ),
            (vec![("1_Pooling/config.json", both)], "joined"),
            (vec![("1_Pooling/config.json", first)], "cls_token"),
            (vec![("modules.json", json!({"a": 1}))], "a list of modules"),
            (
                vec![(
                    "1_Pooling/config.json",
                    json!({"pooling_mode_lasttoken": 3}),
                )],
                "pooling_mode_lasttoken",
            ),
        ] {
            let refused = hf(&files).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
