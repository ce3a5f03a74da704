//! Whole simulations: the same figures for a seed, and gains of the size that papers found.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test binary has no public surface, and nothing else to say"
)]

#[path = "simulate/program.rs"]
mod program;

use twoclock_core::sched::{Reservation, ServiceLevel};

use twoclock::simulate::policy::{Limits, Policy};
use twoclock::simulate::run::{self, Outcome, Setup};
use twoclock::simulate::shape::{Bits, builtin};
use twoclock::simulate::summary::Summary;
use twoclock::simulate::trace::{self, TraceRequest};
use twoclock::simulate::{hardware, plot, policy, setup};

const ORCA_MAX: Policy = Policy::Orca(Reservation::MaxModelLen);
const ORCA_ORACLE: Policy = Policy::Orca(Reservation::MaxTokens);

fn on(device: &str, model: &str, slo: ServiceLevel) -> Setup {
    let bits = Bits {
        weight: None,
        kv: 16.0,
    };
    let model = builtin(model, bits).unwrap();
    let limits = Limits {
        max_model_len: model.max_model_len.min(4096),
        max_num_seqs: 256,
        block_size: 16,
        num_blocks: 0,
        max_num_batched_tokens: 2048,
        prefix_caching: true,
    };
    setup(model.shape, hardware::find(device).unwrap(), limits, slo).unwrap()
}

fn serve(setup: &Setup, policy: Policy, trace: &str, rate: f64, n: usize) -> (Outcome, Summary) {
    let source = trace::find(trace).unwrap();
    let requests = source
        .requests(n, Some(rate), setup.limits.max_model_len, 5)
        .unwrap();
    let outcome = run::run(setup, policy, &requests).unwrap();
    let summary = Summary::of(&outcome, setup.slo);
    (outcome, summary)
}

const ANY: ServiceLevel = ServiceLevel {
    tpot: None,
    ttft: None,
};

#[test]
fn a_seed_gives_the_same_figures_and_every_request_is_served() {
    let setup = on("a100-40gb", "opt-13b", ANY);
    for name in policy::NAMES.split(", ") {
        let policy: Policy = name.replace("TOKENS", "300").parse().unwrap();
        // Enough for memory to run out.
        let (outcome, summary) = serve(&setup, policy, "sharegpt-like", 4.0, 120);
        let again = serve(&setup, policy, "sharegpt-like", 4.0, 120).0;
        assert_eq!(outcome, again, "{policy}");
        let tokens: usize = outcome.served.iter().map(|s| s.output_tokens).sum();
        assert_eq!(outcome.itl.len(), tokens - outcome.served.len(), "{policy}");
        for s in &outcome.served {
            assert!(
                s.arrival < s.first_token && s.first_token <= s.end,
                "{policy}"
            );
        }
        assert!(
            outcome
                .steps
                .iter()
                .all(|s| s.kv_used <= s.kv_held && s.kv_held <= outcome.kv_slots)
        );
        assert!(summary.output_tokens_per_second > 50.0);
    }
}

#[test]
fn a_policy_that_keeps_up_serves_what_comes_however_many_come() {
    let slo = ServiceLevel {
        tpot: Some(1.0),
        ttft: Some(10.0),
    };
    let setup = on("h100", "llama-3-8b", slo);
    for n in [300, 1500] {
        let summary = serve(&setup, Policy::Ridge, "alpaca-like", 30.0, n).1;
        let share = summary.requests_per_second / summary.offered_rate.unwrap();
        assert!((0.9..1.1).contains(&share), "{n}: {share}");
        assert_eq!(summary.attainment, Some(1.0));
        assert_eq!(summary.goodput, Some(summary.requests_per_second));
        assert!(summary.window_seconds < summary.seconds * 0.6);
    }
    // Where a quarter of them are all in one step there is no middle, and that is said.
    assert!(
        !serve(&setup, Policy::Ridge, "azure-like", 200.0, 200)
            .1
            .settled
    );
    // Beyond what it can, it serves what it can, whether few come too fast or many.
    let setup = on("a100-40gb", "opt-13b", ANY);
    let most = |n| {
        let summary = serve(&setup, ORCA_ORACLE, "orca-like", 50.0, n).1;
        assert!(summary.settled);
        summary.requests_per_second
    };
    let (few, many) = (most(300), most(900));
    assert!((0.85..1.15).contains(&(few / many)), "{few} {many}");
}

#[test]
fn pages_waste_little_and_reservations_most() {
    let setup = on("a100-40gb", "opt-13b", ANY);
    // Mean length 499, so that half a block a sequence is 1.6 %.
    let waste = |policy| serve(&setup, policy, "sharegpt-like", 4.0, 200).1.kv_waste;
    let (paged, ridge) = (waste(Policy::Vllm), waste(Policy::Ridge));
    assert!(paged < 0.04 && ridge < 0.04, "{paged} {ridge}");
    // The paper: 60 to 80 %.
    let (max, oracle) = (waste(ORCA_MAX), waste(ORCA_ORACLE));
    assert!((0.7..0.9).contains(&max), "{max}");
    assert!((0.5..0.7).contains(&oracle), "{oracle}");
}

