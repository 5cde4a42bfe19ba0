//! Logged slates with propensities, and a direct model of their outcomes → the model's sum, corrected
//! where a slate agrees with the log.

use super::Shown;
use super::direct::Direct;
use super::ips::Agreement;
use crate::reward::SlateReward;

/// `Σ_k [q(x, a_k, k) + 1[a_k = ã_k] (y_k − q(x, ã_k, k)) / p_k]`, for the logged slate ã of the row with
/// outcomes y and propensities p.
///
/// The mean over rows is unbiased for the sum of outcomes under the item-position model if the
/// propensities or q are right (Dudík, Langford, Li, "Doubly Robust Policy Evaluation and Learning", ICML
/// 2011, position by position). q of a row was fitted on other rows.
#[derive(Clone, Debug)]
pub struct DoublyRobust {
    direct: Direct,
    corrections: Agreement,
}

impl DoublyRobust {
    /// Corrects `direct` by the rows of `shown`, on which it was fitted, and their `propensities`
    /// `[n, K]`, which are above 0.
    #[must_use]
    pub fn new(direct: Direct, shown: &Shown, propensities: &[f32]) -> Self {
        let values = shown.places().enumerate().zip(propensities);
        let values = values.map(|((at, (position, action, outcome)), propensity)| {
            let row = at / shown.slate_size;
            #[allow(clippy::cast_possible_truncation, reason = "rows are numbered by u32")]
            let predicted = direct.outcome(row as u32, action, position);
            (outcome - predicted) / propensity
        });
        let corrections = Agreement::new(shown, values.collect());
        Self { direct, corrections }
    }
}

impl SlateReward for DoublyRobust {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        self.direct.reward(context, slate) + self.corrections.sum(context, slate)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{actions, drawn};
    use super::*;
    use crate::matrix::dot;
    use crate::seed::Seed;

    const ROWS: u16 = 20_000;

    /// The mean reward of a slate over all rows, with these propensities.
    fn mean(reward: &dyn SlateReward, slate: &[u32]) -> f32 {
        (0..u32::from(ROWS)).map(|row| reward.reward(row, slate)).sum::<f32>() / f32::from(ROWS)
    }

    #[test]
    fn it_is_right_with_either_part_right_and_wrong_with_neither() {
        let beta = actions();
        // Linear in the features, or a bonus for one action that no feature tells from others.
        let linear = |x: &[f32], action: u32, position: usize| {
            let dot = f64::from(dot(x, beta.row(action))).clamp(-3.0, 3.0);
            0.3 - 0.05 * position as f64 + 0.05 * dot
        };
        let odd = |_: &[f32], action: u32, _: usize| if action == 0 { 0.8 } else { 0.1 };
        let right = vec![0.2; 3 * usize::from(ROWS)];
        let wrong = vec![0.6; 3 * usize::from(ROWS)];
        let robust = |shown: &Shown, propensities: &[f32]| {
            let direct = Direct::fit(shown, &beta, Seed(0)).unwrap();
            DoublyRobust::new(direct, shown, propensities)
        };
        let slate = [0, 4, 2];
        let shown = drawn(ROWS.into(), linear);
        let truth = 0.3 + 0.25 + 0.2;
        for propensities in [&right, &wrong] {
            let found = mean(&robust(&shown, propensities), &slate);
            assert!((found - truth).abs() < 0.03, "{found}");
        }
        let shown = drawn(ROWS.into(), odd);
        let direct = mean(&Direct::fit(&shown, &beta, Seed(0)).unwrap(), &slate);
        assert!((direct - 1.0).abs() > 0.2, "{direct}");
        let found = mean(&robust(&shown, &right), &slate);
        assert!((found - 1.0).abs() < 0.03, "{found}");
        let found = mean(&robust(&shown, &wrong), &slate);
        assert!((found - 1.0).abs() > 0.1, "{found}");
    }

    #[test]
    fn a_row_is_its_model_and_a_correction_where_it_agrees() {
        let shown = drawn(50, |_, action, _| f64::from(action) / 5.0);
        let direct = Direct::fit(&shown, &actions(), Seed(3)).unwrap();
        let reward = DoublyRobust::new(direct.clone(), &shown, &[0.5; 150]);
        for row in 0..50_u32 {
            let at = 3 * row as usize;
            let logged = &shown.slates[at..at + 3];
            let other: Vec<u32> = logged.iter().map(|action| (action + 1) % 5).collect();
            assert_eq!(reward.reward(row, &other), direct.reward(row, &other));
            let outcomes: f32 = shown.outcomes[at..at + 3].iter().sum();
            let q = direct.reward(row, logged);
            assert!((reward.reward(row, logged) - (q + 2.0 * (outcomes - q))).abs() < 1e-5);
        }
    }
}
