//! A conversation on the terminal: a line is a message, Ctrl-C stops an answer, Ctrl-D ends it.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IsTerminal};

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use twoclock_core::chat::{ChatSession, Message};
use twoclock_core::engine::{Completion, Prompt};
use twoclock_core::text::ChatTemplate;
use twoclock_core::types::{FinishReason, SamplingParams};

use crate::answer::answer;
use crate::engine::HostEngine;
use crate::flags;
use crate::interrupt;
use crate::output;
use crate::text_input::read_line;

/// Talks until the person is done.
///
/// # Errors
/// The terminal, standard output or the device fails. A message that cannot be answered is taken
/// back, and the conversation goes on.
pub fn converse(
    engine: &mut HostEngine,
    template: &ChatTemplate,
    mut session: ChatSession,
    sampling: &SamplingParams,
) -> anyhow::Result<()> {
    let mut lines = Lines::new()?;
    output::note(
        "Ctrl-C stops an answer, /clear begins anew, /help says more, Ctrl-D ends the conversation.",
    );
    interrupt::listen();
    let opening = session.clone();
    loop {
        let line = match lines.next() {
            Ok(line) if line.trim().is_empty() => continue,
            Ok(line) => match Said::of(&line) {
                Said::Message => line,
                Said::Clear => {
                    session = opening.clone();
                    output::note("the conversation begins anew");
                    continue;
                }
                Said::Help => {
                    output::note(HELP);
                    continue;
                }
                Said::Exit => return Ok(()),
                Said::Unknown(command) => {
                    output::note(&format!(
                        "there is no {}: /help shows what there is; a message that begins with / has a space before it",
                        output::one_line(command)
                    ));
                    continue;
                }
            },
            Err(ReadlineError::Interrupted) => {
                output::note("Ctrl-D ends the conversation.");
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                output::note("that line is no UTF-8 text and was not taken");
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        let before = session.clone();
        session.push(Message::user(line));
        let prompt = Prompt::Templated(session.render(template, engine.tokenizer())?);
        interrupt::take();
        let unread = RefCell::new(None);
        let show = |text: &str| {
            if unread.borrow().is_none() {
                *unread.borrow_mut() = output::print(text).err();
            }
        };
        let interrupted = || interrupt::take() || unread.borrow().is_some();
        let given = answer(engine, prompt, sampling.clone(), interrupted, show);
        if let Some(error) = unread.into_inner() {
            return Err(error.into());
        }
        match given {
            Ok(given) => {
                output::print(&end_mark(&given.completion, sampling.max_tokens))?;
                session.push(Message::assistant(given.text));
            }
            Err(twoclock_core::error::Error::Request(e)) => {
                let said = flags::named(&e.to_string());
                output::note(&format!("{said} (/clear begins anew)"));
                session = before;
            }
            Err(e) => return Err(e.into()),
        }
    }
}

const HELP: &str = "\
/clear        forget what was said and begin anew
/exit, /bye   end the conversation, as Ctrl-D does
/help         this
Ctrl-C stops an answer. Each other line is a message; one that begins with / has a space before it.";

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
enum Said<'a> {
    Message,
    Clear,
    Help,
    Exit,
    /// A command that there is not.
    Unknown(&'a str),
}

impl<'a> Said<'a> {
    fn of(line: &'a str) -> Self {
        match line.trim_end() {
            "/clear" => Self::Clear,
            "/help" | "/?" => Self::Help,
            "/exit" | "/bye" | "/quit" => Self::Exit,
            other if other.starts_with('/') => {
                Self::Unknown(other.split_whitespace().next().unwrap_or(other))
            }
            _ => Self::Message,
        }
    }
}

/// Where messages come from.
enum Lines {
    /// A person at a terminal; boxed, as an editor is large.
    Terminal(Box<DefaultEditor>),
    /// Another program or a file.
    Input,
}

impl Lines {
    fn new() -> Result<Self, ReadlineError> {
        Ok(if io::stdin().is_terminal() {
            Self::Terminal(Box::new(DefaultEditor::new()?))
        } else {
            Self::Input
        })
    }

    fn next(&mut self) -> Result<String, ReadlineError> {
        match self {
            Self::Terminal(editor) => {
                let line = editor.readline("> ")?;
                // Only a convenience.
                let _ = editor.add_history_entry(&line);
                Ok(line)
            }
            Self::Input => read_line()?.ok_or(ReadlineError::Eof),
        }
    }
}

/// What follows an answer: whether it is whole.
pub fn end_mark(completion: &Completion, max_tokens: usize) -> String {
    match completion.finish_reason {
        Some(FinishReason::Abort) => " … [stopped]\n".to_owned(),
        Some(FinishReason::Length) => format!(" … [cut: {}]\n", cut(completion, max_tokens)),
        Some(FinishReason::Stop) | None => "\n".to_owned(),
    }
}

/// Which limit an answer met.
pub fn cut(completion: &Completion, max_tokens: usize) -> &'static str {
    if completion.token_ids.len() >= max_tokens {
        "it has the most tokens an answer may have (-n)"
    } else {
        "the context is full (--max-model-len)"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_never_a_message() {
        for (line, said) in [
            ("/clear ", Said::Clear),
            ("/help", Said::Help),
            ("/exit", Said::Exit),
            ("/bye", Said::Exit),
            ("/nothing at all", Said::Unknown("/nothing")),
            ("/", Said::Unknown("/")),
            (" /usr is a folder", Said::Message),
            ("1/2", Said::Message),
        ] {
            assert_eq!(Said::of(line), said, "{line}");
        }
    }
}
