//! A preset, a file and single keys in, one checked whole out. The resolved settings are saved beside
//! a run's output.

mod builder;
mod preset;

pub use builder::SettingsBuilder;
pub(crate) use builder::leaves;
pub use preset::Preset;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::embedding::{ActionEmbeddings, Form};
use crate::encoder::{ContextSettings, EncoderKind};
use crate::error::{Error, Result};
use crate::method::{Learned, Method};
use crate::retrieval::{HnswOptions, Search};
use crate::reward::RewardKind;
use crate::seed::Seed;
use crate::tower::{Radius, TowerKind, TowerSettings};

/// The table of `run.toml` that says what the settings were applied to; no setting itself.
pub(crate) const RUN_TABLE: &str = "run";

/// The tables, and keys without a table, that say how a model is trained and for which reward.
const TRAINING: [&str; 9] = [
    "seed",
    "slate_size",
    "retrieval",
    "method",
    "reward",
    "optimizer",
    "budget",
    "evaluation",
    "checkpoint",
];

/// The most evaluations of a run; more is a slip of the finger.
const MOST_EVALUATIONS: u64 = 1_000_000;

/// The most contexts of a batch.
const MOST_IN_A_BATCH: usize = 1 << 20;

/// All settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Seed of everything random in the run.
    pub seed: Seed,
    /// K.
    pub slate_size: usize,
    /// How β is formed from the prepared embeddings.
    pub embedding: Form,
    /// M(X).
    pub context: ContextSettings,
    /// Exclusion, the warning of the audit, and the graph.
    pub retrieval: RetrievalSettings,
    /// h_θ.
    pub tower: TowerSettings,
    /// π_θ and the estimate of its gradient.
    pub method: Method,
    /// r̂.
    pub reward: RewardSettings,
    /// Adam and its learning rate.
    pub optimizer: OptimizerSettings,
    /// How long to train.
    pub budget: BudgetSettings,
    /// When to evaluate, on whom, and when to stop early.
    pub evaluation: EvaluationSettings,
    /// Which checkpoints to keep.
    pub checkpoint: CheckpointSettings,
}

/// Exclusion, the warning of the audit, and the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrievalSettings {
    /// True keeps a context's observed actions off its slates.
    pub exclude_observed: bool,
    /// An audited recall below this draws a warning.
    pub recall_warning: f64,
    /// The graph, for a method that searches one.
    pub hnsw: HnswOptions,
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
    /// How the rate changes over the budget.
    pub schedule: Schedule,
    /// What the rate is multiplied by, under a reward that is not linear, at each evaluation that finds
    /// the best decision so far, above the start by more than chance; ten times in all at most. 1: nothing.
    #[serde(default = "no_growth")]
    pub growth: f64,
    /// Contexts a step.
    pub batch_size: usize,
    /// Adam's β₁.
    #[serde(serialize_with = "crate::decimal::shortest")]
    pub beta_1: f32,
    /// Adam's β₂.
    #[serde(serialize_with = "crate::decimal::shortest")]
    pub beta_2: f32,
    /// Adam's ε (Burn's own default is 1e-5, PyTorch's 1e-8).
    #[serde(serialize_with = "crate::decimal::shortest")]
    pub epsilon: f32,
    /// Decoupled weight decay, as AdamW has it: each step takes this times the learning rate off
    /// every parameter of a tower. It pulls θ to 0, the residual tower to θ = I; a learned β is left
    /// alone. 0: none, which is Adam.
    #[serde(serialize_with = "crate::decimal::shortest")]
    pub weight_decay: f32,
    /// The longest that the gradient of all parameters together may be; a longer one is shortened to
    /// it. 0: any.
    #[serde(serialize_with = "crate::decimal::shortest")]
    pub gradient_clipping: f32,
}

