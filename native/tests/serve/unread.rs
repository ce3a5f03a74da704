//! What becomes of an answer that nobody reads, over a real connection: it takes more than the host holds for a client.

use std::io::Read;
use std::time::Duration;

use crate::answers::CHAT;
use crate::scene::{Plan, Scene, wait};
use serde_json::{Value, json};

/// Some 8 MB in events.
fn much() -> Value {
    json!({
        "messages": [{"role": "user", "content": "a"}], "stream": true, "n": 8, "max_completion_tokens": 500,
        "ignore_eos": true, "logprobs": true, "top_logprobs": 20,
    })
}

fn scene(change: impl FnOnce(&mut Plan)) -> Scene {
    let mut plan = Plan {
        max_num_seqs: 8,
        step: Duration::ZERO,
        ..Plan::default()
    };
    change(&mut plan);
    Scene::start(plan)
}

/// What the one model has to do.
fn load(scene: &Scene, field: &str) -> Value {
    scene.client.get("/get_load").json()[0][field].clone()
}

#[test]
fn an_answer_that_nobody_reads_is_given_up_at_its_time() {
    let scene = scene(|plan| plan.settings.request_timeout = Duration::from_secs(3));
    let mut stream = scene.client.begin(CHAT, &much());
    wait(|| load(&scene, "num_unread_reqs") == 1);
    assert_eq!(load(&scene, "num_reqs"), 1);
    // Its connection is still there, and who reads at last is told.
    scene.client.wait_until_free();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let last = said.rsplit("data: {").next().unwrap();
    assert!(last.contains("\"request_timeout\""), "{last}");
    wait(|| scene.client.metric("twoclock:http_requests_running") == 0.0);
}

#[test]
fn who_reads_nothing_is_cut() {
    let scene = scene(|plan| plan.bounds.write_timeout = Duration::from_millis(500));
    let mut stream = scene.client.begin(CHAT, &much());
    wait(|| load(&scene, "num_unread_reqs") == 1);
    scene.client.wait_until_free();
    wait(|| scene.client.metric("twoclock:http_requests_running") == 0.0);
    let mut said = Vec::new();
    // It is closed, with or without a word.
    let _ = stream.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("data: {") && !said.contains("[DONE]"));
    let cut = "http_streams_cut_total{path=\"/v1/chat/completions\",status=\"408\"} 1";
    let counts = scene.client.get("/metrics").body;
    assert!(counts.contains(cut), "{counts}");
}
