//! Several models behind one server: by name, loaded when asked for and unloaded when not.

use std::thread;
use std::time::{Duration, Instant};

use crate::scene::{Fault, Plan, Scene, long, read_until, wait};
use serde_json::{Value, json};

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
        let plan = Plan {
            fault: Some((0, fault)),
            ..Plan::default()
        };
        let scene = Scene::start(plan);
        for _ in 0..2 {
            let reply = scene.client.post(TEXT, &long(1));
            assert_eq!(
                (reply.status, reply.header("retry-after")),
                (503, Some("30"))
            );
            let error = reply.error();
            assert_eq!(error["code"], "model_unavailable");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert_eq!(scene.client.get("/health").status, 200);
    }
}

/// A completion by the model of this name.
fn of(model: &str, max_tokens: usize) -> Value {
    let mut body = long(max_tokens);
    body["model"] = json!(model);
    body
}

#[test]
fn only_so_many_are_loaded_at_once() {
    let mut plan = Plan {
        models: vec!["one", "two", "three"],
        step: Duration::from_millis(10),
        ..Plan::default()
    };
    plan.model_limits.max_loaded = 2;
    plan.model_limits.seat_wait = Duration::from_millis(1500);
    let scene = Scene::start(plan);
    let client = scene.client;
    for (model, expected) in [
        ("one", [true, false, false]),
        ("two", [true, true, false]),
        // The one that was not used for longest makes room.
        ("three", [false, true, true]),
        ("two", [false, true, true]),
        ("one", [true, true, false]),
    ] {
        client.ask(TEXT, &of(model, 1));
        assert_eq!(loaded(&scene), expected, "{model}");
    }
    let stream = |model: &str| {
        let mut body = of(model, 500);
        body["stream"] = json!(true);
        let mut stream = client.begin(TEXT, &body);
        read_until(&mut stream, "data: ");
        stream
    };
    let (one, _two) = (stream("one"), stream("two"));
    let began = Instant::now();
    let refused = client.post(TEXT, &of("three", 1));
    assert!(began.elapsed() >= Duration::from_millis(1500));
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("5"))
    );
    assert_eq!(refused.error()["code"], "models_busy");
    // One that is used no more while another waits makes room for it.
    let waiting = thread::spawn(move || client.post(TEXT, &of("three", 1)).status);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(loaded(&scene), [true, true, false]);
    drop(one);
    assert_eq!(waiting.join().unwrap(), 200);
    assert_eq!(loaded(&scene), [false, true, true]);
}

#[test]
fn an_engine_that_failed_is_made_anew() {
    for fault in [Fault::Lost, Fault::Panic] {
        let mut plan = Plan {
            fault: Some((2, fault)),
            num_faults: 2,
            ..Plan::default()
        };
        plan.model_limits.first_rest = Duration::from_millis(600);
        let scene = Scene::start(plan);
        let client = scene.client;
        for _ in 0..2 {
            assert!([500, 503].contains(&client.post(TEXT, &long(8)).status));
            // It rests, and comes back by itself.
            let resting = client.post(TEXT, &long(1));
            assert_eq!((resting.status, client.get("/health").status), (503, 503));
            assert!(resting.header("retry-after").is_some());
            wait(|| client.get("/health").status == 200);
        }
        assert_eq!(client.ask(TEXT, &long(8))["usage"]["completion_tokens"], 8);
        assert_eq!(client.metric("twoclock:engine_up"), 1.0);
        client.wait_until_free();
    }
}
