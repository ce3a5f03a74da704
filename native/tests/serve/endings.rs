//! How connections end: whoever is answered before all was sent reads the answer, and whoever sends nothing more does
//! not keep the server.

use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::scene::{Client, Gate, JSON, PATIENCE, Plan, Scene, long, reply, wait};
use axum::Router;
use axum::routing::get;
use pollster::block_on;
use serde_json::json;
use tokio::net::TcpListener;
use twoclock::serve::connections::Connections;
use twoclock::serve::http_metrics::HttpMetrics;
use twoclock::serve::listener::Door;
use twoclock::serve::shutdown::{Phase, Shutdown};

/// More than the host keeps for who does not read.
const MUCH: usize = 12 << 20;

fn head(path: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{JSON}{headers}\r\n")
}

/// Sends all of it before anything is read.
fn in_one_go(client: Client, bytes: &[u8]) -> crate::scene::Reply {
    let mut stream = client.connect();
    stream.write_all(bytes).unwrap();
    reply(stream)
}

/// Reads up to where these bytes end.
fn read_through(stream: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    read
}

#[test]
fn who_sends_all_before_it_reads_reads_the_answer() {
    let scene = Scene::start(Plan::default());
    let client = scene.client;
    let length = format!("Content-Length: {MUCH}\r\n");
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let chunks = chunk.repeat(MUCH / 0x10000) + "0\r\n\r\n";
    let body = " ".repeat(MUCH);
    for (path, headers, body, status) in [
        ("/v1/completions", length.clone(), &body, 413),
        (
            "/v1/completions",
            "Transfer-Encoding: chunked\r\n".to_owned(),
            &chunks,
            413,
        ),
        (
            "/v1/completions",
            format!("Content-Encoding: gzip\r\n{length}"),
            &body,
            415,
        ),
        ("/nowhere", length.clone(), &body, 404),
    ] {
        let answer = in_one_go(client, (head(path, &headers) + body).as_bytes());
        assert_eq!(answer.status, status, "{answer:?}");
        answer.error();
    }
    // A head of which not all is read, too.
    let many = format!("X: {}\r\n", "y".repeat(MUCH));
    let answer = in_one_go(client, head("/v1/completions", &many).as_bytes());
    assert_eq!(answer.status, 431);
    // A body that is short enough leaves the connection as it was.
    let mut stream = client.connect();
    for _ in 0..2 {
        let request = head("/nowhere", "Content-Length: 2\r\n") + "{}";
        stream.write_all(request.as_bytes()).unwrap();
        assert!(read_through(&mut stream, b"}}").starts_with(b"HTTP/1.1 404"));
    }
}

