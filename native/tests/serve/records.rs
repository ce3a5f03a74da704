//! What is known of a request that ends by a fault or with the server: behind handlers of the test's own.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, post};
use serde_json::json;
use tokio::net::TcpListener;
use twoclock::serve::app::App;
use twoclock::serve::request_record::RequestRecord;
use twoclock::serve::shutdown::Phase;
use twoclock::serve::{access, embeddings, listener};
use twoclock_core::types::FinishReason;

use crate::scene::{Client, Gate, Plan, app, reply, wait};

/// One path, heard like all of a server's.
struct Heard {
    client: Client,
    app: Arc<App>,
    /// That of each request, as long as it is not told.
    records: Arc<Mutex<Vec<RequestRecord>>>,
    thread: Option<JoinHandle<()>>,
}

impl Heard {
    fn start(plan: Plan, path: &'static str, handler: MethodRouter<Arc<App>>) -> Self {
        let (told, is_told) = mpsc::channel();
        let records = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&records);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                let at = listener.local_addr().unwrap();
                let bounds = plan.bounds;
                let app = Arc::new(app(at.ip(), plan));
                told.send((at, Arc::clone(&app))).unwrap();
                let keep = from_fn(move |request: Request, next: Next| {
                    kept.lock().unwrap().push(RequestRecord::of(&request));
                    next.run(request)
                });
                let log = from_fn_with_state(Arc::clone(&app), access::log);
                let router = Router::new().route(path, handler).layer(keep).layer(log);
                let router = router.with_state(Arc::clone(&app));
                let stopped = async {
                    app.shutdown.reached(Phase::Stopped).await;
                    app.models.end().await;
                };
                let draining = app.shutdown.reached(Phase::Draining);
                let grace = Duration::from_secs(10);
                listener::serve(listener, router, bounds, draining, stopped, grace).await;
            });
        });
        let (at, app) = is_told.recv().unwrap();
        Self {
            client: Client(at, None),
            app,
            records,
            thread: Some(thread),
        }
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.app.shutdown.advance(Phase::Stopped);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

/// An answer that a server's end cuts has not ended.
#[test]
fn what_is_cut_has_no_reason_of_its_end() {
    let gate = Gate::default();
    let plan = Plan {
        gate: Some(gate.clone()),
        ..Plan::default()
    };
    let path = "/v1/embeddings";
    let heard = Heard::start(plan, path, post(embeddings::embed));
    // More than fit in a step.
    let body = json!({"input": vec![vec![7; 400]; 16]});
    let running = heard.client.begin(path, &body);
    wait(|| gate.is_asked());
    let record = heard.records.lock().unwrap().pop().unwrap();
    assert!(record.facts().is_under_way);
    for (_, model) in heard.app.models.loaded() {
        model.handle().stop();
    }
    gate.open(usize::MAX / 2);
    let reply = reply(running);
    assert_eq!(
        (reply.status, &reply.error()["code"]),
        (503, &json!("shutting_down"))
    );
    let facts = record.facts();
    assert!(!facts.reasons.contains(&FinishReason::Abort), "{facts:?}");
}
