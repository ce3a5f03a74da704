//! `/steps`: the last steps of each loaded model and the roof of its device over them, as numbers to draw.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use twoclock_core::clock::Clock;
use twoclock_core::engine::StepRecord;
use twoclock_core::engine::handle::LastSteps;

use super::app::App;
use super::whole;
use crate::clock::HostClock;
use crate::device_rates::Rates;

/// `/steps`.
pub async fn steps(State(app): State<Arc<App>>) -> Response {
    let now = HostClock::default().now();
    let of_models = app.models.loaded().into_iter().map(|(name, loaded)| {
        let steps = loaded.handle().steps();
        of_model(name, loaded.rates(), &steps, now)
    });
    whole::json(&Value::Array(of_models.collect()))
}

fn of_model(name: &str, rates: Option<Rates>, last: &LastSteps, now: Duration) -> Value {
    let roof = rates.map(|Rates { copy, fma }| {
        json!({
            "bytes_per_second": copy,
            "flops_per_second": fma,
        })
    });
    let steps = last.records().map(|step| as_json(step, now));
    json!({
        "model": name,
        "roof": roof,
        "num_steps": last.num_steps(),
        "steps": steps.collect::<Vec<_>>(),
    })
}

fn as_json(step: &StepRecord, now: Duration) -> Value {
    json!({
        "age_s": rounded(now.saturating_sub(step.ended).as_secs_f64()),
        "kind": step.kind().as_str(),
        "num_tokens": step.num_tokens,
        "num_seqs": step.num_seqs,
        "bytes": step.bytes.round(),
        "flops": step.flops.round(),
        "seconds": rounded(step.measured),
        "predicted_seconds": rounded(step.predicted),
    })
}

/// To a microsecond.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use twoclock_core::sched::Bound;

    #[test]
    fn a_step_is_told_with_its_age_and_a_model_with_its_roof() {
        let step = StepRecord {
            num_tokens: 34,
            num_seqs: 3,
            num_decodes: 2,
            bytes: 1e8,
            flops: 7.5e9,
            predicted: 0.25,
            measured: 0.500_000_4,
            bound: Bound::Compute,
            ended: Duration::from_millis(1500),
        };
        let told = json!({
            "age_s": 2.5, "kind": "mixed", "num_tokens": 34, "num_seqs": 3, "bytes": 1e8, "flops": 7.5e9,
            "seconds": 0.5, "predicted_seconds": 0.25,
        });
        assert_eq!(as_json(&step, Duration::from_secs(4)), told);
        // A clock that is read a moment before.
        assert_eq!(as_json(&step, Duration::ZERO)["age_s"], 0.0);
        let rates = Rates {
            copy: 2e10,
            fma: 3e11,
        };
        let of = |rates| of_model("a", rates, &LastSteps::default(), Duration::ZERO);
        let roof = json!({"bytes_per_second": 2e10, "flops_per_second": 3e11});
        let told = json!({"model": "a", "roof": roof, "num_steps": 0, "steps": []});
        assert_eq!(of(Some(rates)), told);
        assert_eq!(of(None)["roof"], Value::Null);
    }
}
