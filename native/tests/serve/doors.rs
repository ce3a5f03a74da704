//! Who comes in: by which name a server is called, how many connections the host has files for, and what
//! stands in the queue.

use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::scene::{Gate, Plan, Program, Scene, golden, long, read_until, reply, wait};
use serde_json::json;
use twoclock::serve::auth::ApiKeys;

#[test]
fn pages_that_lead_their_own_name_here_are_not_served() {
    let by = |scene: &Scene, path: &str, host: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        scene.client.raw(request.as_bytes())
    };
    let scene = Scene::start(Plan::default());
    let port = scene.client.0.port();
    for name in ["localhost", "127.0.0.1", "[::1]"] {
        for path in ["/", "/v1/models"] {
            assert_eq!(by(&scene, path, &format!("{name}:{port}")).status, 200);
        }
    }
    for path in ["/", "/v1/models", "/health", "/nowhere"] {
        let refused = by(&scene, path, &format!("evil.example:{port}"));
        assert_eq!(refused.status, 403, "{path}");
        let error = refused.error();
        assert_eq!(error["code"], "host_not_allowed");
        let said = error["message"].as_str().unwrap();
        assert!(said.contains("evil.example") && said.contains("--allowed-host"));
    }
    let refused = by(&scene, "/v1/messages", "evil.example");
    assert_eq!(refused.message_error(), "permission_error");
    // Behind a proxy, with keys, it is called what the proxy is called.
    let keyed = Scene::start(Plan {
        keys: ApiKeys::of(["a-key"]),
        ..Plan::default()
    });
    assert_eq!(by(&keyed, "/health", "llm.example").status, 200);
    assert_eq!(by(&keyed, "/v1/models", "llm.example").status, 401);
}

#[test]
fn connections_are_held_below_the_hosts_files() {
    let limits = "ulimit -Sn 100 && ulimit -Hn 200";
    let arguments = ["--header-timeout", "1", "--allowed-host", "my.example"];
    let server = Program::start_after(limits, &arguments);
    let client = server.client;
    // More than there are files, and each of them silent.
    let idle: Vec<TcpStream> = (0..250).map(|_| client.connect()).collect();
    assert_eq!(client.get("/health").status, 200);
    drop(idle);
    let named = "GET /health HTTP/1.1\r\nHost: my.example\r\nConnection: close\r\n\r\n";
    assert_eq!(client.raw(named.as_bytes()).status, 200);
    server.terminate();
    let (status, log) = server.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("before=100 limit=200"), "{log}");
    let said = log
        .split(" connections=")
        .nth(1)
        .unwrap_or_else(|| panic!("{log}"));
    let said = said.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    let connections: usize = said.parse().unwrap();
    assert!((20..136).contains(&connections), "{log}");
    assert!(!log.contains("no connection can be taken"), "{log}");
}

/// A host that has no more files is told of once, and so is that it has again.
#[cfg(target_os = "linux")]
#[test]
fn a_spell_without_files_is_one_line() {
    let mut server = Program::start(&[]);
    server.limit_files(1);
    let waiting = server.client.connect();
    server.hear("no connection can be taken");
    // It is tried again meanwhile.
    thread::sleep(Duration::from_millis(400));
    server.limit_files(100);
    server.hear("connections are taken again");
    drop(waiting);
    assert_eq!(server.client.get("/health").status, 200);
    server.terminate();
    let (_, log) = server.end();
    let spells = log.matches("no connection can be taken").count();
    assert_eq!(spells, 1, "{log}");
}

/// What comes as one stands in the queue as one.
#[test]
fn a_body_may_have_more_prompts_than_the_queue_holds() {
    let server = Program::start(&["--max-queue", "2"]);
    let client = server.client;
    let mut body = long(2);
    body["prompt"] = json!(vec![[1, 2, 3]; 100]);
    let answer = client.post("/v1/completions", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["choices"].as_array().unwrap().len(), 100);
    let body = json!({"input": vec!["a"; 100]});
    let answer = client.post("/v1/embeddings", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["data"].as_array().unwrap().len(), 100);
}

