//! `bench-serve` against a server of known times: what it sends, what it counts, what it draws.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// Between two tokens.
const GAP: Duration = Duration::from_millis(20);

/// A server: connections it took, and the bodies it was sent.
#[derive(Default)]
struct Server {
    connections: AtomicUsize,
    bodies: Mutex<Vec<Value>>,
}

/// Listens at a free port; every request whose prompt has nine words or more is one too many.
fn server() -> (String, Arc<Server>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = Arc::new(Server::default());
    let shared = Arc::clone(&server);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            shared.connections.fetch_add(1, Ordering::SeqCst);
            let shared = Arc::clone(&shared);
            // It ends when the client is gone.
            thread::spawn(move || converse(stream, &shared));
        }
    });
    (base, server)
}

fn converse(mut stream: TcpStream, server: &Server) -> std::io::Result<()> {
    // Else a piece waits for the acknowledgement of the one before.
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if first.starts_with("GET /v1/models ") {
            let models = json!({"data": [{"id": "tiny", "max_model_len": 64}]});
            whole(&mut stream, "200 OK", &models)?;
            continue;
        }
        assert!(first.starts_with("POST /v1/completions "), "{first}");
        let body: Value = serde_json::from_slice(&body)?;
        let words = body["prompt"].as_str().unwrap().split(' ').count();
        let tokens = body["max_tokens"].as_u64().unwrap();
        server.bodies.lock().unwrap().push(body);
        if words >= 9 {
            let error = json!({"error": {"message": "too many"}});
            whole(&mut stream, "429 Too Many Requests", &error)?;
            continue;
        }
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        )?;
        for _ in 0..tokens {
            thread::sleep(GAP);
            event(
                &mut stream,
                &json!({"choices": [{"text": "a", "finish_reason": null}]}).to_string(),
            )?;
        }
        let usage = json!({"prompt_tokens": words, "completion_tokens": tokens,
            "prompt_tokens_details": {"cached_tokens": 1}});
        event(
            &mut stream,
            &json!({"choices": [{"text": "", "finish_reason": "length"}], "usage": usage})
                .to_string(),
        )?;
        event(&mut stream, "[DONE]")?;
        write!(stream, "0\r\n\r\n")?;
    }
}

fn whole(stream: &mut TcpStream, status: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn event(stream: &mut TcpStream, data: &str) -> std::io::Result<()> {
    let event = format!("data: {data}\n\n");
    write!(stream, "{:x}\r\n{event}\r\n", event.len())?;
    stream.flush()
}

/// Whether it succeeded, what it printed, and what it said.
fn bench(base: &str, arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_twoclock"))
        .args(["bench-serve", "--base-url", base])
        .args(arguments)
        .env("OPENAI_API_KEY", "secret")
        // It would go there if it heeded one.
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_closed_loop_is_measured_on_connections_that_are_kept() {
    let (base, server) = server();
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("load.svg");
    let arguments = [
        "--requests",
        "12",
        "--concurrency",
        "3",
        "--prompt-len",
        "fixed:4",
        "--output-len",
        "fixed:5",
        "--ignore-eos",
        "--json",
        "--ttft-slo-ms",
        "5000",
        "--tpot-slo-ms",
        "0.5",
        "--plot",
        plot.to_str().unwrap(),
    ];
    let (succeeded, printed, said) = bench(&base, &arguments);
    assert!(succeeded, "{said}");
    let figures: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&figures["ok"], &figures["failed"], &figures["model"]),
        (&json!(12), &json!(0), &json!("tiny"))
    );
    assert_eq!(
        (&figures["prompt_tokens"], &figures["output_tokens"]),
        (&json!(48), &json!(60))
    );
    assert_eq!(figures["cached_prompt_tokens"], 12);
    // A busy machine may be late, and never early.
    for (name, least) in [
        ("ttft_ms", 20.0),
        ("tpot_ms", 20.0),
        ("itl_ms", 19.0),
        ("e2e_ms", 100.0),
    ] {
        let median = figures[name]["p50"].as_f64().unwrap();
        assert!((least..least * 5.0).contains(&median), "{name} {figures}");
    }
    // Four rounds of five tokens; no token is as fast as was asked.
    let most = 60.0 / 0.4;
    let rate = figures["output_tok_s"].as_f64().unwrap();
    assert!((most / 5.0..=most).contains(&rate), "{figures}");
    assert_eq!(
        (&figures["slo_attainment"], &figures["goodput_request_s"]),
        (&json!(0.0), &json!(0.0))
    );
    // One for the list and the warm-up, which a worker may take over.
    assert!(server.connections.load(Ordering::SeqCst) <= 4);
    let bodies = server.bodies.lock().unwrap();
    assert_eq!(bodies.len(), 13);
    assert_eq!(
        (&bodies[0]["stream"], &bodies[0]["ignore_eos"]),
        (&json!(true), &json!(true))
    );
    assert!(
        std::fs::read_to_string(&plot)
            .unwrap()
            .contains("TPOT to keep")
    );
}

#[test]
fn a_trace_is_replayed_at_its_times_and_failures_are_told() {
    let (base, _) = server();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    let lines = "{\"arrival_s\": 0, \"prompt_tokens\": 4, \"output_tokens\": 2}\n\
        {\"arrival_s\": 0.1, \"prompt_tokens\": 9, \"output_tokens\": 2}\n\
        {\"arrival_s\": 0.5, \"prompt_tokens\": 4, \"output_tokens\": 2}\n";
    std::fs::write(&trace, lines).unwrap();
    let (succeeded, printed, said) = bench(
        &base,
        &["--trace", trace.to_str().unwrap(), "--warmup", "0"],
    );
    assert!(!succeeded);
    assert!(said.contains("1 of 3 requests failed"), "{said}");
    for part in ["2 of 3 requests answered", "HTTP 429", "too many"] {
        assert!(printed.contains(part), "{printed}");
    }
    let (succeeded, _, said) = bench("http://127.0.0.1:9", &[]);
    assert!(!succeeded && said.contains("127.0.0.1:9"), "{said}");
    assert!(!said.contains("secret"));
}

#[test]
fn a_server_that_cannot_be_asked_says_what_to_do() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for (base, because) in [
        (&*nobody, "is `twoclock serve` running?"),
        ("127.0.0.1:8000", "must begin with http:// or https://"),
        ("localhost:8000", "must begin with http:// or https://"),
    ] {
        let (succeeded, _, said) = bench(base, &["--output-len", "8"]);
        assert!(!succeeded && said.contains(because), "{said}");
    }
    let guarded = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", guarded.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = guarded.accept().unwrap();
        let mut head = [0; 1024];
        let _ = stream.read(&mut head);
        let _ = whole(&mut stream, "401 Unauthorized", &json!({"error": "no"}));
    });
    let (succeeded, _, said) = bench(&base, &[]);
    let because = "the key of --api-key-file, else of OPENAI_API_KEY";
    assert!(!succeeded && said.contains(because), "{said}");
}
