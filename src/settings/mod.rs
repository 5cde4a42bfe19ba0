//! A run's settings: two presets, overlaid by a file and by single keys, checked once as a whole,
//! which is saved beside the run's output.

mod builder;
mod method;
mod preset;

pub use builder::SettingsBuilder;
pub use method::{EstimatorKind, Method, PolicyKind};
pub use preset::Preset;

use serde::{Deserialize, Serialize};
use toml::Table;

use crate::embedding::Power;
use crate::encoder::ContextSettings;
use crate::error::{Error, Result};
use crate::estimator::ControlVariate;
use crate::policy::{Coupling, NoiseKind, Radial, Sigma, SlateDraws};
use crate::retrieval::{HnswOptions, RetrievalKind};
use crate::reward::RewardKind;
use crate::seed::Seed;
use crate::tower::TowerSettings;

/// The table of `run.toml` that says what the settings were applied to; no setting itself.
pub(crate) const RUN_TABLE: &str = "run";

/// The tables that say how a model is trained, and what for.
const TRAINING: [&str; 9] = [
    "seed",
    "retrieval",
    "policy",
    "estimator",
    "reward",
    "optimizer",
    "budget",
    "evaluation",
    "checkpoint",
];

/// All settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Everything random in the run follows from it.
    pub seed: Seed,
    /// How β is formed from the prepared embeddings.
    pub embedding: EmbeddingSettings,
    /// M(X).
    pub context: ContextSettings,
    /// How slates are found.
    pub retrieval: RetrievalSettings,
    /// h_θ.
    pub tower: TowerSettings,
    /// π_θ.
    pub policy: PolicySettings,
    /// The estimate of its gradient.
    pub estimator: EstimatorSettings,
    /// r̂.
    pub reward: RewardSettings,
    /// Adam and its learning rate.
    pub optimizer: OptimizerSettings,
    /// How long to train.
    pub budget: BudgetSettings,
    /// How often to look, and when to stop early.
    pub evaluation: EvaluationSettings,
    /// What to keep.
    pub checkpoint: CheckpointSettings,
}

/// How β is formed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingSettings {
    /// p in β = V·s^p: 0, 0.25, 0.5 or 1.
    pub power: Power,
    /// Whether β is what is learned, from there on and with `h = M(X)` of the initial β, instead
    /// of a tower (appendix "Effect of fixing β"). Plackett–Luce only.
    pub learn: bool,
}

/// How slates are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrievalSettings {
    /// `exact` or `hnsw`, while training.
    pub kind: RetrievalKind,
    /// M, the actions that one search for a query shares among its S perturbed samples, at least
    /// 2K; 0, or S = 1: every sample is searched for. For LGP and LRP.
    pub candidates: usize,
    /// While an evaluation finds that the shared candidates hold a smaller share than this of the
    /// samples' true top K, every sample is searched for.
    pub coverage: f64,
    /// Whether a context's observed actions are kept off its slates.
    pub exclude_observed: bool,
    /// An audited recall below this draws a warning.
    pub recall_warning: f64,
    /// The graph.
    pub hnsw: HnswOptions,
}

/// π_θ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySettings {
    /// Which family.
    pub kind: PolicyKind,
    /// K.
    pub slate_size: usize,
    /// S.
    pub samples: usize,
    /// The density of latent noise.
    pub noise: NoiseKind,
    /// The rule for σ.
    pub sigma: Sigma,
    /// The part of the gradient along h under a relative σ.
    pub radial: Radial,
    /// How the noise of a query's samples depends on each other.
    pub coupling: Coupling,
    /// Whether a factor of σ is learned beside θ.
    pub learn_sigma: bool,
    /// The learned σ never falls below this share of its rule.
    pub sigma_floor: f32,
    /// How Plackett–Luce draws its slates.
    pub draws: SlateDraws,
}

/// The estimate of the policy's gradient.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EstimatorSettings {
    /// Which estimate.
    pub kind: EstimatorKind,
    /// What the score-function gradient subtracts from a reward.
    pub baseline: ControlVariate,
    /// Actions retrieved for the head of the rejection sampler, of FOPO's proposal and of the
    /// likelihood's softmax.
    pub head: usize,
    /// The uniform share of FOPO's proposal.
    pub uniform_share: f64,
    /// The likelihood's temperature, in units of what the policy's noise would add to the score of
    /// an average action.
    pub temperature: f32,
}

/// r̂.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewardSettings {
    /// One of the built-in rewards.
    pub kind: RewardKind,
}

/// Adam and its learning rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerSettings {
    /// Learning rate at step 0.
    pub learning_rate: f64,
    /// What it does afterwards.
    pub schedule: Schedule,
    /// Contexts a step.
    pub batch_size: usize,
    /// Adam's β₁.
    pub beta_1: f32,
    /// Adam's β₂.
    pub beta_2: f32,
    /// Adam's ε (Burn's own default is 1e-5, PyTorch's 1e-8).
    pub epsilon: f32,
    /// Decoupled weight decay, as AdamW has it: each step takes this times the learning rate off
    /// every parameter. It pulls θ to 0, the residual tower to θ = I, a learned β to 0; the factor
    /// of a learned σ is left alone. 0: none, which is Adam.
    pub weight_decay: f32,
    /// The longest that the gradient of all parameters together may be; a longer one is shortened to
    /// it. 0: any.
    pub gradient_clipping: f32,
}

