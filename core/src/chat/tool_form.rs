//! Calls that are asked for rather than left to the model: the form an answer then has, as a grammar
//! of its style's syntax. Knows no engine; what a grammar may be is `sample::grammar`'s.

use std::fmt::Write;

use serde_json::{Value, json};

use super::answer::{AnswerFormat, OfferedTools};
use super::tagged_form::{check_tagged, write_tagged_call};
use super::tool_error::ToolError;
use super::tool_style::{ReasoningStyle, ToolStyle};
use crate::text::Tokenizer;
use crate::types::StructuredOutput;

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// JSON Schema of its arguments, an object; `None` takes any.
    pub parameters: Option<Value>,
}

impl Tool {
    /// Whether calls of it in this style come back as they were written.
    ///
    /// # Errors
    /// [`ToolError`] where a name, or a text that is listed, would not.
    pub fn check(&self, style: ToolStyle) -> Result<(), ToolError> {
        // JSON escapes what stands in it.
        style.tags().map_or(Ok(()), |tags| check_tagged(self, tags))
    }
}

/// Whether tools are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// They are not.
    None,
    /// As the model likes.
    #[default]
    Auto,
    /// At least one is.
    Required,
    /// This one is.
    Named(String),
}

/// The form of an answer that calls, as `choice` wants it, one of `tools`, or that has the form
/// `otherwise` (a JSON schema); none where both are left to the model.
///
/// Thoughts that the template lets the model have come before it.
///
/// # Errors
/// [`ToolError`] of a tool that the form cannot be made of.
pub fn form_of_answer(
    tools: &[Tool],
    choice: &ToolChoice,
    format: &AnswerFormat,
    otherwise: Option<&Value>,
    tokenizer: &Tokenizer,
) -> Result<Option<StructuredOutput>, ToolError> {
    let offered = format
        .tools
        .as_ref()
        .filter(|_| *choice != ToolChoice::None);
    let called: Vec<&Tool> = match choice {
        _ if offered.is_none() => Vec::new(),
        ToolChoice::Named(name) => tools.iter().filter(|tool| tool.name == *name).collect(),
        _ => tools.iter().collect(),
    };
    let is_free = called.is_empty() || *choice == ToolChoice::Auto;
    if is_free && otherwise.is_none() {
        return Ok(None);
    }
    let mut grammar = String::from("start: ");
    let thoughts = format.reasoning.map(|reasoning| {
        grammar.push_str(match reasoning.is_open {
            true => "thoughts ",
            false => "(opened thoughts)? ",
        });
        reasoning.style
    });
    grammar.push_str(match (called.is_empty(), otherwise.is_some()) {
        (true, _) => "otherwise\n",
        (false, true) => "(calls | otherwise)\n",
        (false, false) => "calls\n",
    });
    let mark = |text: &str| terminal(text, tokenizer);
    if let Some(offered) = offered.filter(|_| !called.is_empty()) {
        write_calls(&mut grammar, offered, called.len(), &mark);
        for (n, tool) in called.iter().enumerate() {
            write_call(&mut grammar, offered.style, n, tool, &mark)?;
        }
    }
    if let Some(schema) = otherwise {
        line(&mut grammar, &format!("otherwise: %json {schema}"));
    }
    if let Some(style) = thoughts {
        write_thoughts(&mut grammar, style, &mark);
    }
    Ok(Some(StructuredOutput::Grammar(grammar)))
}

pub(super) fn line(grammar: &mut String, text: &str) {
    grammar.push_str(text);
    grammar.push('\n');
}

/// How calls follow each other.
fn write_calls(
    grammar: &mut String,
    offered: &OfferedTools,
    num_tools: usize,
    mark: &impl Fn(&str) -> String,
) {
    let style = offered.style;
    let opening = mark(style.opening());
    let (before, between, after) = match style {
        ToolStyle::Hermes | ToolStyle::Qwen3Coder | ToolStyle::Glm => {
            (String::new(), "\"\\n\" ".to_owned(), String::new())
        }
        ToolStyle::Llama3 => (String::new(), "\"; \" ".to_owned(), String::new()),
        ToolStyle::Mistral => (
            format!("{opening} \"[\" "),
            "\", \" ".to_owned(),
            " \"]\"".to_owned(),
        ),
        ToolStyle::MistralArgs => Default::default(),
    };
    let more = match offered.parallel {
        true => format!(" ({between}call)*"),
        false => String::new(),
    };
    line(grammar, &format!("calls: {before}call{more}{after}"));
    let all: Vec<String> = (0..num_tools).map(|n| format!("call_{n}")).collect();
    line(grammar, &format!("call: {}", all.join(" | ")));
}

/// One tool's call.
fn write_call(
    grammar: &mut String,
    style: ToolStyle,
    n: usize,
    tool: &Tool,
    mark: &impl Fn(&str) -> String,
) -> Result<(), ToolError> {
    if let Some(tags) = style.tags() {
        return write_tagged_call(grammar, tags, n, tool, mark);
    }
    let name = Value::from(tool.name.as_str());
    let beginning = format!("{{\"name\": {name}, \"{}\": ", style.arguments_key());
    let begin = Value::from(beginning);
    let whole = format!("{begin} arguments_{n} \"}}\"");
    let call = match style {
        ToolStyle::Hermes => format!(
            "{} \"\\n\" {whole} \"\\n\" {}",
            mark("<tool_call>"),
            mark("</tool_call>")
        ),
        ToolStyle::MistralArgs => format!(
            "{} {name} {} arguments_{n}",
            mark(style.opening()),
            mark("[ARGS]")
        ),
        _ => whole,
    };
    let schema = match &tool.parameters {
        Some(schema) => schema.clone(),
        None => json!({"type": "object"}),
    };
    let _ = writeln!(grammar, "call_{n}: {call}\narguments_{n}: %json {schema}");
    Ok(())
}

/// Thoughts up to their closing mark, and the space behind them.
fn write_thoughts(grammar: &mut String, style: ReasoningStyle, mark: &impl Fn(&str) -> String) {
    line(grammar, &format!("opened: {}", mark(style.opening())));
    let closing = mark(style.closing());
    // A special token is no text, so text ends before it.
    match closing.starts_with('"') {
        true => {
            line(grammar, "thoughts: thought SPACE");
            line(grammar, &format!("thought[suffix={closing}]: /(?s:.*)/"));
        }
        false => line(grammar, &format!("thoughts: /(?s:.*)/ {closing} SPACE")),
    }
    line(grammar, "SPACE: /\\n{0,2}/");
}

/// A mark as the grammar spells it: a text, or the special token that it is.
fn terminal(text: &str, tokenizer: &Tokenizer) -> String {
    match tokenizer.id(text).filter(|&id| tokenizer.is_special(id)) {
        Some(id) => format!("<[{id}]>"),
        None => Value::from(text).to_string(),
    }
}
