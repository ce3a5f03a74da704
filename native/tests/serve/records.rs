//! What is known of a request that ends by a fault or with the server: behind handlers of the test's own.

use std::convert::Infallible;
use std::io::Read;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use hyper::body::Frame;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::Instant;
use twoclock::openai::Endpoint;
use twoclock::serve::api_error::ApiError;
use twoclock::serve::app::App;
use twoclock::serve::job::{self, Protocol};
use twoclock::serve::listener::Door;
use twoclock::serve::loaded::Loaded;
use twoclock::serve::request_id::RequestId;
use twoclock::serve::request_record::RequestRecord;
use twoclock::serve::shutdown::Phase;
use twoclock::serve::stream::{self, Tell};
use twoclock::serve::{access, embeddings};
use twoclock_core::engine::RequestOutput;
use twoclock_core::sched::RequestError;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::FinishReason;

use crate::scene::{Client, Gate, Plan, app, long, reply, wait};

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
                let door = Door {
                    router,
                    connections: app.connections.clone(),
                    bounds,
                    shutdown: app.shutdown.clone(),
                    counts: app.http_metrics.clone(),
                };
                door.serve(listener, stopped, Duration::from_secs(10)).await;
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

/// Panics when it has something to tell, and where it is so also when it is to say why it ends.
struct Panics {
    also_at_the_end: bool,
}

impl Tell for Panics {
    fn gained(
        &mut self,
        _: usize,
        _: RequestOutput,
        _: &Tokenizer,
    ) -> Result<Vec<Event>, RequestError> {
        panic!("a fault of a test")
    }

    fn end(&mut self, _: &Tokenizer) -> Vec<Event> {
        Vec::new()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        assert!(!self.also_at_the_end, "a fault of a test");
        vec![Event::default().data(format!("{} {}", error.status.as_u16(), error.message))]
    }
}

/// Streams that nobody can tell.
async fn untold(app: Arc<App>, request: Request, also_at_the_end: bool) -> Response {
    let protocol = Protocol {
        endpoint: Endpoint::Completions,
        prefix: "cmpl-",
        translate: None,
        echoes: None,
        names: |_| Vec::new(),
    };
    let id = request.extensions().get::<RequestId>().unwrap().clone();
    let deadline = Instant::now() + app.settings.request_timeout;
    let begun = job::begin(&app, protocol, &id, request, deadline).await;
    let teller = Panics { also_at_the_end };
    stream::answer(begun.unwrap(), |_| teller, app.settings.ping_interval)
}

/// Panics where nobody catches it.
struct Broken;

impl HttpBody for Broken {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("a fault of a test")
    }
}

/// Streams whose teller has no last word but a panic.
fn without_last_word() -> MethodRouter<Arc<App>> {
    post(|State(app), request: Request| async move { untold(app, request, true).await })
}

/// Its time is over while nothing is gained, and why it ends cannot be told: nobody is to take it for whole.
#[test]
fn a_panic_at_the_deadline_cuts_the_stream() {
    let path = "/v1/completions";
    let gate = Gate::default();
    let mut plan = Plan {
        gate: Some(gate.clone()),
        ..Plan::default()
    };
    plan.settings.request_timeout = Duration::from_secs(2);
    let heard = Heard::start(plan, path, without_last_word());
    let mut said = String::new();
    let mut stream = heard.client.begin(path, &long(3));
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    // No chunk of nothing, which ends what is whole.
    assert!(
        said.ends_with("\r\n\r\n") && !said.ends_with("0\r\n\r\n"),
        "{said}"
    );
    let cuts = |status| heard.app.http_metrics.streams_cut()[&(path, status)];
    wait(|| cuts(500) + cuts(504) + cuts(499) == 1);
    assert_eq!(cuts(500), 1);
    gate.open(usize::MAX / 2);
}

/// A fault of the server is not its client's.
#[test]
fn a_panic_in_a_body_is_the_servers_fault() {
    type Handler = MethodRouter<Arc<App>>;
    let path = "/v1/completions";
    let told: Handler =
        post(|State(app), request: Request| async move { untold(app, request, false).await });
    let broken: Handler = post(async || Body::new(Broken).into_response());
    for (handler, last) in [
        (told, Some("data: 500 this request")),
        (without_last_word(), Some("")),
        (broken, None),
    ] {
        let heard = Heard::start(Plan::default(), path, handler);
        match last {
            Some(last) => {
                let reply = heard.client.post(path, &long(3));
                assert_eq!(reply.status, 200);
                assert!(reply.body.starts_with(last), "{reply:?}");
                assert_eq!(reply.body.is_empty(), last.is_empty(), "{reply:?}");
            }
            // Whether its head was sent before is a matter of buffers.
            None => {
                let mut stream = heard.client.begin(path, &long(3));
                let _ = stream.read_to_end(&mut Vec::new());
            }
        }
        let cuts = |status| heard.app.http_metrics.streams_cut()[&(path, status)];
        wait(|| cuts(500) + cuts(499) == 1);
        assert_eq!(cuts(500), 1);
        // Nothing is computed for it any more.
        wait(|| {
            let models = heard.app.models.loaded();
            let idle = |(_, model): &(&str, Arc<Loaded>)| model.handle().load().num_requests == 0;
            models.iter().all(idle)
        });
    }
}
