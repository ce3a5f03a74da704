//! What the body of a chat or completion request asks: prompts and how to answer them. Unknown fields
//! are passed over; fields that ask for what there is not are refused, so that nobody believes they
//! were heeded.

use serde_json::{Map, Value, json};
use twoclock_core::engine::Prompt;
use twoclock_core::error::Error;
use twoclock_core::sched::RequestError;
use twoclock_core::text::{ChatTemplate, Tokenizer};
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::GenerationDefaults;

use super::fields::{self, Fields, Refusal};
use super::form;
use super::sampling;

/// Most answers to one body: prompts times `n`.
const MAX_ANSWERS: usize = 1024;
/// Fields of OpenAI's and vLLM's that change the answer, and are not served whatever they hold.
const UNSERVED: [&str; 11] = [
    "suffix",
    "audio",
    "allowed_token_ids",
    "logits_processors",
    "truncate_prompt_tokens",
    "prompt_embeds",
    "chat_template",
    "documents",
    "guided_whitespace_pattern",
    "structural_tag",
    "web_search_options",
];
/// Switches that change the answer, with the way they stand here.
const UNSERVED_FLAGS: [(&str, bool); 5] = [
    ("echo", false),
    ("continue_final_message", false),
    ("add_generation_prompt", true),
    ("use_beam_search", false),
    ("skip_special_tokens", true),
];
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
}

/// A request that was understood.
#[derive(Clone, Debug)]
pub struct Asked {
    /// For what.
    pub endpoint: Endpoint,
    /// The model it names, whatever model serves.
    pub model: Option<String>,
    /// What is to be continued, each with `params.n` answers.
    pub prompts: Vec<Prompt>,
    /// How.
    pub params: SamplingParams,
    /// The field that gives the answer a form.
    form_field: Option<&'static str>,
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
        refuse_unserved(endpoint, &fields)?;
        let mut base = SamplingParams {
            temperature: 1.0,
            seed,
            ..SamplingParams::default()
        };
        serving.defaults.apply(&mut base);
        let mut params = sampling::read(&fields, base, serving.tokenizer)?;
        let form = form::read(&fields)?;
        let form_field = form.as_ref().map(|(_, field)| *field);
        params.structured_output = form.map(|(form, _)| form);
        let most = fields.count("max_tokens")?;
        let prompts = match endpoint {
            Endpoint::Chat => {
                let most = fields.count("max_completion_tokens")?.or(most);
                // Else as long as the context lets it.
                params.max_tokens = most.unwrap_or(serving.max_model_len);
                params.logprobs = chat_logprobs(&fields)?;
                vec![chat_prompt(&fields, serving)?]
            }
            Endpoint::Completions => {
                params.max_tokens = most.unwrap_or(16);
                params.logprobs = bounded(&fields, "logprobs")?;
                completion_prompts(&fields)?
            }
        };
        params.prompt_logprobs = bounded(&fields, "prompt_logprobs")?;
        if prompts.len().saturating_mul(params.n) > MAX_ANSWERS {
            let prompts = prompts.len();
            let said = format!(
                "n is {} for each of {prompts} prompts, but a body has {MAX_ANSWERS} answers at most",
                params.n
            );
            let param = if prompts > MAX_ANSWERS { "prompt" } else { "n" };
            return Err(Refusal::of(param, said));
        }
        // The engine's bound is that of the context; the number itself means no more.
        params.max_tokens = params.max_tokens.min(serving.max_model_len);
        Ok(Self {
            endpoint,
            model: fields.text("model")?.map(str::to_owned),
            prompts,
            params,
            form_field,
        })
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
        Some(Refusal::of(param, error.to_string()))
    }
}

