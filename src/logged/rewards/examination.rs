//! Logged slates with clicks → how often a position is looked at, and how attractive an item is.

use std::collections::BTreeMap;

use super::{PRIOR_ROWS, Shown};
use crate::reward::SlateReward;

/// The most steps of EM.
const STEPS: usize = 2000;

/// EM ends when no examination changes by more than this in a step.
const STILL: f64 = 1e-7;

/// The steps that look for a start.
const START: usize = 50;

/// `Σ_k θ_k α_{a_k}`, the expected clicks: a click needs a look at position k, of probability θ_k, and
/// attraction by the item, of probability α_a.
///
/// This is the position-based model (Richardson, Dominowska, Ragno, WWW 2007; Chuklin, Markov, de Rijke,
/// "Click Models for Web Search", 2015, section 3.3), fitted by EM. α of an item is smoothed towards the
/// mean, and is the mean where the item was never shown. An outcome above 0 is a click. The model knows
/// nothing of contexts. Only the products of θ and α are told by a log; the greatest θ is set to 1.
#[derive(Clone, Debug)]
pub struct PositionBased {
    /// θ, `[K]`.
    examination: Vec<f64>,
    /// α, `[P]`.
    attraction: Vec<f64>,
}

/// How often an item was shown at a position, and clicked.
struct Cell {
    position: usize,
    action: usize,
    shown: f64,
    clicks: f64,
}

impl PositionBased {
    /// Fits the model on `shown`, whose actions are below `num_actions`.
    #[must_use]
    pub fn fit(shown: &Shown, num_actions: usize) -> Self {
        let mut counts: BTreeMap<(usize, u32), (f64, f64)> = BTreeMap::new();
        for (position, action, outcome) in shown.fitted_places() {
            let (shown, clicks) = counts.entry((position, action)).or_default();
            *shown += 1.0;
            *clicks += f64::from(u8::from(outcome > 0.0));
        }
        let cells: Vec<Cell> = counts
            .into_iter()
            .map(|((position, action), (shown, clicks))| Cell {
                position,
                action: action as usize,
                shown,
                clicks,
            })
            .collect();
        let mut model = Self::start(&cells, shown.slate_size, num_actions);
        for _ in 0..STEPS {
            if model.step(&cells) < STILL {
                break;
            }
        }
        model.normalise();
        model
    }

    /// θ, `[K]`; the greatest is 1.
    #[must_use]
    pub fn examination(&self) -> &[f64] {
        &self.examination
    }

    /// α, `[P]`.
    #[must_use]
    pub fn attraction(&self) -> &[f64] {
        &self.attraction
    }

    /// Where clicks are rare, the counts are near those of a product of two rates, whose maximum of
    /// likelihood alternating sums find at once; EM takes thousands of steps there.
    fn start(cells: &[Cell], slate_size: usize, num_actions: usize) -> Self {
        let clicks: f64 = cells.iter().map(|cell| cell.clicks).sum();
        let rows: f64 = cells.iter().map(|cell| cell.shown).sum();
        let mut model = Self {
            examination: vec![1.0; slate_size],
            attraction: vec![clicks / rows.max(1.0); num_actions],
        };
        for _ in 0..START {
            let mut sums = vec![(0.0, 0.0); num_actions];
            for cell in cells {
                sums[cell.action].0 += cell.clicks;
                sums[cell.action].1 += cell.shown * model.examination[cell.position];
            }
            model.attraction = smoothed(&sums);
            let mut sums = vec![(0.0, 0.0); slate_size];
            for cell in cells {
                sums[cell.position].0 += cell.clicks;
                sums[cell.position].1 += cell.shown * model.attraction[cell.action];
            }
            model.examination = sums.iter().map(|(sum, of)| ratio(*sum, *of)).collect();
            model.normalise();
        }
        // EM never leaves 0 and 1.
        for (rates, scale) in [(&mut model.examination, 0.9), (&mut model.attraction, 1.0 / 0.9)] {
            for rate in rates {
                *rate = (*rate * scale).clamp(1e-9, 0.99);
            }
        }
        model
    }

    /// One step of EM; returns the greatest change of an examination.
    fn step(&mut self, cells: &[Cell]) -> f64 {
        let mut examined = vec![(0.0, 0.0); self.examination.len()];
        let mut attracted = vec![(0.0, 0.0); self.attraction.len()];
        for Cell { position, action, shown, clicks } in cells {
            let (theta, alpha) = (self.examination[*position], self.attraction[*action]);
            let (rest, none) = (shown - clicks, (1.0 - theta * alpha).max(f64::MIN_POSITIVE));
            // Without a click, the chance of a look is θ(1 − α) / (1 − θα), and of attraction α(1 − θ) / (1 − θα).
            let looks = clicks + rest * theta * (1.0 - alpha) / none;
            let attractions = clicks + rest * alpha * (1.0 - theta) / none;
            for (sum, more) in
                [(&mut examined[*position], looks), (&mut attracted[*action], attractions)]
            {
                sum.0 += more;
                sum.1 += shown;
            }
        }
        self.attraction = smoothed(&attracted);
        let mut change = 0.0_f64;
        for (theta, (sum, of)) in self.examination.iter_mut().zip(examined) {
            let next = ratio(sum, of);
            change = change.max((next - *theta).abs());
            *theta = next;
        }
        change
    }

