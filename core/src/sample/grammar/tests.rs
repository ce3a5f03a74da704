//! Answers drawn at random under a form have it, whatever else restricts them.

use super::*;
use crate::types::SamplingParams;

/// Ids 0 to 255 are bytes; some words; then two special tokens, and an id without a token.
const WORDS: [&str; 12] = [
    "{\"",
    "\":",
    "\"}",
    "name",
    "true",
    " the",
    "12",
    "yes",
    "no",
    "日",
    "\"name\":\"",
    "ab",
];
const END: TokenId = 268;
const TURN: TokenId = 269;
const VOCAB: usize = 271;

fn compiler() -> GrammarCompiler {
    let bytes: Vec<u8> = (0..=255).collect();
    let token = |id: TokenId| {
        let id = id as usize;
        let text: &[u8] = match id {
            0..256 => &bytes[id..=id],
            256..268 => WORDS[id - 256].as_bytes(),
            268 => b"<|end|>",
            269 => b"<|turn|>",
            _ => b"",
        };
        let special = id >= 268;
        TokenText {
            bytes: text,
            special,
        }
    };
    GrammarCompiler::new(VOCAB, &[END, 9999], token).unwrap()
}

fn bytes(id: TokenId) -> Vec<u8> {
    match id as usize {
        id @ 0..256 => vec![id as u8],
        id @ 256..268 => WORDS[id - 256].as_bytes().to_vec(),
        _ => panic!("{id} is no text"),
    }
}

fn form(params: &SamplingParams) -> Result<Constraint, StructuredOutputError> {
    let form = params.structured_output.as_ref().unwrap();
    Constraint::new(compiler().compile(form)?, params, &[END])
}

fn of(form: StructuredOutput) -> SamplingParams {
    SamplingParams {
        structured_output: Some(form),
        ..SamplingParams::default()
    }
}

fn json(schema: &str) -> StructuredOutput {
    StructuredOutput::Json(schema.into())
}

fn allowed(mask: &TokenMask) -> Vec<TokenId> {
    (0..VOCAB as TokenId)
        .filter(|&id| mask.allows(id))
        .collect()
}

/// Draws up to `most` tokens; gives the text and whether it is whole.
fn walk(mut constraint: Constraint, seed: u64, most: usize) -> (String, bool) {
    let mut state = seed;
    let mut text = Vec::new();
    for _ in 0..most {
        let ids = allowed(constraint.mask());
        assert!(!ids.is_empty());
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        let id = ids[(state >> 33) as usize % ids.len()];
        if id == END {
            return (String::from_utf8(text).unwrap(), true);
        }
        text.extend(bytes(id));
        if constraint.accept(id).unwrap() {
            return (String::from_utf8(text).unwrap(), true);
        }
    }
    (String::from_utf8_lossy(&text).into_owned(), false)
}

