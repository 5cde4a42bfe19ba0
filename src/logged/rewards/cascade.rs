//! Logged slates with clicks → how attractive an item is to somebody who reads from the top.

use super::{PRIOR_ROWS, Shown};
use crate::reward::SlateReward;

/// `1 − Π_k (1 − α_{a_k})`, the probability of a click: people read from the top, click on the first item
/// that attracts them, with probability α_a, and leave.
///
/// This is the cascade model (Craswell, Zoeter, Taylor, Ramsey, WSDM 2008; Chuklin, Markov, de Rijke,
/// "Click Models for Web Search", 2015, section 3.4). Positions down to the first click were read, all
/// others not, so α of an item is the share of clicks where it was read: the maximum of likelihood,
/// without EM. α is smoothed towards the mean, and is the mean where the item was never read. An outcome
/// above 0 is a click; those below the first are not read. The model knows nothing of contexts, and the
/// order of a slate does not change its reward.
#[derive(Clone, Debug)]
pub struct CascadeClicks {
    /// α, `[P]`.
    attraction: Vec<f64>,
}

impl CascadeClicks {
    /// Fits the model on `shown`, whose actions are below `num_actions`.
    #[must_use]
    pub fn fit(shown: &Shown, num_actions: usize) -> Self {
        let mut counts = vec![(0.0, 0.0); num_actions];
        let (mut clicks, mut reads, mut gone) = (0.0, 0.0, false);
        for (position, action, outcome) in shown.fitted_places() {
            gone &= position > 0;
            if gone {
                continue;
            }
            gone = outcome > 0.0;
            let click = f64::from(u8::from(gone));
            let count = &mut counts[action as usize];
            (count.0, count.1) = (count.0 + click, count.1 + 1.0);
            (clicks, reads) = (clicks + click, reads + 1.0);
        }
        let mean = clicks / f64::max(reads, 1.0);
        let smoothed = |(clicks, reads)| (clicks + PRIOR_ROWS * mean) / (reads + PRIOR_ROWS);
        Self { attraction: counts.into_iter().map(smoothed).collect() }
    }

    /// α, `[P]`.
    #[must_use]
    pub fn attraction(&self) -> &[f64] {
        &self.attraction
    }
}

impl SlateReward for CascadeClicks {
    fn reward(&self, _context: u32, slate: &[u32]) -> f32 {
        let passed = slate.iter().map(|action| 1.0 - self.attraction[*action as usize]);
        #[allow(clippy::cast_possible_truncation, reason = "rewards are f32")]
        let click = (1.0 - passed.product::<f64>()) as f32;
        click
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::drawn;
    use super::*;
    use crate::dataset::Split;
    use crate::matrix::Matrix;

    #[test]
    fn attraction_by_hand() {
        let shown = Shown {
            contexts: Matrix::zeros(3, 1),
            slates: vec![0, 1, 1, 2, 2, 0],
            slate_size: 2,
            // The click below a click is not read, and neither is the item there.
            outcomes: vec![0.0, 1.0, 1.0, 1.0, 0.0, 0.0],
            propensities: None,
            parts: vec![Split::Train; 3],
        };
        let model = CascadeClicks::fit(&shown, 4);
        // Reads: 0 twice, 1 twice, 2 once; both clicks on 1.
        let mean = 2.0 / 5.0;
        let smoothed = |clicks: f64, reads: f64| (clicks + 10.0 * mean) / (reads + 10.0);
        let expected = [smoothed(0.0, 2.0), smoothed(2.0, 2.0), smoothed(0.0, 1.0), mean];
        assert_eq!(model.attraction(), expected);
        let expected = 1.0 - (1.0 - expected[1]) * (1.0 - expected[3]);
        assert!((f64::from(model.reward(2, &[1, 3])) - expected).abs() < 1e-6);
    }

    #[test]
    fn it_finds_the_attractions_that_clicks_were_drawn_by() {
        let alpha = [0.8, 0.5, 0.3, 0.15, 0.6];
        // Clicks on all attractive items; the first one is who a reader of the cascade clicks on.
        let model = CascadeClicks::fit(&drawn(60_000, |_, action, _| alpha[action as usize]), 5);
        for (found, alpha) in model.attraction().iter().zip(alpha) {
            assert!((found - alpha).abs() < 0.01, "{:?}", model.attraction());
        }
    }
}
