//! Who waits for whom while bodies are read.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use crate::scene::{Plan, Scene, reply, wait};
use serde_json::json;

const TOKENIZE: &str = "/tokenize";
/// Bytes of a text that is long to read.
const LONG: usize = 200_000;

#[test]
fn little_is_read_while_much_waits() {
    let plan = Plan::default();
    let reading = plan.reading.clone();
    let scene = Scene::start(plan);
    let client = scene.client;
    client.ask(TOKENIZE, &json!({"prompt": "a"}));
    // Somebody reads long where only one can.
    let (open, gate) = mpsc::channel::<()>();
    let began = Arc::new(AtomicBool::new(false));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).build().unwrap();
    let begun = Arc::clone(&began);
    let held = runtime.spawn(async move {
        let work = move || {
            begun.store(true, Ordering::Relaxed);
            gate.recv()
        };
        reading.run(LONG, work).await
    });
    wait(|| began.load(Ordering::Relaxed));
    let long = json!({"prompt": "a ".repeat(LONG / 2)});
    let running = || scene.shutdown.num_running();
    let gone: Vec<_> = (0..8).map(|_| client.begin(TOKENIZE, &long)).collect();
    let stays = client.begin(TOKENIZE, &long);
    // Short to read, and long to compile.
    let mut formed = crate::scene::long(2);
    formed["guided_regex"] = json!("(a|b){3}");
    let formed = client.begin("/v1/completions", &formed);
    wait(|| running() == 10);
    for body in [
        json!({"prompt": "a b"}),
        json!({"messages": [{"role": "user", "content": "a"}]}),
    ] {
        assert!(client.ask(TOKENIZE, &body)["count"].as_u64() > Some(0));
    }
    let message = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1});
    client.ask("/v1/messages/count_tokens", &message);
    client.ask("/v1/completions", &crate::scene::long(2));
    formed.get_ref().set_nonblocking(true).unwrap();
    let early = formed.get_ref().peek(&mut [0]);
    assert_eq!(early.unwrap_err().kind(), ErrorKind::WouldBlock);
    formed.get_ref().set_nonblocking(false).unwrap();
    drop(gone);
    // Nobody waits any more for those who have gone.
    wait(|| running() == 2);
    open.send(()).unwrap();
    runtime.block_on(held).unwrap().unwrap().unwrap();
    let stayed = reply(stays);
    assert_eq!(stayed.status, 200, "{stayed:?}");
    assert_eq!(reply(formed).status, 200);
}