/// The learning rate over the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// The rate stays as it is.
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
    /// Evaluations at equal intervals, besides the one at step 0: 1 to 1 000 000.
    pub count: u64,
    /// Training contexts on which the training reward is reported (a fixed sample).
    pub train_contexts: usize,
    /// Validation contexts on which the validation reward is reported (a fixed sample).
    pub validation_contexts: usize,
    /// How many halves of their items validation users are asked about, at most, where a split hides any of
    /// them: as many as take about two seconds. Their answers choose the checkpoint.
    #[serde(default = "once")]
    pub validation_halves: u64,
    /// How the decisions are found.
    pub search: EvaluationSearch,
    /// Stop after this many evaluations in a row without a better validation reward; 0: never.
    pub patience: u64,
    /// Gradients estimated at every evaluation to report their variance; 0: none.
    pub gradient_draws: u64,
}

/// What runs did that do not say how often.
fn once() -> u64 {
    1
}

/// The growth of the rate in runs that do not say it.
fn no_growth() -> f64 {
    1.0
}

/// How a run's evaluations find the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvaluationSearch {
    /// Exactly up to 2³⁰ scores (contexts times actions, about a second). Beyond that through the
    /// index, where training searches it too, so that an evaluation takes no longer than the training
    /// between two of them; exactly for other methods, and with folds, which are searched exactly.
    #[default]
    Auto,
    /// Every action is scored.
    Exact,
    /// Through the index.
    Index,
}

/// Which checkpoints to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointSettings {
    /// The last so many checkpoints, besides the best.
    pub keep: usize,
}

impl Settings {
    /// Key and `key: this → other` for every key whose value differs; a key that only one of the
    /// two methods has is `none` in the other.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<(String, String)> {
        let (these, others) = (self.leaves(), other.leaves());
        let mut keys: Vec<&String> = these.keys().chain(others.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let shown = |value: Option<&Value>| value.map_or("none".to_owned(), Value::to_string);
        keys.into_iter()
            .filter(|key| these.get(*key) != others.get(*key))
            .map(|key| {
                let (this, other) = (shown(these.get(key)), shown(others.get(key)));
                (key.clone(), format!("{key}: {this} → {other}"))
            })
            .collect()
    }

    /// Every dotted key with its value.
    fn leaves(&self) -> BTreeMap<String, Value> {
        Table::try_from(self).map(|table| builder::leaves(&table)).unwrap_or_default()
    }

    /// `key: this → other` for every key whose value differs and that says which model there is, or
    /// what it is a model of.
    #[must_use]
    pub(crate) fn differences_in_model(&self, other: &Self) -> Vec<String> {
        let learned = |settings: &Self| settings.method.recipe().learned();
        let learn_the_same = learned(self) == learned(other);
        let of_training = |key: &str| match key {
            "tower.initial" => true,
            "method.learn_actions" => learn_the_same,
            _ => TRAINING.contains(&key.split_once('.').map_or(key, |(table, _)| table)),
        };
        let differences = self.differences(other).into_iter();
        differences.filter(|(key, _)| !of_training(key)).map(|(_, change)| change).collect()
    }

    /// How far a run with these settings may take a query from that of the policy that it began with, if
    /// it learns from a log; `actions` is β.
    #[must_use]
    pub fn correction(&self, actions: &ActionEmbeddings) -> Option<Radius> {
        match &self.method {
            Method::Logged(logged) => Some(logged.radius(actions)),
            _ => None,
        }
    }

    /// True if the tower balances tastes: the residual one where it may (`tower.balance`), contexts are
    /// means, and β is not learned.
    #[must_use]
    pub fn has_balance(&self) -> bool {
        let learns_actions = self.method.recipe().learned() == Learned::Actions;
        let residual = self.tower.kind == TowerKind::ResidualMlp;
        let first = self.context.encoders.first();
        let mean = matches!(first, Some(EncoderKind::Mean | EncoderKind::WeightedMean));
        self.tower.balance && residual && mean && !learns_actions
    }

    /// The parts that the training users are in, of which something is fitted without the one or the other; 0 for
    /// none, as where β is learned, which is everybody's.
    #[must_use]
    pub fn folds(&self) -> u16 {
        let learns_actions = self.method.recipe().learned() == Learned::Actions;
        if learns_actions { 0 } else { self.context.folds }
    }

