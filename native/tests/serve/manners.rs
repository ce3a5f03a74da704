//! How a server treats clients that are gone, slow, too many or wrong, and how it ends: on a model that takes
//! its time.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use crate::scene::{Gate, JSON, Plan, Program, Scene, endless, long, read_until, wait};
use serde_json::{Value, json};
use twoclock::serve::auth::ApiKeys;
use twoclock::serve::shutdown::Phase;

const TEXT: &str = "/v1/completions";

fn streamed(max_tokens: usize) -> Value {
    let mut body = long(max_tokens);
    body["stream"] = json!(true);
    body
}

#[test]
fn who_goes_costs_nothing_more() {
    let scene = Scene::start(Plan::default());
    let client = scene.client;
    client.ask(TEXT, &long(1));
    for body in [streamed(500), long(500)] {
        let before = client.metric("vllm:generation_tokens_total");
        let mut stream = client.begin(TEXT, &body);
        if body["stream"] == true {
            read_until(&mut stream, "data: ");
        } else {
            wait(|| client.get("/get_load").json()[0]["num_running_reqs"] == 1);
        }
        let running = client.metric("twoclock:http_requests_running");
        assert_eq!(running, 1.0);
        drop(stream);
        client.wait_until_free();
        let drawn = client.metric("vllm:generation_tokens_total") - before;
        assert!(drawn < 250.0, "{drawn} tokens were drawn for nobody");
        wait(|| client.metric("twoclock:http_requests_running") == 0.0);
    }
    let gone = "status=\"499\"} 1";
    assert!(client.get("/metrics").body.contains(gone));
}

#[test]
fn a_queue_has_an_end() {
    let plan = Plan {
        max_waiting: 2,
        max_num_seqs: 1,
        ..Plan::default()
    };
    let scene = Scene::start(plan);
    let client = scene.client;
    let mut taken: Vec<_> = (0..3).map(|_| client.begin(TEXT, &streamed(60))).collect();
    wait(|| client.get("/get_load").json()[0]["num_reqs"] == 3);
    let refused = client.post(TEXT, &long(1));
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let error = refused.error();
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("queue_full"), &json!("rate_limit_error"))
    );
    // In words that a client can do something with.
    let said = error["message"].as_str().unwrap();
    assert!(said.ends_with("try again later"), "{said}");
    // A body with several prompts stands there as one.
    drop(taken.pop());
    wait(|| client.get("/get_load").json()[0]["num_reqs"] == 2);
    let mut two = long(1);
    two["prompt"] = json!([[1], [2]]);
    assert_eq!(client.post(TEXT, &two).status, 200);
    for stream in &mut taken {
        read_until(stream, "[DONE]");
    }
    client.ask(TEXT, &long(1));
    client.wait_until_free();
}

#[test]
fn requests_are_bounded() {
    let mut plan = Plan::default();
    let short = Duration::from_millis(300);
    plan.settings.max_body = 2000;
    plan.settings.body_timeout = short;
    plan.settings.request_timeout = Duration::from_millis(600);
    plan.settings.ping_interval = Duration::from_millis(40);
    plan.bounds.header_timeout = short;
    plan.step = Duration::from_millis(100);
    let scene = Scene::start(plan);
    let client = scene.client;
    let head = format!("POST {TEXT} HTTP/1.1\r\nHost: localhost\r\n{JSON}");
    // Too long, as it says or as it turns out.
    let said = client.raw(format!("{head}Content-Length: 100000000\r\n\r\n{{").as_bytes());
    assert_eq!(
        (said.status, said.error()["code"].as_str()),
        (413, Some("body_too_long"))
    );
    let chunks = "100\r\n".to_owned() + &" ".repeat(256) + "\r\n";
    let chunks = chunks.repeat(20);
    let turned = client.raw(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}").as_bytes());
    assert_eq!(turned.status, 413, "{turned:?}");
    // Too slow.
    let slow = client.raw(format!("{head}Content-Length: 10\r\n\r\n{{").as_bytes());
    assert_eq!(slow.status, 408);
    slow.error();
    let mut loris = client.connect();
    loris
        .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
        .unwrap();
    let began = Instant::now();
    // It is closed, with or without a word.
    let _ = loris.read_to_end(&mut Vec::new());
    assert!(began.elapsed() < Duration::from_secs(5));
    // Too many headers, and too much of them.
    let many: String = (0..10_000).map(|i| format!("X-{i}: y\r\n")).collect();
    assert_eq!(client.send("GET", "/health", &many, "").status, 431);
    let much = format!("X: {}\r\n", "y".repeat(100_000));
    assert_eq!(client.send("GET", "/health", &much, "").status, 431);
    let malformed = || {
        let counts = client.get("/metrics").body;
        let of = |line: &&str| line.contains("http_requests_total{") && line.contains("\"other\"");
        let counts = counts.lines().filter(of).map(|line| {
            let status = line.split("status=\"").nth(1).unwrap()[..3].to_owned();
            (status, line.rsplit(' ').next().unwrap().to_owned())
        });
        counts.collect::<Vec<_>>()
    };
    let count = |status: &str, n: &str| (status.to_owned(), n.to_owned());
    wait(|| malformed() == [count("431", "2")]);
    assert_eq!(client.raw(b"nonsense\r\n\r\n").status, 400);
    wait(|| malformed() == [count("400", "1"), count("431", "2")]);
    // Too long to answer; the first step takes so long that there are comments before.
    let whole = client.post(TEXT, &long(50));
    assert_eq!(
        (whole.status, whole.error()["code"].as_str()),
        (504, Some("request_timeout"))
    );
    let pieces = client.post(TEXT, &streamed(50));
    assert!(pieces.body.contains(": ping"), "{}", pieces.body);
    let last = pieces.events().pop().unwrap()["error"].clone();
    assert_eq!(last["code"], "request_timeout", "{last}");
    let said = last["message"].as_str().unwrap();
    assert!(said.contains("time that a request has is over"), "{said}");
    client.wait_until_free();
    assert_eq!(client.get("/health").status, 200);
}

