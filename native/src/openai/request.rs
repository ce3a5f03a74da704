//! What the body of a chat or completion request asks: prompts and how to answer them. Unknown fields
//! are passed over; those that ask for what there is not are `unserved`'s.

use std::sync::Arc;

use serde_json::Value;
use twoclock_core::chat::{AnswerFormat, Tool};
use twoclock_core::engine::Prompt;
use twoclock_core::error::Error;
use twoclock_core::sched::RequestError;
use twoclock_core::text::{ChatTemplate, Tokenizer};
use twoclock_core::types::{SamplingParams, StructuredOutputError};
use twoclock_core::weights::GenerationDefaults;

use super::fields::Fields;
use super::prompts::{self, Reading};
use super::refusal::{Name, Refusal};
use super::{engine_words, form, messages, sampling, unserved};

/// Most bytes of a text that is taken apart though it may not fit the context.
const MAX_COUNTED_BYTES: usize = 1 << 20;
/// Most answers to one body: prompts times `n`.
const MAX_ANSWERS: usize = 1024;
/// Most alternatives a position reports.
const MAX_LOGPROBS: usize = 20;

/// What a body is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

impl Endpoint {
    /// The one of this path.
    pub fn of_url(url: &str) -> Option<Self> {
        match url {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            _ => None,
        }
    }

    /// The field the prompt comes in.
    pub fn prompt_field(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Completions => "prompt",
        }
    }
}

/// The model that serves.
pub struct Serving<'a> {
    /// Its tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Its chat template, where it has one.
    pub template: Option<&'a ChatTemplate>,
    /// What it recommends.
    pub defaults: &'a GenerationDefaults,
    /// Longest sequence.
    pub max_model_len: usize,
    /// Longest text of a prompt, bytes, where there is a bound.
    pub max_prompt_bytes: Option<usize>,
    /// Who asks may say how urgent that is.
    pub heeds_priority: bool,
}

impl Serving<'_> {
    /// Holds a text against the bound of prompts; one that is only counted, or cut to the context, against 1 MiB
    /// if that is more. So nobody has texts taken apart for long that are no use to him.
    ///
    /// # Errors
    /// It is longer, with the numbers.
    pub fn hold(&self, field: &str, prompt: &Prompt, is_whole: bool) -> Result<(), Refusal> {
        let most = match is_whole {
            true => self.max_prompt_bytes.unwrap_or(usize::MAX),
            false => self.most_counted(),
        };
        let bytes = prompt_bytes(prompt);
        if bytes <= most {
            return Ok(());
        }
        let said = match is_whole {
            true => format!(
                "has a text of {bytes} bytes, but {most} are the most for a context of {} tokens",
                self.max_model_len
            ),
            false => format!(
                "has a text of {bytes} bytes, but {most} are the most that is taken apart to be counted or cut"
            ),
        };
        Err(Refusal::of(field, said).code("text_too_long"))
    }

    /// Most bytes of a text that is only counted or cut.
    pub fn most_counted(&self) -> usize {
        let fits = self.max_prompt_bytes.unwrap_or(usize::MAX);
        fits.max(MAX_COUNTED_BYTES)
    }
}

/// A request that was understood.
#[derive(Clone, Debug)]
pub struct Asked {
    /// For what.
    pub endpoint: Endpoint,
    /// What is to be continued, each with `params.n` answers.
    pub prompts: Vec<Prompt>,
    /// How.
    pub params: Arc<SamplingParams>,
    /// What is said before the answers to each prompt; empty unless the body asked for that.
    pub echoes: Vec<String>,
    /// The prompts' log-probabilities are a part of the answer's own form, beside the answers.
    pub scores_prompt: bool,
    /// The answer is to come piece by piece.
    pub stream: bool,
    /// The last piece is to say what it took.
    pub include_usage: bool,
    /// What an answer may be made of.
    pub format: AnswerFormat,
    /// The field that gives the answer a form.
    form_field: Option<&'static str>,
    /// The field that the repetition penalty came in.
    penalty_field: &'static str,
    /// How the body calls what was read, where it was another protocol's.
    pub names: Vec<Name>,
}

