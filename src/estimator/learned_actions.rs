//! Learns β instead of θ (appendix "Effect of fixing β"): takes contexts M(X) and β, and returns
//! `∂R̂/∂β` for Plackett–Luce with `f = M(X)ᵀβ_a`. A context's gradient in the scores is
//! `c_d − B e^{f_d − m}`, one number for the tail and a few corrections ([`ScoreGradient`]). `∂R̂/∂β_d`
//! is the mean over contexts of this times M(X), summed in panels of actions, so that nothing holds
//! `[B, P]` numbers.

use std::sync::Arc;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, Par};
use rayon::prelude::*;

use super::{ActionsGradient, BatchRows, ControlVariate, PlRank};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::policy::{PlackettLuce, ScoreGradient, SlatePolicy};
use crate::retrieval::Slates;
use crate::reward::SlateReward;

/// The gradient of a Plackett–Luce policy in β.
#[derive(Clone, Debug)]
pub enum LearnedActions {
    /// The score function: PL-PG.
    ScoreFunction {
        /// The policy. Learning starts at its β.
        policy: PlackettLuce,
        /// Any reward.
        reward: Arc<dyn SlateReward>,
        /// The number subtracted from the reward.
        baseline: ControlVariate,
    },
    /// PL-Rank.
    PlRank(PlRank),
}

/// Actions in a panel.
const PANEL: usize = 1024;

/// One context's part of the gradient.
struct Row {
    /// S score functions, or one gradient.
    gradients: Vec<ScoreGradient>,
    rewards: Vec<f32>,
    /// m.
    reference: f32,
    /// The head and the excluded actions, ascending: all that is not in the tail.
    beyond_tail: Vec<u32>,
}

impl LearnedActions {
    fn policy(&self) -> &PlackettLuce {
        match self {
            Self::ScoreFunction { policy, .. } => policy,
            Self::PlRank(estimator) => estimator.policy(),
        }
    }

    fn visit(&self, beta: &Matrix, rows: BatchRows<'_>) -> Result<Vec<Row>> {
        let policy = self.policy();
        policy.visit(beta, rows, |row, distribution| {
            let context = rows.contexts[row];
            let (gradients, rewards) = match self {
                Self::ScoreFunction { reward, .. } => {
                    let slates = policy.draw(distribution, rows, row); // [S·K]
                    let slates = Slates::unscored(policy.sampling().slate_size, slates);
                    let score = |at| ScoreGradient::log_prob(distribution, slates.slate(at));
                    let scores = (0..slates.len()).map(score).collect();
                    (scores, reward.finite_rewards(&[context], &slates)?)
                }
                Self::PlRank(estimator) => {
                    let (gradient, rewards) = estimator.of_row(rows, row, distribution);
                    (vec![gradient], rewards)
                }
            };
            let mut beyond_tail =
                [distribution.head(), policy.sampling().excluded_of(context)].concat();
            beyond_tail.sort_unstable();
            #[allow(clippy::cast_possible_truncation, reason = "scores are f32 products")]
            let reference = distribution.tail_reference() as f32;
            Ok(Row { gradients, rewards, reference, beyond_tail })
        })
    }

    /// Draws S slates for each row under the scores `hᵀβ_a`, β `[P, L]`, and estimates `∂R̂/∂β`.
    ///
    /// # Errors
    /// Fails if the policy fails.
    pub fn gradient(&self, beta: &Matrix, rows: BatchRows<'_>) -> Result<ActionsGradient> {
        let visited = self.visit(beta, rows)?;
        let rewards: Vec<f32> = visited.iter().flat_map(|row| &row.rewards).copied().collect();
        let samples = self.policy().sampling().num_samples;
        // The weight of each gradient of each row, 1/B included.
        let weights = match self {
            Self::ScoreFunction { baseline, .. } => {
                let scale = 1.0 / rewards.len().max(1) as f32;
                let centred = baseline.centred(&rewards, samples);
                centred.iter().map(|weight| scale * weight).collect()
            }
            Self::PlRank(_) => vec![1.0 / visited.len().max(1) as f32; visited.len()],
        };
        let each = weights.len() / visited.len().max(1);
        let weights = |row: usize| &weights[row * each..(row + 1) * each];

        #[allow(clippy::cast_possible_truncation, reason = "gradients are f32")]
        let tails: Vec<f32> = (visited.iter().enumerate())
            .map(|(row, visited)| {
                let tails = visited.gradients.iter().zip(weights(row));
                tails.map(|(g, weight)| g.tail * f64::from(*weight)).sum::<f64>() as f32
            })
            .collect(); // B of each row
        let mut gradient = Matrix::zeros(beta.rows(), beta.cols());
        gradient
            .as_mut_slice()
            .par_chunks_mut(PANEL * beta.cols())
            .enumerate()
            .for_each(|(at, out)| tail_panel(beta, rows.h, &visited, &tails, at * PANEL, out));
        for (row, visited) in visited.iter().enumerate() {
            for (g, weight) in visited.gradients.iter().zip(weights(row)) {
                for &(action, coefficient) in &g.sparse {
                    #[allow(clippy::cast_possible_truncation, reason = "gradients are f32")]
                    let coefficient = coefficient as f32 * weight;
                    let out = gradient.row_mut(action as usize).iter_mut();
                    out.zip(rows.h.row(row)).for_each(|(out, h)| *out += coefficient * h);
                }
            }
        }
        Ok(ActionsGradient { beta: gradient, rewards })
    }
}

/// `−Σ_b B_b e^{f_{b,d} − m_b} h_b` for the actions d from `first` on, into `out` `[panel, L]`.
fn tail_panel(
    beta: &Matrix,
    h: &Matrix,
    rows: &[Row],
    tails: &[f32],
    first: usize,
    out: &mut [f32],
) {
    let (count, width) = (rows.len(), out.len() / beta.cols());
    let last = first + width;
    let mut weights = vec![0.0; count * width]; // [B, panel]
    let view = MatMut::from_row_major_slice_mut(&mut weights, count, width);
    let panel = beta.view(first, last).transpose();
    matmul(view, Accum::Replace, h.view(0, count), panel, 1.0, Par::Seq);
    for ((weights, row), tail) in weights.chunks_exact_mut(width).zip(rows).zip(tails) {
        for weight in &mut *weights {
            // The tail is at or below m; the head above it is taken out below.
            *weight = -tail * (*weight - row.reference).min(0.0).exp();
        }
        let beyond = &row.beyond_tail;
        let start = beyond.partition_point(|action| (*action as usize) < first);
        let inside = beyond[start..].iter().take_while(|action| (**action as usize) < last);
        inside.for_each(|action| weights[*action as usize - first] = 0.0);
    }
    let weights = faer::MatRef::from_row_major_slice(&weights, count, width).transpose();
    let out = MatMut::from_row_major_slice_mut(out, width, beta.cols());
    matmul(out, Accum::Replace, weights, h.view(0, count), 1.0, Par::Seq);
}
