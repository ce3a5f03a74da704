//! The form of a call whose arguments stand between tags, as a grammar. Knows no calls around it.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use serde_json::{Map, Value};

use super::tagged_reader::{MAX_TAG, Tags};
use super::tool_error::{ToolError, shown};
use super::tool_form::{Tool, line};
use super::value_kinds::Kinds;
use crate::sample::grammar::limits::{MAX_GRAMMAR_BYTES, MAX_MEMBERS, MAX_SCHEMA_BYTES};

/// Where schemas keep what is referred to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Refuses a tool whose calls could not be read back from between these tags.
pub(super) fn check_tagged(tool: &Tool, tags: &Tags) -> Result<(), ToolError> {
    let fits = |name: &str, mark: &'static str, limit: usize| match name.len() <= limit
        && !name.contains('\n')
        && !name.contains(mark)
    {
        true => Ok(()),
        false => Err(ToolError::Name {
            tool: shown(&tool.name),
            name: shown(name),
            mark,
            limit,
        }),
    };
    fits(&tool.name, tags.name.map_or("<", |[_, end]| end), MAX_TAG)?;
    let [key_end, value_end] = [tags.key[1], tags.value[1]];
    for (key, member) in members(tool).into_iter().flatten() {
        fits(key, key_end, longest_key(tags))?;
        let ends = |text: &Value| text.as_str().is_some_and(|text| text.contains(value_end));
        if listed(member).is_some_and(|listed| listed.iter().any(ends)) {
            return Err(ToolError::Text {
                tool: shown(&tool.name),
                parameter: shown(key),
                mark: value_end,
            });
        }
    }
    Ok(())
}

/// Longest name of an argument, bytes.
fn longest_key(tags: &Tags) -> usize {
    MAX_TAG + 1 - tags.key[1].len()
}

fn members(tool: &Tool) -> Option<&Map<String, Value>> {
    tool.parameters.as_ref()?.get("properties")?.as_object()
}

/// The values that are listed for a member, which is one of them.
fn listed(member: &Value) -> Option<&[Value]> {
    let several = member.get("enum").and_then(Value::as_array);
    let several = several.map(Vec::as_slice);
    several.or_else(|| member.get("const").map(std::slice::from_ref))
}

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
    let members = members(tool);
    let num_members = members.map_or(0, Map::len);
    let what = "the number of members of an object";
    hold(tool, what, num_members, MAX_MEMBERS)?;
    let num_bytes = schema.map_or(0, |schema| schema.to_string().len());
    let what = "the length in bytes of the schema";
    hold(tool, what, num_bytes, MAX_SCHEMA_BYTES)?;
    check_tagged(tool, tags)?;
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
                // Up to the first end, as it is read.
                format!("{name}[suffix={closing}]: /(?s:.*)/")
            }
            false => format!("{name}: /(?s:.*)/ {closing}"),
        };
        line(rules, &rule);
    };
    let mut has_text = members.is_none();
    let mut arguments = String::new();
    let mut rules = String::new();
    for (k, (key, member)) in members.into_iter().flatten().enumerate() {
        let may_miss = if required.contains(&**key) { "" } else { "?" };
        let _ = write!(arguments, "argument_{n}_{k}{may_miss} ");
        let listed: Option<Vec<&str>> =
            listed(member).and_then(|all| all.iter().map(Value::as_str).collect());
        let value = match listed {
            Some(listed) => {
                let texts = listed.into_iter().map(text);
                format!("({}) {value_end}", texts.collect::<Vec<_>>().join(" | "))
            }
            None if Kinds::of_member(schema, key).text => {
                has_text = true;
                format!("value_{n} {line_end}")
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
        // Of four bytes each at most.
        let longest = longest_key(tags) / 4;
        line(
            &mut rules,
            &format!(
                "argument_{n}: {key_begin} /[^<>\\n]{{1,{longest}}}/ {key_end} {line_end} {value_begin} value_{n} {line_end}"
            ),
        );
    }
    if has_text {
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
    let mut found: BTreeMap<(&str, String), &Value> = BTreeMap::new();
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
                if found.insert((place, name), definition).is_none() {
                    todo.push(definition);
                }
            }
            _ => {}
        }
    }
    let mut whole = member.clone();
    if let Some(object) = whole.as_object_mut() {
        for place in DEFINITIONS {
            let names = found.iter().filter(|((at, _), _)| *at == place);
            let needed: Map<String, Value> = names
                .map(|((_, name), &definition)| (name.clone(), definition.clone()))
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