impl Asked {
    /// Reads a body. A request without a seed gets `seed`.
    ///
    /// # Errors
    /// [`Refusal`] for the first field that means nothing.
    pub fn read(
        endpoint: Endpoint,
        body: &Value,
        serving: &Serving<'_>,
        seed: u64,
    ) -> Result<Self, Refusal> {
        let fields = Fields::of(body)?;
        unserved::refuse(&fields)?;
        let mut base = SamplingParams {
            temperature: 1.0,
            seed,
            ..SamplingParams::default()
        };
        serving.defaults.apply(&mut base);
        let mut params = sampling::read(&fields, base, serving.tokenizer)?;
        params.priority = sampling::priority(&fields, serving.heeds_priority)?;
        let mut form = form::read(&fields)?;
        let mut format = AnswerFormat::default();
        let most = fields.count("max_tokens")?.or(n_predict(&fields)?);
        let prompts = match endpoint {
            Endpoint::Chat => {
                let most = fields.count("max_completion_tokens")?.or(most);
                // Else as long as the context lets it.
                params.max_tokens = most.unwrap_or(serving.max_model_len);
                params.logprobs = chat_logprobs(&fields)?;
                let mut chat = messages::read(&fields, serving)?;
                form = form::of_chat(form, &mut chat, serving.tokenizer)?;
                format = chat.format;
                if let Some(end) = format.end_of_only_call().filter(|_| params.stop.is_empty()) {
                    params.stop = vec![end.to_owned()];
                    params.include_stop_str_in_output = true;
                }
                if format.reads_special_tokens(serving.tokenizer) {
                    params.skip_special_tokens = false;
                }
                vec![Prompt::Templated(chat.prompt)]
            }
            Endpoint::Completions => {
                params.max_tokens = most.unwrap_or(16);
                params.logprobs = bounded(&fields, "logprobs")?;
                prompts::read(&fields)?
            }
        };
        let form_field = form.as_ref().map(|(_, field)| *field);
        params.structured_output = form.map(|(form, _)| form);
        params.prompt_logprobs = bounded(&fields, "prompt_logprobs")?;
        let scores_prompt = params.prompt_logprobs.is_some();
        if prompts.len().saturating_mul(params.n) > MAX_ANSWERS {
            let prompts = prompts.len();
            let said = format!(
                "n is {} for each of {prompts} prompts, but a body has {MAX_ANSWERS} answers at most",
                params.n
            );
            let param = if prompts > MAX_ANSWERS { "prompt" } else { "n" };
            return Err(Refusal::sentence(param, said));
        }
        // The engine's bound is that of the context; the number itself means no more.
        params.max_tokens = params.max_tokens.min(serving.max_model_len);
        let room = usize::from(params.max_tokens > 0);
        let reading = Reading::read(endpoint, &fields, serving, room)?;
        if reading.echoes() {
            // What is said again is scored as the answer is.
            params.prompt_logprobs = params.prompt_logprobs.max(params.logprobs);
        }
        for prompt in &prompts {
            serving.hold(endpoint.prompt_field(), prompt, !reading.cuts())?;
        }
        let (prompts, echoes) = reading
            .apply(prompts, serving.tokenizer)
            .map_err(|e| Refusal::sentence(endpoint.prompt_field(), e))?;
        let (stream, include_usage) = streaming(&fields)?;
        // Which model that is is settled before its body is read.
        fields.text("model")?;
        Ok(Self {
            endpoint,
            prompts,
            params: Arc::new(params),
            echoes,
            scores_prompt,
            stream,
            include_usage,
            format,
            form_field,
            penalty_field: sampling::penalty_field(&fields),
            names: Vec::new(),
        })
    }

    /// What answers to each prompt say first, if its log-probabilities are told with theirs; else none.
    pub fn scored_echoes(&self) -> &[String] {
        match self.params.logprobs {
            Some(_) => &self.echoes,
            None => &[],
        }
    }

