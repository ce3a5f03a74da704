//! Several models behind one server: by name, loaded when asked for and unloaded when not.

use std::io::BufReader;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::scene::{Fault, Gate, PATIENCE, Plan, Scene, long, read_until, reply, wait};
use serde_json::{Value, json};
use twoclock::serve::shutdown::Phase;

const TEXT: &str = "/v1/completions";

fn loaded(scene: &Scene) -> Vec<bool> {
    let models = scene.client.get("/v1/models").json()["data"].clone();
    let flags = models.as_array().unwrap().iter();
    flags
        .map(|model| model["loaded"].as_bool().unwrap())
        .collect()
}

#[test]
fn models_come_when_asked_for_and_go_when_not() {
    let plan = Plan {
        models: vec!["one", "two"],
        idle_unload: Some(Duration::from_millis(400)),
        ..Plan::default()
    };
    let scene = Scene::start(plan);
    let client = scene.client;
    assert_eq!(loaded(&scene), [false, false]);
    let reply = client.post(TEXT, &long(1));
    assert_eq!(
        (reply.status, &reply.error()["param"]),
        (400, &json!("model"))
    );
    // Many ask at once, and one load serves all of them.
    let asking: Vec<_> = (0..6)
        .map(|_| {
            thread::spawn(move || {
                let mut body = long(3);
                body["model"] = json!("two");
                client.ask(TEXT, &body)["choices"][0]["text"].clone()
            })
        })
        .collect();
    let answers: Vec<_> = asking.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(loaded(&scene), [false, true]);
    // One in use stays, however long it takes.
    let mut body = long(400);
    body["model"] = json!("two");
    body["stream"] = json!(true);
    let mut stream = client.begin(TEXT, &body);
    read_until(&mut stream, "data: ");
    thread::sleep(Duration::from_millis(600));
    assert_eq!(loaded(&scene), [false, true]);
    read_until(&mut stream, "[DONE]");
    wait(|| loaded(&scene) == [false, false]);
    // And comes again.
    let mut body = long(3);
    body["model"] = json!("two");
    assert_eq!(client.ask(TEXT, &body)["choices"][0]["text"], answers[0]);
    assert_eq!(client.get("/health").status, 200);
}

#[test]
fn what_cannot_be_loaded_is_no_end() {
    for fault in [Fault::Files, Fault::Loading] {
        let mut plan = Plan {
            fault: Some((0, fault)),
            num_faults: 2,
            ..Plan::default()
        };
        plan.model_limits.first_backoff = Duration::from_millis(50);
        let num_loads = Arc::clone(&plan.num_loads);
        let scene = Scene::start(plan);
        let asked = || scene.client.post(TEXT, &long(1));
        let first = asked();
        assert_eq!(
            (first.status, first.header("retry-after")),
            (503, Some("1"))
        );
        let error = first.error();
        assert_eq!(error["code"], "model_unavailable");
        assert!(!error.to_string().contains("secret"), "{error}");
        let up = || scene.client.metric("twoclock:engine_up");
        let health = || scene.client.get("/health");
        assert_eq!(health().status, 200);
        let told = json!({"status": "ok", "failed_models": 1});
        assert_eq!((health().json(), up()), (told, 0.0));
        // It is tried again, and comes once it can.
        wait(|| asked().status == 200);
        assert_eq!((health().json(), up()), (json!({"status": "ok"}), 1.0));
        assert_eq!(num_loads.load(Ordering::Relaxed), 3);
    }
}

#[test]
fn a_load_that_fails_is_tried_once_for_all() {
    let gate = Gate::default();
    let mut plan = Plan {
        fault: Some((0, Fault::Files)),
        load_gate: Some(gate.clone()),
        ..Plan::default()
    };
    plan.model_limits.first_backoff = Duration::from_secs(50);
    let num_loads = Arc::clone(&plan.num_loads);
    let scene = Scene::start(plan);
    let client = scene.client;
    let asking: Vec<_> = (0..8)
        .map(|_| thread::spawn(move || client.post(TEXT, &long(1))))
        .collect();
    wait(|| scene.shutdown.num_running() == 8 && gate.is_asked());
    gate.open(8);
    for reply in asking.into_iter().map(|asking| asking.join().unwrap()) {
        assert_eq!(reply.status, 503);
        assert_eq!(reply.error()["code"], "model_unavailable");
        let backoff: u32 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((20..=50).contains(&backoff), "{backoff}");
    }
    assert_eq!(num_loads.load(Ordering::Relaxed), 1);
}

