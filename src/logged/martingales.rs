//! Numbers that came one after another → bounds of the mean of their expectations, each given those before: they hold but
//! for a chance that is chosen, for few numbers and whatever the distribution is.

/// The chance at which bounds may fail: those of a report are of 95 %.
pub const RISK: f64 = 0.05;

/// What is known of rewards before the rows are seen that a bound is made of: it chooses how the bound
/// is made, and the bound holds for any choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    /// `E (w r)²`, on the scale of the bounds.
    pub mean_square: f64,
    /// The variance of r, on the scale of the bounds.
    pub variance: f64,
}

impl Default for Prior {
    /// The most that both can be without weights.
    fn default() -> Self {
        Self { mean_square: 1.0, variance: 0.25 }
    }
}

impl Prior {
    pub(super) fn lambda(self, rows: usize) -> f64 {
        smoothing(rows, self.mean_square)
    }
}

/// The λ at which what smoothing takes off n numbers of this mean square, `λ E[x²] / 2`, and what chance
/// takes off their bound, `log(1/risk) / (λn)`, are alike.
#[must_use]
pub fn smoothing(units: usize, mean_square: f64) -> f64 {
    (2.0 * (2.0 / RISK).ln() / (units.max(1) as f64 * mean_square)).sqrt()
}

/// `1/(nλ) Σ log(1 + λ x)`.
pub(super) fn smoothed(values: &[f64], lambda: f64) -> f64 {
    let logs: f64 = values.iter().map(|value| (lambda * value).ln_1p()).sum();
    logs / (lambda * values.len().max(1) as f64)
}

/// The mean of the expectations of numbers of at least 0, each given those before, is above this but for
/// the chance `risk`: the product of `(1 + λx) / (1 + λ E x)` has the expectation 1, Markov's inequality
/// bounds it, and the mean of `log(1 + λ E x)` is at most the logarithm at the mean.
pub(super) fn smoothed_lower(smoothed: f64, lambda: f64, rows: usize, risk: f64) -> f64 {
    (lambda * smoothed - (1.0 / risk).ln() / rows.max(1) as f64).exp_m1() / lambda
}

/// The mean of the expectations of numbers in `[0, 1]`, each given those before, is below this but for the
/// chance `risk`: the empirical Bernstein bound of martingales (Howard, Ramdas, McAuliffe, Sekhon,
/// *Annals of Statistics* 2021). It is made for numbers of this `variance`, and holds for any.
pub(super) fn bernstein_upper(values: &[f64], variance: f64, risk: f64) -> f64 {
    let (rows, log) = (values.len().max(1) as f64, (1.0 / risk).ln());
    let lambda = (2.0 * log / (rows * variance)).sqrt().min(0.5);
    // The mean of those before is what a number is compared with.
    let (mut sum, mut count, mut squares) = (0.5, 1.0, 0.0);
    for value in values {
        squares += (value - sum / count).powi(2);
        (sum, count) = (sum + value, count + 1.0);
    }
    let mean = values.iter().sum::<f64>() / rows;
    mean + (log + (-(-lambda).ln_1p() - lambda) * squares) / (lambda * rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_on_their_side_and_close_in() {
        let values = |n: u32| -> Vec<f64> { (0..n).map(|at| f64::from(at % 4) / 3.0).collect() };
        for (n, gap) in [(1000, 0.2), (100_000, 0.02)] {
            let values = values(n);
            let lambda = smoothing(values.len(), 0.4);
            let lower = smoothed_lower(smoothed(&values, lambda), lambda, values.len(), 0.025);
            let upper = bernstein_upper(&values, 0.1, 0.025);
            assert!(lower < 0.5 && lower > 0.5 - gap, "{lower}");
            assert!(upper > 0.5 && upper < 0.5 + gap, "{upper}");
        }
    }
}
