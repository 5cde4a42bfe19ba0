//! The score-function gradient of LGP (equation 9, "lgp_grad"; Algorithm 1 as corrected):
//! `g = 1/(Sσ) Σ_s (r̂_s − b_s) ε_s` with slates `A_K{h + σε_s}`.

use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{BatchRows, Estimator, Samples};
use crate::dataset::Sessions;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::policy::LatentPerturbation;
use crate::retrieval::{Queries, Retriever};
use crate::reward::SlateReward;
use crate::seed::{Purpose, Seed};

/// What is subtracted from a reward before it weighs its noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Baseline {
    /// Nothing, as in the paper.
    None,
    /// The mean reward of the context's other samples; for S = 1 the mean reward of the batch's
    /// other contexts. Independent of the sample it is subtracted from, hence without bias.
    LeaveOneOut,
}

/// How samples are drawn and weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreFunctionSettings {
    /// S.
    pub num_samples: usize,
    /// K.
    pub slate_size: usize,
    /// The baseline.
    pub baseline: Baseline,
    /// Whether sample s + S/2 uses −ε of sample s.
    pub antithetic: bool,
}

impl ScoreFunctionSettings {
    /// Refuses what cannot be drawn or would be biased.
    ///
    /// # Errors
    /// [`Error::Setting`] with the reason.
    pub fn validate(self) -> Result<()> {
        if self.num_samples == 0 {
            return Err(Error::setting("policy.samples", "expected at least 1, found 0"));
        }
        if self.slate_size == 0 {
            return Err(Error::setting("policy.slate_size", "expected at least 1, found 0"));
        }
        if self.antithetic && !self.num_samples.is_multiple_of(2) {
            let problem = format!("pairs need an even policy.samples, found {}", self.num_samples);
            return Err(Error::setting("policy.antithetic", problem));
        }
        if self.antithetic && self.baseline == Baseline::LeaveOneOut {
            return Err(Error::setting(
                "policy.antithetic",
                "a leave-one-out baseline sees the mirrored sample, so the gradient would be off \
                 by S/(S − 1); set policy.baseline = \"none\" or policy.antithetic = false",
            ));
        }
        Ok(())
    }
}

/// LGP's gradient estimator.
#[derive(Clone, Debug)]
pub struct ScoreFunction {
    settings: ScoreFunctionSettings,
    policy: LatentPerturbation,
    retriever: Arc<dyn Retriever>,
    reward: Arc<dyn SlateReward>,
    excluded: Option<Arc<Sessions>>,
    seed: Seed,
}

impl ScoreFunction {
    /// `excluded`: the sessions whose observed actions never enter a slate, if they shall not.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings that [`ScoreFunctionSettings::validate`] refuses.
    pub fn new(
        settings: ScoreFunctionSettings,
        policy: LatentPerturbation,
        retriever: Arc<dyn Retriever>,
        reward: Arc<dyn SlateReward>,
        excluded: Option<Arc<Sessions>>,
        seed: Seed,
    ) -> Result<Self> {
        settings.validate()?;
        Ok(Self { settings, policy, retriever, reward, excluded, seed })
    }

    /// ε `[rows · S, L]` of the rows, each row from a stream of its own.
    #[must_use]
    pub fn noise(&self, rows: BatchRows<'_>) -> Matrix {
        let (s, l) = (self.settings.num_samples, self.policy.latent_dim());
        let drawn = if self.settings.antithetic { s / 2 } else { s };
        let mut noise = Matrix::zeros(rows.contexts.len() * s, l);
        noise.as_mut_slice().par_chunks_exact_mut(s * l).enumerate().for_each(|(row, block)| {
            let position = (rows.first + row) as u64;
            let (first, mirrored) = block.split_at_mut(drawn * l);
            self.seed.stream(Purpose::Noise, rows.step, position).fill_normals(first);
            mirrored.iter_mut().zip(first).for_each(|(mirrored, drawn)| *mirrored = -*drawn);
        });
        noise
    }

    /// `h + σε` `[rows · S, L]`, and σ `[rows]`.
    #[must_use]
    pub fn perturbed(&self, h: &Matrix, noise: &Matrix) -> (Matrix, Vec<f32>) {
        let (s, l) = (self.settings.num_samples, self.policy.latent_dim());
        let sigma: Vec<f32> = h.iter_rows().map(|h| self.policy.sigma(h)).collect();
        let mut queries = Matrix::zeros(noise.rows(), l);
        queries.par_rows_mut().enumerate().for_each(|(at, query)| {
            let row = at / s;
            self.policy.perturb(h.row(row), sigma[row], noise.row(at), query);
        });
        (queries, sigma)
    }

    /// The actions that each of the S samples of each row must not show, if any.
    #[must_use]
    pub fn excluded(&self, contexts: &[u32]) -> Option<Vec<&[u32]>> {
        let sessions = self.excluded.as_ref()?;
        let of = |&context| {
            std::iter::repeat_n(sessions.observed.of(context), self.settings.num_samples)
        };
        Some(contexts.iter().flat_map(of).collect())
    }

    /// r̂ − b, `[B · S]`.
    fn centred(&self, rewards: &[f32]) -> Vec<f32> {
        let s = self.settings.num_samples;
        // The samples among which one is left out: a context's own, or at S = 1 the batch's.
        let group = if s > 1 { s } else { rewards.len() };
        if self.settings.baseline == Baseline::None || group < 2 {
            return rewards.to_vec();
        }
        rewards
            .chunks_exact(group)
            .flat_map(|group| {
                let sum: f32 = group.iter().sum();
                let others = (group.len() - 1) as f32;
                group.iter().map(move |reward| reward - (sum - reward) / others)
            })
            .collect()
    }
}

impl Estimator for ScoreFunction {
    fn sample(&self, h: &Matrix, rows: BatchRows<'_>) -> Result<Samples> {
        let s = self.settings.num_samples;
        let noise = self.noise(rows); // [rows·S, L]
        let (queries, sigma) = self.perturbed(h, &noise); // [rows·S, L], [rows]
        let excluded = self.excluded(rows.contexts);
        let slates = self.retriever.search(Queries {
            latent: &queries,
            slate_size: self.settings.slate_size,
            excluded: excluded.as_deref(),
        })?; // [rows·S, K]
        let rewards = (0..slates.len())
            .into_par_iter()
            .with_min_len(64)
            .map(|at| self.reward.reward(rows.contexts[at / s], slates.slate(at)))
            .collect(); // [rows·S]
        Ok(Samples { rewards, noise, sigma })
    }

    fn finish(&self, h: &Matrix, samples: &Samples) -> Matrix {
        let s = self.settings.num_samples;
        let weights = self.centred(&samples.rewards); // [B·S]
        let mut g = Matrix::zeros(h.rows(), h.cols()); // [B, L]
        g.par_rows_mut().enumerate().for_each(|(row, g)| {
            let scale = 1.0 / (s as f32 * samples.sigma[row]);
            for (at, weight) in (row * s..).zip(&weights[row * s..(row + 1) * s]) {
                let noise = samples.noise.row(at);
                g.iter_mut().zip(noise).for_each(|(g, noise)| *g += scale * weight * noise);
            }
            self.policy.total_gradient(h.row(row), g);
        });
        g
    }
}
