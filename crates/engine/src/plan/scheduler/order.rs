//! The order in which steps start.

use std::collections::BTreeSet;

/// Orders the steps: the order of the plan, changed only where a dependency requires it. `Err` contains a cycle.
pub fn topological_order(dependencies: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let n = dependencies.len();
    let mut missing: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); n];
    for (step, needs) in dependencies.iter().enumerate() {
        for &needed in needs {
            dependents[needed].push(step);
        }
    }
    let mut ready: BTreeSet<usize> = (0..n).filter(|&i| missing[i] == 0).collect();
    let mut order = Vec::with_capacity(n);
    while let Some(step) = ready.pop_first() {
        order.push(step);
        for &dependent in &dependents[step] {
            missing[dependent] -= 1;
            if missing[dependent] == 0 {
                ready.insert(dependent);
            }
        }
    }
    if order.len() == n {
        return Ok(order);
    }
    // Every step left has an unmet dependency that is left too: following those must come back to itself.
    let left: BTreeSet<usize> = (0..n).filter(|&i| missing[i] > 0).collect();
    let mut path: Vec<usize> = Vec::new();
    let mut at = left.first().copied().unwrap_or_default();
    while !path.contains(&at) {
        path.push(at);
        at = dependencies[at].iter().copied().find(|d| left.contains(d)).unwrap_or(at);
    }
    let begin = path.iter().position(|&p| p == at).unwrap_or_default();
    Err(path.split_off(begin))
}
