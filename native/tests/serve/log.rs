//! What an operator reads in the log of a server, and counts beside it.

use crate::answers::{CHAT, TEXT, chat};
use crate::scene::{Client, Program, Unheard, endless, long, read_until, wait};
use serde_json::{Value, json};
use std::os::fd::{AsRawFd, OwnedFd};

/// The log's line of the request of this name.
fn line<'a>(log: &'a str, id: &str) -> &'a str {
    let id = format!("id=\"{id}\"");
    let mut found = log.lines().filter(|line| line.contains(&id));
    let line = found.next().unwrap_or_else(|| panic!("no {id} in {log}"));
    assert!(found.next().is_none(), "{log}");
    line
}

fn post(client: Client, path: &str, id: &str, body: &Value) -> crate::scene::Reply {
    let headers = format!("{}x-request-id: {id}\r\n", crate::scene::JSON);
    client.send("POST", path, &headers, &body.to_string())
}

#[test]
fn a_stream_that_was_cut_is_told_and_counted() {
    let cuts = "twoclock:http_streams_cut_total{path=\"/v1/completions\",status=";
    let ends = "vllm:request_success_total{model_name=\"tiny\",finished_reason=";
    let heads = "twoclock:http_requests_total{path=\"/v1/completions\",status=";
    let counted = |client: Client, sample: &str, count: u64| {
        let line = format!("{sample} {count}");
        let metrics = client.get("/metrics").body;
        assert!(metrics.lines().any(|l| l == line), "{line} in {metrics}");
    };
    let server = Program::start(&["--request-timeout", "1"]);
    let client = server.client;
    let cut = post(client, TEXT, "late", &endless());
    assert_eq!(cut.status, 200);
    assert_eq!(
        cut.events().pop().unwrap()["error"]["code"],
        "request_timeout"
    );
    counted(client, &format!("{heads}\"200\"}}"), 1);
    counted(client, &format!("{cuts}\"504\"}}"), 1);
    server.terminate();
    let (_, log) = server.end();
    let late = line(&log, "late");
    assert!(
        late.contains("status=200") && late.contains("error=\"request_timeout\""),
        "{late}"
    );
    assert!(
        late.contains("error_message=") && late.contains("--request-timeout"),
        "{late}"
    );
    let server = Program::start(&[]);
    let client = server.client;
    let mut gone = client.begin(TEXT, &endless());
    read_until(&mut gone, "data: ");
    drop(gone);
    assert_eq!(post(client, TEXT, "good", &long(3)).status, 200);
    let bad = chat(json!({"temperature": -1}));
    assert_eq!(post(client, CHAT, "bad", &bad).status, 400);
    let lost = chat(json!({"model": "other"}));
    assert_eq!(post(client, CHAT, "lost", &lost).status, 404);
    // It is over a moment after the client has gone.
    let one = format!("{cuts}\"499\"}} 1");
    wait(|| client.get("/metrics").body.contains(&one));
    counted(client, &format!("{cuts}\"504\"}}"), 0);
    counted(client, &format!("{cuts}\"500\"}}"), 0);
    counted(client, &format!("{ends}\"error\"}}"), 0);
    counted(client, &format!("{heads}\"200\"}}"), 2);
    server.terminate();
    let (_, log) = server.end();
    assert!(log.contains("error=\"client_gone\""), "{log}");
    assert!(!line(&log, "good").contains("error"), "{log}");
    let lost = line(&log, "lost");
    assert!(
        lost.contains("error=\"model_not_found\" param=\"model\"")
            && !lost.contains("model=\"other"),
        "{lost}"
    );
    let bad = line(&log, "bad");
    assert!(
        bad.contains("model=\"tiny\"")
            && bad.contains("error=\"invalid_request_error\" param=\"temperature\"")
            && !bad.contains("error_message"),
        "{bad}"
    );
}