#[test]
fn keys_and_origins() {
    let plan = Plan {
        keys: ApiKeys::of(["secret-1", "secret-2"]),
        cors_origin: Some("https://example.org"),
        ..Plan::default()
    };
    let scene = Scene::start(plan);
    let client = scene.client;
    for headers in [
        "",
        "Authorization: Bearer secret\r\n",
        "x-api-key: secret-11\r\n",
    ] {
        let refused = client.send("GET", "/v1/models", headers, "");
        assert_eq!(refused.status, 401, "{headers}");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
        assert_eq!(refused.error()["code"], "invalid_api_key");
    }
    for headers in [
        "Authorization: Bearer secret-2\r\n",
        "x-api-key: secret-1\r\n",
    ] {
        assert_eq!(client.send("GET", "/v1/models", headers, "").status, 200);
    }
    assert_eq!(client.get("/health").status, 200);
    for path in ["/metrics", "/get_load", "/steps"] {
        assert_eq!(client.get(path).status, 401, "{path}");
    }
    // A browser asks first, without a key, and reads errors too.
    let asks = "Origin: https://example.org\r\nAccess-Control-Request-Method: POST\r\n\
                Access-Control-Request-Headers: authorization\r\n";
    let told = client.send("OPTIONS", TEXT, asks, "");
    assert_eq!(told.status, 200);
    let allowed = |reply: &crate::scene::Reply| {
        reply
            .header("access-control-allow-origin")
            .map(str::to_owned)
    };
    assert_eq!(allowed(&told).as_deref(), Some("https://example.org"));
    assert_eq!(
        told.header("access-control-allow-headers"),
        Some("authorization")
    );
    let refused = client.send("GET", "/v1/models", "Origin: https://example.org\r\n", "");
    assert_eq!(refused.status, 401);
    assert!(allowed(&refused).is_some());
    let other = client.send("GET", "/health", "Origin: https://example.com\r\n", "");
    assert_eq!(allowed(&other), None);
}

#[test]
fn what_runs_ends_and_nothing_new_begins() {
    let mut scene = Scene::start(Plan::default());
    let client = scene.client;
    let mut stream = client.begin(TEXT, &streamed(100));
    read_until(&mut stream, "data: ");
    scene.shutdown.advance(Phase::Draining);
    let refused = client.post(TEXT, &long(1));
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("5"))
    );
    assert_eq!(refused.error()["code"], "shutting_down");
    let health = client.get("/health");
    assert_eq!(
        (health.status, &health.json()["status"]),
        (503, &json!("shutting_down"))
    );
    assert_eq!(client.get("/metrics").status, 200);
    read_until(&mut stream, "\"length\"");
    read_until(&mut stream, "[DONE]");
    scene.end();
}