/// Where there are too few files even to begin, that is what is said.
#[test]
fn too_few_files_are_said_and_what_to_do() {
    for files in [6, 8, 12, 16, 32, 64] {
        let home = tempfile::tempdir().unwrap();
        let serve = "exec \"$0\" serve -m ./nowhere --device cpu --port 0";
        let output = Command::new("sh")
            .args(["-c", &format!("ulimit -n {files} && {serve}")])
            .arg(env!("CARGO_BIN_EXE_twoclock"))
            .env("TWOCLOCK_HOME", home.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{files}: {said}");
        let told = format!("only {files} files may be open");
        assert!(said.contains(&told) && said.contains("ulimit -n"), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

/// Also where each of several models is loaded only when it is asked for.
#[test]
fn limits_under_which_nothing_could_be_served_are_said_at_the_start() {
    for (flags, told) in [
        (&["--max-num-seqs", "0"][..], "--max-num-seqs is 0"),
        (
            &["--max-model-len", "1000000"],
            "--max-model-len is 1000000",
        ),
        (
            &["--max-model-len", "512", "--kv-cache-tokens", "96"],
            "--max-model-len is 512, but --kv-cache-tokens lets the cache hold 96",
        ),
        (
            &["--kv-cache-tokens", "max"],
            "--kv-cache-tokens max takes what --memory leaves",
        ),
    ] {
        let home = tempfile::tempdir().unwrap();
        let model = golden("models/qwen2").display().to_string();
        let output = Command::new(env!("CARGO_BIN_EXE_twoclock"))
            .env("TWOCLOCK_HOME", home.path())
            .args(["serve", "--device", "cpu", "--port", "0"])
            .args(["-m", &format!("a={model}"), "-m", &format!("b={model}")])
            .args(flags)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{flags:?}: {said}");
        assert!(said.contains(told), "{said}");
    }
}

/// Nobody need reckon how many tokens a device has room for.
#[test]
fn keys_and_values_fill_the_memory_that_is_given() {
    let tokens = |memory: &str| -> usize {
        let server = Program::start(&["--kv-cache-tokens", "max", "--memory", memory]);
        let (_, said) = server.said.split_once("kv_cache_tokens=").unwrap();
        let end = said.find(|c: char| !c.is_ascii_digit()).unwrap();
        said[..end].parse().unwrap()
    };
    let (few, many) = (tokens("20"), tokens("30"));
    assert!(few > 4 * 512, "{few}");
    // Halves: keys and values of 3 layers, of 2 heads of 16 each.
    let more = (10 << 20) / (2 * 2 * 3 * 2 * 16);
    assert!((many - few).abs_diff(more) <= 64, "{few} {many} {more}");
}

/// What a response says again is kept as long as it runs, and counts as a body does, beside what the engine holds of it.
#[test]
fn what_is_kept_of_bodies_takes_their_room() {
    // Of bodies alone.
    const HELD_AT_ONCE: usize = 64;
    let gate = Gate::default();
    let mut plan = Plan {
        gate: Some(gate.clone()),
        max_waiting: 2 * HELD_AT_ONCE,
        ..Plan::default()
    };
    plan.settings.max_body = 2048;
    plan.max_connections = 2 * HELD_AT_ONCE;
    let scene = Scene::start(plan);
    let client = scene.client;
    let tool = json!({"type": "function", "name": "f", "description": "x".repeat(1800)});
    let body = json!({"input": "a", "tools": [tool], "tool_choice": "none", "stream": true});
    let mut held = Vec::new();
    let refused = loop {
        let mut stream = client.begin("/v1/responses", &body);
        if !stream.fill_buf().unwrap().starts_with(b"HTTP/1.1 200") {
            break reply(stream);
        }
        held.push(stream);
        assert!(held.len() < HELD_AT_ONCE, "they hold less than they are");
    };
    assert!(held.len() >= HELD_AT_ONCE / 4, "{} are held", held.len());
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.error()["code"], "too_many_bodies");
    drop(held);
    wait(|| scene.shutdown.num_running() == 0);
    gate.open(1000);
    client.ask("/v1/completions", &long(1));
}

/// Whatever it is made of.
#[test]
fn all_that_comes_whole_has_room_or_is_refused() {
    let scene = Scene::start(Plan::default());
    let client = scene.client;
    let messages = json!([{"role": "user", "content": "a"}]);
    let mut taken = Vec::new();
    for bytes in [64 << 10, 1 << 10] {
        let more = std::iter::repeat_with(|| {
            let mut hold = scene.app.answer_room.begin();
            hold.gain(bytes).map(|()| hold)
        });
        taken.extend(more.map_while(Result::ok));
    }
    let asked = [
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/completions", long(1)),
        ("/v1/responses", json!({"input": "a"})),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 1}),
        ),
        ("/v1/embeddings", json!({"input": "a"})),
        ("/tokenize", json!({"prompt": "a"})),
        ("/detokenize", json!({"tokens": [1]})),
    ];
    for (path, body) in &asked {
        let refused = client.post(path, body);
        assert_eq!(refused.status, 429, "{path}: {refused:?}");
        let said = "the answers to other requests take all the room";
        assert!(refused.body.contains(said), "{path}: {refused:?}");
    }
    drop(taken);
    for (path, body) in &asked {
        client.ask(path, body);
    }
}

