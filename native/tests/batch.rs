//! Files of requests answered by the program: what each line gets, what a file's fault says, and
//! going on after whatever ended it.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

mod batch_scene;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use batch_scene::{answers, batch, chat, request, requests, scene, succeeded};
use serde_json::{Value, json};

/// What does not depend on when and beside whom a request was answered.
fn choices(path: PathBuf) -> BTreeMap<String, Value> {
    let answers = answers(path).into_iter();
    let choices = answers.map(|(id, response)| (id, response["body"]["choices"].clone()));
    choices.collect()
}

#[test]
fn every_line_gets_its_answer() {
    let home = scene();
    let completions = "/v1/completions";
    let mut elsewhere = chat("elsewhere", json!({}));
    elsewhere["url"] = json!("/v1/embeddings");
    let text = |id: &str, body| request(id, completions, body);
    requests(
        home.path(),
        &[
            chat("plain", json!({"model": "whoever", "unheard_of": [1, 2]})),
            chat(
                "parts",
                json!({"messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "the cat"}]}]}),
            ),
            chat(
                "several",
                json!({"n": 3, "temperature": 0.9, "top_k": -1, "ignore_eos": true,
                "logprobs": true, "top_logprobs": 2, "logit_bias": {"5": -100}}),
            ),
            text(
                "text",
                json!({"prompt": "a dog", "logprobs": 1, "max_tokens": 4,
                "ignore_eos": true, "temperature": 0}),
            ),
            text(
                "list",
                json!({"prompt": ["a", "b"], "n": 2, "stop": ["zz"], "bad_words": ["cat"],
                "min_tokens": 2, "cache_salt": "mine", "priority": -1}),
            ),
            text("ids", json!({"prompt": [1, 2, 3], "max_tokens": 0})),
            text(
                "lists",
                json!({"prompt": [[1, 2], [3]], "repetition_penalty": 1.1, "min_p": 0.1}),
            ),
            chat("hot", json!({"temperature": "hot"})),
            chat("negative", json!({"top_p": -1})),
            chat("tools", json!({"tools": [{"type": "function"}]})),
            chat("format", json!({"response_format": {"type": "xml"}})),
            chat(
                "form",
                json!({"structured_outputs": {"choice": ["yes", "no"]}}),
            ),
            chat(
                "schema",
                json!({"response_format": {"type": "json_schema",
                    "json_schema": {"schema": {"type": "numbre"}}}}),
            ),
            chat(
                "forms",
                json!({"response_format": {"type": "json_object"}, "guided_regex": "a"}),
            ),
            chat(
                "role",
                json!({"messages": [{"role": "cat", "content": ""}]}),
            ),
            chat("empty", json!({"messages": []})),
            chat("top", json!({"top_logprobs": 3})),
            text("bias", json!({"prompt": "a", "logit_bias": {"999": 1}})),
            text("none", json!({})),
            text("far", json!({"prompt": [1, 320]})),
            text("long", json!({"prompt": vec![7; 600]})),
            elsewhere,
        ],
    );
    let output = batch(home.path(), "out.jsonl", &["--summary", "sum.json"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty());
    let answers = answers(home.path().join("out.jsonl"));
    assert_eq!(answers.len(), 22);
    let body = |id: &str| {
        let response = &answers[id];
        assert_eq!(response["status_code"], 200, "{id}: {response}");
        response["body"].clone()
    };
    let plain = body("plain");
    assert_eq!(plain["object"], "chat.completion");
    assert_eq!(plain["model"], "./model");
    assert_eq!(plain["choices"][0]["message"]["role"], "assistant");
    let usage = &plain["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap();
    assert!(count("prompt_tokens") > 5);
    let total = count("prompt_tokens") + count("completion_tokens");
    assert_eq!(count("total_tokens"), total);
    body("parts");
    let form = body("form")["choices"][0]["message"]["content"].clone();
    assert!(form == "yes" || form == "no", "{form}");
    let several = body("several")["choices"].clone();
    assert_eq!(several.as_array().unwrap().len(), 3);
    for (index, choice) in several.as_array().unwrap().iter().enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(choice["finish_reason"], "length");
        let content = choice["logprobs"]["content"].as_array().unwrap();
        assert_eq!(content.len(), 6);
        assert_eq!(content[0]["top_logprobs"].as_array().unwrap().len(), 2);
        assert!(content[0]["logprob"].as_f64().unwrap() <= 0.0);
    }
    let text = body("text")["choices"][0].clone();
    let logprobs = &text["logprobs"];
    let tokens = logprobs["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 4);
    assert_eq!(logprobs["text_offset"][0], 0);
    // Greedy: the token drawn is the likeliest.
    let best = logprobs["top_logprobs"][0].as_object().unwrap();
    assert_eq!(json!(best.keys().next().unwrap()), tokens[0]);
    assert_eq!(body("list")["choices"].as_array().unwrap().len(), 4);
    assert_eq!(body("ids")["usage"]["completion_tokens"], 0);
    assert_eq!(body("lists")["usage"]["prompt_tokens"], 3);
    for (id, param) in [
        ("hot", "temperature"),
        ("negative", "top_p"),
        ("tools", "tools"),
        ("format", "response_format.type"),
        ("schema", "response_format.json_schema.schema"),
        ("forms", "guided_regex"),
        ("role", "messages"),
        ("empty", "messages"),
        ("top", "top_logprobs"),
        ("bias", "logit_bias"),
        ("none", "prompt"),
        ("far", "prompt"),
        ("long", "prompt"),
        ("elsewhere", "url"),
    ] {
        let response = &answers[id];
        assert_eq!(response["status_code"], 400, "{id}: {response}");
        let error = &response["body"]["error"];
        assert_eq!(error["type"], "invalid_request_error");
        assert_eq!(error["param"], param, "{id}");
        assert!(error["message"].as_str().unwrap().len() > 10);
    }
    let summary: Value =
        serde_json::from_slice(&fs::read(home.path().join("sum.json")).unwrap()).unwrap();
    let requests = json!({"completed": 8, "failed": 14, "skipped": 0, "interrupted": 0});
    assert_eq!(summary["requests"], requests);
    for name in ["output_tokens_per_s", "kv_waste"] {
        assert!(summary[name].as_f64().unwrap() > 0.0, "{summary}");
    }
    for name in ["ttft_ms", "tpot_ms", "latency_ms"] {
        let at = |p: &str| summary[name][p].as_f64().unwrap();
        assert!(0.0 < at("p50") && at("p50") <= at("p99") && at("p99") <= at("max"));
    }
}

#[test]
fn a_files_fault_names_its_line_and_harms_nothing() {
    let home = scene();
    let good = chat("a", json!({})).to_string();
    for (lines, because) in [
        (
            format!("{good}\nnot json\n"),
            "line 2: it is not JSON: no value begins so (column 2)",
        ),
        (format!("{good}\n[1]\n"), "line 2: it is no request"),
        (format!("{good}\n{{\"body\": "), "line 2: it is not JSON"),
        (
            format!("{good}\n{{\"body\": 1}}\n"),
            "line 2: it has no custom_id",
        ),
        (
            format!("{good}\n\n{good}\n"),
            "line 3: custom_id \"a\" is that of line 1",
        ),
        (r#"{"custom_id":"\udead"}"#.into(), "line 1: it is not JSON"),
    ] {
        fs::write(home.path().join("in.jsonl"), lines).unwrap();
        let output = batch(home.path(), "out.jsonl", &[]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(because), "{said}");
    }
    requests(home.path(), &[chat("a", json!({}))]);
    // The file of requests is not one of answers, nor is any other.
    let other = home.path().join("in.jsonl");
    let before = fs::read(&other).unwrap();
    let output = batch(home.path(), "in.jsonl", &[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("line 1: it is no answer"), "{said}");
    assert_eq!(fs::read(&other).unwrap(), before);
    // A summary would be written over either.
    for path in ["in.jsonl", "./out.jsonl", "/nowhere/summary.json"] {
        let arguments = ["--summary", path];
        let output = batch(home.path(), "out.jsonl", &arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot be written"), "{said}");
    }
    assert_eq!(fs::read(&other).unwrap(), before);
    // Somebody else is writing into it.
    let mut held = OpenOptions::new();
    let held = held.append(true).create(true);
    let held = held.open(home.path().join("held.jsonl")).unwrap();
    held.lock().unwrap();
    let output = batch(home.path(), "held.jsonl", &[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is writing into it"), "{said}");
    // A pipe nobody writes to.
    fs::remove_file(&other).unwrap();
    let made = Command::new("mkfifo").arg(&other).status().unwrap();
    assert!(made.success());
    let output = batch(home.path(), "out.jsonl", &[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("it is no regular file"), "{said}");
}

fn many() -> Vec<Value> {
    let one = |i: usize| {
        let content = format!("number {i} of many");
        let messages = json!([{"role": "user", "content": content}]);
        let body = json!({"messages": messages, "max_tokens": 20 + i, "ignore_eos": true});
        chat(&format!("id {i}"), body)
    };
    (0..24).map(one).collect()
}

fn wait_for_lines(path: &Path, count: usize) {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.lines().count() >= count {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{text}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn it_goes_on_after_whatever_ended_it() {
    let home = scene();
    requests(home.path(), &many());
    let whole = succeeded(batch(home.path(), "whole.jsonl", &[]).output().unwrap());
    assert_eq!(whole["requests"]["completed"], 24);
    let expected = choices(home.path().join("whole.jsonl"));

    let out = home.path().join("out.jsonl");
    let mut killed = batch(home.path(), "out.jsonl", &["--max-num-seqs", "3"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_lines(&out, 3);
    killed.kill().unwrap();
    killed.wait().unwrap();
    // And as if it had been in the middle of a line.
    let mut file = OpenOptions::new().append(true).open(&out).unwrap();
    file.write_all(b"{\"id\":\"batch_req_99\",\"cust").unwrap();
    drop(file);
    let interrupted = batch(home.path(), "out.jsonl", &["--max-num-seqs", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_lines(&out, 8);
    let id = interrupted.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
    let output = interrupted.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the same command goes on"), "{said}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| summary["requests"][name].as_u64().unwrap();
    assert_eq!(
        count("skipped") + count("completed") + count("interrupted"),
        24
    );
    assert!(
        count("skipped") >= 3 && count("interrupted") > 0,
        "{summary}"
    );

    succeeded(batch(home.path(), "out.jsonl", &[]).output().unwrap());
    assert_eq!(choices(out.clone()), expected);
    let ids = answers(out.clone()).into_values();
    let ids: BTreeSet<String> = ids.map(|a| a["body"]["id"].to_string()).collect();
    assert_eq!(ids.len(), 24, "each its own id");
    // All is answered: nothing to do, and no model loaded.
    let again = succeeded(batch(home.path(), "out.jsonl", &[]).output().unwrap());
    assert_eq!(again["requests"]["skipped"], 24);
    assert_eq!(choices(out), expected);
}

#[test]
fn the_same_answers_however_they_share() {
    let home = scene();
    let mut lines = many();
    lines.truncate(8);
    requests(home.path(), &lines);
    succeeded(batch(home.path(), "plain.jsonl", &[]).output().unwrap());
    let expected = choices(home.path().join("plain.jsonl"));
    for (i, line) in lines.iter_mut().enumerate() {
        line["arrival_s"] = json!(if i == 3 { 0.0 } else { 0.4 });
    }
    requests(home.path(), &lines);
    let scarce = [
        "--kv-cache-tokens",
        "160",
        "--max-num-batched-tokens",
        "24",
        "--no-prefix-caching",
        "--max-model-len",
        "128",
        "--preemption-mode",
        "swap",
    ];
    let output = batch(home.path(), "scarce.jsonl", &scarce)
        .output()
        .unwrap();
    let summary = succeeded(output);
    assert_eq!(choices(home.path().join("scarce.jsonl")), expected);
    assert!(summary["duration_s"].as_f64().unwrap() >= 0.4);
    assert!(
        summary["preemptions"]["swap"].as_u64().unwrap() > 0,
        "{summary}"
    );
    assert_eq!(summary["prefix_cache"]["hit_tokens"], 0);
}