#[test]
fn what_does_not_end_is_stopped() {
    for second in [false, true] {
        let drain_timeout = Duration::from_millis(if second { 60_000 } else { 100 });
        let plan = Plan {
            drain_timeout,
            ..Plan::default()
        };
        let mut scene = Scene::start(plan);
        let client = scene.client;
        let mut stream = client.begin(TEXT, &streamed(500));
        read_until(&mut stream, "data: ");
        let whole = thread::spawn(move || client.post(TEXT, &long(500)));
        wait(|| client.get("/get_load").json()[0]["num_reqs"] == 2);
        scene.shutdown.advance(Phase::Draining);
        if second {
            scene.shutdown.advance(Phase::Stopped);
        }
        // Not what a request gets that is not taken.
        read_until(
            &mut stream,
            "(--drain-timeout, or a second signal)\",\"type\":\"server_error\",\"param\":null,\"code\":\"shutting_down\"",
        );
        read_until(&mut stream, "[DONE]");
        let whole = whole.join().unwrap();
        assert_eq!(
            (whole.status, whole.error()["code"].as_str()),
            (503, Some("shutting_down"))
        );
        assert!(
            whole.body.contains("this answer was not whole"),
            "{whole:?}"
        );
        scene.end();
    }
}

#[test]
fn signals_drain_and_stop() {
    let server = Program::start(&["--drain-timeout", "60", "--host", "0.0.0.0"]);
    let client = server.client;
    assert!(
        server.said.contains("no key is asked for"),
        "{}",
        server.said
    );
    let mut stream = client.begin(TEXT, &endless());
    read_until(&mut stream, "data: ");
    server.terminate();
    wait(|| client.get("/health").status == 503);
    server.terminate();
    // It ends, however much of it was to come.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let (status, log) = server.end();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// The reader of its log has gone, as when a pipe ends or a disk is full.
#[test]
fn a_log_that_cannot_be_written_costs_no_answer() {
    let mut server = Program::start(&[]);
    server.stop_listening();
    for _ in 0..3 {
        assert_eq!(server.client.get("/health").status, 200);
        assert_eq!(server.client.post(TEXT, &long(3)).status, 200);
    }
    server.terminate();
    let (status, _) = server.end();
    assert_eq!(status.code(), Some(0));
}

/// Connections that announce bodies and send none take no room from those that do.
#[test]
fn bodies_that_do_not_come_take_no_room() {
    let server = Program::start(&[]);
    let client = server.client;
    let silent: Vec<_> = (0..140)
        .map(|i| {
            let length = match i % 2 {
                0 => "Content-Length: 4194304\r\n\r\n{",
                _ => "Transfer-Encoding: chunked\r\n\r\n",
            };
            let mut stream = client.connect();
            let head = format!(
                "POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            );
            stream
                .write_all(format!("{head}{length}").as_bytes())
                .unwrap();
            stream
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(client.post(TEXT, &long(1)).status, 200);
    }
    drop(silent);
}

/// What every answer would hold for itself, and every token be held against.
#[test]
fn lists_and_texts_have_bounds() {
    let server = Program::start(&[]);
    let client = server.client;
    let words = |n: usize| (0..n).map(|i| format!("w{i}")).collect::<Vec<_>>();
    for (field, value) in [
        ("stop", json!(words(300))),
        ("stop", json!(["a".repeat(20_000)])),
        ("bad_words", json!(words(3000))),
        ("stop_token_ids", json!(vec![1; 2000])),
    ] {
        let mut body = long(1);
        body[field] = value;
        let answer = client.post(TEXT, &body);
        assert_eq!(answer.status, 400, "{field}");
        assert_eq!(answer.json()["error"]["param"], field);
    }
    let text = "a ".repeat(1 << 20);
    let answer = client.post("/tokenize", &json!({"prompt": text}));
    assert_eq!(answer.status, 400);
    let body = json!({"prompt": text, "max_tokens": 1, "truncate_prompt_tokens": 3});
    assert_eq!(client.post(TEXT, &body).status, 400);
    let body = json!({"prompt": "a ".repeat(1000), "max_tokens": 1, "truncate_prompt_tokens": 3});
    assert_eq!(client.post(TEXT, &body).status, 200);
}

#[test]
fn who_goes_is_computed_for_no_further_than_two_steps() {
    const BEFORE: usize = 10;
    let gate = Gate::default();
    let scene = Scene::start(Plan {
        gate: Some(gate.clone()),
        ..Plan::default()
    });
    let client = scene.client;
    let steps = || client.metric("vllm:iteration_tokens_total_count");
    gate.open(20);
    client.ask(TEXT, &long(1));
    client.wait_until_free();
    for body in [streamed(500), long(500)] {
        // What the one before left.
        gate.shut();
        let at_first = steps();
        gate.open(BEFORE);
        let stream = client.begin(TEXT, &body);
        wait(|| gate.is_asked());
        assert_eq!(client.get("/get_load").json()[0]["num_running_reqs"], 1);
        drop(stream);
        // The server has seen it; the engine stands still.
        wait(|| scene.shutdown.num_running() == 0);
        gate.open(2);
        client.wait_until_free();
        let gone = steps() - at_first;
        assert!(
            (BEFORE as f64..=BEFORE as f64 + 2.0).contains(&gone),
            "{gone} steps"
        );
    }
}