/// The learning rate over the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// The same throughout.
    Constant,
    /// Falls linearly to 0 at the end of the budget.
    Linear,
}

/// How long to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetSettings {
    /// In what the amount counts.
    pub unit: BudgetUnit,
    /// How many.
    pub amount: u64,
}

/// In what a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetUnit {
    /// Optimiser steps.
    Steps,
    /// Passes over the training contexts.
    Epochs,
    /// Seconds of training; the clock stops during evaluations.
    Seconds,
}

/// How often to look, and when to stop early.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationSettings {
    /// Evaluations at equal intervals, besides the one at step 0.
    pub count: u64,
    /// Training contexts on which the training reward is reported (a fixed sample).
    pub train_contexts: usize,
    /// The same for the validation reward.
    pub validation_contexts: usize,
    /// How the decisions are found.
    pub search: EvaluationSearch,
    /// Stop after this many evaluations in a row without a better validation reward; 0: never.
    pub patience: u64,
    /// Gradients estimated at every evaluation to report their variance; 0: none.
    pub gradient_draws: u64,
}

/// How a run's evaluations find the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvaluationSearch {
    /// Exactly up to 2³⁰ scores (contexts times actions, a second or so), through the index beyond:
    /// an evaluation shall not take longer than the training between two of them.
    #[default]
    Auto,
    /// Every action is scored.
    Exact,
    /// The search that training uses.
    Index,
}

/// What to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointSettings {
    /// The last so many checkpoints, besides the best.
    pub keep: usize,
}

impl Settings {
    /// `key: this → other` for every key whose value differs.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<(String, String)> {
        let leaves = |settings: &Self| {
            let mut leaves = Vec::new();
            if let Ok(table) = Table::try_from(settings) {
                builder::collect_leaves(&table, "", &mut leaves);
            }
            leaves
        };
        let (these, others) = (leaves(self), leaves(other));
        these
            .into_iter()
            .zip(others)
            .filter(|(this, other)| this.1 != other.1)
            .map(|((key, this), (_, other))| {
                let change = format!("{key}: {this} → {other}");
                (key, change)
            })
            .collect()
    }

    /// Whether training searches for perturbed queries.
    #[must_use]
    pub fn perturbs(&self) -> bool {
        let (policy, estimator) = (self.policy.kind, self.estimator.kind);
        policy != PolicyKind::PlackettLuce && estimator != EstimatorKind::Likelihood
    }

    /// Whether the samples of a query share a search: there are several, and candidates for them.
    #[must_use]
    pub fn shares_candidates(&self) -> bool {
        self.perturbs() && self.policy.samples > 1 && self.retrieval.candidates > 0
    }

    /// `key: this → other` for every key whose value differs and that says which model there is, or
    /// what it is a model of: all but those that say how it is trained.
    #[must_use]
    pub(crate) fn differences_in_model(&self, other: &Self) -> Vec<String> {
        let of_training = |key: &str| match key {
            "policy.learn_sigma" => false,
            "tower.initial" | "tower.dropout" => true,
            _ => TRAINING.contains(&key.split_once('.').map_or(key, |(table, _)| table)),
        };
        let differences = self.differences(other).into_iter();
        differences.filter(|(key, _)| !of_training(key)).map(|(_, change)| change).collect()
    }

    fn validate(&self) -> Result<()> {
        self.context.validate()?;
        method::validate(self)?;
        self.tower.validate()?;
        let positive = |key: &str, ok: bool, found: String| {
            if ok {
                Ok(())
            } else {
                Err(Error::setting(key, format!("expected more than 0, found {found}")))
            }
        };
        let optimizer = &self.optimizer;
        let rate = optimizer.learning_rate;
        positive("optimizer.learning_rate", rate > 0.0 && rate.is_finite(), rate.to_string())?;
        positive(
            "optimizer.batch_size",
            optimizer.batch_size > 0,
            optimizer.batch_size.to_string(),
        )?;
        for (key, value) in [
            ("weight_decay", optimizer.weight_decay),
            ("gradient_clipping", optimizer.gradient_clipping),
        ] {
            if !(value >= 0.0 && value.is_finite()) {
                let problem = format!("expected a number of at least 0, found {value}");
                return Err(Error::setting(format!("optimizer.{key}"), problem));
            }
        }
        positive("optimizer.epsilon", optimizer.epsilon > 0.0, optimizer.epsilon.to_string())?;
        for (key, value) in [("beta_1", optimizer.beta_1), ("beta_2", optimizer.beta_2)] {
            if !(0.0..1.0).contains(&value) {
                let problem = format!("expected at least 0 and less than 1, found {value}");
                return Err(Error::setting(format!("optimizer.{key}"), problem));
            }
        }
        positive("budget.amount", self.budget.amount > 0, self.budget.amount.to_string())?;
        positive("evaluation.count", self.evaluation.count > 0, self.evaluation.count.to_string())?;
        positive("checkpoint.keep", self.checkpoint.keep > 0, self.checkpoint.keep.to_string())
    }
}
