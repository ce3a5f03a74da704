//! Several models behind one server: by name, loaded when asked for and unloaded when not.

use std::thread;
use std::time::Duration;

use crate::scene::{Fault, Plan, Scene, long, read_until, wait};
use serde_json::json;

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
