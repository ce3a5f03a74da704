//! The form of calls whose arguments stand between tags, and what of it the reader makes.

use super::tool_form_tests::{format, has_form, tokenizer};
use super::*;
use crate::types::StructuredOutput;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn tool(schema: Value) -> Tool {
    Tool {
        name: "f".to_owned(),
        parameters: Some(schema),
    }
}

fn form_of(tools: &[Tool]) -> Result<StructuredOutput, ToolError> {
    form_in(ToolStyle::Qwen3Coder, tools)
}

fn form_in(style: ToolStyle, tools: &[Tool]) -> Result<StructuredOutput, ToolError> {
    let format = format(style, None, false);
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

/// The same as GLM writes it.
fn glm_call(arguments: &[(&str, &str)]) -> String {
    let mut text = "<tool_call>f".to_owned();
    for (key, value) in arguments {
        text += &format!("<arg_key>{key}</arg_key><arg_value>{value}</arg_value>");
    }
    text + "</tool_call>"
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

#[test]
fn what_would_not_come_back_is_refused() {
    let of = |schema: Value| tool(schema).check(ToolStyle::Qwen3Coder);
    let longest = "n".repeat(256);
    let number = json!({"type": "integer"});
    let named = |name: &str| json!({"properties": {name: number}});
    assert_eq!(of(named(&longest)), Ok(()));
    for name in ["a>b", "a\nb", &(longest + "n")] {
        let refused = of(named(name)).unwrap_err();
        assert!(matches!(refused, ToolError::Name { .. }), "{refused}");
        assert_eq!(form_of(&[tool(named(name))]), Err(refused));
        assert_eq!(tool(named(name)).check(ToolStyle::Hermes), Ok(()));
    }
    for listed in [
        json!({"enum": ["a", "</parameter>"]}),
        json!({"const": "b</parameter>\n"}),
    ] {
        let refused = of(json!({"properties": {"a": listed}})).unwrap_err();
        assert!(matches!(refused, ToolError::Text { .. }), "{refused}");
    }
}

#[test]
fn a_call_that_gives_an_argument_twice_goes_wrong() {
    let format = format(ToolStyle::Qwen3Coder, None, true);
    let twice = call(&[("a", "1"), ("a", "2")]).replace("=f>", "=add>");
    let parts = AnswerParts::of(&format, &twice);
    assert_eq!(parts.tool_calls.len(), 1);
    assert_eq!(parts.tool_calls[0].arguments, "{\"a\": 1");
}

#[test]
fn arguments_that_no_schema_names_are_read_back() {
    let free = Tool {
        name: "f".to_owned(),
        parameters: None,
    };
    let form = form_of(&[free]).unwrap();
    let longest = "é".repeat(64);
    let arguments = [(&*longest, "1"), ("b c", "x</p>")];
    assert!(has_form(&form, &call(&arguments), &[]));
    let longer = "é".repeat(65);
    assert!(!has_form(&form, &call(&[(&longer, "1")]), &[]));
}

/// A tool of each kind of value.
fn of_all_kinds() -> Tool {
    tool(json!({"required": ["text"], "properties": {
        "text": {"type": "string"}, "one": {"enum": ["a\n", "null"], "type": ["string", "null"]},
        "list": {"type": "array", "items": {"type": "string"}}, "number": {"type": "number"},
        "any": {}}}))
}

fn fragments() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(vec![
        "</parameter>",
        "</parameter>\n",
        "</arg_value>",
        "<arg_key>list</arg_key><arg_value>",
        "<parameter=list>\n",
        "<parameter=number>\n",
        "</function>\n",
        "</tool_call>",
        "\n",
        "\"",
        "[",
        "]",
        "1",
        "a",
        "é",
        " ",
    ]);
    prop::collection::vec(fragment, 0..6).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn what_has_the_form_is_read_back(
        is_glm: bool,
        text in fragments(),
        one in prop::option::of(prop::sample::select(vec!["a\n", "null"])),
        list in prop::option::of(prop::collection::vec(fragments(), 0..3)),
        number in prop::option::of((-9999..9999).prop_map(|n| f64::from(n) / 8.0)),
        any in prop::option::of(fragments()),
    ) {
        let offered = of_all_kinds();
        let (style, end) = match is_glm {
            true => (ToolStyle::Glm, "</arg_value>"),
            false => (ToolStyle::Qwen3Coder, "</parameter>"),
        };
        let form = form_in(style, std::slice::from_ref(&offered)).unwrap();
        let mut format = format(style, None, false);
        format.tools.as_mut().unwrap().tools = [offered].into();
        let written = [
            ("text", Some(text.clone())),
            ("one", one.map(str::to_owned)),
            ("list", list.as_ref().map(|list| json!(list).to_string())),
            ("number", number.map(|number| json!(number).to_string())),
            ("any", any.clone()),
        ];
        let arguments: Vec<(&str, &str)> = written
            .iter()
            .filter_map(|(key, value)| Some((*key, value.as_deref()?)))
            .collect();
        let answer = match is_glm {
            true => glm_call(&arguments),
            false => call(&arguments),
        };
        let has_form = has_form(&form, &answer, &[]);
        let ends = |text: &str| text.contains(end);
        let is_plain = !ends(&text) && !any.as_deref().is_some_and(ends);
        // Only what ends a text may leave the form, and what then still has it is another call.
        prop_assert!(has_form || !is_plain, "{answer:?} {form:?}");
        if has_form {
            let parts = AnswerParts::of(&format, &answer);
            prop_assert_eq!(&parts.content, "", "{:?}", answer);
            prop_assert_eq!(parts.tool_calls.len(), 1);
            let read: Value = serde_json::from_str(&parts.tool_calls[0].arguments).unwrap();
            prop_assert!(read["text"].is_string());
            prop_assert!(read.get("list").is_none_or(Value::is_array), "{}", read);
            prop_assert!(read.get("number").is_none_or(Value::is_number), "{}", read);
            if is_plain {
                prop_assert_eq!(&read["text"], &json!(text));
                prop_assert_eq!(read.get("one").cloned(), one.map(Value::from));
                prop_assert_eq!(read.get("list").cloned(), list.map(|list| json!(list)));
                prop_assert_eq!(read.get("number").cloned(), number.map(|number| json!(number)));
            }
        }
    }
}
