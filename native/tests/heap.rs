//! Who frees much says so, and a server gives it back. A program of its own, as the heap is a process's: nobody else says
//! so meanwhile.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use twoclock::engine_thread::EngineThread;
use twoclock::heap;
use twoclock::serve::answer_room::AnswerRoom;
use twoclock::serve::app::{App, Settings};
use twoclock::serve::auth::ApiKeys;
use twoclock::serve::body_room::{BodyRoom, HeldRoom};
use twoclock::serve::listener::Bounds;
use twoclock::serve::loaded::Loaded;
use twoclock::serve::models::{ModelLimits, Models};
use twoclock::serve::offered::Offered;
use twoclock::serve::reading::SHORT;
use twoclock::serve::seats::Seats;
use twoclock::serve::server::Server;
use twoclock::serve::shutdown::Phase;
use twoclock::serve::slot::{Found, Loading, Slot};
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{EngineCore, HandleOptions, LlmEngine};
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::text::Tokenizer;
use twoclock_core::weights::{Checkpoint, GenerationDefaults, PoolingDefaults};
use twoclock_shaders::cpu::CpuExecutor;

/// Longest time a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something, and gives whether it said that much is free.
fn frees_much<T>(act: impl FnOnce() -> T) -> (T, bool) {
    while heap::is_due() {
        heap::give_back();
    }
    let made = act();
    (made, heap::is_due())
}

/// The end of a long body, be it that less of it is kept or that nothing is, and that of a long answer.
#[test]
fn the_end_of_what_is_long_is_said() {
    let _alone = alone();
    let room = BodyRoom::new(4 * SHORT);
    let read = |bytes| {
        let mut held = HeldRoom::default();
        assert!(room.grow(&mut held, bytes));
        held
    };
    for (bytes, is_long) in [(1, false), (SHORT, false), (2 * SHORT, true)] {
        let (held, grown) = frees_much(|| read(bytes));
        let (kept, said) = frees_much(|| room.exchange(held, 1).unwrap());
        assert_eq!((grown, said), (false, is_long), "{bytes} bytes are read");
        assert!(!frees_much(|| drop(kept)).1);
        let (held, _) = frees_much(|| read(bytes));
        assert_eq!(frees_much(|| drop(held)).1, is_long, "{bytes} bytes");
        let mut answer = AnswerRoom::new(4 * SHORT).begin();
        answer.gain(bytes).unwrap();
        assert_eq!(frees_much(|| drop(answer)).1, is_long, "{bytes} answered");
        // Sent piece by piece.
        let mut answer = AnswerRoom::new(4 * SHORT).begin();
        answer.gain(bytes).unwrap();
        let (answer, _) = frees_much(|| {
            (0..bytes.div_ceil(SHORT)).for_each(|_| answer.give_back(SHORT));
            answer
        });
        assert_eq!(frees_much(|| drop(answer)).1, is_long, "{bytes} sent");
    }
}

fn golden(name: &str) -> Vec<u8> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    std::fs::read(golden.join(name)).unwrap()
}

fn load() -> anyhow::Result<Loaded> {
    let make = || {
        let source = ("Q4_0.gguf".to_owned(), golden("gguf/Q4_0.gguf"));
        let checkpoint = Checkpoint::from_gguf(Arc::new(source))?;
        let tokenizer = Tokenizer::from_json(&golden("tokenizer/tokenizer.json"), None, None)?;
        let config = SchedulerConfig {
            max_model_len: 128,
            ..SchedulerConfig::default()
        };
        let options = RunnerOptions::default();
        let executor = CpuExecutor::default();
        let runner = ModelRunner::load(executor, &checkpoint, &config, options, |_| ())?;
        let core = EngineCore::new(runner, ManualClock::default(), &checkpoint.config, config)?;
        Ok(LlmEngine::new(core, tokenizer))
    };
    let thread = EngineThread::spawn(HandleOptions::default(), make, |_| ())?;
    let (generation, pooling) = (GenerationDefaults::default(), PoolingDefaults::default());
    Ok(Loaded::new(thread, None, generation, pooling, 128))
}

fn begin(slot: &Arc<Slot>) -> Loading {
    match slot.find() {
        Found::Absent(loading) => loading,
        other => panic!("{other:?}"),
    }
}

/// Also where the load failed.
#[test]
fn the_end_of_a_load_and_of_a_model_is_said() {
    let _alone = alone();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    let offered = Offered {
        name: "a".to_owned(),
        aliases: Vec::new(),
        context_length: 128,
        has_chat_template: false,
        load: Arc::new(load),
    };
    let seats = Seats::new(1);
    let slot = Arc::new(Slot::new(offered, Arc::clone(&seats), Duration::ZERO));
    let loading = begin(&slot);
    assert!(frees_much(|| drop(loading)).1, "a load failed");
    let load = || {
        let loading = begin(&slot);
        let loaded = Arc::new((loading.offered().load)().unwrap());
        loading.succeed(loaded, seats.try_take());
    };
    assert!(frees_much(load).1, "a load ended");
    let unload = || runtime.block_on(slot.unload(Duration::ZERO, "a test"));
    let (seat, said) = frees_much(unload);
    assert!(seat.is_some() && said, "it was unloaded");
    drop(seat);
    load();
    assert!(frees_much(|| runtime.block_on(slot.end())).1, "it ended");
    // There is no model any more.
    assert!(!frees_much(|| runtime.block_on(slot.end())).1);
}

#[test]
fn a_server_gives_back_what_is_free() {
    let _alone = alone();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let at = (Ipv4Addr::LOCALHOST, 0);
    let listener = runtime.block_on(TcpListener::bind(at)).unwrap();
    let long = PATIENCE;
    let settings = Settings {
        max_body: 1 << 20,
        body_timeout: long,
        request_timeout: long,
        ping_interval: long,
    };
    let bounds = Bounds {
        header_timeout: long,
        write_timeout: long,
    };
    let models = Models::new(Vec::new(), ModelLimits::default());
    let app = App::new(models, settings, ApiKeys::default());
    let server = Server::new(listener, app, bounds, long, None);
    let shutdown = server.app().shutdown.clone();
    heap::freed_much();
    let running = runtime.spawn(server.run());
    let end = Instant::now() + PATIENCE;
    while heap::is_due() {
        assert!(Instant::now() < end, "it is not given back");
        thread::sleep(Duration::from_millis(20));
    }
    shutdown.advance(Phase::Stopped);
    runtime.block_on(running).unwrap();
}
