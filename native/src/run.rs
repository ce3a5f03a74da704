//! The `run` command: one prompt and its answer, or a conversation.

use std::cell::RefCell;

use anyhow::bail;
use twoclock_core::chat::{ChatSession, Message};
use twoclock_core::config::{TokenKind, Vocabulary};
use twoclock_core::engine::Prompt;
use twoclock_core::text::{ChatTemplate, TextError, Tokenizer};
use twoclock_core::types::{FinishReason, SamplingParams, TokenId};
use twoclock_core::weights::Checkpoint;

use crate::answer::{answer, as_json};
use crate::bad_words::bad_words;
use crate::conversation;
use crate::engine::{self, EngineOptions};
use crate::form;
use crate::host_time;
use crate::interrupt;
use crate::output;
use crate::report::Reporter;
use crate::store::Store;

/// What is asked of the model.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A text.
    Text(String),
    /// Ids, as they are.
    Ids(Vec<TokenId>),
    /// A conversation on the terminal.
    Conversation,
}

/// How it is asked.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// What.
    pub ask: Ask,
    /// Instructions before the conversation.
    pub system: Option<String>,
    /// The text as it is, without the model's chat template.
    pub raw: bool,
    /// Print one JSON object.
    pub json: bool,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// Texts that the answer does not hold.
    pub bad_words: Vec<String>,
    /// On what.
    pub engine: EngineOptions,
}

/// Runs a model.
///
/// # Errors
/// Whatever keeps the prompt from being answered.
pub fn run(
    checkpoint: &Checkpoint,
    mut options: RunOptions,
    store: &Store,
    report: &Reporter,
) -> anyhow::Result<()> {
    // What is asked is settled before the model is loaded, so that a mistake costs no wait.
    let template = || ChatTemplate::from_assets(&checkpoint.text, Some(host_time::strftime()));
    let opening = || {
        options
            .system
            .as_ref()
            .map_or_else(ChatSession::new, ChatSession::with_system)
    };
    if checkpoint.text.chat_template.is_none() {
        match options.ask {
            Ask::Text(_) if !options.raw => bail!(
                "this model has no chat template: it goes on from a text instead of answering, which --raw asks for"
            ),
            Ask::Conversation if checkpoint.text.tokenizer.is_some() => bail!(
                "this model has no chat template, so there is no conversation with it: give it a text to go on from, with --raw -p 'Once upon a time'"
            ),
            _ => {}
        }
    }
    let no_text = checkpoint.text.tokenizer.is_none() && matches!(options.ask, Ask::Ids(_));
    let tokenizer = if no_text {
        report.note("the model's files hold no tokenizer: tokens are shown by their ids");
        numbers(checkpoint.config.vocab_size)?
    } else {
        Tokenizer::from_assets(&checkpoint.text)?
    };
    if let Some(form) = &options.sampling.structured_output {
        if no_text {
            bail!(
                "the model's files hold no tokenizer, so its answers are ids and have no form: {} cannot be asked for",
                form.name()
            );
        }
        form::check(form, &tokenizer, checkpoint.config.vocab_size)?;
    }
    options.sampling.bad_words = bad_words(&tokenizer, &options.bad_words)?;
    let prompt = match &options.ask {
        Ask::Conversation if options.json => {
            bail!("--json needs a prompt: give -p, -f or --prompt-ids");
        }
        Ask::Conversation => {
            let template = template()?;
            let mut engine = engine::load(checkpoint, tokenizer, &options.engine, store, report)?;
            let ended =
                conversation::converse(&mut engine, &template, opening(), &options.sampling);
            engine.core().runner().executor().save_pipelines();
            return ended;
        }
        Ask::Ids(ids) => Prompt::TokenIds(ids.clone()),
        Ask::Text(text) if options.raw => Prompt::Text(text.clone()),
        Ask::Text(text) => {
            let template = template()?;
            let mut session = opening();
            session.push(Message::user(text.clone()));
            Prompt::Templated(session.render(&template, &tokenizer)?)
        }
    };
    let mut engine = engine::load(checkpoint, tokenizer, &options.engine, store, report)?;
    interrupt::listen();
    // An answer nobody can read any more is not computed on.
    let unread = RefCell::new(None);
    let show = |text: &str| {
        if !options.json && unread.borrow().is_none() {
            *unread.borrow_mut() = output::print(text).err();
        }
    };
    let interrupted = || interrupt::take() || unread.borrow().is_some();
    let given = answer(
        &mut engine,
        prompt,
        options.sampling.clone(),
        interrupted,
        show,
    );
    engine.core().runner().executor().save_pipelines();
    let given = given?;
    if let Some(error) = unread.into_inner() {
        return Err(error.into());
    }
    if given.completion.finish_reason == Some(FinishReason::Abort) {
        interrupt::heed();
    }
    if options.json {
        let mut answer = as_json(&given);
        if no_text {
            answer["text"] = serde_json::Value::Null;
        }
        output::print(&format!("{answer}\n"))?;
    } else {
        output::print("\n")?;
        match given.completion.finish_reason {
            Some(FinishReason::Abort) => report.note("stopped"),
            Some(FinishReason::Length) => {
                let why = conversation::cut(&given.completion, options.sampling.max_tokens);
                report.note(&format!("cut: {why}"));
            }
            Some(FinishReason::Stop) | None => {}
        }
        report.detail(&conversation::speed(&given.completion));
    }
    Ok(())
}

/// Stands in for the tokenizer of a model whose files have none: a token is its id and a space.
fn numbers(vocab_size: usize) -> Result<Tokenizer, TextError> {
    Tokenizer::from_vocabulary(&Vocabulary {
        model: "gpt2".to_owned(),
        pre: Some("gpt-2".to_owned()),
        // A space, as byte-level vocabularies write it.
        tokens: (0..vocab_size).map(|id| format!("{id}\u{120}")).collect(),
        kinds: vec![TokenKind::Normal; vocab_size],
        ..Vocabulary::default()
    })
}
