//! The `embed` command: texts as vectors.

use anyhow::{Context, bail};
use pollster::block_on;
use serde_json::{Value, json};
use twoclock_core::engine::{Embedding, Prompt};
use twoclock_core::types::PoolingParams;
use twoclock_core::weights::Checkpoint;

use crate::cli::{EmbedArgs, Pooling};
use crate::engine::HostEngine;
use crate::text_input::{MAX_TEXT, read_stdin, read_text};

/// Texts computed together: enough that a step is full, and few enough that they come as they are
/// done.
pub const TOGETHER: usize = 32;

/// The texts that are asked for: each `-p`, or each line of a file.
///
/// # Errors
/// A file that cannot be read; no text, or an empty one.
pub fn texts(args: &EmbedArgs) -> anyhow::Result<Vec<String>> {
    let Some(file) = &args.file else {
        return Ok(args.text.clone());
    };
    let lines = match file.as_os_str() == "-" {
        true => read_stdin(MAX_TEXT)?,
        false => read_text(file)?,
    };
    let texts: Vec<String> = lines.lines().map(str::to_owned).collect();
    let name = file.display();
    if texts.is_empty() {
        bail!("{name} holds no text: give one a line");
    }
    if let Some(line) = texts.iter().position(String::is_empty) {
        bail!("line {} of {name} is empty: give a text a line", line + 1);
    }
    Ok(texts)
}

/// How texts become vectors: what was typed; where it was not, what the model's files say.
///
/// # Errors
/// The files ask for what is not computed here, and it was not typed what else.
pub fn pooling_params(args: &EmbedArgs, checkpoint: &Checkpoint) -> anyhow::Result<PoolingParams> {
    let mut params = match args.pooling {
        Some(pooling) => PoolingParams {
            pooling: pooling.into(),
            normalize: checkpoint.pooling.normalize.unwrap_or(true),
            ..PoolingParams::default()
        },
        None => {
            let params = checkpoint.pooling.params();
            params.context(
                "the model's own embeddings cannot be computed; --pooling asks for others",
            )?
        }
    };
    params.normalize &= !args.no_normalize;
    params.dimensions = args.dimensions;
    Ok(params)
}

/// Embeds the texts, and shows each vector as soon as it and those before it are there.
///
/// # Errors
/// A text that is refused, or the device's; what `show` says.
pub fn embed(
    engine: &mut HostEngine,
    texts: &[String],
    params: &PoolingParams,
    mut show: impl FnMut(usize, &Embedding) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for (batch, texts) in texts.chunks(TOGETHER).enumerate() {
        let prompts = texts.iter().map(|text| {
            let prompt = Prompt::Text(text.clone());
            (prompt, params.clone())
        });
        let embeddings = block_on(engine.embed(prompts.collect()))?;
        for (place, embedding) in embeddings.into_iter().enumerate() {
            let index = batch * TOGETHER + place;
            let embedding = embedding.with_context(|| format!("text {}", index + 1))?;
            show(index, &embedding)?;
        }
    }
    Ok(())
}

/// For people: a line of numbers.
pub fn as_text(embedding: &Embedding) -> String {
    let numbers = embedding.values.iter().map(ToString::to_string);
    numbers.collect::<Vec<_>>().join(" ")
}

/// For programs: an entry of OpenAI's list of embeddings, with what it took.
pub fn as_json(index: usize, embedding: &Embedding) -> Value {
    json!({
        "object": "embedding",
        "index": index,
        "embedding": embedding.values,
        "usage": {
            "prompt_tokens": embedding.num_prompt_tokens,
            "total_tokens": embedding.num_prompt_tokens,
        },
    })
}

impl From<Pooling> for twoclock_core::types::PoolingType {
    fn from(pooling: Pooling) -> Self {
        match pooling {
            Pooling::Mean => Self::Mean,
            Pooling::Last => Self::Last,
        }
    }
}