    /// The encoders of a context. Where the tower balances tastes, the balanced mean is the second.
    #[must_use]
    pub fn encoders(&self) -> Vec<EncoderKind> {
        let mut encoders = self.context.encoders.clone();
        if self.has_balance() {
            encoders.insert(1, EncoderKind::BalancedMean);
        }
        encoders
    }

    /// True if training or its evaluations search the index, as far as the settings decide: the
    /// searches of folds are exact.
    #[must_use]
    pub fn needs_index(&self) -> bool {
        let trains_with_it = self.method.search() == Some(Search::Hnsw) && self.context.folds == 0;
        trains_with_it || self.evaluation.search == EvaluationSearch::Index
    }

    /// Refuses values out of range, and combinations that are impossible or biased.
    ///
    /// # Errors
    /// [`Error::Setting`] with the key and the reason.
    pub fn validate(&self) -> Result<()> {
        self.embedding.validate()?;
        self.context.validate()?;
        self.method.check(self.slate_size, self.reward.kind)?;
        self.tower.validate()?;
        let learns_actions = self.method.recipe().learned() == Learned::Actions;
        if learns_actions && self.evaluation.search == EvaluationSearch::Index {
            let problem = "an index over β goes stale while β is learned; use \"exact\"";
            return Err(Error::setting("evaluation.search", problem));
        }
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
        let growth = optimizer.growth;
        if !(growth >= 1.0 && growth.is_finite()) {
            let problem = format!("expected a number of at least 1, found {growth}");
            return Err(Error::setting("optimizer.growth", problem));
        }
        let size = optimizer.batch_size;
        if !(1..=MOST_IN_A_BATCH).contains(&size) {
            let problem = format!("expected 1 to {MOST_IN_A_BATCH}, found {size}");
            return Err(Error::setting("optimizer.batch_size", problem));
        }
        for (key, value) in [
            ("weight_decay", optimizer.weight_decay),
            ("gradient_clipping", optimizer.gradient_clipping),
        ] {
            if !(value >= 0.0 && value.is_finite()) {
                let problem = format!("expected a number of at least 0, found {value}");
                return Err(Error::setting(format!("optimizer.{key}"), problem));
            }
        }
        let decayed = rate * f64::from(optimizer.weight_decay);
        if decayed > 1.0 {
            let problem = format!(
                "`optimizer.learning_rate` times this is {decayed}, and a step takes that share off every \
                 parameter: expected 1 at most; lower one of them"
            );
            return Err(Error::setting("optimizer.weight_decay", problem));
        }
        let epsilon = optimizer.epsilon;
        positive("optimizer.epsilon", epsilon > 0.0 && epsilon.is_finite(), epsilon.to_string())?;
        let warned = self.retrieval.recall_warning;
        if !(0.0..=1.0).contains(&warned) {
            let problem = format!("expected 0 to 1, found {warned}");
            return Err(Error::setting("retrieval.recall_warning", problem));
        }
        for (key, value) in [("beta_1", optimizer.beta_1), ("beta_2", optimizer.beta_2)] {
            if !(0.0..1.0).contains(&value) {
                let problem = format!("expected at least 0 and less than 1, found {value}");
                return Err(Error::setting(format!("optimizer.{key}"), problem));
            }
        }
        positive("budget.amount", self.budget.amount > 0, self.budget.amount.to_string())?;
        let count = self.evaluation.count;
        if !(1..=MOST_EVALUATIONS).contains(&count) {
            let problem = format!("expected 1 to {MOST_EVALUATIONS}, found {count}");
            return Err(Error::setting("evaluation.count", problem));
        }
        let halves = self.evaluation.validation_halves;
        positive("evaluation.validation_halves", halves > 0, halves.to_string())?;
        if self.evaluation.gradient_draws == 1 {
            let problem = "a variance takes 2 draws or more; 0 for none, found 1";
            return Err(Error::setting("evaluation.gradient_draws", problem));
        }
        positive("checkpoint.keep", self.checkpoint.keep > 0, self.checkpoint.keep.to_string())
    }
}
