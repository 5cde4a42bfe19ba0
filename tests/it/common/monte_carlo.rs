//! Means and frequencies of many draws, and their deviations by chance.

use fast_slate::estimator::{BatchRows, Estimator};
use fast_slate::matrix::Matrix;
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// A Monte Carlo mean and its standard error (the length of the vector of errors).
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    pub(crate) mean: Vec<f64>,
    pub(crate) error: f64,
}

impl Estimate {
    /// The mean g of an estimator over so many rows, all of context 0 and query `h`, that 4
    /// standard errors are at most `precision`.
    pub(crate) fn within(precision: f64, estimator: &dyn Estimator, h: &[f32]) -> Self {
        let rows = 2000;
        let queries = Matrix::new(h.repeat(rows), h.len()).unwrap();
        let contexts = vec![0; rows];
        let (mut count, mut sums, mut squares) = (0.0, vec![0.0; h.len()], vec![0.0; h.len()]);
        for step in 0..1000 {
            let batch = BatchRows { step, contexts: &contexts, h: &queries };
            let g = estimator.gradient(batch).unwrap().h;
            for row in g.iter_rows() {
                for ((sum, square), g) in sums.iter_mut().zip(&mut squares).zip(row) {
                    *sum += f64::from(*g);
                    *square += f64::from(*g).powi(2);
                }
                count += 1.0;
            }
            let mean: Vec<f64> = sums.iter().map(|sum| sum / count).collect();
            let variance: f64 =
                squares.iter().zip(&mean).map(|(square, mean)| square / count - mean * mean).sum();
            let error = (variance / (count - 1.0)).sqrt();
            if 4.0 * error <= precision {
                return Self { mean, error };
            }
        }
        panic!("not enough rows for 4 standard errors to be {precision}");
    }

    /// How far the mean is from `truth`.
    pub(crate) fn distance(&self, truth: &[f64]) -> f64 {
        length(&self.mean.iter().zip(truth).map(|(m, t)| m - t).collect::<Vec<f64>>())
    }

    /// True if the mean is within 4 standard errors of `truth`.
    pub(crate) fn agrees_with(&self, truth: &[f64]) -> bool {
        self.distance(truth) <= 4.0 * self.error
    }

    /// The estimate times `factor`.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        let mean = self.mean.iter().map(|mean| mean * factor).collect();
        Self { mean, error: self.error * factor.abs() }
    }
}

/// Euclidean length.
pub(crate) fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The probability that counts as far from `probabilities` as these come by chance (Pearson's χ²).
/// Cells that expect fewer than 5 are taken together.
pub(crate) fn chance(counts: &[u64], probabilities: &[f64]) -> f64 {
    assert_eq!(counts.len(), probabilities.len());
    let total = counts.iter().sum::<u64>() as f64;
    let (mut cells, mut statistic, mut rare) = (0.0, 0.0, (0.0, 0.0));
    let mut add = |count: f64, expected: f64| {
        cells += 1.0;
        statistic += (count - expected).powi(2) / expected;
    };
    for (count, probability) in counts.iter().zip(probabilities) {
        let (count, expected) = (*count as f64, total * probability);
        if expected < 5.0 {
            rare = (rare.0 + count, rare.1 + expected);
        } else {
            add(count, expected);
        }
    }
    if rare.1 > 0.0 {
        add(rare.0, rare.1);
    }
    ChiSquared::new(cells - 1.0).unwrap().sf(statistic)
}