#[test]
fn every_kind_is_kept_to() {
    let schema = r#"{"x-guidance": {"whitespace_flexible": false}, "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer",
        "minimum": 0, "maximum": 99}, "kind": {"enum": ["a", "bc", null]}},
        "required": ["name", "age", "kind"], "additionalProperties": false}"#;
    let choices = ["yes", "no", "no \"way\"\n", "日本/a.b"].map(str::to_owned);
    for seed in 0..20 {
        let (text, whole) = walk(form(&of(json(schema))).unwrap(), seed, 200);
        assert!(whole, "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(value["name"].as_str().unwrap().chars().count() <= 5);
        assert!((0..100).contains(&value["age"].as_i64().unwrap()));
        assert!(
            [serde_json::json!("a"), "bc".into(), serde_json::Value::Null].contains(&value["kind"])
        );
        assert_eq!(value.as_object().unwrap().len(), 3);

        let (text, whole) = walk(form(&of(StructuredOutput::JsonObject)).unwrap(), seed, 600);
        // Its numbers need not fit one.
        let object = serde_json::from_str::<serde::de::IgnoredAny>(&text);
        assert!(!whole || object.is_ok(), "{text}");
        assert!(text.starts_with('{') || text.is_empty());

        let regex = StructuredOutput::Regex("(?:[a-c]{2,4}-)?\\d\\d".into());
        let (text, whole) = walk(form(&of(regex)).unwrap(), seed, 60);
        let (letters, digits) = text.rsplit_once('-').unwrap_or(("aa", &text));
        assert!(whole && digits.chars().count() == 2 && (2..=4).contains(&letters.len()));
        assert!(
            letters.bytes().all(|b| (b'a'..=b'c').contains(&b)),
            "{text}"
        );

        let grammar = "start: \"(\" inner \")\"\ninner: start | NUMBER\nNUMBER: /[1-9]/";
        let grammar = StructuredOutput::Grammar(grammar.into());
        let (text, whole) = walk(form(&of(grammar)).unwrap(), seed, 300);
        let digit = text.trim_matches(['(', ')']);
        assert!(
            whole && digit.len() == 1 && text.matches('(').count() == text.matches(')').count()
        );

        let choice = StructuredOutput::Choice(choices.to_vec());
        let (text, whole) = walk(form(&of(choice)).unwrap(), seed, 60);
        assert!(whole && choices.contains(&text), "{text}");
    }
}

#[test]
fn it_ends_only_where_it_is_whole() {
    let params = of(StructuredOutput::Regex("ab?c*".into()));
    let mut answer = form(&params).unwrap();
    let ids = |text: &str| text.bytes().map(TokenId::from).collect::<Vec<_>>();
    // "ab" is a token too.
    assert_eq!(allowed(answer.mask()), [ids("a"), vec![267]].concat());
    assert!(!answer.accept(b'a'.into()).unwrap());
    assert_eq!(allowed(answer.mask()), [ids("bc"), vec![END]].concat());
    assert!(!answer.accept(b'c'.into()).unwrap());
    assert_eq!(allowed(answer.mask()), [ids("c"), vec![END]].concat());

    // What nothing may follow ends by itself, a grammar's end of a turn is a token like others.
    let mut answer = form(&of(StructuredOutput::Choice(vec![
        "ab".into(),
        "ax".into(),
    ])))
    .unwrap();
    let mut other = form(&of(StructuredOutput::Grammar(
        "start: <|turn|> \"a\"?".into(),
    )))
    .unwrap();
    assert!(!answer.accept(b'a'.into()).unwrap());
    assert!(answer.accept(b'x'.into()).unwrap());
    assert_eq!(allowed(other.mask()), [TURN]);
    assert!(!other.accept(TURN).unwrap());
    assert!(other.accept(b'a'.into()).unwrap());
}

#[test]
fn stop_ids_end_it_where_it_is_whole() {
    let params = SamplingParams {
        stop_token_ids: vec![TURN, b'!'.into()],
        ..of(StructuredOutput::Regex("ab?".into()))
    };
    let mut answer = form(&params).unwrap();
    assert_eq!(allowed(answer.mask()), [b'a'.into(), 267]);
    answer.accept(b'a'.into()).unwrap();
    assert_eq!(
        allowed(answer.mask()),
        [b'!'.into(), b'b'.into(), END, TURN]
    );

    // Without end-of-generation ids it ends where nothing else may follow.
    let mut answer = form(&SamplingParams {
        ignore_eos: true,
        ..of(StructuredOutput::Regex("ab?".into()))
    })
    .unwrap();
    assert!(!answer.accept(b'a'.into()).unwrap());
    assert_eq!(allowed(answer.mask()), [TokenId::from(b'b')]);
    assert!(answer.accept(b'b'.into()).unwrap());
    // One that is a stop id too is no part of the answer.
    let mut answer = form(&SamplingParams {
        stop_token_ids: vec![END],
        ignore_eos: true,
        ..of(StructuredOutput::Regex("ab?".into()))
    })
    .unwrap();
    answer.accept(b'a'.into()).unwrap();
    assert_eq!(allowed(answer.mask()), [b'b'.into(), END]);
}

