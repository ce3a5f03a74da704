//! One call of a tool as its JSON comes: `{"name": …, "arguments": {…}}`, or the arguments alone where the name is
//! known. Knows no marks around it.

use std::ops::Range;

use super::json_scan::{JsonScan, Step};
use super::progress::Progress;

/// Members of a call that say nothing here.
const PASSED_OVER: [&str; 3] = ["id", "type", "description"];

/// What is known of a call. Texts are ranges of what was read.
#[derive(Clone, Debug)]
pub(super) struct JsonCall {
    scan: JsonScan,
    /// All that was read, with control characters inside texts escaped as JSON has them.
    read: String,
    /// What was read as it came, until a call begins.
    raw: String,
    name: Option<String>,
    /// Where the arguments stand; open-ended while they come.
    arguments: Option<Range<usize>>,
    /// The arguments where they were written as a text, as that text means them.
    unquoted: Option<String>,
    /// The object is the arguments themselves.
    only_arguments: bool,
    /// The member that comes.
    key: Option<String>,
    begin: usize,
    in_value: bool,
    /// Bytes of the arguments that were handed out.
    handed: usize,
    begun: bool,
}

impl JsonCall {
    /// A call that begins with the next character, a `{`.
    pub(super) fn new() -> Self {
        Self {
            scan: JsonScan::new(),
            read: String::new(),
            raw: String::new(),
            name: None,
            arguments: None,
            unquoted: None,
            only_arguments: false,
            key: None,
            begin: 0,
            in_value: false,
            handed: 0,
            begun: false,
        }
    }

    /// The arguments of a call of `name`, which begin with the next character, a `{`.
    pub(super) fn arguments_of(name: String) -> Self {
        Self {
            name: Some(name),
            arguments: Some(0..usize::MAX),
            only_arguments: true,
            ..Self::new()
        }
    }

    /// What was read, where no call has begun.
    pub(super) fn into_text(self) -> String {
        self.raw
    }

    /// Whether it was said that a call begins.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Goes on by a character. `is_tool` knows the names there are.
    pub(super) fn push(&mut self, c: char, is_tool: impl Fn(&str) -> bool) -> Progress {
        let progress = self.take_in(c, is_tool);
        if progress != Progress::Wrong && !self.begun {
            self.raw.push(c);
        }
        progress
    }

    fn take_in(&mut self, c: char, is_tool: impl Fn(&str) -> bool) -> Progress {
        let depth = self.scan.depth();
        if !self.only_arguments && depth == 1 {
            let is_space = c.is_ascii_whitespace();
            if self.scan.awaits_key() && c == '"' {
                self.begin = self.read.len();
            } else if self.scan.awaits_value() && !is_space && !self.begin_value(c) {
                return Progress::Wrong;
            }
        }
        let step = self.scan.push(c);
        match step {
            Step::Wrong => return Progress::Wrong,
            Step::Control => self.read.push_str(&escaped(c)),
            Step::Going | Step::Whole => self.read.push(c),
        }
        if !self.only_arguments && self.scan.depth() <= 1 {
            if self.scan.awaits_colon() && self.key.is_none() {
                let text = &self.read[self.begin..];
                self.key = serde_json::from_str(text).ok();
                let known = |key: &str| {
                    let of_call = matches!(key, "name" | "arguments" | "parameters");
                    of_call || PASSED_OVER.contains(&key)
                };
                if !self.key.as_deref().is_some_and(known) {
                    return Progress::Wrong;
                }
            } else if self.in_value && self.has_ended() && !self.end_value(&is_tool) {
                return Progress::Wrong;
            }
        }
        match step {
            Step::Whole if self.name.is_none() => Progress::Wrong,
            Step::Whole => {
                if self.only_arguments {
                    self.arguments = Some(0..self.read.len());
                }
                Progress::Whole
            }
            _ => Progress::Going,
        }
    }

    /// Whether the member's value has ended: a number does only by what follows.
    fn has_ended(&self) -> bool {
        self.scan.is_after_value() || self.scan.awaits_key()
    }

    /// Whether the value that begins so may stand here.
    fn begin_value(&mut self, c: char) -> bool {
        self.begin = self.read.len();
        self.in_value = true;
        match self.key.as_deref() {
            Some("name") => self.name.is_none() && c == '"',
            Some("arguments" | "parameters") => {
                let is_first = self.arguments.is_none() && self.unquoted.is_none();
                if c == '{' {
                    self.arguments = Some(self.begin..usize::MAX);
                }
                is_first && matches!(c, '{' | '"' | 'n')
            }
            _ => true,
        }
    }

    /// Whether the value that has ended means something.
    fn end_value(&mut self, is_tool: &impl Fn(&str) -> bool) -> bool {
        self.in_value = false;
        let text = &self.read[self.begin..];
        match self.key.take().as_deref() {
            Some("name") => {
                let name: Option<String> = serde_json::from_str(text).ok();
                self.name = name.filter(|name| is_tool(name));
                self.name.is_some()
            }
            Some("arguments" | "parameters") => {
                if let Some(arguments) = &mut self.arguments {
                    arguments.end = self.read.len();
                } else if text == "null" {
                    self.unquoted = Some("{}".to_owned());
                } else {
                    let inner: Option<String> = serde_json::from_str(text).ok();
                    let is_object = |inner: &String| {
                        let read = serde_json::from_str::<serde_json::Value>(inner);
                        read.is_ok_and(|value| value.is_object())
                    };
                    self.unquoted = inner.filter(is_object);
                    return self.unquoted.is_some();
                }
                true
            }
            _ => true,
        }
    }

    /// The name, once, when it is certain that a call begins.
    pub(super) fn take_beginning(&mut self, whole: bool) -> Option<String> {
        let has_arguments = self.arguments.is_some() || self.unquoted.is_some();
        // A call that gives no arguments is known by its end.
        if self.begun || !has_arguments && !whole {
            return None;
        }
        let name = self.name.clone()?;
        self.begun = true;
        Some(name)
    }

    /// What of the arguments was not handed out yet; nothing before the beginning was.
    pub(super) fn take_arguments(&mut self, whole: bool) -> &str {
        if !self.begun {
            return "";
        }
        let all = match (&self.arguments, &self.unquoted) {
            (Some(range), _) => &self.read[range.start..range.end.min(self.read.len())],
            (None, Some(text)) => text,
            (None, None) if whole => "{}",
            (None, None) => "",
        };
        let new = &all[self.handed.min(all.len())..];
        self.handed = all.len();
        new
    }
}

/// A control character as JSON writes it inside a text.
fn escaped(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        c => format!("\\u{:04x}", u32::from(c)),
    }
}