#[test]
fn a_line_says_what_an_answer_took_and_not_what_was_said() {
    let secret = "the cat";
    let arguments = ["--log-format", "json", "-v"];
    let server = Program::start_after(
        "export TWOCLOCK_API_KEY=a-key RUST_LOG=debug,hyper=off",
        &arguments,
    );
    let client = server.client.with_key("a-key");
    let key = "Authorization: Bearer a-key\r\n";
    let send = |path: &str, id: &str, body: &Value| {
        let headers = format!("{}{key}x-request-id: {id}\r\n", crate::scene::JSON);
        client.send("POST", path, &headers, &body.to_string())
    };
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 40, "ignore_eos": true});
    let answered = send(TEXT, "first", &body).json();
    let mut again = body.clone();
    again["prompt"] = json!([vec![7; 70], vec![7; 70]]);
    send(TEXT, "pages", &again);
    again["stream"] = json!(true);
    again["n"] = json!(2);
    send(TEXT, "again", &again);
    send("/v1/embeddings", "vector", &json!({"input": secret}));
    send(
        CHAT,
        "said",
        &chat(json!({"messages": [{"role": "user", "content": secret}]})),
    );
    let odd = "GET /a%0Ab\u{1b}[2J\"x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    client.raw(format!("{odd}{key}\r\n").as_bytes());
    assert_eq!(client.get("/health").status, 200);
    server.terminate();
    let (_, log) = server.end();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let of = |id: &str| {
        let found = lines.iter().find(|line| line["id"] == id);
        found.unwrap_or_else(|| panic!("{id} in {log}"))
    };
    let first = of("first");
    for (field, value) in [
        ("target", json!("access")),
        ("level", json!("INFO")),
        ("method", json!("POST")),
        ("path", json!(TEXT)),
        ("status", json!(200)),
        ("answer_id", answered["id"].clone()),
        ("client", json!("127.0.0.1")),
        ("key", json!("1")),
        ("n", json!(1)),
        ("max_tokens", json!(40)),
        ("model", json!("tiny")),
        ("streamed", json!(false)),
        ("prompt_tokens", json!(3)),
        ("cached_tokens", json!(0)),
        ("output_tokens", json!(40)),
        ("preemptions", json!(0)),
        ("finish_reason", json!("length")),
        ("error", Value::Null),
    ] {
        assert_eq!(first[field], value, "{field} of {first}");
    }
    let (queue, ttft) = (&first["queue_ms"], &first["ttft_ms"]);
    let duration = &first["duration_ms"];
    assert!(
        queue.as_u64() <= ttft.as_u64() && ttft.as_u64() <= duration.as_u64(),
        "{first}"
    );
    assert!(ttft.is_u64() && queue.is_u64(), "{first}");
    let again = of("again");
    // Two whole pages of each prompt.
    assert_eq!(again["cached_tokens"], 128, "{again}");
    assert_eq!(
        (&again["prompt_tokens"], &again["output_tokens"]),
        (&json!(140), &json!(160))
    );
    assert_eq!(
        (&again["streamed"], &again["finish_reason"]),
        (&json!(true), &json!("length"))
    );
    let vector = of("vector");
    assert_eq!(
        (&vector["output_tokens"], &vector["ttft_ms"]),
        (&json!(0), &Value::Null)
    );
    assert!(
        vector["queue_ms"].is_u64() && vector["finish_reason"] == "stop",
        "{vector}"
    );
    let health = lines.iter().find(|line| line["path"] == "/health").unwrap();
    assert_eq!(
        (&health["level"], &health["model"]),
        (&json!("DEBUG"), &Value::Null)
    );
    for hidden in [secret, "a-key", "\u{1b}"] {
        assert!(!log.contains(hidden), "{hidden:?} in {log}");
    }
}

#[test]
fn which_lines_there_are_is_the_operators_choice() {
    let log = |environment: &str, argument: &[&str]| {
        let server = Program::start_after(environment, argument);
        server.client.get("/health");
        server.client.get("/v1/models");
        server.terminate();
        server.end().1
    };
    let plain = log(":", &[]);
    assert!(
        !plain.contains("path=/health") && plain.contains("path=/v1/models"),
        "{plain}"
    );
    let verbose = log(":", &["-v"]);
    assert!(
        verbose.contains("DEBUG access: method=GET path=/health"),
        "{verbose}"
    );
    let quiet = log("export RUST_LOG=info,access=off", &[]);
    assert!(
        !quiet.contains("path=") && quiet.contains("loaded"),
        "{quiet}"
    );
}

