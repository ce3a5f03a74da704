//! Schemas, expressions and grammars that want the whole machine, just within what is taken and far
//! beyond it: each is refused, or gives its masks, in bounded time, memory and stack. One test a
//! process, as it watches the allocator.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/memory_peak.rs"]
mod memory_peak;

use std::time::{Duration, Instant};

use memory_peak::bounded;
use serde_json::{Map, Value, json};
use twoclock_core::sample::grammar::{Constraint, GrammarCompiler, TokenText, limits};
use twoclock_core::types::{SamplingParams, StructuredOutput, StructuredOutputError, TokenId};

use StructuredOutput::{Choice, Grammar, Json, Regex};

/// Bytes, and pairs of letters.
fn compiler() -> GrammarCompiler {
    let single: Vec<u8> = (0..=255).collect();
    let pairs: Vec<[u8; 2]> = (b'a'..=b'z')
        .flat_map(|a| (b'a'..=b'z').map(move |b| [a, b]))
        .collect();
    let token = |id: TokenId| TokenText {
        bytes: match (id as usize).checked_sub(257) {
            Some(pair) => pairs.get(pair).map_or(&[], |pair| pair),
            None => single.get(id as usize..=id as usize).unwrap_or_default(),
        },
        special: false,
    };
    GrammarCompiler::new(257 + pairs.len(), &[256], token).unwrap()
}

/// Begins an answer and draws some tokens.
fn draw(compiler: &GrammarCompiler, form: &StructuredOutput) -> Result<(), StructuredOutputError> {
    let params = SamplingParams::default();
    let mut answer = Constraint::new(compiler.compile(form)?, &params, &[256])?;
    for step in 0..8usize {
        let ids = (0..1000).filter(|&id| id != 256 && answer.mask().allows(id));
        let ids: Vec<TokenId> = ids.collect();
        let Some(&id) = ids.get(step * 7919 % ids.len().max(1)) else {
            break;
        };
        if answer.accept(id)? {
            break;
        }
    }
    Ok(())
}

fn members(n: usize, member: &Value) -> Map<String, Value> {
    (0..n).map(|i| (format!("p{i}"), member.clone())).collect()
}

fn links(n: usize, link: fn(String) -> Value) -> Value {
    let mut defs: Map<String, Value> = (0..n)
        .map(|i| (format!("d{i}"), link(format!("#/$defs/d{}", i + 1))))
        .collect();
    defs.insert(format!("d{n}"), json!({"type": "null"}));
    json!({"$defs": defs, "$ref": "#/$defs/d0"})
}

fn nested(n: usize, mut value: Value, wrap: fn(Value) -> Value) -> Value {
    for _ in 0..n {
        value = wrap(value);
    }
    value
}

