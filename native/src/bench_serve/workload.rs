//! The requests of a run: prompts, lengths and times, all from one seed. Knows no server.

use serde_json::{Value, json};

use super::args::BenchServeArgs;
use super::lengths::Noise;
use crate::simulate::trace::{self, TraceRequest};

/// Words of prompts: short and common, so that most are one token of most vocabularies.
const WORDS: [&str; 96] = [
    "air", "all", "and", "apple", "arm", "ball", "bank", "bed", "bird", "black", "blue", "boat",
    "book", "box", "bread", "bridge", "bring", "build", "call", "car", "cat", "chair", "child",
    "city", "clean", "close", "cloud", "cold", "corn", "count", "dark", "day", "deep", "dog",
    "door", "dry", "earth", "eat", "egg", "end", "eye", "fall", "farm", "fire", "fish", "floor",
    "food", "foot", "garden", "glass", "gold", "good", "grass", "green", "hand", "hard", "hat",
    "head", "hill", "horse", "house", "ice", "iron", "king", "land", "lead", "leaf", "light",
    "line", "long", "milk", "moon", "night", "north", "open", "paper", "part", "plant", "rain",
    "read", "red", "river", "road", "rock", "salt", "sea", "ship", "snow", "song", "star", "stone",
    "sun", "table", "tree", "wind", "wood",
];

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Text, or token ids.
    pub prompt: Value,
    /// Most tokens of the answer.
    pub max_tokens: usize,
    /// When it is due, seconds from the start; as soon as another is answered where it does not say.
    pub due: Option<f64>,
}

/// How long one is, and with whom it begins alike.
struct Shape {
    prompt: usize,
    output: usize,
    group: u64,
    shared: usize,
    due: Option<f64>,
}

/// The requests of these arguments. `max_model_len` is the server's, for lengths that are drawn by a
/// trace's name.
///
/// # Errors
/// A trace that is none.
pub fn jobs(args: &BenchServeArgs, max_model_len: usize) -> anyhow::Result<Vec<Job>> {
    let shapes = match &args.trace {
        Some(reference) => {
            let trace = trace::find(reference)?;
            let requests =
                trace.requests(args.requests, args.request_rate, max_model_len, args.seed)?;
            // What is left out before the first is no load.
            let first = requests.first().map_or(0.0, |first| first.arrival_s);
            requests.iter().map(|r| of_trace(r, first)).collect()
        }
        None => drawn(args),
    };
    let purposes = 10..;
    let jobs = shapes.iter().zip(purposes);
    Ok(jobs
        .map(|(shape, purpose)| job(args, shape, purpose))
        .collect())
}

/// Requests to warm up by, with prompts that no other begins with.
pub fn warmup(args: &BenchServeArgs) -> Vec<Job> {
    let other = BenchServeArgs {
        seed: !args.seed,
        requests: args.warmup,
        request_rate: None,
        ..args.clone()
    };
    let shapes = drawn(&other);
    let jobs = shapes.iter().zip(10..);
    jobs.map(|(shape, purpose)| job(&other, shape, purpose))
        .collect()
}

fn of_trace(request: &TraceRequest, first: f64) -> Shape {
    Shape {
        prompt: request.prompt_tokens,
        output: request.output_tokens,
        group: request.prefix_group.unwrap_or(0),
        shared: request.prefix_tokens,
        due: Some(request.arrival_s - first),
    }
}

fn drawn(args: &BenchServeArgs) -> Vec<Shape> {
    let (mut lengths, mut times) = (Noise::new(args.seed, 0), Noise::new(args.seed, 1));
    let mut due = 0.0;
    (0..args.requests)
        .map(|_| {
            let prompt = args.prompt_len.draw(&mut lengths);
            let output = args.output_len.draw(&mut lengths);
            let group = lengths.below(args.prefix_groups) as u64;
            if let Some(rate) = args.request_rate {
                due += -(1.0 - times.uniform()).ln() / rate;
            }
            Shape {
                prompt,
                output,
                group,
                shared: (prompt as f64 * args.shared_prefix).round() as usize,
                due: args.request_rate.map(|_| due),
            }
        })
        .collect()
}