    /// About the bytes, as text, of what is kept beside the prompts until all is answered: what is said before the
    /// answers, and the tools with their schemas.
    pub fn num_bytes(&self) -> usize {
        let echoes: usize = self.echoes.iter().map(String::len).sum();
        let tools = self.format.tools.iter().flat_map(|offered| &*offered.tools);
        let tool_bytes = |tool: &Tool| {
            let schema = tool
                .parameters
                .as_ref()
                .map_or(0, |schema| schema.to_string().len());
            tool.name.len() + schema
        };
        echoes + tools.map(tool_bytes).sum::<usize>()
    }

    /// What the engine says against this request; `None` where it is no fault of the request.
    pub fn refusal(&self, error: &Error) -> Option<Refusal> {
        let prompt = self.endpoint.prompt_field();
        let param = match error {
            Error::Text(_) => prompt,
            Error::Request(error) => match error {
                RequestError::InvalidParameter { name, .. } => name,
                RequestError::TokenOutOfRange { what, .. } if *what != "the prompt" => what,
                RequestError::StructuredOutput(_) => self.form_field.unwrap_or("response_format"),
                RequestError::InvalidSample { .. } | RequestError::MissingOutput { .. } => {
                    return None;
                }
                _ => prompt,
            },
            _ => return None,
        };
        let refusal = match error {
            Error::Request(RequestError::InvalidParameter { value, must, .. }) => {
                Refusal::of(param, format!("is {value}, but must be {must}"))
            }
            Error::Request(RequestError::StructuredOutput(error)) => form_refusal(param, error),
            error => engine_words::refusal(param, error),
        };
        let refusal = refusal.renamed(&[("repetition_penalty", self.penalty_field)]);
        Some(refusal.renamed(&self.names))
    }
}

/// What the engine says of a form, for which it has one name wherever it comes from.
fn form_refusal(param: &str, error: &StructuredOutputError) -> Refusal {
    use StructuredOutputError::{NothingAllowed, Refused, TooComplex, TooLarge};
    let said = error.to_string();
    match error {
        Refused { name, .. }
        | TooLarge { name, .. }
        | TooComplex { name, .. }
        | NothingAllowed { name, .. } => {
            let its_own = format!("structured_output.{name}: ");
            Refusal::because(param, said.strip_prefix(&its_own).unwrap_or(&said))
        }
        _ => Refusal::sentence(param, said),
    }
}

/// llama.cpp's name for `max_tokens`; below 0 it is as much as the context holds.
fn n_predict(fields: &Fields<'_>) -> Result<Option<usize>, Refusal> {
    let most = fields.signed("n_predict")?;
    Ok(most.map(|most| usize::try_from(most).unwrap_or(usize::MAX)))
}

/// Whether the answer comes piece by piece, and says what it took.
fn streaming(fields: &Fields<'_>) -> Result<(bool, bool), Refusal> {
    let stream = fields.flag("stream")?.unwrap_or(false);
    let Some(options) = fields.object("stream_options")? else {
        return Ok((stream, false));
    };
    let include_usage = match options.get("include_usage") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(_) => {
            let said = "must be true or false";
            return Err(Refusal::of("stream_options.include_usage", said));
        }
    };
    Ok((stream, include_usage))
}

/// Bytes of a prompt's text.
fn prompt_bytes(prompt: &Prompt) -> usize {
    match prompt {
        Prompt::Text(text) => text.len(),
        Prompt::Templated(rendered) => rendered.text.len(),
        Prompt::TokenIds(_) => 0,
    }
}

fn bounded(fields: &Fields<'_>, name: &str) -> Result<Option<usize>, Refusal> {
    let count = fields.count(name)?;
    match count.filter(|n| *n > MAX_LOGPROBS) {
        Some(n) => {
            let said = format!("is {n}, but must be at most {MAX_LOGPROBS}");
            Err(Refusal::of(name, said))
        }
        None => Ok(count),
    }
}

fn chat_logprobs(fields: &Fields<'_>) -> Result<Option<usize>, Refusal> {
    let top = bounded(fields, "top_logprobs")?;
    match (fields.flag("logprobs")?.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            let said = "asks for log-probabilities, but logprobs is not true";
            Err(Refusal::of("top_logprobs", said))
        }
    }
}
