//! A call of a tool as its text comes, in either syntax. Knows neither of them, and no marks around it.

use super::json_call::JsonCall;
use super::progress::Progress;
use super::tagged_reader::TaggedReader;

/// A call in either syntax.
#[derive(Clone, Debug)]
pub(super) enum CallReader {
    /// As JSON.
    Json(JsonCall),
    /// Between tags.
    Tagged(TaggedReader),
}

impl CallReader {
    /// Goes on by a character. `is_tool` knows the names there are.
    pub(super) fn push(&mut self, c: char, is_tool: impl Fn(&str) -> bool) -> Progress {
        match self {
            Self::Json(reader) => reader.push(c, is_tool),
            Self::Tagged(reader) => reader.push(c),
        }
    }

    /// The name, once, when it is certain that a call begins.
    pub(super) fn take_beginning(&mut self, whole: bool) -> Option<String> {
        match self {
            Self::Json(reader) => reader.take_beginning(whole),
            Self::Tagged(reader) => reader.take_beginning(),
        }
    }

    /// What of the arguments was not handed out yet; nothing before the beginning was.
    pub(super) fn take_arguments(&mut self, whole: bool) -> &str {
        match self {
            Self::Json(reader) => reader.take_arguments(whole),
            Self::Tagged(reader) => reader.take_arguments(),
        }
    }

    /// Whether it was said that a call begins.
    pub(super) fn is_begun(&self) -> bool {
        match self {
            Self::Json(reader) => reader.is_begun(),
            Self::Tagged(reader) => reader.is_begun(),
        }
    }

    /// What was read behind the beginning of a call and is no part of it, when it goes on in another way.
    pub(super) fn rest(&self) -> &str {
        match self {
            Self::Json(_) => "",
            Self::Tagged(reader) => reader.rest(),
        }
    }

    /// What was read, where no call has begun.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Json(reader) => reader.into_text(),
            Self::Tagged(reader) => reader.into_text(),
        }
    }
}