fn schemas() -> Vec<(&'static str, Value)> {
    let any = json!({});
    let pattern = json!({"type": "string", "pattern": "a.*b.*c"});
    let object =
        |required: &[&str]| json!({"properties": {"a": {"type": "string"}}, "required": required});
    vec![
        (
            "many properties",
            json!({"properties": members(1000, &any), "additionalProperties": false}),
        ),
        (
            "many properties, any more",
            json!({"properties": members(1000, &json!({"type": "integer"}))}),
        ),
        (
            "nested properties",
            json!({"properties": members(40, &json!({"properties": members(30, &any)}))}),
        ),
        (
            "many choices",
            json!({"enum": (0..4000).map(|i| format!("v{i}")).collect::<Vec<_>>()}),
        ),
        (
            "many objects",
            json!({"enum": (0..2000).map(|i| json!({"a": i, "b": [i]})).collect::<Vec<_>>()}),
        ),
        (
            "many alternatives",
            json!({"anyOf": (0..500).map(|i| json!({"properties": {"k": {"const": i}}})).collect::<Vec<_>>()}),
        ),
        (
            "alternatives of everything",
            json!({"allOf": (0..24).map(|i| json!({"anyOf": [{"properties": {format!("a{i}"): {"const": 0}}}, {"properties": {format!("a{i}"): {"const": 1}}}]})).collect::<Vec<_>>()}),
        ),
        ("patterns meet", json!({"allOf": vec![pattern.clone(); 6]})),
        (
            "patterns of properties",
            json!({"patternProperties": (0..32).map(|i| (format!("^a{i}[a-z]+$"), any.clone())).collect::<Map<_, _>>()}),
        ),
        (
            "patterns of properties overlap",
            json!({"patternProperties": (0..32).map(|i| (format!("a{i}.*b"), any.clone())).collect::<Map<_, _>>()}),
        ),
        ("a multiple", json!({"type": "integer", "multipleOf": 9973})),
        (
            "a multiple in a range",
            json!({"type": "number", "multipleOf": 0.9973, "minimum": -123_456.789, "maximum": 987_654.321}),
        ),
        (
            "a product of multiples",
            json!({"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}),
        ),
        (
            "a huge multiple",
            json!({"type": "integer", "multipleOf": 999_983}),
        ),
        (
            "a long text",
            json!({"type": "string", "minLength": 1_000_000_000}),
        ),
        (
            "a long list",
            json!({"items": {"type": "string"}, "minItems": 1_000_000_000}),
        ),
        (
            "a long list of choices",
            json!({"items": {"enum": (0..300).collect::<Vec<_>>()}, "minItems": 3, "maxItems": 40_000}),
        ),
        (
            "an ambiguous pattern",
            json!({"type": "string", "pattern": "^(a|b)*a(a|b){500}$"}),
        ),
        (
            "an ambiguous pattern of a length",
            json!({"type": "string", "pattern": "^(a|b)*a(a|b){20}$", "minLength": 50}),
        ),
        (
            "a long pattern",
            json!({"type": "string", "pattern": "a?".repeat(4000)}),
        ),
        (
            "references",
            links(90, |next| json!({"items": {"$ref": next}})),
        ),
        (
            "too many references",
            links(2000, |next| json!({"$ref": next})),
        ),
        (
            "references to all",
            json!({"$defs": members(300, &json!({"anyOf": (0..60).map(|i| json!({"$ref": format!("#/$defs/p{i}")})).collect::<Vec<_>>()})), "$ref": "#/$defs/p0"}),
        ),
        (
            "a circle",
            json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}, {"pattern": "a"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"}),
        ),
        (
            "deep",
            nested(60, json!({"type": "null"}), |inner| json!({"items": inner})),
        ),
        (
            "deep objects",
            nested(
                60,
                object(&["a"]),
                |inner| json!({"properties": {"a": inner}, "required": ["a"]}),
            ),
        ),
        (
            "deep alternatives",
            nested(
                50,
                object(&[]),
                |inner| json!({"anyOf": [inner.clone(), {"items": {"type": "string"}}], "items": true}),
            ),
        ),
        (
            "deep constant",
            json!({"const": nested(100, json!(1), |inner| json!([inner]))}),
        ),
        (
            "whitespace",
            json!({"x-guidance": {"whitespace_pattern": "(a|b)*a(a|b){30}"}, "type": "object"}),
        ),
    ]
}

fn forms() -> Vec<(&'static str, StructuredOutput)> {
    let chain = |n: usize, name: char| -> String {
        let link = |i: usize| format!("{name}{i}: \"x\" {name}{}\n", i + 1);
        (0..n).map(link).collect::<String>() + &format!("{name}{n}: \"y\"\nstart: {name}0\n")
    };
    let mut all =
        vec![
        ("bounds", Regex("(a{1,1000}){1,1000}".into())),
        (
            "bounds of bounds",
            Regex("((\\p{L}{1,50}){1,50}b){1,50}".into()),
        ),
        ("an ambiguous end", Regex("(.*a.{40})|(.*b.{41})".into())),
        (
            "optional letters",
            Regex("a?".repeat(limits::MAX_REGEX_BYTES / 2)),
        ),
        (
            "optional groups",
            Regex("(a|bc)*".repeat(limits::MAX_REGEX_BYTES / 7)),
        ),
        ("words", Regex((0..700).map(|i| format!("w{i}|")).collect())),
        ("classes", Regex(r"\p{L}\d\w\s.".repeat(300))),
        ("brackets", Regex("(".repeat(3000))),
        (
            "long choices",
            Choice((0..3000).map(|i| format!("w{i}")).collect()),
        ),
        (
            "one choice",
            Choice(vec!["a".repeat(limits::MAX_CHOICE_BYTES - 1)]),
        ),
        (
            "empty choices",
            Choice(vec![String::new(); limits::MAX_CHOICE_BYTES]),
        ),
        ("too many empty choices", Choice(vec![String::new(); 1 << 20])),
        ("terminals", Grammar(chain(190, 'A'))),
        ("too many terminals", Grammar(chain(900, 'A'))),
        ("rules", Grammar(chain(190, 'a'))),
        ("too many rules", Grammar(chain(900, 'a'))),
        (
            "brackets of a grammar",
            Grammar("start: ".to_owned() + &"(".repeat(8000)),
        ),
        (
            "not",
            Grammar("start: T\nT: ".to_owned() + &"~".repeat(8000) + "/a/"),
        ),
        (
            "alternatives",
            Grammar(
                "start: ".to_owned()
                    + &(0..1500).map(|i| format!("\"w{i}\"|")).collect::<String>()
                    + "\"\"",
            ),
        ),
        (
            "optional words",
            Grammar("start: T\nA: \"a\"\nT: ".to_owned() + &"A? ".repeat(5000)),
        ),
        (
            "intersections",
            Grammar("start: T\nT: ".to_owned() + &["/a.*b.*c/"; 7].join(" & ")),
        ),
        (
            "repetition",
            Grammar("start: (\"a\"~1..1000000000)~1..1000000000".into()),
        ),
        (
            "ambiguity",
            Grammar("start: s\ns: s s s | s s | \"a\" | \"\"".into()),
        ),
        ("nothing", Grammar("start: start | a\na: start".into())),
        (
            "substrings",
            Grammar(format!(
                "start: %regex {{\"substring_chars\": \"{}\"}}",
                "ab".repeat(4000)
            )),
        ),
        (
            "parameters",
            Grammar(
                "start: r::0\nr::_: \"a\" r::incr(_) %if lt(_, 60) | \"b\" r::set_bit(3) | \"\""
                    .into(),
            ),
        ),
        (
            "nested grammars",
            Grammar("start: ".to_owned() + &"%lark { start: ".repeat(500)),
        ),
        ("no JSON", Json("[".repeat(limits::MAX_SCHEMA_BYTES))),
        ("too long", Json(" ".repeat(1 << 24))),
    ];
    for (name, schema) in schemas() {
        all.push((name, Json(schema.to_string())));
        all.push((name, Grammar(format!("start: \"a\" %json {schema}"))));
    }
    all
}

/// On half the stack that a thread has unless it asks for more.
#[test]
fn none_holds_the_machine_up() {
    let small = std::thread::Builder::new().stack_size(1 << 20);
    small.spawn(all).unwrap().join().unwrap();
}

fn all() {
    let compiler = compiler();
    let mut slowest = (Duration::ZERO, "");
    for (name, form) in forms() {
        let start = Instant::now();
        let result = bounded(200 << 20, || draw(&compiler, &form));
        let took = start.elapsed();
        println!(
            "{name} ({}): {took:.2?}, {:?}",
            form.name(),
            result.map_err(|e| e.to_string().chars().take(120).collect::<String>())
        );
        assert!(took < Duration::from_secs(15), "{name}: {took:?}");
        slowest = slowest.max((took, name));
    }
    println!("slowest: {slowest:?}");
}
