//! One prompt answered on the calling thread: text as it becomes certain, Ctrl-C, and the answer as
//! JSON. Knows the engine and no device, model file or terminal.

use pollster::block_on;
use serde_json::{Value, json};
use twoclock_core::clock::Clock;
use twoclock_core::engine::{Completion, LlmEngine, Prompt, RequestMetrics, TextCompletion};
use twoclock_core::error::Error;
use twoclock_core::runner::ExecuteModel;
use twoclock_core::types::{SamplingParams, StopReason, TokenLogprobs};

/// Answers `prompt`; `on_text` gets the answer's text piece by piece. When `interrupted` says so,
/// between two steps, the answer ends there, with what it has and reason `abort`.
///
/// # Errors
/// The prompt is refused, or the device fails; the request is then given up.
pub fn answer<R: ExecuteModel, C: Clock>(
    engine: &mut LlmEngine<R, C>,
    prompt: Prompt,
    params: SamplingParams,
    interrupted: impl Fn() -> bool,
    mut on_text: impl FnMut(&str),
) -> Result<TextCompletion, Error> {
    let ids = prompt.into_token_ids(engine.tokenizer())?;
    let arrival = RequestMetrics::new(engine.core().clock().now());
    let id = engine.add_request(Prompt::TokenIds(ids.clone()), params)?;
    let mut answer = TextCompletion {
        completion: Completion::new(id, 0, ids, arrival),
        text: String::new(),
    };
    while answer.completion.finish_reason.is_none() {
        let outputs = if interrupted() {
            engine.abort(id)
        } else {
            match block_on(engine.step()) {
                Ok(outputs) => outputs,
                Err(error) => {
                    engine.abort(id);
                    return Err(error);
                }
            }
        };
        for output in outputs {
            if output.output.request_id != id {
                continue;
            }
            on_text(&output.text);
            answer.text.push_str(&output.text);
            answer.completion.take(output.output)?;
        }
    }
    Ok(answer)
}

/// The answer for programs. Log-probabilities are natural logarithms, times milliseconds; `null`
/// where there is none, as of the first token of a prompt.
pub fn as_json(answer: &TextCompletion) -> Value {
    let completion = &answer.completion;
    let milliseconds = |time: Option<std::time::Duration>| time.map(|t| t.as_secs_f64() * 1e3);
    let logprobs: Vec<_> = completion.logprobs.iter().map(logprobs_as_json).collect();
    let of_prompt = match completion.prompt_logprobs.as_slice() {
        [] => Value::Null,
        rest => std::iter::once(Value::Null)
            .chain(rest.iter().map(logprobs_as_json))
            .collect(),
    };
    json!({
        "prompt_ids": completion.prompt_token_ids,
        "prompt_logprobs": of_prompt,
        "ids": completion.token_ids,
        "text": answer.text,
        "logprobs": logprobs,
        "finish_reason": completion.finish_reason.map(|reason| reason.as_str()),
        "stop_reason": completion.stop_reason.as_ref().map(stop_reason_as_json),
        "ttft_ms": milliseconds(completion.metrics.ttft()),
        "tpot_ms": milliseconds(completion.metrics.tpot()),
    })
}

/// A stop id as a number, a stop string as a text.
pub fn stop_reason_as_json(reason: &StopReason) -> Value {
    match reason {
        StopReason::TokenId(id) => json!(id),
        StopReason::Text(text) => json!(text),
    }
}

fn logprobs_as_json(position: &TokenLogprobs) -> Value {
    let top: Vec<_> = position
        .top
        .iter()
        .map(|(id, logprob)| json!({"id": id, "logprob": logprob}))
        .collect();
    json!({"logprob": position.logprob, "top": top})
}