/// Refuses what would change the answer and is not there.
fn refuse_unserved(endpoint: Endpoint, fields: &Fields<'_>) -> Result<(), Refusal> {
    let refuse = |name: &str| Err(Refusal::of(name, format!("{name} is not served yet")));
    for name in UNSERVED {
        if fields.get(name).is_some() {
            return refuse(name);
        }
    }
    for (name, served) in UNSERVED_FLAGS {
        if fields.flag(name)?.is_some_and(|flag| flag != served) {
            return refuse(name);
        }
    }
    for name in ["tools", "functions"] {
        let chooses_none = fields.get("tool_choice") == Some(&json!("none"));
        if !chooses_none && fields.list(name)?.is_some_and(|list| !list.is_empty()) {
            return refuse(name);
        }
    }
    // What each endpoint does where it is not asked.
    let adds = endpoint == Endpoint::Completions;
    if fields
        .flag("add_special_tokens")?
        .is_some_and(|flag| flag != adds)
    {
        return refuse("add_special_tokens");
    }
    let n = fields.count("n")?.unwrap_or(1);
    if fields.count("best_of")?.is_some_and(|best| best != n) {
        return refuse("best_of");
    }
    Ok(())
}

fn bounded(fields: &Fields<'_>, name: &str) -> Result<Option<usize>, Refusal> {
    let count = fields.count(name)?;
    match count.filter(|n| *n > MAX_LOGPROBS) {
        Some(n) => {
            let said = format!("{name} is {n}, but must be at most {MAX_LOGPROBS}");
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
            let said = "top_logprobs asks for log-probabilities, but logprobs is not true";
            Err(Refusal::of("top_logprobs", said))
        }
    }
}

fn chat_prompt(fields: &Fields<'_>, serving: &Serving<'_>) -> Result<Prompt, Refusal> {
    let refuse = |said: String| Refusal::of("messages", said);
    let Some(template) = serving.template else {
        return Err(refuse(
            "this model has no chat template: use /v1/completions".into(),
        ));
    };
    let given = fields.list("messages")?.filter(|list| !list.is_empty());
    let given = given.ok_or_else(|| refuse("messages must be a list of at least one".into()))?;
    let messages = given.iter().enumerate().map(|(i, m)| message(i, m));
    let messages: Vec<Value> = messages.collect::<Result<_, _>>().map_err(refuse)?;
    let none = Map::new();
    let extra = fields.object("chat_template_kwargs")?.unwrap_or(&none);
    let rendered = template.render_prompt(&messages, true, extra, serving.tokenizer);
    Ok(Prompt::Templated(
        rendered.map_err(|e| refuse(e.to_string()))?,
    ))
}

/// One message as templates expect it: content is one text.
fn message(index: usize, message: &Value) -> Result<Value, String> {
    let object = message
        .as_object()
        .ok_or_else(|| format!("messages[{index}] must be an object"))?;
    let role = match object.get("role").and_then(Value::as_str) {
        Some("developer" | "system") => "system",
        Some(role @ ("user" | "assistant" | "tool")) => role,
        _ => {
            return Err(format!(
                "messages[{index}].role must be system, developer, user, assistant or tool"
            ));
        }
    };
    let content = match object.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let text = |part: &Value| match part.get("type").and_then(Value::as_str) {
                Some("text") => part.get("text")?.as_str().map(str::to_owned),
                _ => None,
            };
            let texts: Option<Vec<String>> = parts.iter().map(text).collect();
            texts
                .ok_or_else(|| format!("messages[{index}].content has a part that is no text"))?
                .concat()
        }
        Some(_) => {
            return Err(format!(
                "messages[{index}].content must be a string or a list of text parts"
            ));
        }
    };
    let mut whole = object.clone();
    whole.insert("role".into(), json!(role));
    whole.insert("content".into(), json!(content));
    Ok(Value::Object(whole))
}

fn completion_prompts(fields: &Fields<'_>) -> Result<Vec<Prompt>, Refusal> {
    let refuse = |said: &str| Err(Refusal::of("prompt", said));
    let must = "prompt must be a text, a list of texts, token ids, or a list of lists of token ids";
    let prompts = match fields.get("prompt") {
        Some(Value::String(text)) => vec![Prompt::Text(text.clone())],
        Some(Value::Array(list)) if !list.is_empty() => {
            let whole =
                fields::ids(&Value::Array(list.clone())).map(|ids| vec![Prompt::TokenIds(ids)]);
            let each = |item: &Value| match item {
                Value::String(text) => Some(Prompt::Text(text.clone())),
                item => fields::ids(item).map(Prompt::TokenIds),
            };
            match whole.or_else(|| list.iter().map(each).collect()) {
                Some(prompts) => prompts,
                None => return refuse(must),
            }
        }
        _ => return refuse(must),
    };
    Ok(prompts)
}
