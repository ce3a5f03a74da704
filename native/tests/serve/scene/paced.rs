//! A server inside the test, whose model takes a set time for a step and may meet a fault.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use twoclock::engine_thread::EngineThread;
use twoclock::files::ModelPath;
use twoclock::serve::allowed_hosts::AllowedHosts;
use twoclock::serve::app::{App, Settings};
use twoclock::serve::auth::ApiKeys;
use twoclock::serve::connections::Connections;
use twoclock::serve::cors;
use twoclock::serve::listener::Bounds;
use twoclock::serve::loaded::Loaded;
use twoclock::serve::models::{ModelLimits, Models};
use twoclock::serve::offered::{Load, Offered};
use twoclock::serve::reading::Reading;
use twoclock::serve::server::Server;
use twoclock::serve::shutdown::{Phase, Shutdown};
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{EngineCore, HandleOptions, LlmEngine};
use twoclock_core::error::{Error, ExecutorError, Result};
use twoclock_core::runner::{ExecuteModel, ModelRunner, RunnerOptions};
use twoclock_core::sched::{ModelRunnerOutput, SchedulerConfig, SchedulerOutput};
use twoclock_core::text::{ChatTemplate, Tokenizer};
use twoclock_core::weights::{GenerationDefaults, PoolingDefaults};
use twoclock_shaders::cpu::CpuExecutor;

use super::{Client, PATIENCE, golden};

/// Longest sequence.
pub(crate) const CONTEXT: usize = 512;

/// What a step meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The device is gone, and no other comes.
    Lost,
    /// The engine panics.
    Panic,
    /// The model cannot be loaded.
    Files,
    /// Loading panics.
    Loading,
}

/// Lets so many steps or loads pass as a test says.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<Passes>, Condvar)>);

#[derive(Default)]
struct Passes {
    left: usize,
    /// One waits.
    is_asked: bool,
}

impl Gate {
    /// Lets so many more pass.
    pub(crate) fn open(&self, num: usize) {
        self.0.0.lock().unwrap().left += num;
        self.0.1.notify_all();
    }

    /// Lets none pass.
    pub(crate) fn shut(&self) {
        self.0.0.lock().unwrap().left = 0;
    }

    /// Whether one waits for it to open.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.0.lock().unwrap().is_asked
    }

    fn pass(&self) {
        let (passes, changed) = &*self.0;
        let mut passes = passes.lock().unwrap();
        passes.is_asked = true;
        let is_shut = |passes: &mut Passes| passes.left == 0;
        // A test that failed opens it no more, and its server must end.
        (passes, _) = changed
            .wait_timeout_while(passes, 2 * PATIENCE, is_shut)
            .unwrap();
        passes.is_asked = false;
        passes.left = passes.left.saturating_sub(1);
    }
}

/// How a server is to be.
pub(crate) struct Plan {
    pub(crate) models: Vec<&'static str>,
    pub(crate) has_chat_template: bool,
    pub(crate) settings: Settings,
    pub(crate) bounds: Bounds,
    pub(crate) max_connections: usize,
    pub(crate) drain_timeout: Duration,
    pub(crate) idle_unload: Option<Duration>,
    pub(crate) max_waiting: usize,
    pub(crate) max_num_seqs: usize,
    /// Time of a step.
    pub(crate) step: Duration,
    /// Steps wait for it, where it is there.
    pub(crate) gate: Option<Gate>,
    /// Loads wait for it, where it is there.
    pub(crate) load_gate: Option<Gate>,
    /// Loads that began, of all models.
    pub(crate) num_loads: Arc<AtomicUsize>,
    /// What it meets after so many steps.
    pub(crate) fault: Option<(usize, Fault)>,
    /// How many engines meet it, of all that are made.
    pub(crate) num_faults: usize,
    pub(crate) model_limits: ModelLimits,
    pub(crate) keys: ApiKeys,
    pub(crate) reading: Reading,
    pub(crate) cors_origin: Option<&'static str>,
}

impl Default for Plan {
    fn default() -> Self {
        let long = Duration::from_secs(30);
        Self {
            models: vec!["paced"],
            has_chat_template: true,
            settings: Settings {
                max_body: 1 << 20,
                body_timeout: long,
                request_timeout: long,
                ping_interval: long,
            },
            bounds: Bounds {
                header_timeout: long,
                write_timeout: long,
            },
            max_connections: 64,
            drain_timeout: long,
            idle_unload: None,
            max_waiting: 64,
            max_num_seqs: 4,
            step: Duration::from_millis(2),
            gate: None,
            load_gate: None,
            num_loads: Arc::default(),
            fault: None,
            num_faults: usize::MAX,
            model_limits: ModelLimits::default(),
            keys: ApiKeys::default(),
            // One that is long at a time.
            reading: Reading::new(2),
            cors_origin: None,
        }
    }
}

