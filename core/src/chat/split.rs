//! An answer's text taken apart as it comes: thoughts, what is said, and calls of tools. The whole
//! answer and its stream go the same way, so that both say the same. Knows no protocol.

use std::sync::Arc;

use super::answer::{AnswerEvent, AnswerFormat};
use super::call_reader::CallReader;
use super::json_call::JsonCall;
use super::progress::Progress;
use super::tagged_reader::TaggedReader;
use super::tool_style::{ReasoningStyle, ToolStyle};

/// Longest name of a call outside its JSON, bytes, with what stands between name and arguments.
const MAX_HEAD: usize = 256;

/// Where an answer stands.
#[derive(Clone, Debug)]
enum State {
    /// Nothing but space has come, or nothing since its thoughts.
    Start {
        may_think: bool,
    },
    Reasoning,
    Content,
    /// Behind the mark that opens calls; holds the mark and what followed.
    Opened(String),
    /// Behind such a mark, in a name that is no JSON.
    Head {
        opening: String,
        head: String,
    },
    Call {
        opening: String,
        reader: Box<CallReader>,
    },
    /// Behind a call; its closing mark may come.
    Called {
        may_close: bool,
    },
}

/// Takes an answer apart while it comes. What may become a mark is held back until it is certain;
/// space beside thoughts and calls is dropped. A call that is none, or of a tool that was not offered,
/// comes out as content. Where an answer may call once, nothing is told behind its call. However the text is cut
/// into pieces, the events, joined, are the same.
#[derive(Clone, Debug)]
pub struct AnswerSplitter {
    format: AnswerFormat,
    state: State,
    /// Space that is held back, and belongs to the text if more of it follows.
    space: String,
    /// What may become a mark.
    mark: String,
    /// The space that is held back follows thoughts or a call.
    drops_space: bool,
    /// Inside a list of calls.
    in_list: bool,
    num_calls: usize,
    /// The only call that is allowed has ended.
    is_over: bool,
    events: Vec<AnswerEvent>,
}

impl AnswerSplitter {
    /// An answer not yet begun.
    pub fn new(format: AnswerFormat) -> Self {
        let is_open = format.reasoning.is_some_and(|r| r.is_open);
        Self {
            state: match is_open {
                true => State::Reasoning,
                false => State::Start { may_think: true },
            },
            format,
            space: String::new(),
            mark: String::new(),
            drops_space: is_open,
            in_list: false,
            num_calls: 0,
            is_over: false,
            events: Vec::new(),
        }
    }

    /// What becomes certain with more of the text.
    pub fn push(&mut self, text: &str) -> Vec<AnswerEvent> {
        if self.format.is_plain() {
            self.say(text);
        } else {
            for c in text.chars() {
                if self.is_over {
                    break;
                }
                self.step(c);
            }
        }
        std::mem::take(&mut self.events)
    }

    /// What was held back, when no more comes.
    pub fn finish(&mut self) -> Vec<AnswerEvent> {
        if self.is_over {
            return Vec::new();
        }
        match std::mem::replace(&mut self.state, State::Content) {
            State::Reasoning => {
                let held = self.take_held();
                self.think(&held);
            }
            State::Start { .. } | State::Content | State::Called { .. } => {
                let held = self.take_held();
                self.say(&held);
            }
            State::Opened(opening) => self.say_no_call(&opening, ""),
            State::Head { opening, head } => self.say_no_call(&opening, &head),
            State::Call { opening, reader } => self.end_call(&opening, *reader),
        }
        std::mem::take(&mut self.events)
    }

    /// Whether nothing more is told, whatever comes: the answer may call once, and its call is whole.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// How many calls have begun.
    pub fn num_calls(&self) -> usize {
        self.num_calls
    }

    fn step(&mut self, c: char) {
        match std::mem::replace(&mut self.state, State::Content) {
            State::Opened(opening) => self.step_opened(opening, c),
            State::Head { opening, head } => self.step_head(opening, head, c),
            State::Call { opening, reader } => self.step_call(opening, reader, c),
            state => {
                self.state = state;
                self.step_text(c);
            }
        }
    }