/// What comes whole is gathered within a room. What finds none is given up, with its tokens, and nothing else is.
#[test]
fn whole_answers_have_room_or_are_given_up() {
    let mut plan = Plan::default();
    // Room for 64 such answers, as the tokens of one are; their scores would take three times as much.
    plan.settings.max_body = 512;
    let scene = Scene::start(plan);
    let client = scene.client;
    let scored = |stream: bool| {
        let mut body = long(400);
        body["logprobs"] = json!(20);
        body["stream"] = json!(stream);
        body
    };
    let stream = client.begin("/v1/completions", &scored(true));
    let refused = client.post("/v1/completions", &scored(false));
    assert_eq!(refused.status, 413, "{refused:?}");
    assert_eq!(refused.error()["code"], "asks_too_much");
    // A stream gathers nothing.
    let streamed = reply(stream);
    let pieces = streamed.events().into_iter();
    let scores = pieces.flat_map(|piece| {
        piece["choices"][0]["logprobs"]["tokens"]
            .as_array()
            .cloned()
    });
    assert_eq!(scores.flatten().count(), 400);
    client.wait_until_free();
    let asked = client.metric("vllm:generation_tokens_total");
    assert!(asked < 800.0, "{asked} tokens, of 800 that would be all");
    client.ask("/v1/completions", &long(400));
}

/// A model that loads for long keeps nobody longer than a request may take.
#[test]
fn every_question_has_its_time() {
    let gate = Gate::default();
    let mut plan = Plan {
        load_gate: Some(gate.clone()),
        ..Plan::default()
    };
    plan.settings.request_timeout = Duration::from_millis(100);
    let scene = Scene::start(plan);
    let message = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1});
    for (path, body) in [
        ("/tokenize", json!({"prompt": "a"})),
        ("/detokenize", json!({"tokens": [1]})),
        ("/v1/embeddings", json!({"input": "a"})),
        ("/v1/completions", long(1)),
        ("/v1/responses", json!({"input": "a"})),
    ] {
        let late = scene.client.post(path, &body);
        assert_eq!(late.status, 504, "{path}: {late:?}");
        assert_eq!(late.error()["code"], "request_timeout");
    }
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let late = scene.client.post(path, &message);
        assert_eq!(late.status, 504, "{path}: {late:?}");
        assert_eq!(late.message_error(), "timeout_error");
    }
    gate.open(1);
}

/// Who could say that he comes first would keep the others waiting.
#[test]
fn how_urgent_a_request_is_counts_only_where_the_operator_lets_it() {
    for (policy, status) in [("fcfs", 400), ("priority", 200)] {
        let server = Program::start(&["--scheduling-policy", policy]);
        for (priority, expected) in [(0, 200), (-100, status), (3, status)] {
            let mut body = long(1);
            body["priority"] = json!(priority);
            let answer = server.client.post("/v1/completions", &body);
            assert_eq!(answer.status, expected, "{policy} {priority}: {answer:?}");
            let embed = json!({"input": "a", "priority": priority});
            let embedded = server.client.post("/v1/embeddings", &embed);
            assert_eq!(
                embedded.status, expected,
                "{policy} {priority}: {embedded:?}"
            );
            if expected == 400 {
                assert_eq!(answer.error()["param"], "priority");
                assert_eq!(embedded.body, answer.body);
            }
        }
    }
}

/// Who is connected and asks nothing keeps nobody out, whatever time it may lie idle.
#[test]
fn who_lies_idle_makes_room() {
    let scene = Scene::start(Plan {
        max_connections: 4,
        ..Plan::default()
    });
    let client = scene.client;
    let mut streamed = long(200);
    streamed["stream"] = json!(true);
    // One is in the middle of an answer, one has had its answer, one is in the middle of a head, one has said nothing.
    let mut reader = client.begin("/v1/completions", &streamed);
    read_until(&mut reader, "data: ");
    let mut kept = client.connect();
    kept.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        let mut byte = [0];
        kept.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    let mut half = client.connect();
    half.write_all(b"GET /ver").unwrap();
    let mut silent = client.connect();
    assert_eq!(client.get("/health").status, 200);
    for idle in [&mut kept, &mut half, &mut silent] {
        assert_eq!(idle.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
    read_until(&mut reader, "[DONE]");
}
