//! The distribution a token is drawn from, as plain code in f64 that says what the device's kernels
//! mean. Tests hold them, and it, against published implementations.
//!
//! Every step acts on logits; a token that a step drops has −∞. The steps are vLLM's, and may be put
//! into another order.

use super::edits::LogitEdit;

/// Edits single logits.
pub fn edit(logits: &mut [f64], edits: &[LogitEdit]) {
    for edit in edits {
        let x = &mut logits[edit.token_id as usize];
        let repetition = f64::from(edit.repetition);
        *x += f64::from(edit.bias);
        *x = if *x > 0.0 {
            *x / repetition
        } else {
            *x * repetition
        };
        *x -= f64::from(edit.minus);
        if edit.banned {
            *x = f64::NEG_INFINITY;
        }
    }
}

/// Divides by the temperature, which is not 0.
pub fn temperature(logits: &mut [f64], temperature: f64) {
    for x in logits {
        *x /= temperature;
    }
}

/// Drops tokens less likely than `p` times the likeliest.
pub fn min_p(logits: &mut [f64], p: f64) {
    let probabilities = softmax(logits);
    let largest = probabilities.iter().copied().fold(0.0, f64::max);
    drop_where(logits, |id, _| probabilities[id] < p * largest);
}

/// Keeps the `k` largest and what equals the last of them; all for 0.
pub fn top_k(logits: &mut [f64], k: usize) {
    let mut sorted = logits.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    if let Some(&kth) = k.checked_sub(1).and_then(|last| sorted.get(last)) {
        drop_where(logits, |_, x| x < kth);
    }
}

/// Drops the least likely tokens whose probabilities sum to at most 1 − `p`; never the likeliest.
/// Equal ones stay together where any of them does.
pub fn top_p(logits: &mut [f64], p: f64) {
    let probabilities = softmax(logits);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    let mut sum = 0.0;
    let first = order.iter().position(|&id| {
        sum += probabilities[id];
        sum > 1.0 - p
    });
    // The whole mass may round to less than 1.
    let last = order.len().saturating_sub(1);
    if let Some(&id) = order.get(first.unwrap_or(last)) {
        let lowest = logits[id];
        drop_where(logits, |_, x| x < lowest);
    }
}

/// The probabilities.
pub fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / sum).collect()
}

fn drop_where(logits: &mut [f64], dropped: impl Fn(usize, f64) -> bool) {
    for (id, x) in logits.iter_mut().enumerate() {
        if dropped(id, *x) {
            *x = f64::NEG_INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(logits: &[f64]) -> Vec<usize> {
        let ids = 0..logits.len();
        ids.filter(|&id| logits[id].is_finite()).collect()
    }

    #[test]
    fn ties_stay_together() {
        let row = [0.0, 2.0, 1.0, 2.0, 1.0];
        let after = |step: &dyn Fn(&mut [f64])| {
            let mut row = row;
            step(&mut row);
            kept(&row)
        };
        assert_eq!(after(&|x| top_k(x, 0)), [0, 1, 2, 3, 4]);
        assert_eq!(after(&|x| top_k(x, 1)), [1, 3]);
        assert_eq!(after(&|x| top_k(x, 3)), [1, 2, 3, 4]);
        assert_eq!(after(&|x| top_p(x, 1e-9)), [1, 3]);
        assert_eq!(after(&|x| top_p(x, 0.8)), [1, 2, 3, 4]);
        assert_eq!(after(&|x| min_p(x, 0.3)), [1, 2, 3, 4]);
        assert_eq!(after(&|x| min_p(x, 1.0)), [1, 3]);
    }
}
