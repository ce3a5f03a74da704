//! Lines of all kinds: those that are no request, those that ask for what is not served, and answers of
//! an earlier run.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

mod batch_scene;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use batch_scene::{answers, batch, chat, request, requests, scene, succeeded};
use serde_json::json;

#[test]
fn a_line_that_is_no_json_is_answered_so_and_harms_no_other() {
    let home = scene();
    let line = |id: &str, body: &[u8]| {
        let before = format!("{{\"custom_id\":\"{id}\",\"body\":");
        [before.as_bytes(), body, b"}\n"].concat()
    };
    let deep = ["[".repeat(500), "]".repeat(500)].concat();
    let text = [
        line("deep", deep.as_bytes()),
        line("surrogate", br#"{"prompt":"\ud800"}"#),
        line("number", br#"{"temperature":1e999}"#),
        line("bytes", b"{\"prompt\":\"\xff\"}"),
        format!("{}\n", chat("good", json!({}))).into_bytes(),
        b"{\"custom_id\":\"cut\",\"body\":{\"prompt\":\n".to_vec(),
        b"{\"custom_id\":\"letters\",\"body\":nonsense}\n".to_vec(),
        b"{\"custom_id\":\"early\",\"arrival_s\":-1}\n".to_vec(),
        b"{\"custom_id\":\"when\",\"arrival_s\":\"now\"}\n".to_vec(),
        b"{\"custom_id\":\"twice\",\"custom_id\":\"b\"}\n".to_vec(),
    ];
    fs::write(home.path().join("in.jsonl"), text.concat()).unwrap();
    let summary = succeeded(batch(home.path(), "out.jsonl", &[]).output().unwrap());
    assert_eq!(summary["requests"]["failed"], 9);
    let answers = answers(home.path().join("out.jsonl"));
    assert_eq!(answers["good"]["status_code"], 200);
    for (id, because) in [
        ("deep", "recursion limit"),
        ("surrogate", "hex escape"),
        ("number", "number out of range"),
        ("bytes", "unicode"),
        ("cut", "line 6 of the file: it is not JSON: EOF"),
        ("letters", "no value begins so"),
        ("early", "arrival_s must be from 0"),
        ("when", "it is no request: invalid type: string"),
        ("twice", "duplicate field `custom_id`"),
    ] {
        assert_eq!(answers[id]["status_code"], 400, "{id}");
        let said = answers[id]["body"]["error"]["message"].as_str().unwrap();
        assert!(said.contains(because), "{id}: {said}");
    }
}

#[test]
fn a_small_cache_makes_sequences_shorter_and_says_so() {
    let home = scene();
    let mut open_end = chat("a", json!({"ignore_eos": true}));
    open_end["body"]
        .as_object_mut()
        .unwrap()
        .remove("max_tokens");
    requests(home.path(), &[open_end]);
    let small = ["--kv-cache-tokens", "60", "--preemption-mode", "auto"];
    let output = batch(home.path(), "out.jsonl", &small).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("at most 64 tokens"), "{said}");
    succeeded(output);
    let answer = answers(home.path().join("out.jsonl"))["a"].clone();
    assert_eq!(answer["status_code"], 200, "{answer}");
    assert_eq!(answer["body"]["usage"]["total_tokens"], 64);
}

#[test]
fn answers_of_any_length_are_kept_and_those_that_failed_tried_again() {
    let home = scene();
    let ids = ["long", "refused", "failed", "new"];
    requests(home.path(), &ids.map(|id| chat(id, json!({}))));
    let answer = |number: usize, id: &str, status: u16, text: String| {
        let body = json!({"text": text, "more": [",\"body\":"]});
        let response = json!({"status_code": status, "request_id": "r", "body": body});
        let id = json!({"id": format!("batch_req_{number}"), "custom_id": id,
            "response": response, "error": null});
        format!("{id}\n")
    };
    let long = "a".repeat(17 << 20);
    let cut = answer(5, "new", 200, long.clone());
    let text = [
        answer(9, "long", 200, long),
        answer(3, "failed", 500, "the device".into()),
        answer(4, "refused", 400, String::new()),
        cut[..cut.len() - 1].to_owned(),
    ];
    let out = home.path().join("out.jsonl");
    fs::write(&out, text.concat()).unwrap();
    let summary = succeeded(batch(home.path(), "out.jsonl", &[]).output().unwrap());
    let requests = json!({"completed": 2, "failed": 0, "skipped": 2, "interrupted": 0});
    assert_eq!(summary["requests"], requests);
    // Bytes that were there stay, and every number is one answer's.
    let after = fs::read_to_string(&out).unwrap();
    assert!(after.starts_with(&[&*text[0], &text[2]].concat()));
    let numbers = after.lines().map(|line| line[..22].to_owned());
    let numbers: BTreeSet<_> = numbers.collect();
    assert_eq!(numbers.len(), 4, "{numbers:?}");
    let answers = answers(out);
    let statuses = ids.map(|id| answers[id]["status_code"].as_u64().unwrap());
    assert_eq!(statuses, [200, 400, 200, 200]);
    assert_eq!(
        fs::read_dir(home.path()).unwrap().count(),
        3,
        "nothing else is left"
    );
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    let home = scene();
    let refused = [
        ("structured_outputs", json!({})),
        ("allowed_token_ids", json!([1, 2])),
        ("add_special_tokens", json!(true)),
        ("skip_special_tokens", json!(false)),
        ("truncate_prompt_tokens", json!(0)),
        ("echo", json!(true)),
        ("prompt_logprobs", json!(21)),
        ("n", json!(1025)),
    ];
    let mut lines: Vec<_> = refused
        .iter()
        .enumerate()
        .map(|(i, (name, value))| chat(&i.to_string(), json!({ *name: value })))
        .collect();
    for (name, form) in [
        ("structural_tag", json!({"structural_tag": "{}"})),
        (
            "whitespace_pattern",
            json!({"regex": "a", "whitespace_pattern": " "}),
        ),
    ] {
        lines.push(chat(name, json!({"structured_outputs": form})));
    }
    let text = |id: &str, body| request(id, "/v1/completions", body);
    lines.push(text("many", json!({"prompt": vec!["a"; 3], "n": 342})));
    lines.push(text("prompts", json!({"prompt": vec!["a"; 1025]})));
    lines.push(chat(
        "served",
        json!({"continue_final_message": false, "echo": false, "skip_special_tokens": true,
            "add_generation_prompt": false, "truncate_prompt_tokens": 4,
            "structured_outputs": {"choice": ["a"], "structural_tag": null, "disable_fallback": true},
            "prompt_logprobs": 0}),
    ));
    lines.push(text(
        "scored",
        json!({"prompt": [[1, 2, 3], [4, 5]], "n": 2, "max_tokens": 1, "prompt_logprobs": 2}),
    ));
    requests(home.path(), &lines);
    succeeded(batch(home.path(), "out.jsonl", &[]).output().unwrap());
    let answers = answers(home.path().join("out.jsonl"));
    for (i, (name, value)) in refused.iter().enumerate() {
        let answer = &answers[&i.to_string()];
        assert_eq!(answer["status_code"], 400, "{name} {value}");
        assert_eq!(answer["body"]["error"]["param"], *name, "{answer}");
    }
    for name in ["structural_tag", "whitespace_pattern"] {
        let param = format!("structured_outputs.{name}");
        assert_eq!(answers[name]["body"]["error"]["param"], param);
    }
    assert_eq!(answers["many"]["body"]["error"]["param"], "n");
    assert_eq!(answers["prompts"]["body"]["error"]["param"], "prompt");
    let served = &answers["served"];
    assert_eq!(served["status_code"], 200, "{served}");
    let scores = served["body"]["prompt_logprobs"].as_array().unwrap();
    assert_eq!(served["body"]["usage"]["prompt_tokens"], scores.len());
    let scored = &answers["scored"]["body"]["choices"];
    // Each choice has those of its prompt.
    let of_prompts = [vec![2, 3], vec![5]];
    for (choice, ids) in (0..4).map(|choice| (choice, &of_prompts[choice / 2])) {
        let scores = scored[choice]["prompt_logprobs"].as_array().unwrap();
        assert!(
            scores[0].is_null() && scores.len() == ids.len() + 1,
            "{scores:?}"
        );
        for (position, id) in scores[1..].iter().zip(ids) {
            let own = &position[&id.to_string()];
            assert!(own["logprob"].as_f64().unwrap() < 0.0 && own["decoded_token"].is_string());
            let ranks = position.as_object().unwrap().values();
            let ranks = ranks.map(|one| one["rank"].as_u64().unwrap());
            let ranks: BTreeSet<u64> = ranks.collect();
            // The two best, and the prompt's own where it is another.
            let own = own["rank"].as_u64().unwrap();
            assert_eq!(ranks, BTreeSet::from([1, 2, own]), "{position}");
        }
    }
}

#[test]
fn run_scores_a_prompt_and_help_says_what_is_read() {
    let home = scene();
    let twoclock = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twoclock"));
        let command = command.env("TWOCLOCK_HOME", home.path()).args(arguments);
        command.current_dir(home.path()).output().unwrap()
    };
    let answer = succeeded(twoclock(&[
        "run",
        "-m",
        "./model",
        "--device",
        "cpu",
        "--prompt-ids",
        "1,2,3",
        "-n",
        "1",
        "--json",
        "--prompt-logprobs",
        "2",
        "--tpot-slo-ms",
        "auto",
    ]));
    let scores = answer["prompt_logprobs"].as_array().unwrap();
    assert!(scores.len() == 3 && scores[0].is_null(), "{answer}");
    assert_eq!(scores[2]["top"].as_array().unwrap().len(), 2);
    assert!(scores[2]["logprob"].as_f64().unwrap() < 0.0);
    let help = twoclock(&["batch", "--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    for word in [
        "priority",
        "structured_outputs",
        "cache_salt",
        "recompute|swap|auto",
        "MS|auto",
        "500 or more",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
}