#[test]
fn one_that_is_loaded_for_nobody_makes_room() {
    let gate = Gate::default();
    let mut plan = Plan {
        models: vec!["one", "two"],
        load_gate: Some(gate.clone()),
        ..Plan::default()
    };
    plan.model_limits.max_loaded = 1;
    let scene = Scene::start(plan);
    let client = scene.client;
    let gone = client.begin(TEXT, &of("one", 1));
    wait(|| gate.is_asked());
    drop(gone);
    wait(|| scene.shutdown.num_running() == 0);
    let waiting = thread::spawn(move || client.post(TEXT, &of("two", 1)).status);
    wait(|| scene.shutdown.num_running() == 1);
    // Time to find no seat; with less it finds one at once.
    thread::sleep(Duration::from_millis(100));
    gate.open(2);
    assert_eq!(waiting.join().unwrap(), 200);
    assert_eq!(loaded(&scene), [false, true]);
}

/// A completion by the model of this name.
fn of(model: &str, max_tokens: usize) -> Value {
    let mut body = long(max_tokens);
    body["model"] = json!(model);
    body
}

/// A server of three models of which two may be loaded, whose steps wait for the gate, where both seats are used by
/// answers that do not go on.
fn full(seat_wait: Duration, gate: &Gate) -> (Scene, [BufReader<TcpStream>; 2]) {
    let mut plan = Plan {
        models: vec!["one", "two", "three"],
        step: Duration::from_millis(10),
        gate: Some(gate.clone()),
        ..Plan::default()
    };
    plan.model_limits.max_loaded = 2;
    plan.model_limits.seat_wait = seat_wait;
    // Fewer than one of the answers needs.
    gate.open(400);
    let scene = Scene::start(plan);
    let streams = ["one", "two"].map(|model| {
        let mut body = of(model, 500);
        body["stream"] = json!(true);
        let mut stream = scene.client.begin(TEXT, &body);
        read_until(&mut stream, "data: ");
        stream
    });
    gate.shut();
    (scene, streams)
}

/// Who waits for a model that others have when the server stops hears that, and not only that its connection ends.
#[test]
fn who_waits_for_a_model_when_the_server_stops_is_told() {
    let gate = Gate::default();
    let (mut scene, streams) = full(Duration::from_secs(600), &gate);
    let waiting = scene.client.begin(TEXT, &of("three", 1));
    wait(|| scene.shutdown.num_running() == 3);
    scene.shutdown.advance(Phase::Stopped);
    let answer = reply(waiting);
    assert_eq!(
        (answer.status, &answer.error()["code"]),
        (503, &json!("shutting_down"))
    );
    gate.open(usize::MAX / 2);
    drop(streams);
    scene.end();
}

#[test]
fn only_so_many_are_loaded_at_once() {
    let mut plan = Plan {
        models: vec!["one", "two", "three"],
        ..Plan::default()
    };
    plan.model_limits.max_loaded = 2;
    let scene = Scene::start(plan);
    for (model, expected) in [
        ("one", [true, false, false]),
        ("two", [true, true, false]),
        // The one that was not used for longest makes room.
        ("three", [false, true, true]),
        ("two", [false, true, true]),
        ("one", [true, true, false]),
    ] {
        scene.client.ask(TEXT, &of(model, 1));
        assert_eq!(loaded(&scene), expected, "{model}");
    }
}

#[test]
fn where_all_are_in_use_one_more_is_refused() {
    let (gate, seat_wait) = (Gate::default(), Duration::from_millis(300));
    let (scene, streams) = full(seat_wait, &gate);
    let began = Instant::now();
    let refused = scene.client.post(TEXT, &of("three", 1));
    assert!(began.elapsed() >= seat_wait);
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("5"))
    );
    assert_eq!(refused.error()["code"], "models_busy");
    assert_eq!(loaded(&scene), [true, true, false]);
    drop(streams);
    gate.open(1000);
}

#[test]
fn one_that_is_used_no_more_makes_room_for_who_waits() {
    let gate = Gate::default();
    let (scene, [one, two]) = full(PATIENCE, &gate);
    let client = scene.client;
    let waiting = thread::spawn(move || client.post(TEXT, &of("three", 1)).status);
    wait(|| scene.shutdown.num_running() == 3);
    drop(one);
    wait(|| scene.shutdown.num_running() == 2);
    // The step that was under way; the other's answer goes on for longer than all that pass.
    gate.open(20);
    wait(|| loaded(&scene) == [false, true, true]);
    gate.open(300);
    assert_eq!(waiting.join().unwrap(), 200);
    drop(two);
    gate.open(1000);
}

