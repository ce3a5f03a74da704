//! A conversation on the terminal: a line is a message, Ctrl-C stops an answer, Ctrl-D ends it.

use std::io::Write;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use twoclock_core::chat::{ChatSession, Message};
use twoclock_core::engine::{Completion, Prompt};
use twoclock_core::text::ChatTemplate;
use twoclock_core::types::{FinishReason, SamplingParams};

use crate::answer::answer;
use crate::engine::HostEngine;
use crate::interrupt;

/// Talks until the person is done.
///
/// # Errors
/// The terminal or the device fails. A message that cannot be answered is taken back, and the
/// conversation goes on.
pub fn converse(
    engine: &mut HostEngine,
    template: &ChatTemplate,
    mut session: ChatSession,
    sampling: &SamplingParams,
) -> anyhow::Result<()> {
    let mut editor = DefaultEditor::new()?;
    eprintln!("Ctrl-C stops an answer, Ctrl-D ends the conversation.");
    interrupt::listen();
    loop {
        let line = match editor.readline("> ") {
            Ok(line) if line.trim().is_empty() => continue,
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                eprintln!("Ctrl-D ends the conversation.");
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        // Only a convenience.
        let _ = editor.add_history_entry(&line);
        let before = session.clone();
        session.push(Message::user(line));
        let prompt = Prompt::Templated(session.render(template)?);
        interrupt::take();
        let mut out = std::io::stdout().lock();
        let show = |text: &str| {
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        };
        match answer(engine, prompt, sampling.clone(), interrupt::take, show) {
            Ok(given) => {
                let stopped = given.completion.finish_reason == Some(FinishReason::Abort);
                println!("{}", if stopped { " …" } else { "" });
                session.push(Message::assistant(given.text));
            }
            Err(twoclock_core::error::Error::Request(e)) => {
                eprintln!("{e}");
                session = before;
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// One line on how fast an answer came.
pub fn speed(completion: &Completion) -> String {
    let tokens = completion.token_ids.len();
    let prompt = completion.prompt_token_ids.len();
    let metrics = &completion.metrics;
    let ttft = metrics.ttft().map_or(0.0, |t| t.as_secs_f64());
    match metrics.tpot() {
        Some(tpot) => format!(
            "{prompt} prompt tokens, first token after {ttft:.2} s; {tokens} tokens, {:.1} a second",
            1.0 / tpot.as_secs_f64()
        ),
        None => format!("{prompt} prompt tokens, {tokens} tokens after {ttft:.2} s"),
    }
}