    /// In text where marks may come.
    fn step_text(&mut self, c: char) {
        if self.mark.is_empty() && c.is_whitespace() {
            self.space.push(c);
            return;
        }
        self.mark.push(c);
        while !self.mark.is_empty() {
            if self.enter_mark() {
                return;
            }
            if self.marks().any(|mark| mark.starts_with(&self.mark)) {
                return;
            }
            // Its first character is text; the rest may still begin a mark.
            let rest = self
                .mark
                .split_off(self.mark.chars().next().map_or(0, char::len_utf8));
            let first = std::mem::replace(&mut self.mark, rest);
            let is_space = first.chars().all(char::is_whitespace);
            if is_space {
                self.space.push_str(&first);
                continue;
            }
            let text = self.take_space() + &first;
            match self.state {
                State::Reasoning => self.think(&text),
                _ => {
                    self.say(&text);
                    self.state = State::Content;
                    self.in_list = false;
                }
            }
        }
    }

    /// The marks that may come where the answer stands.
    fn marks(&self) -> impl Iterator<Item = &'static str> {
        let thoughts = self.format.reasoning.map(|reasoning| reasoning.style);
        // Where only one call is allowed, what looks like another is text.
        let tools = self.format.tools.as_ref();
        let calls = tools.filter(|tools| tools.parallel || self.num_calls == 0);
        let opening = calls.map(|tools| tools.style.opening());
        let marks = match self.state {
            State::Reasoning => [thoughts.map(ReasoningStyle::closing), None, None],
            State::Start { may_think } => {
                let begin = thoughts.filter(|_| may_think);
                let is_call = calls.is_some_and(|tools| tools.style == ToolStyle::Llama3);
                let bare = is_call.then_some("{");
                [begin.map(ReasoningStyle::opening), opening, bare]
            }
            State::Called { may_close } => {
                let style = tools.map(|tools| tools.style);
                let closing = style.and_then(ToolStyle::closing).filter(|_| may_close);
                let between = match style {
                    Some(ToolStyle::Mistral) if self.in_list => [Some(","), Some("]")],
                    Some(ToolStyle::Llama3) if calls.is_some() => [Some(";"), opening],
                    _ => [opening, None],
                };
                [closing, between[0], between[1]]
            }
            _ => [opening, None, None],
        };
        marks.into_iter().flatten()
    }

    /// Enters what the held text marks, if it is a mark.
    fn enter_mark(&mut self) -> bool {
        if !self.marks().any(|mark| mark == self.mark) {
            return false;
        }
        let mark = std::mem::take(&mut self.mark);
        let thoughts = self.format.reasoning.map(|reasoning| reasoning.style);
        let is = |of: fn(ReasoningStyle) -> &'static str| thoughts.is_some_and(|t| of(t) == mark);
        match self.state {
            State::Reasoning => {
                self.space.clear();
                self.drops_space = true;
                self.state = State::Start { may_think: false };
            }
            State::Start { may_think: true } if is(ReasoningStyle::opening) => {
                self.space.clear();
                self.drops_space = true;
                self.state = State::Reasoning;
            }
            State::Called { .. } if mark == "]" => {
                self.in_list = false;
                self.state = State::Called { may_close: false };
            }
            State::Called { may_close: true } if mark == "</tool_call>" => {
                self.state = State::Called { may_close: false };
            }
            _ if mark == "{" => {
                self.state = State::Opened(String::new());
                self.step('{');
            }
            _ => self.state = State::Opened(mark),
        }
        true
    }

    /// Behind the mark that opens calls.
    fn step_opened(&mut self, mut opening: String, c: char) {
        let style = self.format.tools.as_ref().map(|tools| tools.style);
        let is_list = style == Some(ToolStyle::Mistral) && c == '[' && !self.in_list;
        if c.is_whitespace() || is_list {
            self.in_list |= is_list;
            opening.push(c);
            self.state = State::Opened(opening);
        } else if c == '{' {
            let reader = Box::new(CallReader::Json(JsonCall::new()));
            self.step_call(opening, reader, c);
        } else if let Some(tags) = style.and_then(ToolStyle::tags) {
            let tools = self.format.tools.as_ref();
            let tools = tools.map(|tools| Arc::clone(&tools.tools));
            let reader = TaggedReader::new(tools.unwrap_or_default(), tags);
            self.step_call(opening, Box::new(CallReader::Tagged(reader)), c);
        } else if style == Some(ToolStyle::MistralArgs) && is_of_head(c) {
            let head = c.to_string();
            self.state = State::Head { opening, head };
        } else {
            self.say_no_call(&opening, "");
            self.step(c);
        }
    }

    /// In `name`, `name[ARGS]` or `name[CALL_ID]id[ARGS]`.
    fn step_head(&mut self, opening: String, mut head: String, c: char) {
        if c == '{' {
            let name = head.split('[').next().unwrap_or_default().trim();
            let between = head[head.find('[').unwrap_or(head.len())..].trim();
            let has_id = between.starts_with("[CALL_ID]") && between.ends_with("[ARGS]");
            let is_call = between.is_empty() || between == "[ARGS]" || has_id;
            if is_call && self.is_tool(name) {
                let reader = JsonCall::arguments_of(name.to_owned());
                let reader = Box::new(CallReader::Json(reader));
                return self.step_call(opening, reader, c);
            }
        } else if is_of_head(c) && head.len() < MAX_HEAD {
            head.push(c);
            self.state = State::Head { opening, head };
            return;
        }
        self.say_no_call(&opening, &head);
        self.step(c);
    }

    fn step_call(&mut self, opening: String, mut reader: Box<CallReader>, c: char) {
        let tools = self.format.tools.as_ref();
        let tools = tools.map(|tools| Arc::clone(&tools.tools));
        let is_tool = |name: &str| tools.iter().any(|all| all.iter().any(|t| t.name == name));
        let progress = reader.push(c, is_tool);
        if progress == Progress::Wrong {
            let rest = reader.rest().to_owned();
            self.end_call(&opening, *reader);
            rest.chars().for_each(|c| self.step(c));
            return self.step(c);
        }
        let whole = progress == Progress::Whole;
        if let Some(name) = reader.take_beginning(whole) {
            self.space.clear();
            let index = self.num_calls;
            self.num_calls += 1;
            self.events.push(AnswerEvent::ToolCallBegun { index, name });
        }
        if reader.is_begun() {
            let index = self.num_calls - 1;
            let new = reader.take_arguments(whole);
            match self.events.last_mut() {
                _ if new.is_empty() => {}
                Some(AnswerEvent::Arguments { text, .. }) => text.push_str(new),
                _ => self.events.push(AnswerEvent::Arguments {
                    index,
                    text: new.to_owned(),
                }),
            }
        }
        match whole {
            true => {
                let tools = self.format.tools.as_ref();
                let is_only = tools.is_some_and(|tools| !tools.parallel);
                self.is_over = is_only && reader.is_begun();
                self.end_call(&opening, *reader);
            }
            false => self.state = State::Call { opening, reader },
        }
    }

    /// A call is over, or was none.
    fn end_call(&mut self, opening: &str, reader: CallReader) {
        if reader.is_begun() {
            let index = self.num_calls - 1;
            self.events.push(AnswerEvent::ToolCallEnded { index });
            self.drops_space = true;
            self.state = State::Called { may_close: true };
        } else {
            self.say_no_call(opening, &reader.into_text());
        }
    }

    /// What looked like a call is said.
    fn say_no_call(&mut self, opening: &str, rest: &str) {
        let text = self.take_space() + opening + rest;
        self.say(&text);
        self.in_list = false;
        self.state = State::Content;
    }

    fn is_tool(&self, name: &str) -> bool {
        let tools = self.format.tools.as_ref();
        tools.is_some_and(|tools| tools.tools.iter().any(|tool| tool.name == name))
    }

    /// The space that belongs to the text behind it.
    fn take_space(&mut self) -> String {
        let space = std::mem::take(&mut self.space);
        match std::mem::take(&mut self.drops_space) {
            true => String::new(),
            false => space,
        }
    }

    fn take_held(&mut self) -> String {
        self.take_space() + &std::mem::take(&mut self.mark)
    }

    fn say(&mut self, new: &str) {
        match self.events.last_mut() {
            _ if new.is_empty() => {}
            Some(AnswerEvent::Content(text)) => text.push_str(new),
            _ => self.events.push(AnswerEvent::Content(new.to_owned())),
        }
    }

    fn think(&mut self, new: &str) {
        match self.events.last_mut() {
            _ if new.is_empty() => {}
            Some(AnswerEvent::Reasoning(text)) => text.push_str(new),
            _ => self.events.push(AnswerEvent::Reasoning(new.to_owned())),
        }
    }
}

/// Characters between Mistral's mark and the arguments.
fn is_of_head(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '[' | ']' | ' ' | '\n')
}