#[test]
fn an_engine_that_failed_is_made_anew() {
    for fault in [Fault::Lost, Fault::Panic] {
        let gate = Gate::default();
        let mut plan = Plan {
            fault: Some((2, fault)),
            num_faults: 2,
            load_gate: Some(gate.clone()),
            ..Plan::default()
        };
        plan.model_limits.first_backoff = Duration::from_millis(50);
        let scene = Scene::start(plan);
        let client = scene.client;
        gate.open(1);
        for _ in 0..2 {
            assert!([500, 503].contains(&client.post(TEXT, &long(8)).status));
            // It comes back by itself.
            wait(|| client.get("/health").status == 503 && gate.is_asked());
            gate.open(1);
            wait(|| client.get("/health").status == 200);
        }
        assert_eq!(client.ask(TEXT, &long(8))["usage"]["completion_tokens"], 8);
        assert_eq!(client.metric("twoclock:engine_up"), 1.0);
        client.wait_until_free();
    }
}

#[test]
fn a_lost_device_and_a_fault_are_said() {
    for (fault, status, code) in [
        (Fault::Lost, 503, "device_lost"),
        (Fault::Panic, 500, "engine_failed"),
    ] {
        let mut plan = Plan {
            fault: Some((20, fault)),
            ..Plan::default()
        };
        plan.model_limits.first_backoff = Duration::from_secs(30);
        let scene = Scene::start(plan);
        let client = scene.client;
        client.ask(TEXT, &long(4));
        let mut body = long(200);
        body["stream"] = json!(true);
        let mut stream = client.begin(TEXT, &body);
        let whole = client.post(TEXT, &long(200));
        assert_eq!(whole.status, status, "{whole:?}");
        if status == 503 {
            assert_eq!(whole.error()["code"], code);
        }
        read_until(&mut stream, "\"error\"");
        wait(|| client.get("/health").status == 503);
        assert_eq!(client.get("/health").json()["status"], "failed");
        let next = client.post(TEXT, &long(1));
        assert_eq!((next.status, &next.error()["code"]), (503, &json!(code)));
        let backoff: u32 = next.header("retry-after").unwrap().parse().unwrap();
        assert!((20..=30).contains(&backoff), "{backoff}");
        assert_eq!(client.metric("twoclock:engine_up"), 0.0);
        // The stream and the other had begun.
        let cut = format!("http_streams_cut_total{{path=\"{TEXT}\",status=\"{status}\"}} 1\n");
        wait(|| client.get("/metrics").body.contains(&cut));
        let metrics = client.get("/metrics").body;
        for sample in [
            "finished_reason=\"error\"} 2\n",
            "finished_reason=\"abort\"} 0\n",
        ] {
            assert!(metrics.contains(sample), "{sample} in {metrics}");
        }
        assert_eq!(client.get("/v1/models").status, 200);
    }
}

/// What a model cannot be asked is known before it is loaded.
#[test]
fn a_chat_loads_no_model_that_takes_none() {
    let plan = Plan {
        models: vec!["one", "two"],
        has_chat_template: false,
        ..Plan::default()
    };
    let num_loads = Arc::clone(&plan.num_loads);
    let scene = Scene::start(plan);
    let client = scene.client;
    let messages = json!([{"role": "user", "content": "a"}]);
    let chat = json!({"model": "one", "messages": messages, "max_tokens": 1});
    for (path, body, param) in [
        ("/v1/chat/completions", &chat, "messages"),
        (
            "/v1/responses",
            &json!({"model": "one", "input": "a"}),
            "input",
        ),
    ] {
        let refused = client.post(path, body);
        let error = refused.error();
        assert_eq!(
            (refused.status, &error["code"], &error["param"]),
            (400, &json!("no_chat_template"), &json!(param)),
            "{path}"
        );
    }
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let refused = client.post(path, &chat);
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.body.contains("no chat template"), "{refused:?}");
    }
    assert_eq!(num_loads.load(Ordering::Relaxed), 0);
    let mut text = long(1);
    text["model"] = json!("one");
    client.ask(TEXT, &text);
    // What else a body may be shows when it is read.
    let tokens = client.post("/tokenize", &chat);
    assert_eq!(tokens.error()["code"], "no_chat_template");
    assert_eq!(num_loads.load(Ordering::Relaxed), 1);
}
