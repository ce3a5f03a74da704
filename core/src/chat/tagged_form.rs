//! The form of a call whose arguments stand between tags, as a grammar. Knows no calls around it.

use std::fmt::Write;

use serde_json::Value;

use super::tagged_reader::{Kinds, Tags};
use super::tool_form::{Tool, line};

/// One tool's call whose arguments stand between tags: those that must be there and perhaps the others, in the order
/// of the schema. Texts are held to what they may be one of; any other is free.
pub(super) fn write_tagged_call(
    grammar: &mut String,
    tags: &Tags,
    n: usize,
    tool: &Tool,
    mark: &impl Fn(&str) -> String,
) {
    let schema = tool.parameters.as_ref();
    let members = schema.and_then(|schema| schema.get("properties")?.as_object());
    let required = schema.and_then(|schema| schema.get("required")?.as_array());
    let is_required = |key: &str| {
        let mut keys = required.into_iter().flatten();
        keys.any(|required| required.as_str() == Some(key))
    };
    let text = |text: &str| Value::from(text).to_string();
    // What is a special token is no text, and stands alone.
    let [key_begin, key_end] = tags.key.map(mark);
    let line_end = if tags.on_lines {
        text("\n")
    } else {
        String::new()
    };
    let value_begin = match tags.value[0] {
        "" => String::new(),
        begin => mark(begin),
    };
    let value_end = format!("{line_end} {} {line_end}", mark(tags.value[1]));
    let free = |rules: &mut String, name: &str| {
        let closing = mark(tags.value[1]);
        let rule = match closing.starts_with('"') {
            true => {
                let end = if tags.on_lines { "\n" } else { "" };
                let suffix = text(&format!("{end}{}{end}", tags.value[1]));
                format!("{name}[suffix={suffix}]: /(?s:.*)/")
            }
            false => format!("{name}: /(?s:.*)/ {closing} {line_end}"),
        };
        line(rules, &rule);
    };
    let mut arguments = String::new();
    let mut rules = String::new();
    for (k, (key, member)) in members.into_iter().flatten().enumerate() {
        let may_miss = if is_required(key) { "" } else { "?" };
        let _ = write!(arguments, "argument_{n}_{k}{may_miss} ");
        let listed = member.get("enum").and_then(Value::as_array);
        let listed: Option<Vec<&str>> =
            listed.and_then(|all| all.iter().map(Value::as_str).collect());
        let value = match listed {
            Some(listed) => {
                let texts = listed.into_iter().map(text);
                format!("({}) {value_end}", texts.collect::<Vec<_>>().join(" | "))
            }
            None if Kinds::of_member(schema, key).text => {
                let name = format!("value_{n}_{k}");
                free(&mut rules, &name);
                name
            }
            None => {
                let mut whole = member.clone();
                for shared in ["$defs", "definitions"] {
                    let shared_ones = schema.and_then(|schema| schema.get(shared));
                    if let (Some(given), Some(object)) = (shared_ones, whole.as_object_mut()) {
                        object.insert(shared.to_owned(), given.clone());
                    }
                }
                line(&mut rules, &format!("json_{n}_{k}: %json {whole}"));
                format!("json_{n}_{k} {value_end}")
            }
        };
        let key = text(key);
        line(
            &mut rules,
            &format!(
                "argument_{n}_{k}: {key_begin} {key} {key_end} {line_end} {value_begin} {value}"
            ),
        );
    }
    if members.is_none() {
        // Any arguments, as nothing is said of them.
        arguments = format!("argument_{n}* ");
        line(
            &mut rules,
            &format!(
                "argument_{n}: {key_begin} /[^<>\\n]+/ {key_end} {line_end} {value_begin} value_{n}"
            ),
        );
        free(&mut rules, &format!("value_{n}"));
    }
    let begin = match tags.name {
        Some([begin, end]) => text(&format!("\n{begin}{}{end}\n", tool.name)),
        None => text(&tool.name),
    };
    let (opening, end) = (mark("<tool_call>"), mark(tags.end));
    let closing = match tags.end {
        "</tool_call>" => String::new(),
        _ => format!("{line_end} {}", mark("</tool_call>")),
    };
    line(
        grammar,
        &format!("call_{n}: {opening} {begin} {arguments}{end} {closing}"),
    );
    grammar.push_str(&rules);
}
