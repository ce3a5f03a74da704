//! The form of a call whose arguments stand between tags, as a grammar. Knows no calls around it.

use std::fmt::Write;

use serde_json::Value;

use super::tagged_reader::Kinds;
use super::tool_form::{Tool, line};

/// One tool's call whose arguments stand between tags: those that must be there and perhaps the others, in the order
/// of the schema. Texts are held to what they may be one of; any other is free.
pub(super) fn write_tagged_call(
    grammar: &mut String,
    n: usize,
    tool: &Tool,
    mark: &impl Fn(&str) -> String,
) {
    const AFTER: &str = "\n</parameter>\n";
    let schema = tool.parameters.as_ref();
    let members = schema.and_then(|schema| schema.get("properties")?.as_object());
    let required = schema.and_then(|schema| schema.get("required")?.as_array());
    let is_required = |key: &str| {
        let mut keys = required.into_iter().flatten();
        keys.any(|required| required.as_str() == Some(key))
    };
    let after = Value::from(AFTER);
    let mut arguments = String::new();
    let mut rules = String::new();
    for (k, (key, member)) in members.into_iter().flatten().enumerate() {
        let may_miss = if is_required(key) { "" } else { "?" };
        let _ = write!(arguments, "argument_{n}_{k}{may_miss} ");
        let begin = Value::from(format!("<parameter={key}>\n"));
        let kinds = Kinds::of_member(schema, key);
        let listed = member.get("enum").and_then(Value::as_array);
        let listed: Option<Vec<&str>> =
            listed.and_then(|all| all.iter().map(Value::as_str).collect());
        let value = match listed {
            Some(listed) => {
                let texts = listed.into_iter().map(|text| Value::from(text).to_string());
                format!("({}) {after}", texts.collect::<Vec<_>>().join(" | "))
            }
            None if kinds.text => format!("value_{n}_{k}"),
            None => {
                let mut whole = member.clone();
                for shared in ["$defs", "definitions"] {
                    let shared_ones = schema.and_then(|schema| schema.get(shared));
                    if let (Some(given), Some(object)) = (shared_ones, whole.as_object_mut()) {
                        object.insert(shared.to_owned(), given.clone());
                    }
                }
                line(&mut rules, &format!("json_{n}_{k}: %json {whole}"));
                format!("json_{n}_{k} {after}")
            }
        };
        line(&mut rules, &format!("argument_{n}_{k}: {begin} {value}"));
        if value.starts_with("value_") {
            line(&mut rules, &format!("{value}[suffix={after}]: /(?s:.*)/"));
        }
    }
    if members.is_none() {
        // Any arguments, as nothing is said of them.
        arguments = format!("argument_{n}* ");
        line(
            &mut rules,
            &format!("argument_{n}: \"<parameter=\" /[^>\\n]+/ \">\\n\" value_{n}"),
        );
        line(&mut rules, &format!("value_{n}[suffix={after}]: /(?s:.*)/"));
    }
    let begin = Value::from(format!("\n<function={}>\n", tool.name));
    let (opening, closing) = (mark("<tool_call>"), mark("</tool_call>"));
    let end = Value::from("</function>\n");
    line(
        grammar,
        &format!("call_{n}: {opening} {begin} {arguments}{end} {closing}"),
    );
    grammar.push_str(&rules);
}