/// It is not read for ever either.
#[test]
fn who_never_ends_is_cut() {
    let scene = Scene::start(Plan::default());
    let mut stream = scene.client.connect();
    let head = head("/v1/completions", "Transfer-Encoding: chunked\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    // However fast it is: it has seconds at most.
    let began = Instant::now();
    let mut written = 0;
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let error = loop {
        match stream.write_all(chunk.as_bytes()) {
            Ok(()) => {
                written += chunk.len();
                assert!(began.elapsed() < PATIENCE, "it is read for ever");
            }
            Err(error) => break error.kind(),
        }
    };
    let cuts = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(cuts.contains(&error), "{error}");
    // But it is read on for a while, so that what was answered is not lost with the connection.
    let lasted = began.elapsed() > Duration::from_secs(1);
    assert!(lasted || written > 32 << 20, "{written} bytes were read");
}

/// Who stopped in the middle of a body does not keep a server that is to end, and hears why.
#[test]
fn half_a_body_holds_no_drain() {
    for drain_timeout in [Duration::from_secs(600), Duration::from_millis(50)] {
        let mut plan = Plan {
            drain_timeout,
            ..Plan::default()
        };
        plan.settings.body_timeout = Duration::from_secs(600);
        let mut scene = Scene::start(plan);
        let client = scene.client;
        let mut half = Vec::new();
        for path in [
            "/v1/completions",
            "/v1/embeddings",
            "/tokenize",
            "/v1/messages",
        ] {
            let mut stream = client.connect();
            let request = head(path, "Content-Length: 10\r\n") + "{";
            stream.write_all(request.as_bytes()).unwrap();
            half.push(stream);
        }
        wait(|| scene.shutdown.num_running() == half.len());
        scene.shutdown.advance(Phase::Draining);
        let messages = reply(half.pop().unwrap());
        assert_eq!(
            (messages.status, &*messages.message_error()),
            (503, "overloaded_error")
        );
        for stream in half {
            let answer = reply(stream);
            assert_eq!(
                (answer.status, &answer.error()["code"]),
                (503, &json!("shutting_down"))
            );
            assert_eq!(answer.header("retry-after"), Some("5"));
        }
        scene.end();
    }
}

/// What is on its way when a server is told to end is still taken in.
#[test]
fn the_rest_of_a_body_may_come_while_it_drains() {
    let mut scene = Scene::start(Plan::default());
    let mut stream = scene.client.connect();
    let body = long(3).to_string();
    let (first, rest) = body.split_at(5);
    let request = head(
        "/v1/completions",
        &format!("Content-Length: {}\r\n", body.len()),
    ) + first;
    stream.write_all(request.as_bytes()).unwrap();
    wait(|| scene.shutdown.num_running() == 1);
    scene.shutdown.advance(Phase::Draining);
    stream.write_all(rest.as_bytes()).unwrap();
    let answer = reply(stream);
    assert_eq!(answer.status, 200, "{answer:?}");
    // It will not be used again.
    assert_eq!(answer.header("connection"), Some("close"));
    scene.end();
}

#[test]
fn idle_connections_end_when_it_drains() {
    let gate = Gate::default();
    let mut scene = Scene::start(Plan {
        gate: Some(gate.clone()),
        ..Plan::default()
    });
    let client = scene.client;
    let running = client.begin("/v1/completions", &long(3));
    wait(|| gate.is_asked());
    let mut silent = client.connect();
    let mut idle = client.connect();
    idle.write_all(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    read_through(&mut idle, b"}]}");
    scene.shutdown.advance(Phase::Draining);
    // They read an end, not an answer and not a fault.
    assert_eq!(idle.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    assert_eq!(scene.shutdown.num_running(), 1);
    // Who asks how it is hears it, once a connection.
    let mut late = client.connect();
    late.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let health = reply(&late);
    assert_eq!(
        (health.status, health.header("connection")),
        (503, Some("close"))
    );
    gate.open(usize::MAX / 2);
    assert_eq!(reply(running).status, 200);
    scene.end();
}

/// Heads that were begun; of one the rest comes.
#[test]
fn half_a_head_holds_no_drain() {
    let gate = Gate::default();
    let mut scene = Scene::start(Plan {
        gate: Some(gate.clone()),
        ..Plan::default()
    });
    let client = scene.client;
    let running = client.begin("/v1/completions", &long(3));
    wait(|| gate.is_asked());
    let (first, rest) = ("GET /v1/mod", "els HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut half: Vec<_> = (0..3).map(|_| client.connect()).collect();
    for stream in &mut half {
        stream.write_all(first.as_bytes()).unwrap();
    }
    // And others on connections that were answered before.
    let kept = [(); 2].map(|()| {
        let mut kept = client.connect();
        kept.write_all((first.to_owned() + rest).as_bytes())
            .unwrap();
        read_through(&mut kept, b"}]}");
        kept.write_all(first.as_bytes()).unwrap();
        kept
    });
    // What is sent is there for who reads it.
    thread::sleep(Duration::from_millis(100));
    half.extend(kept);
    scene.shutdown.advance(Phase::Draining);
    // Not at once, but soon.
    thread::sleep(Duration::from_millis(100));
    for mut whole in [half.remove(0), half.pop().unwrap()] {
        whole.write_all(rest.as_bytes()).unwrap();
        let answer = reply(whole);
        assert_eq!(
            (answer.status, &answer.error()["code"]),
            (503, &json!("shutting_down"))
        );
    }
    for mut stream in half {
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
    assert_eq!(scene.shutdown.num_running(), 1);
    gate.open(usize::MAX / 2);
    assert_eq!(reply(running).status, 200);
    scene.end();
}

/// One of them was taken, the others are in the host's queue: a server that ends owes them a word, though those who have
/// places keep them.
#[test]
fn who_waits_for_a_place_when_it_ends_is_answered() {
    for (phase, runs) in [
        (Phase::Draining, true),
        (Phase::Draining, false),
        (Phase::Stopped, false),
    ] {
        let mut scene = Scene::start(Plan {
            max_connections: 1,
            ..Plan::default()
        });
        let mut place = block_on(scene.app.connections.place());
        let running = runs.then(|| scene.shutdown.enter().unwrap());
        let waiting: Vec<_> = (0..8)
            .map(|_| scene.client.begin("/v1/completions", &long(1)))
            .collect();
        block_on(place.is_wanted());
        scene.shutdown.advance(phase);
        for waiting in waiting {
            let answer = reply(waiting);
            assert_eq!(
                (answer.status, &answer.error()["code"]),
                (503, &json!("shutting_down"))
            );
            assert_eq!(answer.header("connection"), Some("close"));
        }
        if runs {
            // All of that was while it drained.
            assert_eq!(scene.shutdown.phase(), Phase::Draining);
        }
        drop(running);
        scene.end();
        drop(place);
    }
}

/// Also one that was made at once, and whose client reads it slowly.
#[test]
fn an_answer_runs_until_it_is_written() {
    const LENGTH: usize = 4 * MUCH;
    let shutdown = Shutdown::default();
    let ends = shutdown.clone();
    let (told, is_told) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            let router = Router::new().route("/much", get(|| async { " ".repeat(LENGTH) }));
            let stopped = ends.reached(Phase::Stopped);
            let door = Door {
                router,
                connections: Connections::new(8),
                bounds: Plan::default().bounds,
                shutdown: ends.clone(),
                counts: HttpMetrics::default(),
            };
            door.serve(listener, stopped, PATIENCE).await;
        });
    });
    let mut stream = Client(is_told.recv().unwrap(), None).connect();
    let request = "GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    read_through(&mut stream, b"\r\n\r\n");
    wait(|| shutdown.num_running() == 1);
    shutdown.advance(Phase::Draining);
    let mut read = vec![0; LENGTH / 2];
    stream.read_exact(&mut read).unwrap();
    assert_eq!(shutdown.num_running(), 1);
    assert_eq!(stream.read_to_end(&mut read).unwrap(), LENGTH / 2);
    wait(|| shutdown.num_running() == 0);
    shutdown.advance(Phase::Stopped);
    server.join().unwrap();
}
