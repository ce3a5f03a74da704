//! How deep definitions refer to each other. Knows nothing of what they define.

/// The weight of the heaviest chain of references, or more: what may lie on a circle counts as a
/// whole, since a walk may visit it in any order. `next[i]` are the definitions that `i` refers to.
pub(super) fn heaviest_chain(weights: &[usize], next: &[Vec<usize>]) -> usize {
    let mut before = vec![Vec::new(); weights.len()];
    for (from, targets) in next.iter().enumerate() {
        for &to in targets {
            before[to].push(from);
        }
    }
    let mut left = vec![true; weights.len()];
    // First those that lead to no circle, then those that no circle leads to.
    let after = peel(weights, next, &before, &mut left);
    let ahead = peel(weights, &before, next, &mut left);
    let circles = weights.iter().zip(&left).filter(|(_, left)| **left);
    after + ahead + circles.map(|(weight, _)| weight).sum::<usize>()
}

/// Takes away, one after the other, what refers to nothing that is left; gives the heaviest chain of
/// what was taken.
fn peel(weights: &[usize], next: &[Vec<usize>], before: &[Vec<usize>], left: &mut [bool]) -> usize {
    let count = |i: usize| next[i].iter().filter(|&&to| left[to]).count();
    let mut open: Vec<usize> = (0..weights.len()).map(count).collect();
    let mut ready: Vec<usize> = (0..weights.len())
        .filter(|&i| left[i] && open[i] == 0)
        .collect();
    let mut chains = vec![0; weights.len()];
    let mut heaviest = 0;
    while let Some(i) = ready.pop() {
        left[i] = false;
        let chain = weights[i] + chains[i];
        heaviest = heaviest.max(chain);
        for &from in before[i].iter().filter(|&&from| left[from]) {
            chains[from] = chain.max(chains[from]);
            open[from] -= 1;
            if open[from] == 0 {
                ready.push(from);
            }
        }
    }
    heaviest
}

#[cfg(test)]
mod tests {
    use super::heaviest_chain;

    #[test]
    fn chains_add_and_circles_count_whole() {
        // 0 → 1 → 2, 0 → 2
        let line = [vec![1, 2], vec![2], vec![]];
        assert_eq!(heaviest_chain(&[1, 10, 100], &line), 111);
        // 0 → 1 ⇄ 2 → 3, and 4 alone.
        let circle = [vec![1], vec![2, 2], vec![1, 3], vec![], vec![]];
        assert_eq!(heaviest_chain(&[1, 2, 4, 8, 12], &circle), 15 + 4);
        assert_eq!(heaviest_chain(&[3], &[vec![0]]), 3);
        assert_eq!(heaviest_chain(&[], &[]), 0);
    }
}
