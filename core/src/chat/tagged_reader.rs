//! One call of a tool as its text comes, where arguments stand between tags and their values are no JSON:
//! `<function=NAME><parameter=KEY>VALUE</parameter>…</function>`, or
//! `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>`. What a value is, the tool's schema says.
//! Knows no marks around the call.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::json_scan::{JsonScan, Step};
use super::progress::Progress;
use super::tool_form::Tool;
use super::value_kinds::Kinds;

/// Longest name, bytes, with the first of what ends it.
pub(super) const MAX_TAG: usize = 256;

/// The tags of a style, each with what ends it.
#[derive(Debug)]
pub(super) struct Tags {
    /// Around the tool's name; without them it ends with its line, or where a tag begins.
    pub(super) name: Option<[&'static str; 2]>,
    /// Around an argument's name.
    pub(super) key: [&'static str; 2],
    /// Around its value; the first may be missing.
    pub(super) value: [&'static str; 2],
    /// Behind all.
    pub(super) end: &'static str,
    /// Values have lines of their own.
    pub(super) on_lines: bool,
}

/// Those of Qwen3-Coder.
pub(super) static QWEN3_CODER: Tags = Tags {
    name: Some(["<function=", ">"]),
    key: ["<parameter=", ">"],
    value: ["", "</parameter>"],
    end: "</function>",
    on_lines: true,
};

/// Those of GLM.
pub(super) static GLM: Tags = Tags {
    name: None,
    key: ["<arg_key>", "</arg_key>"],
    value: ["<arg_value>", "</arg_value>"],
    end: "</tool_call>",
    on_lines: false,
};

/// Where a call stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// In the tag before the tool's name.
    Begin,
    Name,
    /// Between arguments, perhaps in a tag.
    Between,
    Key,
    /// Between an argument's name and its value.
    Behind(String),
    Value(String),
}

/// What is known of a call.
#[derive(Clone, Debug)]
pub(super) struct TaggedReader {
    tools: Arc<[Tool]>,
    tags: &'static Tags,
    state: State,
    /// All that was read up to the tool's name.
    raw: String,
    /// The tag, the name or the value that comes.
    text: String,
    /// The tool, by its place.
    tool: Option<usize>,
    /// JSON of the arguments so far.
    arguments: String,
    /// Bytes of them that were handed out.
    handed: usize,
    /// Names of the arguments so far.
    keys: HashSet<String>,
    /// What the value that comes may be.
    kinds: Kinds,
    /// Where that value stands, as long as it is JSON that may not be a text.
    json: Option<JsonScan>,
    begun: bool,
}

impl TaggedReader {
    /// A call that begins with the next character, of one of these tools.
    pub(super) fn new(tools: Arc<[Tool]>, tags: &'static Tags) -> Self {
        Self {
            tools,
            tags,
            state: match tags.name {
                Some(_) => State::Begin,
                None => State::Name,
            },
            raw: String::new(),
            text: String::new(),
            tool: None,
            arguments: String::new(),
            handed: 0,
            keys: HashSet::new(),
            kinds: Kinds::default(),
            json: None,
            begun: false,
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

    /// What was read behind the beginning of a call and is no part of it, when it goes on in another way.
    pub(super) fn rest(&self) -> &str {
        match self.begun {
            true => &self.text,
            false => "",
        }
    }

    /// Goes on by a character.
    pub(super) fn push(&mut self, c: char) -> Progress {
        let is_known = self.tool.is_some();
        let progress = self.step(c);
        if !is_known && progress != Progress::Wrong {
            self.raw.push(c);
        }
        progress
    }

    fn step(&mut self, c: char) -> Progress {
        let tags = self.tags;
        match self.state.clone() {
            State::Begin => {
                let begin = tags.name.map_or("", |[begin, _]| begin);
                self.tag(c, &[(begin, State::Name)])
            }
            State::Name => self.in_name(c),
            State::Between => {
                let progress = self.tag(c, &[(tags.key[0], State::Key), (tags.end, State::Begin)]);
                if self.state != State::Begin {
                    return progress;
                }
                self.arguments.push('}');
                Progress::Whole
            }
            State::Key => {
                if c == '\n' || self.text.len() > MAX_TAG {
                    return Progress::Wrong;
                }
                self.text.push(c);
                if let Some(key) = self.text.strip_suffix(tags.key[1]) {
                    // An object with two of a name is none that anyone can read.
                    if !self.keys.insert(key.to_owned()) {
                        self.text.pop();
                        self.text.insert_str(0, tags.key[0]);
                        return Progress::Wrong;
                    }
                    let tool = self.tool.and_then(|place| self.tools.get(place));
                    let schema = tool.and_then(|tool| tool.parameters.as_ref());
                    self.kinds = Kinds::of_member(schema, key);
                    self.json = (!self.kinds.text).then(JsonScan::new);
                    self.state = match tags.value[0] {
                        "" => State::Value(key.to_owned()),
                        _ => State::Behind(key.to_owned()),
                    };
                    self.text.clear();
                }
                Progress::Going
            }
            State::Behind(key) => self.tag(c, &[(tags.value[0], State::Value(key))]),
            State::Value(key) => {
                self.text.push(c);
                if self.is_in_text(c) {
                    return Progress::Going;
                }
                if let Some(value) = self.text.strip_suffix(tags.value[1]) {
                    let value = value.to_owned();
                    self.take(&key, &value);
                    self.text.clear();
                    self.state = State::Between;
                }
                Progress::Going
            }
        }
    }

    /// Whether a value that goes on by this character is inside a text of its JSON, where no tag ends it.
    fn is_in_text(&mut self, c: char) -> bool {
        if let Some(scan) = &mut self.json
            && scan.push(c) != Step::Going
        {
            self.json = None;
        }
        self.json.as_ref().is_some_and(JsonScan::is_in_text)
    }

    /// In one of these tags, with the state behind it, or in the space before.
    fn tag(&mut self, c: char, tags: &[(&str, State)]) -> Progress {
        if self.text.is_empty() && c.is_whitespace() {
            return Progress::Going;
        }
        self.text.push(c);
        if let Some((_, next)) = tags.iter().find(|(tag, _)| *tag == self.text) {
            self.state = next.clone();
            self.text.clear();
            return Progress::Going;
        }
        if tags.iter().any(|(tag, _)| tag.starts_with(&self.text)) {
            return Progress::Going;
        }
        self.text.pop();
        Progress::Wrong
    }

    fn in_name(&mut self, c: char) -> Progress {
        let ends = match self.tags.name {
            Some([_, end]) => end.starts_with(c),
            None => c == '<' || c == '\n',
        };
        if !ends {
            if c == '\n' || self.text.len() > MAX_TAG {
                return Progress::Wrong;
            }
            self.text.push(c);
            return Progress::Going;
        }
        let name = self.text.trim_end();
        let Some(tool) = self.tools.iter().position(|tool| tool.name == name) else {
            return Progress::Wrong;
        };
        self.tool = Some(tool);
        self.text.clear();
        self.arguments.push('{');
        self.state = State::Between;
        match c {
            '<' => self.step(c),
            _ => Progress::Going,
        }
    }

    /// An argument is whole.
    fn take(&mut self, key: &str, mut value: &str) {
        if self.tags.on_lines {
            // Each line end beside a tag is the tag's.
            value = value.strip_prefix('\n').unwrap_or(value);
            value = value.strip_suffix('\n').unwrap_or(value);
        }
        let value = self.kinds.as_json(value);
        if self.arguments.len() > 1 {
            self.arguments.push_str(", ");
        }
        let key = Value::from(key);
        self.arguments.push_str(&format!("{key}: {value}"));
    }

    /// The name, once, when it is certain that a call begins.
    pub(super) fn take_beginning(&mut self) -> Option<String> {
        if self.begun {
            return None;
        }
        let name = self.tools.get(self.tool?)?.name.clone();
        self.begun = true;
        Some(name)
    }

    /// What of the arguments was not handed out yet.
    pub(super) fn take_arguments(&mut self) -> &str {
        let new = &self.arguments[self.handed..];
        self.handed = self.arguments.len();
        new
    }
}
