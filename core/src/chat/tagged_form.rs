//! The form of a call whose arguments stand between tags, as a grammar. Knows no calls around it.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use serde_json::{Map, Value};

use super::tagged_reader::Tags;
use super::tool_error::{ToolError, shown};
use super::tool_form::{Tool, line};
use super::value_kinds::Kinds;
use crate::sample::grammar::limits::{MAX_GRAMMAR_BYTES, MAX_MEMBERS, MAX_SCHEMA_BYTES};

/// Where schemas keep what is referred to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// One tool's call whose arguments stand between tags: those that must be there and perhaps the others, in the order
/// of the schema. Texts are held to what they may be one of; any other is free.
///
/// # Errors
/// [`ToolError`]; what was written then is no grammar, and not much more than one may be.
pub(super) fn write_tagged_call(
    grammar: &mut String,
    tags: &Tags,
    n: usize,
    tool: &Tool,
    mark: &impl Fn(&str) -> String,
) -> Result<(), ToolError> {
    let schema = tool.parameters.as_ref();
    let members = schema.and_then(|schema| schema.get("properties")?.as_object());
    let num_members = members.map_or(0, Map::len);
    let what = "the number of members of an object";
    hold(tool, what, num_members, MAX_MEMBERS)?;
    let num_bytes = schema.map_or(0, |schema| schema.to_string().len());
    let what = "the length in bytes of the schema";
    hold(tool, what, num_bytes, MAX_SCHEMA_BYTES)?;
    let required = schema.and_then(|schema| schema.get("required")?.as_array());
    let required = required.into_iter().flatten();
    let required: HashSet<&str> = required.filter_map(Value::as_str).collect();
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
        let may_miss = if required.contains(&**key) { "" } else { "?" };
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
                let whole = with_definitions(tool, key, member)?;
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
        let num_bytes = grammar.len() + rules.len() + arguments.len();
        let what = "the length in bytes of the grammar of calls, up to the last parameter seen";
        hold(tool, what, num_bytes, MAX_GRAMMAR_BYTES)?;
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
    Ok(())
}

/// Holds a size against its limit.
fn hold(tool: &Tool, what: &'static str, found: usize, limit: usize) -> Result<(), ToolError> {
    match found <= limit {
        true => Ok(()),
        false => Err(ToolError::TooLarge {
            tool: shown(&tool.name),
            what,
            found,
            limit,
        }),
    }
}

/// The schema of a parameter by itself, with the definitions that it needs and no others.
fn with_definitions(tool: &Tool, key: &str, member: &Value) -> Result<Value, ToolError> {
    let mut found: HashMap<(&str, String), &Value> = HashMap::new();
    let mut order = Vec::new();
    let mut todo = vec![member];
    while let Some(value) = todo.pop() {
        match value {
            Value::Array(values) => todo.extend(values),
            Value::Object(members) => {
                todo.extend(members.values());
                let Some(Value::String(reference)) = members.get("$ref") else {
                    continue;
                };
                let Some((place, name, definition)) = definition(tool, reference) else {
                    return Err(ToolError::Reference {
                        tool: shown(&tool.name),
                        parameter: shown(key),
                        reference: shown(reference),
                    });
                };
                let at = (place, name);
                if !found.contains_key(&at) {
                    order.push(at.clone());
                    found.insert(at, definition);
                    todo.push(definition);
                }
            }
            _ => {}
        }
    }
    let mut whole = member.clone();
    if let Some(object) = whole.as_object_mut() {
        for place in DEFINITIONS {
            let names = order.iter().filter(|at| at.0 == place);
            let needed: Map<String, Value> = names
                .filter_map(|at| Some((at.1.clone(), (*found.get(at)?).clone())))
                .collect();
            if !needed.is_empty() {
                object.insert(place.to_owned(), Value::Object(needed));
            }
        }
    }
    Ok(whole)
}

/// The definition that a reference leads to or into, with its place and name.
fn definition<'a>(tool: &'a Tool, reference: &str) -> Option<(&'static str, String, &'a Value)> {
    let mut steps = reference.strip_prefix("#/")?.split('/');
    let first = steps.next()?;
    let place = DEFINITIONS.into_iter().find(|place| *place == first)?;
    let name = steps.next()?.replace("~1", "/").replace("~0", "~");
    let definition = tool.parameters.as_ref()?.get(place)?.get(&name)?;
    Some((place, name, definition))
}
