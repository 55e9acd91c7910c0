//! Quantiles and unit conversions.

use std::time::Duration;

/// The quantile at `part`; 0 when there are no values.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = ((sorted.len().saturating_sub(1)) as f64 * part).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

/// The median.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The maximum.
pub(crate) fn most(values: &[f64]) -> f64 {
    quantile(values, 1.0)
}

/// A duration in microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_values() {
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(most(&[3.0, 1.0, 2.0]), 3.0);
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.0), 1.0);
    }
}
