//! Takes the prepared features of a user, such as age and country, and returns them on the scale of the
//! other context columns.

use super::{ContextEncoder, Known};
use crate::matrix::Matrix;

/// The features `[F]` times one scale; zeros for a user without features.
#[derive(Clone, Debug)]
pub struct Features {
    dim: usize,
    scale: f32,
}

impl Features {
    /// F features, times `scale`.
    #[must_use]
    pub fn new(dim: usize, scale: f32) -> Self {
        Self { dim, scale }
    }

    /// The factor.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// F features scaled by the root of the mean variance of the other context columns `[U, D]`. A
    /// prepared number has a deviation of 1 and a category is 0 or 1, so θ learns them as fast as
    /// the others.
    #[must_use]
    pub fn beside(dim: usize, others: &Matrix) -> Self {
        let count = others.rows().max(1) as f64;
        let mut sums = vec![(0.0_f64, 0.0_f64); others.cols()];
        for row in others.iter_rows() {
            for ((sum, squares), &value) in sums.iter_mut().zip(row) {
                let value = f64::from(value);
                *sum += value;
                *squares += value * value;
            }
        }
        let variances = sums.iter().map(|(sum, squares)| squares / count - (sum / count).powi(2));
        let variance = variances.sum::<f64>() / others.cols() as f64;
        #[allow(clippy::cast_possible_truncation, reason = "contexts are f32")]
        Self::new(dim, variance.max(0.0).sqrt() as f32)
    }
}

impl ContextEncoder for Features {
    fn dim(&self) -> usize {
        self.dim
    }

    fn encode(&self, known: Known<'_>, context: &mut [f32]) {
        match known.features {
            None => context.fill(0.0),
            Some(features) => {
                let scaled = features.iter().map(|value| self.scale * value);
                context.iter_mut().zip(scaled).for_each(|(to, value)| *to = value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_spread_as_the_other_columns_do_and_nobody_s_are_zeros() {
        // Variances 4 and 0 around the means 3 and 7.
        let others = Matrix::new(vec![1.0, 7.0, 5.0, 7.0], 2).unwrap();
        let encoder = Features::beside(2, &others);
        let mut context = [f32::NAN; 2];
        let features = Some(&[1.0, -0.5][..]);
        encoder.encode(Known { features, ..Known::default() }, &mut context);
        assert_eq!(context, [2.0_f32.sqrt(), -0.5 * 2.0_f32.sqrt()]);
        encoder.encode(Known { actions: &[1], ..Known::default() }, &mut context);
        assert_eq!(context, [0.0; 2]);
    }
}
