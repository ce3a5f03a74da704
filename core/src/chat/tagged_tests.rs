//! The form of calls whose arguments stand between tags, and what of it the reader makes.

use super::tool_form_tests::{format, has_form, tokenizer};
use super::*;
use crate::types::StructuredOutput;
use serde_json::{Map, Value, json};

fn tool(schema: Value) -> Tool {
    Tool {
        name: "f".to_owned(),
        parameters: Some(schema),
    }
}

fn form_of(tools: &[Tool]) -> Result<StructuredOutput, ToolError> {
    let format = format(ToolStyle::Qwen3Coder, None, false);
    let form = form_of_answer(tools, &ToolChoice::Required, &format, None, &tokenizer(&[]));
    form.map(|form| form.unwrap())
}

/// A call of `f`.
fn call(arguments: &[(&str, &str)]) -> String {
    let mut text = "<tool_call>\n<function=f>\n".to_owned();
    for (key, value) in arguments {
        text += &format!("<parameter={key}>\n{value}\n</parameter>\n");
    }
    text + "</function>\n</tool_call>"
}

#[test]
fn a_form_takes_of_the_definitions_what_it_needs() {
    let mut definitions = Map::new();
    for n in 0..400 {
        let far = json!({"type": "string", "description": "Nobody refers to it.".repeat(5)});
        definitions.insert(format!("far_{n}"), far);
    }
    definitions.insert("between".into(), json!({"$ref": "#/definitions/n"}));
    let members: Map<String, Value> = (0..60)
        .map(|n| (format!("p{n}"), json!({"type": "integer"})))
        .chain([(
            "near".into(),
            json!({"type": "array", "items": {"$ref": "#/$defs/between"}}),
        )])
        .collect();
    let schema = json!({"$defs": definitions, "definitions": {"n": {"enum": [1, 2]}}, "properties": members});
    let form = form_of(&[tool(schema)]).unwrap();
    assert!(has_form(&form, &call(&[("p3", "4"), ("near", "[2]")]), &[]));
    assert!(!has_form(&form, &call(&[("near", "[3]")]), &[]));
    for reference in ["#", "#/properties/a", "#/$defs/none", "other.json"] {
        let near = json!({"type": "array", "items": {"$ref": reference}});
        let refused = form_of(&[tool(json!({"properties": {"near": near}}))]).unwrap_err();
        assert!(refused.to_string().contains(reference), "{refused}");
    }
}

#[test]
fn what_is_too_much_is_refused_before_it_is_written() {
    let refused = |schema: Value, word: &str| {
        let refused = form_of(&[tool(schema)]).unwrap_err();
        let ToolError::TooLarge { what, found, .. } = &refused else {
            panic!("{refused}");
        };
        assert!(what.contains(word), "{refused}");
        *found
    };
    let members = |num: usize, member: Value| -> Map<String, Value> {
        let member = |n: usize| (format!("p{n}"), member.clone());
        (0..num).map(member).collect()
    };
    let wide =
        |bytes: usize| json!({"wide": {"type": "integer", "description": "d".repeat(bytes)}});
    let number = json!({"type": "integer"});
    let schema = json!({"$defs": wide(1 << 20), "properties": members(5000, number.clone())});
    refused(schema, "members");
    let schema = json!({"$defs": wide(1 << 20), "properties": members(5, number)});
    refused(schema, "schema");
    let near = json!({"$ref": "#/$defs/wide"});
    let schema = json!({"$defs": wide(30 << 10), "properties": members(900, near)});
    // Of the first parameter alone.
    assert!(refused(schema, "grammar") < 40 << 10);
    let one = json!({"properties": members(100, json!({"type": "string"}))});
    let many = vec![tool(one); 128];
    assert!(matches!(
        form_of(&many),
        Err(ToolError::TooLarge { found, .. }) if found < 20 << 10
    ));
}