/// Scripts wait for where it is heard, and read why it is not: in either format.
#[test]
fn where_it_is_heard_and_why_not_is_always_said() {
    let off = "export RUST_LOG=off,program=off";
    for format in ["text", "json"] {
        let server = Program::start_after(off, &["--log-format", format]);
        let port = server.client.0.port().to_string();
        let second = ["--log-format", format, "--port", &port];
        let (code, said) = Unheard::start_after(off, &second).end();
        assert_eq!(code.code(), Some(1), "{said}");
        assert!(said.contains("another program has that port"), "{said}");
        server.terminate();
        let (_, log) = server.end();
        for lines in [&log, &said] {
            // A log that is off has nothing else.
            assert_eq!(lines.lines().count(), 1, "{lines}");
            let is_json = serde_json::from_str::<Value>(lines).is_ok();
            assert_eq!(is_json, format == "json", "{lines}");
        }
    }
}

#[test]
fn who_waits_for_a_model_to_be_loaded_is_told() {
    let server = Program::start(&["-m", "other=./caller"]);
    let client = server.client;
    let mut body = long(1);
    body["model"] = json!("other");
    for id in ["first", "second"] {
        assert_eq!(post(client, TEXT, id, &body).status, 200);
    }
    server.terminate();
    let (_, log) = server.end();
    let (first, second) = (line(&log, "first"), line(&log, "second"));
    assert!(
        first.contains("model=\"other\"") && first.contains(" load_ms="),
        "{first}"
    );
    assert!(
        second.contains("model=\"other\"") && !second.contains("load_ms"),
        "{second}"
    );
}

/// A terminal that is stopped, a collector of logs that waits.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    for format in ["text", "json"] {
        let server = Program::start(&["--log-format", format]);
        // A line has the path's beginning; together they are more than a pipe of Linux holds (64 KiB).
        let path = format!("/{}", "a".repeat(180));
        for _ in 0..400 {
            assert_eq!(server.client.get(&path).status, 404);
        }
        let metrics = server.client.get("/metrics").body;
        let none = "twoclock:log_lines_dropped_total 0\n";
        assert!(metrics.contains(none), "{metrics}");
        server.terminate();
        let (code, log) = server.end_unread();
        assert_eq!(code.code(), Some(0), "{log}");
        let lines = log.matches(&path).count();
        assert!((100..400).contains(&lines), "{lines} lines");
    }
}

/// Bars of what is loaded meanwhile would be drawn there too.
#[test]
fn a_terminal_that_is_stopped_stops_no_load() {
    let (server, terminal) = Program::start_shown(&["-m", "other=./caller"]);
    stop(&terminal);
    let mut body = long(1);
    body["model"] = json!("other");
    assert_eq!(server.client.post(TEXT, &body).status, 200);
}

/// What Ctrl-S does.
#[allow(unsafe_code, reason = "terminals have no interface that is safe")]
fn stop(terminal: &OwnedFd) {
    // SAFETY: the call touches no memory of this process.
    let stopped = unsafe { libc::tcflow(terminal.as_raw_fd(), libc::TCOOFF) };
    assert_eq!(stopped, 0);
}

#[test]
fn a_drain_says_whom_it_waits_for() {
    let drained = |seconds: &str, is_cut: bool, again: bool| {
        let server = Program::start(&["--drain-timeout", seconds, "--log-format", "json"]);
        let mut stream = server.client.begin(TEXT, &endless());
        read_until(&mut stream, "data: ");
        server.terminate();
        if !is_cut || again {
            wait(|| server.client.get("/health").status == 503);
        }
        if !is_cut {
            drop(stream);
        } else if again {
            server.terminate();
        }
        let (code, log) = server.end();
        assert_eq!(code.code(), Some(0), "{log}");
        let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        let said = |part: &str| {
            let is_it = |line: &&Value| line["message"].as_str().is_some_and(|m| m.contains(part));
            let found = lines.iter().find(is_it);
            found.unwrap_or_else(|| panic!("{part} in {log}")).clone()
        };
        let first = said("a second signal stops at once");
        assert_eq!(first["running"], 1, "{first}");
        let seconds: f64 = seconds.parse().unwrap();
        assert_eq!(first["left_s"].as_f64(), Some(seconds), "{first}");
        let last = match (is_cut, again) {
            (false, _) => "all requests have ended",
            (true, false) => "the time to drain is over",
            (true, true) => "stopped before all requests have ended",
        };
        let running = is_cut.then_some(1);
        assert_eq!(said(last)["running"].as_i64(), running, "{log}");
    };
    drained("0.5", true, false);
    drained("60", true, true);
    drained("60", false, false);
}