    /// Makes the greatest θ 1, and changes no product unless α would be above 1.
    fn normalise(&mut self) {
        let most = self.examination.iter().copied().fold(0.0, f64::max);
        if most > 0.0 {
            for theta in &mut self.examination {
                *theta /= most;
            }
            for alpha in &mut self.attraction {
                *alpha = (*alpha * most).min(1.0);
            }
        }
    }
}

/// `sum / of`; 0 of nothing.
fn ratio(sum: f64, of: f64) -> f64 {
    if of > 0.0 { sum / of } else { 0.0 }
}

/// The ratio of each item, smoothed to the ratio of all.
fn smoothed(sums: &[(f64, f64)]) -> Vec<f64> {
    let (sum, of) = sums.iter().fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
    let mean = ratio(sum, of);
    sums.iter().map(|(sum, of)| (sum + PRIOR_ROWS * mean) / (of + PRIOR_ROWS)).collect()
}

impl SlateReward for PositionBased {
    fn reward(&self, _context: u32, slate: &[u32]) -> f32 {
        let looked = self.examination.iter().zip(slate);
        let clicks: f64 =
            looked.map(|(theta, action)| theta * self.attraction[*action as usize]).sum();
        #[allow(clippy::cast_possible_truncation, reason = "rewards are f32")]
        let clicks = clicks as f32;
        clicks
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::drawn;
    use super::*;

    #[test]
    fn em_finds_the_parameters_that_clicks_were_drawn_by() {
        for (theta, alpha) in [
            ([1.0, 0.6, 0.3], [0.8, 0.5, 0.3, 0.15, 0.6]),
            // The second position is looked at most, and clicks are rare.
            ([0.5, 1.0, 0.2], [0.03, 0.06, 0.02, 0.05, 0.04]),
        ] {
            let rows = 60_000;
            let click = |_: &[f32], action: u32, at: usize| theta[at] * alpha[action as usize];
            let model = PositionBased::fit(&drawn(rows, click), 5);
            for (found, theta) in model.examination().iter().zip(theta) {
                assert!((found - theta).abs() < 0.05, "{:?}", model.examination());
            }
            for (found, alpha) in model.attraction().iter().zip(alpha) {
                assert!((found - alpha).abs() < 0.01 + 0.02 * alpha, "{:?}", model.attraction());
            }
            let expected = theta[0] * alpha[3] + theta[1] * alpha[0] + theta[2] * alpha[2];
            assert!((f64::from(model.reward(0, &[3, 0, 2])) - expected).abs() < 0.02);
        }
    }

    /// Good items stand on top, so click rates by position say too much of positions.
    #[test]
    fn a_log_that_shows_good_items_on_top_does_not_mislead() {
        let alpha = [0.5, 0.4, 0.3, 0.2, 0.1];
        let mut shown =
            drawn(60_000, |_, action, at| alpha[action as usize] * [1.0, 0.5, 0.25][at]);
        // Keep the rows whose top item is among the best two, and a tenth of the others.
        let keep: Vec<usize> =
            (0..60_000).filter(|row| shown.slates[3 * row] < 2 || row % 10 == 0).collect();
        let places = || keep.iter().flat_map(|row| 3 * row..3 * row + 3);
        shown.outcomes = places().map(|at| shown.outcomes[at]).collect();
        shown.slates = places().map(|at| shown.slates[at]).collect();
        let model = PositionBased::fit(&shown, 5);
        for (found, theta) in model.examination().iter().zip([1.0, 0.5, 0.25]) {
            assert!((found - theta).abs() < 0.03, "{:?}", model.examination());
        }
    }

    #[test]
    fn what_was_never_shown_is_the_mean_and_no_click_is_no_reward() {
        let shown = drawn(200, |_, _, _| 0.5);
        let model = PositionBased::fit(&shown, 7);
        let mean: f64 = model.attraction()[..5].iter().sum::<f64>() / 5.0;
        assert!((model.attraction()[6] - mean).abs() < 0.05);
        let model = PositionBased::fit(&drawn(200, |_, _, _| 0.0), 5);
        assert!(model.reward(0, &[0, 1, 2]) < 1e-6);
        let all = PositionBased::fit(&drawn(200, |_, _, _| 1.0), 5);
        assert!((all.reward(0, &[0, 1, 2]) - 3.0).abs() < 0.1);
        // Longer slates count as far as the log goes.
        assert_eq!(all.reward(0, &[0, 1, 2, 3]), all.reward(0, &[0, 1, 2]));
    }
}