#[test]
fn bans_and_lengths_win() {
    // A whole answer ends where bans leave nothing, whatever `min_tokens` says.
    let params = SamplingParams {
        min_tokens: 3,
        bad_words: vec![vec![b'a'.into(), b'b'.into()]],
        ..of(StructuredOutput::Regex("ab?".into()))
    };
    assert!(form(&params).unwrap().accept(b'a'.into()).unwrap());
    // One that is not whole cannot go on.
    let params = SamplingParams {
        bad_words: vec![vec![b'b'.into()], vec![267]],
        ..of(StructuredOutput::Regex("ab".into()))
    };
    let error = form(&params).unwrap().accept(b'a'.into()).unwrap_err();
    assert_eq!(
        error,
        StructuredOutputError::NothingAllowed { name: "regex" }
    );
    assert!(error.to_string().contains("bad_words"));
}

#[test]
fn answers_stand_on_their_own() {
    let params = of(json(r#"{"type": "array", "items": {"type": "integer"}}"#));
    let mut first = form(&params).unwrap();
    let mut second = first.clone();
    let before = second.mask().clone();
    for byte in b"[12" {
        first.accept((*byte).into()).unwrap();
    }
    assert_eq!(second.mask(), &before);
    for byte in b"[12" {
        second.accept((*byte).into()).unwrap();
    }
    assert_eq!(second.mask(), first.mask());
}

#[test]
fn what_cannot_be_enforced_is_refused_by_name_and_place() {
    use StructuredOutput::{Choice, Grammar, Regex};
    let cases = [
        (json("{\"type\": }"), "json", "line 1 column 10"),
        (json("7"), "json", "object or boolean"),
        (json(r#"{"type": "strin"}"#), "json", "strin"),
        (
            json(r#"{"unevaluatedItems": false}"#),
            "json",
            "unevaluatedItems",
        ),
        (json(r##"{"$ref": "#/$defs/x"}"##), "json", "$defs"),
        (json(r#"{"enum": []}"#), "json", "Unsatisfiable"),
        (json(r##"{"$ref": "#"}"##), "json", "no token"),
        (
            Regex("a(b".into()),
            "regex",
            "unclosed group, at its character 2",
        ),
        (Regex("(?=a)b".into()), "regex", "look-around"),
        (Regex(r"\bfoo\b".into()), "regex", "lookaround"),
        (Grammar("x: \"a\"".into()), "grammar", "start"),
        (Grammar("start: x".into()), "grammar", "1(8)"),
        (Grammar("root ::= \"a\"".into()), "grammar", "GBNF"),
        (Grammar("start: \"a".into()), "grammar", "1(10)"),
        (Grammar("start: <nope>".into()), "grammar", "<nope>"),
        (Choice(vec![]), "choice", "at least one"),
    ];
    for (case, name, says) in cases {
        let error = form(&of(case.clone())).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains(says),
            "{case:?}: {error}"
        );
        assert!(error.len() < 800 && !error.contains("verbose"), "{error}");
    }
}

#[test]
fn what_is_too_much_is_refused_by_its_number() {
    use serde_json::json as value;
    let many = |n: usize| {
        (0..n)
            .map(|i| (format!("p{i}"), value!({})))
            .collect::<serde_json::Map<_, _>>()
    };
    let pattern = value!({"type": "string", "pattern": "a.*b"});
    let mut links = serde_json::Map::new();
    for i in 0..150 {
        links.insert(
            format!("d{i}"),
            value!({"items": {"$ref": format!("#/$defs/d{}", i + 1)}}),
        );
    }
    let schemas = [
        value!({"properties": many(1001)}),
        value!({"enum": vec![1; 4001]}),
        value!({"patternProperties": many(33)}),
        value!({"pattern": "a".repeat(8193)}),
        value!({"allOf": vec![pattern; 7]}),
        value!({"properties": {"a": {"multipleOf": 9973}, "b": {"multipleOf": 9967}}}),
        value!({"multipleOf": 1e-12}),
        value!({"$defs": links, "$ref": "#/$defs/d0"}),
        value!({"title": "a".repeat(limits::MAX_SCHEMA_BYTES)}),
    ];
    let chain: String = (0..200)
        .map(|i| format!("A{i}: \"x\" A{}\n", i + 1))
        .collect();
    let forms = schemas.iter().flat_map(|schema| {
        let inside = StructuredOutput::Grammar(format!("start: \"a\" %json {schema}"));
        [json(&schema.to_string()), inside]
    });
    let others = [
        StructuredOutput::Grammar(format!("start: A0\n{chain}A200: \"y\"")),
        StructuredOutput::Grammar("start: T\nT: ".to_owned() + &["/a.*/"; 8].join(" & ")),
        StructuredOutput::Regex("a?".repeat(limits::MAX_REGEX_BYTES)),
        StructuredOutput::Choice(vec!["a".repeat(limits::MAX_CHOICE_BYTES), "b".into()]),
        StructuredOutput::Choice(vec![String::new(); limits::MAX_CHOICE_BYTES + 1]),
    ];
    let compiler = compiler();
    for form in forms.chain(others) {
        let error = compiler.compile(&form).unwrap_err();
        let large =
            matches!(error, StructuredOutputError::TooLarge { found, limit, .. } if found > limit);
        assert!(large, "{error}");
    }
}

#[test]
fn a_vocabulary_may_be_strange() {
    let long = [b'a'; 4096];
    let token = |id: TokenId| TokenText {
        bytes: if id == 3 { &long } else { &long[..1] },
        special: false,
    };
    // No end, the same text twice, one that no trie holds.
    let compiler = GrammarCompiler::new(40, &[], token).unwrap();
    let form = StructuredOutput::Regex("a{2}|b".into());
    let params = SamplingParams::default();
    let mut answer = Constraint::new(compiler.compile(&form).unwrap(), &params, &[]).unwrap();
    let expected: Vec<TokenId> = (0..40).filter(|id| *id != 3).collect();
    assert_eq!(allowed(answer.mask()), expected);
    assert!(!answer.accept(39).unwrap());
    assert!(answer.accept(0).unwrap());
    let form = StructuredOutput::Regex("b".into());
    let error = Constraint::new(compiler.compile(&form).unwrap(), &params, &[]);
    assert!(matches!(
        error,
        Err(StructuredOutputError::NothingAllowed { .. })
    ));
    assert!(GrammarCompiler::new(limits::MAX_VOCAB + 1, &[], token).is_err());
    GrammarCompiler::new(0, &[], token).unwrap();
}

#[test]
fn a_form_asked_for_again_stands_at_its_beginning() {
    let compiler = compiler();
    let choice = |text: &str| StructuredOutput::Choice(vec![text.to_owned()]);
    for text in ["ab", "ab", "ab", "b", "ab"] {
        let mut matcher = compiler.compile(&choice(text)).unwrap();
        let first = matcher.mask().unwrap();
        let mut anew = compiler.compile_anew(&choice(text)).unwrap();
        assert_eq!(first, anew.mask().unwrap(), "{text}");
        let id = (0..)
            .find(|id| first[id / 32] >> (id % 32) & 1 == 1)
            .unwrap();
        matcher.accept(id as TokenId).unwrap();
    }
    let last = compiler.last.lock().unwrap();
    assert!(last.as_ref().unwrap().1.is_none(), "the last came once");
}

/// What generators of schemas write for a 64-bit integer.
#[test]
fn the_widest_bounds_of_integers_are_held() {
    for bounds in [
        serde_json::json!({"minimum": i64::MIN, "maximum": i64::MAX}),
        serde_json::json!({"exclusiveMinimum": -9.3e18, "exclusiveMaximum": u64::MAX}),
    ] {
        let mut schema = serde_json::json!({"type": "integer"});
        schema
            .as_object_mut()
            .unwrap()
            .append(&mut bounds.as_object().unwrap().clone());
        let form = StructuredOutput::Json(schema.to_string());
        compiler().compile(&form).unwrap();
    }
}