/// A server that runs.
pub(crate) struct Scene {
    pub(crate) client: Client,
    pub(crate) app: Arc<App>,
    pub(crate) shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Scene {
    /// Starts one.
    pub(crate) fn start(plan: Plan) -> Self {
        let (told, is_told) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let server = server(listener, plan);
                let app = Arc::clone(server.app());
                told.send((server.local_addr().unwrap(), app)).unwrap();
                server.run().await;
            });
        });
        let (address, app): (SocketAddr, Arc<App>) = is_told.recv().unwrap();
        Self {
            client: Client(address, None),
            shutdown: app.shutdown.clone(),
            app,
            thread: Some(thread),
        }
    }

    /// Waits for its end, which somebody asked for.
    pub(crate) fn end(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.shutdown.advance(Phase::Stopped);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

fn server(listener: TcpListener, plan: Plan) -> Server {
    let (bounds, drain_timeout, idle_unload) = (plan.bounds, plan.drain_timeout, plan.idle_unload);
    let app = app(listener.local_addr().unwrap().ip(), plan);
    Server::new(listener, app, bounds, drain_timeout, idle_unload)
}

/// What its handlers share, heard at this address.
pub(crate) fn app(address: IpAddr, plan: Plan) -> App {
    let offered = plan.models.iter().map(|name| Offered {
        name: (*name).to_owned(),
        aliases: Vec::new(),
        context_length: CONTEXT,
        has_chat_template: plan.has_chat_template,
        load: load(&plan),
    });
    let models = Models::new(offered.collect(), plan.model_limits);
    let origins: Vec<String> = plan.cors_origin.into_iter().map(str::to_owned).collect();
    let allowed_hosts = AllowedHosts::new(address, "127.0.0.1", plan.keys.is_open(), &[]);
    App {
        allowed_hosts: allowed_hosts.unwrap(),
        cors_origins: cors::origins(&origins).unwrap(),
        reading: plan.reading,
        connections: Connections::new(plan.max_connections),
        ..App::new(models, plan.settings, plan.keys)
    }
}

fn load(plan: &Plan) -> Load {
    let &Plan {
        has_chat_template,
        max_waiting,
        max_num_seqs,
        step,
        fault,
        num_faults,
        ..
    } = plan;
    let (gate, load_gate) = (plan.gate.clone(), plan.load_gate.clone());
    let of_all = Arc::clone(&plan.num_loads);
    let num_loads = AtomicUsize::new(0);
    Arc::new(move || {
        of_all.fetch_add(1, Ordering::Relaxed);
        let nth = num_loads.fetch_add(1, Ordering::Relaxed);
        if let Some(gate) = &load_gate {
            gate.pass();
        }
        let fault = fault.filter(|_| nth < num_faults);
        match fault {
            Some((_, Fault::Files)) => anyhow::bail!("/secret/place cannot be read"),
            Some((_, Fault::Loading)) => panic!("a fault of a test"),
            _ => {}
        }
        let options = HandleOptions {
            max_waiting,
            ..HandleOptions::default()
        };
        let gate = gate.clone();
        let make = move || {
            engine(max_num_seqs, |inner| Paced {
                inner,
                step,
                gate,
                fault,
            })
        };
        let thread = EngineThread::spawn(options, make, |_| ())?;
        let (generation, pooling) = (GenerationDefaults::default(), PoolingDefaults::default());
        // It teaches tools in the style of Mistral.
        let template =
            "{% if tools %}[TOOL_CALLS]{{ tools|tojson }}{% endif %}{{ messages[0].content }}";
        let template = has_chat_template.then(|| ChatTemplate::new(template, None, None, None));
        Ok(Loaded::new(
            thread,
            template.transpose()?,
            generation,
            pooling,
            CONTEXT,
        ))
    })
}

/// Takes its time, and meets its fault.
struct Paced<R> {
    inner: R,
    step: Duration,
    gate: Option<Gate>,
    fault: Option<(usize, Fault)>,
}

impl<R: ExecuteModel> ExecuteModel for Paced<R> {
    type Launched = R::Launched;

    async fn launch_step(&mut self, step: &SchedulerOutput) -> Result<R::Launched> {
        thread::sleep(self.step);
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        match &mut self.fault {
            Some((0, Fault::Lost)) => {
                let lost = ExecutorError::DeviceLost("a fault of a test".to_owned());
                return Err(Error::Executor(lost));
            }
            Some((0, _)) => panic!("a fault of a test"),
            Some((left, _)) => *left -= 1,
            None => {}
        }
        self.inner.launch_step(step).await
    }

    async fn finish_step(&mut self, launched: R::Launched) -> Result<ModelRunnerOutput> {
        self.inner.finish_step(launched).await
    }
}

type Engine = LlmEngine<Paced<ModelRunner<CpuExecutor>>, ManualClock>;

fn engine(
    max_num_seqs: usize,
    paced: impl FnOnce(ModelRunner<CpuExecutor>) -> Paced<ModelRunner<CpuExecutor>>,
) -> anyhow::Result<Engine> {
    let checkpoint = ModelPath::Directory(golden("models/qwen2")).open()?;
    let json = std::fs::read(golden("tokenizer/tokenizer.json"))?;
    let tokenizer = Tokenizer::from_json(&json, None, None)?;
    let config = SchedulerConfig {
        max_model_len: CONTEXT,
        max_num_seqs,
        num_blocks: 1 + max_num_seqs * CONTEXT / SchedulerConfig::default().block_size,
        ..SchedulerConfig::default()
    };
    let executor = CpuExecutor::default();
    let options = RunnerOptions::default();
    let inner = ModelRunner::load(executor, &checkpoint, &config, options, |_| ())?;
    let core = EngineCore::new(
        paced(inner),
        ManualClock::default(),
        &checkpoint.config,
        config,
    )?;
    Ok(LlmEngine::new(core, tokenizer))
}