fn job(args: &BenchServeArgs, shape: &Shape, purpose: u64) -> Job {
    // Beginnings of one group are beginnings of each other, however long.
    let mut alike = Noise::new(!args.seed.rotate_left(32), shape.group);
    let mut own = Noise::new(args.seed, purpose);
    let shared = shape.shared.min(shape.prompt);
    let draw = |n: usize, of: usize| {
        let noise = if n < shared { &mut alike } else { &mut own };
        noise.below(of)
    };
    Job {
        prompt: prompt(args.token_ids, shape.prompt, draw),
        max_tokens: shape.output,
        due: shape.due,
    }
}

fn prompt(
    ids: Option<(u32, u32)>,
    length: usize,
    mut draw: impl FnMut(usize, usize) -> usize,
) -> Value {
    match ids {
        Some((from, to)) => {
            let id = |n| from + draw(n, (to - from) as usize) as u32;
            json!((0..length).map(id).collect::<Vec<u32>>())
        }
        None => {
            let words = (0..length).map(|n| WORDS[draw(n, WORDS.len())]);
            json!(words.collect::<Vec<_>>().join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchServeArgs,
    }

    fn args(more: &[&str]) -> BenchServeArgs {
        let line = ["x", "--base-url", "http://h"].iter().chain(more);
        Line::try_parse_from(line).unwrap().args
    }

    fn words(job: &Job) -> Vec<String> {
        let text = job.prompt.as_str().unwrap();
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_seed_is_a_run_and_prompts_begin_alike_as_told() {
        let shared = args(&[
            "--shared-prefix",
            "0.5",
            "--prefix-groups",
            "2",
            "--requests",
            "40",
        ]);
        let run = jobs(&shared, 0).unwrap();
        assert_eq!(run, jobs(&shared, 0).unwrap());
        assert_ne!(
            run,
            jobs(&args(&["--requests", "40", "--seed", "2"]), 0).unwrap()
        );
        let mut beginnings: Vec<_> = run.iter().map(|job| words(job)[..32].to_vec()).collect();
        beginnings.sort();
        beginnings.dedup();
        assert_eq!(beginnings.len(), 2);
        let mut whole: Vec<_> = run.iter().map(words).collect();
        whole.sort();
        whole.dedup();
        assert_eq!(whole.len(), 40);
        let warm = warmup(&shared);
        assert!(!beginnings.contains(&words(&warm[0])[..32].to_vec()));
    }

    #[test]
    fn times_are_those_of_a_poisson_process_or_of_a_trace() {
        let run = jobs(&args(&["--request-rate", "5", "--requests", "4000"]), 0).unwrap();
        let last = run.last().unwrap().due.unwrap();
        assert!((last / 800.0 - 1.0).abs() < 0.06, "{last}");
        assert_eq!(jobs(&args(&[]), 0).unwrap()[0].due, None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.jsonl");
        let lines = "{\"arrival_s\": 0.5, \"prompt_tokens\": 9, \"output_tokens\": 3}\n\
            {\"arrival_s\": 1, \"prompt_tokens\": 8, \"output_tokens\": 2, \"prefix_group\": 1, \"prefix_tokens\": 4}\n\
            {\"arrival_s\": 2, \"prompt_tokens\": 6, \"output_tokens\": 2, \"prefix_group\": 1, \"prefix_tokens\": 4}";
        std::fs::write(&file, lines).unwrap();
        let file = file.to_str().unwrap();
        let run = jobs(&args(&["--trace", file, "--token-ids", "5..9"]), 0).unwrap();
        let ids: Vec<&Vec<Value>> = run
            .iter()
            .map(|job| job.prompt.as_array().unwrap())
            .collect();
        assert_eq!([ids[0].len(), ids[1].len(), ids[2].len()], [9, 8, 6]);
        assert_eq!(ids[1][..4], ids[2][..4]);
        assert!(
            ids.iter()
                .flat_map(|ids| ids.iter())
                .all(|id| (5..9).contains(&id.as_u64().unwrap()))
        );
        assert_eq!(
            (run[0].due, run[2].due, run[0].max_tokens),
            (Some(0.0), Some(1.5), 3)
        );
        let one = jobs(&args(&["--trace", file, "--requests", "1"]), 0).unwrap();
        assert_eq!(one.len(), 1);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for bad in [
            &["--requests", "0"][..],
            &["--concurrency", "4097"],
            &["--shared-prefix", "1.5"],
            &["--token-ids", "9..5"],
            &["--prompt-len", "long"],
            &["--trace", "x", "--prompt-len", "fixed:3"],
        ] {
            let line = ["x", "--base-url", "http://h"].iter().chain(bad);
            assert!(Line::try_parse_from(line).is_err(), "{bad:?}");
        }
    }
}
