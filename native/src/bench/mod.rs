//! The `bench` command: how fast a model is on this machine, through the engine that serves it, and how
//! near what the device reaches when it does one thing alone. Owns what is run in which order.

pub mod args;
pub mod ceilings;
pub mod figures;
pub mod first_token;
pub mod plot;
pub mod serving;

use std::time::Instant;

use anyhow::{Context, bail};
use pollster::block_on;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::{CostModel, Hardware, ModelShape, SchedulerConfig, SequenceLoad};
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::gpu::Counters;
use twoclock_shaders::recording::{Launched, RecordingExecutor};

use crate::clock::HostClock;
use crate::host_executor::{HostExecutor, Pipelines};
use crate::keeping_executor::KeepingExecutor;
use crate::memory;
use crate::model_shapes;
use crate::models::Models;
use crate::output;
use crate::picture;
use crate::report::Reporter;
use crate::store::Store;
use crate::whole_file;
use args::{BenchArgs, LoadFormat};
use figures::Figures;
use first_token::{Caches, FirstToken};
use serving::{Load, serve};

/// Tokens of the prompts before decoding.
const SHORT_PROMPT: usize = 16;

type Core = EngineCore<ModelRunner<KeepingExecutor<HostExecutor>>, HostClock>;

/// The model that the arguments name, or one of random weights.
///
/// # Errors
/// Arguments that do not go together, no such model, or files that are none.
pub fn checkpoint(args: &BenchArgs, models: &Models<'_>) -> anyhow::Result<Checkpoint> {
    let mut checkpoint = match (&args.model, &args.model_config) {
        (Some(_), _) if args.load_format == LoadFormat::Dummy => {
            bail!("--load-format dummy takes the shape from --model-config, not a model")
        }
        (Some(model), _) => models.find(model)?.open()?,
        (None, Some(shape)) => model_shapes::dummy(shape, &args.weight_format)?,
        (None, None) => bail!("neither a model nor a --model-config is given"),
    };
    if let Some(quantization) = args.engine.quantize {
        checkpoint.quantize(quantization)?;
    }
    Ok(checkpoint)
}

