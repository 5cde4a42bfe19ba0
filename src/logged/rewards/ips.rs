//! Logged slates with propensities → the outcomes of the positions where a slate agrees with the log,
//! each divided by its propensity.

use super::Shown;
use crate::reward::SlateReward;

/// `Σ_k 1[a_k = ã_k] y_k / p_k`, for the logged slate ã of the row with outcomes y and propensities p.
///
/// Linear in the slate. The mean over rows is unbiased for the sum of outcomes if the outcome at a
/// position depends on the context and its own item only (the item-position model of Li,
/// Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen, "Offline Evaluation of Ranking Policies with Click
/// Models", KDD 2018), and the propensities are right.
#[derive(Clone, Debug)]
pub struct PositionIps(pub(super) Agreement);

impl PositionIps {
    /// Weighs the outcomes of `shown` by its `propensities` `[n, K]`, which are above 0.
    #[must_use]
    pub fn new(shown: &Shown, propensities: &[f32]) -> Self {
        let weighted = shown.outcomes.iter().zip(propensities);
        let values = weighted.map(|(outcome, propensity)| outcome / propensity).collect();
        Self(Agreement::new(shown, values))
    }
}

impl SlateReward for PositionIps {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        self.0.sum(context, slate)
    }
}

/// What each logged action is worth where it is shown again.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    slates: Vec<u32>,
    values: Vec<f32>,
    slate_size: usize,
}

impl Agreement {
    /// `values` `[n, K]` of the actions of `shown`.
    pub(super) fn new(shown: &Shown, values: Vec<f32>) -> Self {
        Self { slates: shown.slates.clone(), values, slate_size: shown.slate_size }
    }

    /// `Σ_k 1[a_k = ã_k] v_k`.
    pub(super) fn sum(&self, row: u32, slate: &[u32]) -> f32 {
        let first = row as usize * self.slate_size;
        let places = first..first + self.slate_size;
        let logged = self.slates[places.clone()].iter().zip(&self.values[places]);
        let same = logged.zip(slate).filter(|((logged, _), action)| logged == action);
        same.fold(0.0, |sum, ((_, value), _)| sum + value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Split;
    use crate::matrix::Matrix;

    /// All slates of two positions and three items, with the item of each position drawn by itself.
    #[test]
    fn the_mean_over_logs_is_the_sum_of_outcomes() {
        let (logging, outcomes) =
            ([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], [[1.0, 2.0, 3.0], [4.0, -1.0, 0.5]]);
        for slate in [[0, 1], [2, 2], [1, 0]] {
            let mut mean = 0.0;
            for logged in (0..9_u32).map(|at| [at / 3, at % 3]) {
                let at = logged.map(|item| item as usize);
                let p = [logging[0][at[0]], logging[1][at[1]]];
                let shown = Shown {
                    contexts: Matrix::zeros(1, 1),
                    slates: logged.to_vec(),
                    slate_size: 2,
                    outcomes: vec![outcomes[0][at[0]], outcomes[1][at[1]]],
                    propensities: Some(p.to_vec()),
                    parts: vec![Split::Train],
                };
                mean += p[0] * p[1] * PositionIps::new(&shown, &p).reward(0, &slate);
            }
            let expected = outcomes[0][slate[0] as usize] + outcomes[1][slate[1] as usize];
            assert!((mean - expected).abs() < 1e-5, "{mean} {expected}");
        }
    }

    #[test]
    fn a_row_by_hand() {
        let shown = Shown {
            contexts: Matrix::zeros(2, 1),
            slates: vec![4, 1, 3, 4],
            slate_size: 2,
            outcomes: vec![1.0, 0.5, 1.0, 1.0],
            propensities: None,
            parts: vec![Split::Train; 2],
        };
        let reward = PositionIps::new(&shown, &[0.5, 0.25, 0.5, 0.1]);
        assert_eq!(reward.reward(0, &[4, 1]), 4.0);
        assert_eq!(reward.reward(0, &[1, 4]), 0.0);
        assert_eq!(reward.reward(1, &[1, 4]), 10.0);
        // Shorter and longer slates count as far as the log goes.
        assert_eq!((reward.reward(1, &[3]), reward.reward(1, &[3, 0, 4])), (2.0, 2.0));
    }
}