#[test]
fn pages_serve_more_than_reservations_and_iterations_more_than_batches() {
    let setup = on("a100-40gb", "opt-13b", ANY);
    let latency = |policy, rate| {
        let summary = serve(&setup, policy, "sharegpt-like", rate, 500).1;
        summary.normalized_latency.mean
    };
    // Pages serve 1.7 times the rate of an oracle's reservations at less latency, and 2.7 times that
    // of the longest: the least of what the paper finds.
    let paged = latency(Policy::Vllm, 2.6);
    assert!(paged < latency(ORCA_ORACLE, 2.6 / 1.7));
    assert!(paged < latency(ORCA_MAX, 2.6 / 2.7));
    let latency = |policy, rate| {
        serve(&setup, policy, "orca-like", rate, 250)
            .1
            .normalized_latency
            .p50
    };
    let batches = Policy::Static(Reservation::MaxTokens);
    assert!(latency(ORCA_ORACLE, 6.0) < latency(batches, 0.6));
}

#[test]
fn chunks_keep_the_time_between_tokens() {
    let setup = on("a100", "llama-3-8b", ANY);
    let itl = |policy| serve(&setup, policy, "azure-like", 5.0, 150).1.itl;
    let (whole, chunked) = (itl(Policy::Vllm), itl(Policy::Fixed(Some(512))));
    assert!(chunked.p99 * 3.0 < whole.p99, "{chunked:?} {whole:?}");
    assert!(chunked.max * 5.0 < whole.max, "{chunked:?} {whole:?}");
}

#[test]
fn the_ridge_keeps_a_tpot_that_a_fixed_budget_misses() {
    let slo = ServiceLevel {
        tpot: Some(0.025),
        ttft: Some(2.0),
    };
    {
        let setup = on("a100", "llama-3-8b", slo);
        let kept = |policy| {
            serve(&setup, policy, "azure-like", 7.0, 200)
                .1
                .attainment
                .unwrap()
        };
        assert!(kept(Policy::Ridge) > 0.95);
        assert!(kept(Policy::Fixed(Some(2048))) < 0.9);
    }
    // Where nothing is free and no time is to be kept, tokens still come within three times their
    // usual.
    let setup = on("m3max", "llama-3-8b", ANY);
    let usual = serve(&setup, Policy::Ridge, "azure-like", 0.02, 20)
        .1
        .itl
        .p50;
    let busy = serve(&setup, Policy::Ridge, "azure-like", 0.15, 40)
        .1
        .itl
        .p95;
    assert!(busy < 3.0 * usual, "{busy} {usual}");
}

#[test]
fn equal_beginnings_are_found() {
    let mut setup = on("h100", "llama-3-8b", ANY);
    let requests: Vec<_> = (0..40)
        .map(|i| TraceRequest {
            arrival_s: f64::from(i),
            prompt_tokens: 1000,
            output_tokens: 20,
            prefix_group: Some(u64::from(i % 2 == 0)),
            prefix_tokens: 800,
        })
        .collect();
    let serve = |setup: &Setup| {
        let outcome = run::run(setup, Policy::Ridge, &requests).unwrap();
        Summary::of(&outcome, ANY)
    };
    let shared = serve(&setup);
    setup.limits.prefix_caching = false;
    let alone = serve(&setup);
    assert_eq!(alone.prefix_hits, 0.0);
    assert!((shared.prefix_hits - 0.8 * 38.0 / 40.0).abs() < 1e-9);
    assert!(shared.ttft.p50 < alone.ttft.p50 * 0.5);
}

#[test]
fn what_cannot_be_is_said() {
    let bits = Bits {
        weight: None,
        kv: 16.0,
    };
    let model = builtin("llama-3-70b", bits).unwrap();
    let limits = on("h100", "llama-3-8b", ANY).limits;
    let error = setup(model.shape, hardware::find("h100").unwrap(), limits, ANY).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("141.1 GB") && error.contains("--weight-bits"),
        "{error}"
    );
    let setup = on("h100", "llama-3-8b", ANY);
    let long = TraceRequest {
        arrival_s: 0.0,
        prompt_tokens: 5000,
        output_tokens: 1,
        prefix_group: None,
        prefix_tokens: 0,
    };
    for trace in [&[][..], &[long]] {
        let error = run::run(&setup, Policy::Ridge, trace)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no request") || error.contains("request 1 "),
            "{error}"
        );
    }
}

#[test]
fn plots_are_whole_files() {
    let setup = on("a100-40gb", "opt-13b", ANY);
    let (outcome, summary) = serve(&setup, Policy::Ridge, "alpaca-like", 5.0, 30);
    let sweeps = [("ridge".to_owned(), vec![summary.clone(), summary])];
    let outcomes = [outcome];
    let plot = plot::Plot {
        title: "a < b",
        times: "5 requests a second",
        hardware: setup.cost.hardware(),
        outcomes: &outcomes,
        sweeps: &sweeps,
    };
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("a.svg");
    plot.write(&svg).unwrap();
    let text = std::fs::read_to_string(&svg).unwrap();
    assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
    assert!(text.contains("memory bandwidth") && text.contains("5 requests a second"));
    assert!(text.len() < 300_000, "{}", text.len());
    assert!(text.contains("a &lt; b"));
    let marks = text.matches("<polyline").count();
    assert!(marks > 30, "{marks}");
    let png = folder.path().join("a.PNG");
    plot.write(&png).unwrap();
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&png).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height), (960, 1440));
    assert!(
        pixels.iter().filter(|p| **p < 100).count() > 10_000,
        "labels and axes are dark"
    );
    let error = plot.write(&folder.path().join("a.jpg")).unwrap_err();
    assert!(error.to_string().contains(".png"));
}