/// Measures, and gives what to print.
///
/// # Errors
/// The device's; a model that does not fit; a plot that cannot be written.
pub fn run(
    args: &BenchArgs,
    models: &Models<'_>,
    store: &Store,
    report: &Reporter,
) -> anyhow::Result<String> {
    output::check()?;
    if let Some(path) = &args.plot {
        picture::check(path)?;
    }
    if let Some(path) = &args.json_to {
        whole_file::check(path).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let checkpoint = checkpoint(args, models)?;
    if let Some(caches) = args.first_token_of {
        let first = first(args, &checkpoint, store, caches)?;
        return Ok(serde_json::to_string(&first)?);
    }
    let figures = measure(args, &checkpoint, store, report)?;
    if let Some(path) = &args.plot {
        picture::write(&plot::Roofline(&figures), path)?;
    }
    if let Some(path) = &args.json_to {
        let text = format!("{:#}\n", figures.as_json());
        whole_file::write(path, text.as_bytes())
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(match args.json {
        true => format!("{:#}\n", figures.as_json()),
        false => figures.as_text(),
    })
}

/// Limits that let every load through.
fn limits(args: &BenchArgs, model: &Checkpoint) -> anyhow::Result<SchedulerConfig> {
    let engine = &args.engine;
    let (slo, model_len) = (&engine.slo, engine.max_model_len);
    for (given, flag) in [
        (model_len.is_some(), "--max-model-len"),
        (slo.ttft_slo_ms.is_some(), "--ttft-slo-ms"),
        (slo.tpot_slo_ms.is_some(), "--tpot-slo-ms"),
    ] {
        if given {
            bail!(
                "bench takes no {flag}: its sequences are as long as --prompt and --tokens ask, and nobody waits for them"
            );
        }
    }
    let defaults = SchedulerConfig::default();
    let decoded = SHORT_PROMPT + args.tokens;
    let most = |of: &[usize]| of.iter().copied().max().unwrap_or(1);
    let parallel = most(&args.parallel);
    let longest = (most(&args.prompt) + 1).max(decoded);
    let most = model.config.max_position_embeddings;
    if longest > most {
        bail!("sequences of {longest} tokens are asked for, but the model was made for {most}");
    }
    let blocks = |tokens: usize| tokens.div_ceil(defaults.block_size);
    // Steps in flight hold a block more.
    let of_many = parallel * (blocks(decoded) + 1);
    Ok(SchedulerConfig {
        max_num_seqs: parallel,
        max_num_batched_tokens: args.max_num_batched_tokens.max(parallel),
        max_model_len: longest,
        num_blocks: 2 + of_many.max(blocks(longest) + 1),
        enable_prefix_caching: false,
        run_ahead: args.engine.run_ahead.unwrap_or(defaults.run_ahead),
        ..defaults
    })
}

/// Opens the device and loads the model.
fn load(
    args: &BenchArgs,
    checkpoint: &Checkpoint,
    store: &Store,
    caches: Caches,
) -> anyhow::Result<Core> {
    let pipelines = match caches {
        Caches::Cold => Pipelines::Fresh,
        Caches::Warm => Pipelines::Kept,
    };
    let device = args.engine.device.unwrap_or_default();
    let executor = HostExecutor::open(device, &store.caches(), pipelines)?;
    let options = RunnerOptions {
        memory: memory::budget(executor.caps(), args.engine.memory),
        compute_dtype: args.engine.compute_dtype,
        kv_cache_dtype: args.engine.kv_cache_dtype,
        ..RunnerOptions::default()
    };
    let config = limits(args, checkpoint)?;
    let executor = KeepingExecutor::new(executor);
    let runner = ModelRunner::load(executor, checkpoint, &config, options, |_| ())?;
    let core = EngineCore::new(runner, HostClock::default(), &checkpoint.config, config);
    core.context("the engine cannot be set up")
}

const ONE_TOKEN: Load = Load {
    requests: 1,
    prompt: SHORT_PROMPT,
    tokens: 1,
};

/// A fresh process's first token.
fn first(
    args: &BenchArgs,
    checkpoint: &Checkpoint,
    store: &Store,
    caches: Caches,
) -> anyhow::Result<FirstToken> {
    let begin = Instant::now();
    let mut core = load(args, checkpoint, store, caches)?;
    let load_s = begin.elapsed().as_secs_f64();
    serve(&mut core, ONE_TOKEN, &mut 1)?;
    Ok(FirstToken {
        load_s,
        first_token_s: begin.elapsed().as_secs_f64(),
    })
}

fn measure(
    args: &BenchArgs,
    checkpoint: &Checkpoint,
    store: &Store,
    report: &Reporter,
) -> anyhow::Result<Figures> {
    let together = || args.parallel.iter().filter(|&&requests| requests > 1);
    let first_tokens = if args.no_first_token { 0 } else { 2 };
    let mut stages = report.stages(4 + args.prompt.len() + together().count() + first_tokens);
    stages.begin("loading the model");
    let begin = Instant::now();
    let mut core = load(args, checkpoint, store, Caches::Warm)?;
    let load_s = begin.elapsed().as_secs_f64();
    stages.detail(report, &format!("loaded in {load_s:.2} s"));
    let seed = &mut 7;
    let decode = Load {
        tokens: args.tokens,
        ..ONE_TOKEN
    };
    let mut runs = |core: &mut Core, load: Load, of: fn(&Load, &serving::Served) -> f64| {
        // The first of a kind compiles.
        serve(core, load, seed)?;
        let mut rates = Vec::new();
        for _ in 0..args.repeat {
            rates.push(of(&load, &serve(core, load, seed)?));
        }
        rates.sort_by(f64::total_cmp);
        anyhow::Ok(rates[rates.len() / 2])
    };
    let drawn = |_: &Load, served: &serving::Served| served.tokens as f64 / served.rest;
    let mut prefill = Vec::new();
    for &prompt in &args.prompt {
        let load = Load {
            prompt,
            ..ONE_TOKEN
        };
        stages.begin(format!("prefill of {prompt} tokens"));
        let rate = runs(&mut core, load, |load, served| {
            load.prompt as f64 / served.first
        })?;
        stages.detail(report, &format!("prefill of {prompt}: {rate:.1} tokens/s"));
        prefill.push((prompt, rate));
    }
    stages.begin(format!("decode of {} tokens", args.tokens));
    let decode_tok_s = runs(&mut core, decode, drawn)?;
    stages.detail(report, &format!("decode: {decode_tok_s:.1} tokens/s"));
    let mut parallel = Vec::new();
    for &requests in together() {
        stages.begin(format!("{requests} requests together"));
        let load = Load { requests, ..decode };
        let rate = runs(&mut core, load, drawn)?;
        stages.detail(report, &format!("{requests} together: {rate:.1} tokens/s"));
        parallel.push((requests, rate));
    }
    let peak_rss_bytes = memory::peak_rss();
    core.runner().executor().inner().save_pipelines();

    stages.begin("counting dispatches");
    let counted = counted(args, checkpoint, &mut core, decode)?;
    let decode_step = kept(&mut core, SHORT_PROMPT, 2)?;
    let mut longer = Vec::new();
    let regimes: &[usize] = if args.regimes { &[8, 32] } else { &[] };
    for tokens in regimes.iter().chain(args.prompt.first()) {
        let tokens = *tokens.min(&args.max_num_batched_tokens);
        longer.push((kept(&mut core, tokens, 1)?, tokens));
    }
    stages.begin("what the device reaches alone");
    let gpu_bytes = core.runner().executor().inner().buffer_bytes();
    let plan = core.runner().memory_plan().clone();
    let executor = core.runner_mut().executor_mut();
    let ceilings = ceilings::measure(executor, &decode_step, &longer)?;
    let device = core.runner().executor().inner().to_string();
    drop(core);

    let first_token = match args.no_first_token {
        true => None,
        false => {
            stages.begin("first token of a fresh process, cold");
            let cold = first_token::measure(Caches::Cold)?;
            stages.begin("first token of a fresh process, warm");
            Some([cold, first_token::measure(Caches::Warm)?])
        }
    };
    drop(stages);
    let kv_bytes = plan.kv_dtype.row_bytes(checkpoint.config.head_dim as u32);
    let shape = ModelShape::new(
        &checkpoint.config,
        plan.weights,
        f64::from(kv_bytes) / checkpoint.config.head_dim as f64,
    );
    let cost = CostModel::new(shape, Hardware::unmeasured(plan.total()));
    let of = |num_tokens: usize, num_computed_tokens: usize| {
        cost.cost_of([SequenceLoad {
            num_tokens,
            num_computed_tokens,
            samples: true,
        }])
    };
    Ok(Figures {
        model: model_line(checkpoint),
        device,
        class: plan.numerics.name(),
        kv_dtype: plan.kv_dtype.name(),
        tokens: args.tokens,
        prefill,
        decode_tok_s,
        parallel,
        load_s,
        first_token,
        gpu_bytes,
        weight_bytes: plan.weights,
        file_bytes: checkpoint.metadata.file_bytes,
        peak_rss_bytes,
        counted,
        needs: [
            of(1, SHORT_PROMPT + args.tokens / 2).bytes,
            of(args.prompt[0], 0).flops,
        ],
        ceilings,
    })
}

/// What the model is called, and what of.
fn model_line(checkpoint: &Checkpoint) -> String {
    let metadata = &checkpoint.metadata;
    let name = metadata.name.as_deref().unwrap_or(&metadata.architecture);
    let dtypes: Vec<_> = metadata.dtypes.iter().map(|d| d.dtype.name()).collect();
    let millions = metadata.parameters as f64 / 1e6;
    format!(
        "{name}: {} million parameters, {} ({})",
        picture::digits(millions),
        dtypes.join(" "),
        metadata.format
    )
}

/// What the executor counts while tokens are decoded: dispatches a layer; dispatches, submits and bytes
/// read back a token.
fn counted(
    args: &BenchArgs,
    checkpoint: &Checkpoint,
    core: &mut Core,
    decode: Load,
) -> anyhow::Result<Option<[f64; 4]>> {
    let counters = |core: &Core| core.runner().executor().inner().counters();
    let seed = &mut 3;
    let mut of = |core: &mut Core, load: Load| -> anyhow::Result<Option<Counters>> {
        let before = counters(core);
        serve(core, load, seed)?;
        let both = counters(core).zip(before);
        Ok(both.map(|(after, before)| after - before))
    };
    let Some((prompt, all)) = of(core, ONE_TOKEN)?.zip(of(core, decode)?) else {
        return Ok(None);
    };
    let decoding = all - prompt;
    let tokens = (decode.tokens - 1) as f64;
    let each = [decoding.dispatches, decoding.submits, decoding.read_bytes];
    let [dispatches, submits, bytes] = each.map(|n| n as f64 / tokens);
    let layers = checkpoint.config.num_hidden_layers;
    let of_layer = match layers {
        1 => dispatches,
        _ => {
            let mut one = checkpoint.clone();
            one.config.num_hidden_layers = 1;
            one.config.layers.truncate(1);
            let caps = core.runner().executor().caps().clone();
            let (recording, launches) = RecordingExecutor::new(caps);
            let options = RunnerOptions {
                compute_dtype: args.engine.compute_dtype,
                kv_cache_dtype: args.engine.kv_cache_dtype,
                ..RunnerOptions::default()
            };
            let config = limits(args, &one)?;
            let runner = ModelRunner::load(recording, &one, &config, options, |_| ())?;
            let mut core = EngineCore::new(runner, HostClock::default(), &one.config, config)?;
            let mut launched = |load| {
                launches.borrow_mut().clear();
                serve(&mut core, load, &mut 3)?;
                anyhow::Ok(launches.borrow().len() as f64)
            };
            let around = (launched(decode)? - launched(ONE_TOKEN)?) / tokens;
            (dispatches - around) / (layers - 1) as f64
        }
    };
    Ok(Some([of_layer, dispatches, submits, bytes]))
}

/// What the last step of a request of so many tokens launches.
fn kept(core: &mut Core, prompt: usize, tokens: usize) -> anyhow::Result<Vec<Launched>> {
    let params = SamplingParams {
        max_tokens: tokens,
        ignore_eos: true,
        ..SamplingParams::default()
    };
    let ids = core.vocab_size().clamp(1, 5) as u32;
    core.add_request((0..prompt as u32).map(|i| i % ids).collect(), params)?;
    let mut last = Vec::new();
    while core.has_unfinished_requests() {
        core.runner_mut().executor_mut().keep();
        block_on(core.step())?;
        last.extend(core.runner_mut().executor_mut().kept());
    }
    // A step begins with what derives its tokens' positions.
    let begins = |l: &Launched| l.dispatch.key.kernel == "prepare";
    let begin = last.iter().rposition(begins).unwrap_or(0);
    Ok(last.split_off(begin))
}
