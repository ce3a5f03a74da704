//! How a model writes the calls of its tools, told by its chat template. Knows no call.

use super::tagged_reader::{GLM, QWEN3_CODER, Tags};
use crate::text::{ChatTemplate, Tokenizer};

/// A way to write calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToolStyle {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, once a call: Hermes, Qwen 2.5 and 3 and
    /// many after them.
    Hermes,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>`, once a call, with
    /// values that are no JSON: Qwen3-Coder.
    Qwen3Coder,
    /// `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>`, once a call: GLM since 4.5
    /// and those who write like it.
    Glm,
    /// The whole answer is `{"name": …, "parameters": {…}}`, several behind each other with `;`; also
    /// after `<|python_tag|>`: Llama 3.1 to 3.3.
    Llama3,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`: Mistral's up to 2024.
    Mistral,
    /// `[TOOL_CALLS]name[ARGS]{…}`, once a call: Mistral's since.
    MistralArgs,
}

impl ToolStyle {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Hermes,
        Self::Qwen3Coder,
        Self::Glm,
        Self::Llama3,
        Self::Mistral,
        Self::MistralArgs,
    ];

    /// The style that a template teaches its model, where it is one of these.
    pub fn of_template(template: &ChatTemplate) -> Option<Self> {
        let source = template.source();
        let has = |text: &str| source.contains(text);
        if has("tools") && has("<tool_call>") && has("<function=") && has("<parameter=") {
            return Some(Self::Qwen3Coder);
        }
        if has("tools") && has("<tool_call>") && has("<arg_key>") && has("<arg_value>") {
            return Some(Self::Glm);
        }
        // Relatives that do not write JSON, or another one.
        let is_other = has("<function=") || has("<arg_key>") || has("functools");
        if !has("tools") || is_other {
            return None;
        }
        if has("[TOOL_CALLS]") {
            return Some(match has("[ARGS]") {
                true => Self::MistralArgs,
                false => Self::Mistral,
            });
        }
        let names_arguments = has("\"arguments\"") || has("\\\"arguments\\\"");
        if has("<tool_call>") && names_arguments {
            return Some(Self::Hermes);
        }
        (has("<|start_header_id|>") && has("\"parameters\"")).then_some(Self::Llama3)
    }

    /// What stands before a call, where the answer is not the call itself.
    pub(super) fn opening(self) -> &'static str {
        match self {
            Self::Hermes | Self::Qwen3Coder | Self::Glm => "<tool_call>",
            Self::Llama3 => "<|python_tag|>",
            Self::Mistral | Self::MistralArgs => "[TOOL_CALLS]",
        }
    }

    /// What stands behind a call.
    pub(super) fn closing(self) -> Option<&'static str> {
        matches!(self, Self::Hermes | Self::Qwen3Coder | Self::Glm).then_some("</tool_call>")
    }

    /// The texts that a reader of calls must see: some tokenizers hold them for special tokens, which
    /// an answer's text leaves out.
    pub(super) fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Hermes | Self::Qwen3Coder => &["<tool_call>", "</tool_call>"],
            Self::Glm => &[
                "<tool_call>",
                "</tool_call>",
                "<arg_key>",
                "</arg_key>",
                "<arg_value>",
                "</arg_value>",
            ],
            Self::Llama3 => &["<|python_tag|>"],
            Self::Mistral => &["[TOOL_CALLS]"],
            Self::MistralArgs => &["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"],
        }
    }

    /// The name of a call's arguments, where it is JSON.
    pub(super) fn arguments_key(self) -> &'static str {
        match self {
            Self::Llama3 => "parameters",
            _ => "arguments",
        }
    }

    /// The tags of a call, where it is no JSON.
    pub(super) fn tags(self) -> Option<&'static Tags> {
        match self {
            Self::Qwen3Coder => Some(&QWEN3_CODER),
            Self::Glm => Some(&GLM),
            _ => None,
        }
    }

    /// An id for a call that the model's own template will take back: a name of the answer and the
    /// call's number in it, made short.
    pub fn call_id(self, answer: &str, index: usize) -> String {
        const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        // FNV-1a, with its bits mixed once more, as the low ones of short texts are alike.
        let bytes = answer.bytes().chain(index.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut rest = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Mistral's templates want just nine letters and digits.
        let letters = (0..9).map(|_| {
            let digit = DIGITS[(rest % 62) as usize];
            rest /= 62;
            char::from(digit)
        });
        let letters: String = letters.collect();
        match self {
            Self::Mistral | Self::MistralArgs => letters,
            _ => format!("call_{letters}"),
        }
    }
}

/// The marks around a model's thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReasoningStyle {
    /// `<think>…</think>`.
    Think,
    /// `[THINK]…[/THINK]`, Mistral's.
    MistralThink,
}

impl ReasoningStyle {
    /// The style a template knows, where it is one of these.
    pub fn of_template(template: &ChatTemplate) -> Option<Self> {
        let source = template.source();
        [Self::Think, Self::MistralThink]
            .into_iter()
            // The end alone is enough: some templates only take thoughts out.
            .find(|style| source.contains(style.closing()))
    }

    pub(super) fn opening(self) -> &'static str {
        match self {
            Self::Think => "<think>",
            Self::MistralThink => "[THINK]",
        }
    }

    pub(super) fn closing(self) -> &'static str {
        match self {
            Self::Think => "</think>",
            Self::MistralThink => "[/THINK]",
        }
    }

    /// What stands between marks and what they enclose, where templates write both.
    pub(super) fn line_end(self) -> &'static str {
        match self {
            Self::Think => "\n",
            Self::MistralThink => "",
        }
    }
}

/// Whether the tokenizer holds one of these texts for a special token.
pub(super) fn is_any_special(tokenizer: &Tokenizer, marks: &[&str]) -> bool {
    let special = |mark: &&str| {
        let id = tokenizer.id(mark);
        id.is_some_and(|id| tokenizer.is_special(id))
    };
    marks.iter().any(special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_look_as_templates_want() {
        let ids: std::collections::BTreeSet<String> = (0..2000)
            .map(|n| ToolStyle::Mistral.call_id(&format!("chatcmpl-{}", n / 4), n % 4))
            .collect();
        assert_eq!(ids.len(), 2000);
        let fits = |id: &String| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
        assert!(ids.iter().all(fits));
        assert!(ToolStyle::Hermes.call_id("a", 0).starts_with("call_"));
    }
}
