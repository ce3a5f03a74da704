//! The bodies of `/v1/embeddings`: what is asked, and what is answered, which is written as it is made.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use twoclock_core::engine::Prompt;
use twoclock_core::types::PoolingParams;

use super::each::Each;
use super::fields::{self, Fields};
use super::refusal::Refusal;
use super::sampling;

/// Most texts of one body.
const MAX_INPUTS: usize = 2048;

/// A request that was understood.
#[derive(Clone, Debug)]
pub struct AskedEmbeddings {
    /// What is to become vectors.
    pub prompts: Vec<Prompt>,
    /// How.
    pub params: PoolingParams,
    /// Numbers as the bytes of little-endian f32, in base64.
    pub as_base64: bool,
}

impl AskedEmbeddings {
    /// Reads a body; what it leaves open is `params`. It may say how urgent it is where that is heeded.
    ///
    /// # Errors
    /// [`Refusal`] for the first field that means nothing.
    pub fn read(
        body: &Value,
        params: PoolingParams,
        heeds_priority: bool,
    ) -> Result<Self, Refusal> {
        let fields = Fields::of(body)?;
        let as_base64 = match fields.text("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => {
                let said = "must be float or base64";
                return Err(Refusal::of("encoding_format", said));
            }
        };
        let salt = fields.text("cache_salt")?.map(str::to_owned);
        Ok(Self {
            prompts: inputs(&fields)?,
            params: PoolingParams {
                dimensions: fields.count("dimensions")?.or(params.dimensions),
                cache_salt: salt,
                priority: sampling::priority(&fields, heeds_priority)?,
                ..params
            },
            as_base64,
        })
    }
}

fn inputs(fields: &Fields<'_>) -> Result<Vec<Prompt>, Refusal> {
    let refuse = |said: String| Err(Refusal::of("input", said));
    let must = "must be a text, a list of texts, token ids, or a list of lists of token ids";
    let one = |item: &Value| match item {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(Prompt::Text(text.clone())),
        item => fields::ids(item).map(Prompt::TokenIds),
    };
    let prompts = match fields.get("input") {
        Some(value @ Value::Array(list)) if !list.is_empty() => match fields::ids(value) {
            Some(ids) => Some(vec![Prompt::TokenIds(ids)]),
            None if list.len() > MAX_INPUTS => {
                let n = list.len();
                return refuse(format!("has {n} texts, but {MAX_INPUTS} are the most"));
            }
            None => list.iter().map(one).collect(),
        },
        Some(value @ Value::String(_)) => one(value).map(|prompt| vec![prompt]),
        _ => None,
    };
    match prompts {
        Some(prompts) => Ok(prompts),
        None => refuse(format!("{must}, and none of them empty")),
    }
}

/// The answer: a vector for each text, and the tokens of all. It is written as the body.
#[derive(Clone, Copy, Debug)]
pub struct Embeddings<'a> {
    /// Whose.
    pub model: &'a str,
    /// Of each text.
    pub vectors: &'a [Vec<f32>],
    /// Of all texts.
    pub num_tokens: usize,
    /// As [`AskedEmbeddings::as_base64`].
    pub as_base64: bool,
}

impl Serialize for Embeddings<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &Self {
            model,
            vectors,
            num_tokens,
            as_base64,
        } = self;
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("object", "list")?;
        body.serialize_entry("model", model)?;
        let data = Each(|| {
            let placed = vectors.iter().enumerate();
            placed.map(|(index, values)| Embedding {
                object: "embedding",
                index,
                embedding: match as_base64 {
                    true => Numbers::Bytes(base64(values)),
                    false => Numbers::Floats(values),
                },
            })
        });
        body.serialize_entry("data", &data)?;
        let usage = json!({"prompt_tokens": num_tokens, "total_tokens": num_tokens});
        body.serialize_entry("usage", &usage)?;
        body.end()
    }
}

#[derive(Serialize)]
struct Embedding<'a> {
    object: &'static str,
    index: usize,
    embedding: Numbers<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Numbers<'a> {
    Floats(&'a [f32]),
    Bytes(String),
}

fn base64(values: &[f32]) -> String {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}
