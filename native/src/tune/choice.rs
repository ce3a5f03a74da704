//! From times to a choice: pure arithmetic. Knows no kernel and no device.

/// Seconds of the bodies of a matrix product, from the one for fewest tokens to the one for most, for
/// a number of tokens.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Times {
    /// Tokens.
    pub(super) tokens: u32,
    /// One a body.
    pub(super) seconds: Vec<f64>,
}

/// Borders between bodies, most tokens of each but the last, that make the products fastest: of all
/// ways to give ranges of tokens to bodies in order, the one with the least sum of logarithms, so that
/// no number of tokens counts more for taking longer. 0 gives a body nothing; where a body is best to
/// the end its border is `u32::MAX`. Empty without times.
pub(super) fn borders(times: &[Times]) -> Vec<u32> {
    let Some(bodies) = times.iter().map(|t| t.seconds.len()).min() else {
        return Vec::new();
    };
    if bodies < 2 {
        return Vec::new();
    }
    let cost = |at: usize, body: usize| times[at].seconds[body].max(1e-12).ln();
    // Least cost of the first `n` times with bodies up to `b`, and where body `b` begins.
    let n = times.len();
    let mut least = vec![vec![0.0; n + 1]; bodies];
    let mut begins = vec![vec![0; n + 1]; bodies];
    for end in 1..=n {
        least[0][end] = least[0][end - 1] + cost(end - 1, 0);
    }
    for body in 1..bodies {
        for end in 0..=n {
            let mut best = (least[body - 1][end], end);
            let mut own = 0.0;
            for begin in (0..end).rev() {
                own += cost(begin, body);
                let with = least[body - 1][begin] + own;
                if with < best.0 {
                    best = (with, begin);
                }
            }
            (least[body][end], begins[body][end]) = best;
        }
    }
    let mut borders = vec![0; bodies - 1];
    let mut end = n;
    for body in (1..bodies).rev() {
        let begin = begins[body][end];
        borders[body - 1] = match begin {
            0 => 0,
            // Nothing behind: whatever comes later is this body's or an earlier one's.
            _ if begin == n => u32::MAX,
            _ => times[begin - 1].tokens,
        };
        end = begin;
    }
    borders
}

/// The body that is fastest over all: its place. The usual one stays where no other is faster by more
/// than a clock may err.
pub(super) fn best(times: &[Times], usual: Option<usize>) -> Option<usize> {
    const GAIN: f64 = 0.02;
    let bodies = times.iter().map(|t| t.seconds.len()).min()?;
    let mean = |body: usize| -> f64 {
        let logs = times.iter().map(|t| t.seconds[body].max(1e-12).ln());
        logs.sum::<f64>() / times.len() as f64
    };
    let best = (0..bodies).min_by(|&a, &b| mean(a).total_cmp(&mean(b)))?;
    let usual = usual.filter(|&usual| usual < bodies && mean(usual) - mean(best) <= GAIN);
    Some(usual.unwrap_or(best))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(of: impl Fn(f64) -> Vec<f64>) -> Vec<Times> {
        let tokens = [1, 2, 4, 8, 16, 32, 64, 128, 256];
        let all = tokens.into_iter().map(|tokens| Times {
            tokens,
            seconds: of(f64::from(tokens)),
        });
        all.collect()
    }

    #[test]
    fn borders_lie_where_the_next_body_becomes_faster() {
        // A cost a token that falls, and a cost to begin that rises.
        let three = times(|n| vec![1.0 + n, 6.0 + n / 4.0, 25.0 + n / 16.0]);
        assert_eq!(borders(&three), [4, 64]);
        let first = times(|n| vec![n, 2.0 * n, 3.0 * n]);
        assert_eq!(borders(&first), [u32::MAX, u32::MAX]);
        let last = times(|n| vec![3.0 * n, 2.0 * n, n]);
        assert_eq!(borders(&last), [0, 0]);
        let middle = times(|n| vec![3.0 * n, n, 2.0 * n]);
        assert_eq!(borders(&middle), [0, u32::MAX]);
        assert!(borders(&[]).is_empty());
    }

    #[test]
    fn one_slow_moment_moves_no_border_far() {
        let mut three = times(|n| vec![1.0 + n, 6.0 + n / 4.0, 25.0 + n / 16.0]);
        three[1].seconds[0] *= 3.0;
        assert_eq!(borders(&three), [4, 64]);
    }

    #[test]
    fn the_best_is_best_over_all() {
        let three = times(|n| vec![2.0 * n, n, n + 1.0]);
        assert_eq!(best(&three, None), Some(1));
        assert_eq!(best(&three, Some(0)), Some(1));
        assert_eq!(best(&[], None), None);
    }

    #[test]
    fn what_is_usual_stays_where_nothing_is_clearly_faster() {
        let near = times(|n| vec![n, 1.015 * n, 1.03 * n]);
        let found = [None, Some(1), Some(2), Some(7)].map(|usual| best(&near, usual));
        assert_eq!(found, [Some(0), Some(1), Some(0), Some(0)]);
    }
}
