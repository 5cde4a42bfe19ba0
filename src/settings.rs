//! A run's settings: two presets, a file, single keys. They are merged as text keys, checked once,
//! and the resolved whole is saved beside the run's output.

use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::embedding::Power;
use crate::error::{Error, Result};
use crate::estimator::{Baseline, ScoreFunctionSettings};
use crate::policy::{Radial, Sigma};
use crate::retrieval::{HnswOptions, RetrievalKind, Scalar};
use crate::reward::RewardKind;
use crate::seed::Seed;
use crate::tower::{Initial, TowerKind, TowerSettings};

/// The table of `run.toml` that says what the settings were applied to; no setting itself.
pub(crate) const RUN_TABLE: &str = "run";

/// All settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Everything random in the run follows from it.
    pub seed: Seed,
    /// How β is formed from the prepared embeddings.
    pub embedding: EmbeddingSettings,
    /// How slates are found.
    pub retrieval: RetrievalSettings,
    /// h_θ.
    pub tower: TowerSettings,
    /// π_θ and its gradient estimate.
    pub policy: PolicySettings,
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
    /// p in β = V·s^p: 0, 0.5 or 1.
    pub power: Power,
}

/// How slates are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrievalSettings {
    /// `exact` or `hnsw`, while training.
    pub kind: RetrievalKind,
    /// Whether a context's observed actions are kept off its slates.
    pub exclude_observed: bool,
    /// An audited recall below this draws a warning.
    pub recall_warning: f64,
    /// The graph.
    pub hnsw: HnswOptions,
}

/// π_θ and its gradient estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySettings {
    /// K.
    pub slate_size: usize,
    /// S.
    pub samples: usize,
    /// The rule for σ.
    pub sigma: Sigma,
    /// The part of the gradient along h under a relative σ.
    pub radial: Radial,
    /// What is subtracted from a reward.
    pub baseline: Baseline,
    /// Whether noise comes in mirrored pairs.
    pub antithetic: bool,
}

impl PolicySettings {
    /// The estimator's part of these settings.
    #[must_use]
    pub fn score_function(&self) -> ScoreFunctionSettings {
        ScoreFunctionSettings {
            num_samples: self.samples,
            slate_size: self.slate_size,
            baseline: self.baseline,
            antithetic: self.antithetic,
        }
    }
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
    /// Whether the decision is retrieved through the index instead of exactly.
    pub index: bool,
    /// Stop after this many evaluations in a row without a better validation reward; 0: never.
    pub patience: u64,
}

/// What to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointSettings {
    /// The last so many checkpoints, besides the best.
    pub keep: usize,
}

/// A named set of defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// As the paper and its authors' earlier code do.
    Paper,
    /// What measured best here.
    #[default]
    Default,
}

impl Preset {
    /// The preset's settings.
    #[must_use]
    pub fn settings(self) -> Settings {
        let paper = Settings {
            seed: Seed(0),
            embedding: EmbeddingSettings { power: Power::Zero },
            retrieval: RetrievalSettings {
                kind: RetrievalKind::Hnsw,
                exclude_observed: false,
                recall_warning: 0.9,
                hnsw: HnswOptions {
                    connectivity: 32,
                    ef_construction: 40,
                    ef_search: 16,
                    scalar: Scalar::F32,
                },
            },
            tower: TowerSettings { kind: TowerKind::Linear, initial: Initial::Paper },
            policy: PolicySettings {
                slate_size: 5,
                samples: 10,
                sigma: Sigma::InverseDim,
                radial: Radial::Keep,
                baseline: Baseline::None,
                antithetic: false,
            },
            reward: RewardSettings { kind: RewardKind::Discounted },
            optimizer: OptimizerSettings {
                learning_rate: 1e-3,
                schedule: Schedule::Constant,
                batch_size: 32,
                beta_1: 0.9,
                beta_2: 0.999,
                epsilon: 1e-8,
            },
            budget: BudgetSettings { unit: BudgetUnit::Steps, amount: 5000 },
            evaluation: EvaluationSettings {
                count: 10,
                train_contexts: 2000,
                index: false,
                patience: 0,
            },
            checkpoint: CheckpointSettings { keep: 2 },
        };
        match self {
            Self::Paper => paper,
            Self::Default => Settings {
                embedding: EmbeddingSettings { power: Power::Half },
                retrieval: RetrievalSettings {
                    exclude_observed: true,
                    hnsw: HnswOptions::default(),
                    ..paper.retrieval
                },
                tower: TowerSettings { kind: TowerKind::Linear, initial: Initial::Identity },
                policy: PolicySettings {
                    sigma: Sigma::Relative(0.3),
                    radial: Radial::Project,
                    baseline: Baseline::LeaveOneOut,
                    ..paper.policy
                },
                optimizer: OptimizerSettings { schedule: Schedule::Linear, ..paper.optimizer },
                budget: BudgetSettings { unit: BudgetUnit::Steps, amount: 3000 },
                ..paper
            },
        }
    }
}

/// Settings under construction: a preset, overlaid by files and single keys in turn.
#[derive(Clone, Debug)]
pub struct SettingsBuilder {
    table: Table,
    known: Vec<String>,
}

impl SettingsBuilder {
    /// Starts from `settings`.
    ///
    /// # Errors
    /// Never on settings of this crate; TOML has no way to say so.
    pub fn new(settings: &Settings) -> Result<Self> {
        let table = Table::try_from(settings).map_err(|error| Error::library("settings", error))?;
        let mut known = Vec::new();
        collect_keys(&table, "", &mut known);
        Ok(Self { table, known })
    }

    /// Overlays a TOML file: any part of what `run.toml` holds; its `[run]` table is left out.
    ///
    /// # Errors
    /// Naming the file: not there, no TOML, or [`Error::UnknownSetting`].
    pub fn file(mut self, path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        let mut overlay: Table =
            text.parse().map_err(|error| Error::library(path.display().to_string(), error))?;
        overlay.remove(RUN_TABLE);
        let mut leaves = Vec::new();
        collect_leaves(&overlay, "", &mut leaves);
        for (key, value) in leaves {
            self.insert(&key, value)?;
        }
        Ok(self)
    }

    /// Overlays one `key=value`; the value is TOML, or else taken as a string.
    ///
    /// # Errors
    /// [`Error::UnknownSetting`], or [`Error::Setting`] when there is no `=`.
    pub fn assignment(mut self, text: &str) -> Result<Self> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| Error::setting(text, "expected key=value, as in policy.samples=32"))?;
        let (key, value) = (key.trim(), value.trim());
        let parsed = format!("x = {value}").parse::<Table>().ok().and_then(|mut t| t.remove("x"));
        self.insert(key, parsed.unwrap_or_else(|| Value::String(value.to_owned())))?;
        Ok(self)
    }

    /// Overlays one value.
    ///
    /// # Errors
    /// [`Error::UnknownSetting`] with the nearest keys.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Result<Self> {
        self.insert(key, value.into())?;
        Ok(self)
    }

    /// The settings, each value of the right type and within its range.
    ///
    /// # Errors
    /// [`Error::Setting`] naming the key.
    pub fn build(self) -> Result<Settings> {
        // One key at a time into a valid whole, so that the message can name the key.
        let mut leaves = Vec::new();
        collect_leaves(&self.table, "", &mut leaves);
        let mut valid = Preset::Default.settings();
        for (key, value) in leaves {
            let mut table =
                Table::try_from(&valid).map_err(|error| Error::library("settings", error))?;
            insert(&mut table, &key, value);
            valid = table
                .try_into()
                .map_err(|error: toml::de::Error| Error::setting(&key, error.message()))?;
        }
        valid.validate()?;
        Ok(valid)
    }

    fn insert(&mut self, key: &str, value: Value) -> Result<()> {
        if !self.known.iter().any(|known| known == key) {
            let mut nearest = self.known.clone();
            nearest.sort_by(|a, b| {
                let distance = |known: &str| {
                    strsim::jaro_winkler(last(known), last(key)) + strsim::jaro_winkler(known, key)
                };
                distance(b).total_cmp(&distance(a))
            });
            nearest.truncate(3);
            return Err(Error::UnknownSetting { key: key.to_owned(), nearest });
        }
        // TOML tells 1 from 1.0; a reader of `learning_rate=1` does not.
        let old = get(&self.table, key);
        let value = match (old, value) {
            (Some(Value::Float(_)), Value::Integer(number)) => Value::Float(number as f64),
            (_, value) => value,
        };
        insert(&mut self.table, key, value);
        Ok(())
    }
}

impl Settings {
    /// `key: this → other` for every key whose value differs.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<(String, String)> {
        let leaves = |settings: &Self| {
            let mut leaves = Vec::new();
            if let Ok(table) = Table::try_from(settings) {
                collect_leaves(&table, "", &mut leaves);
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

    fn validate(&self) -> Result<()> {
        self.policy.score_function().validate()?;
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

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn collect_leaves(table: &Table, prefix: &str, leaves: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) => collect_leaves(inner, &key, leaves),
            leaf => leaves.push((key, leaf.clone())),
        }
    }
}

fn collect_keys(table: &Table, prefix: &str, keys: &mut Vec<String>) {
    let mut leaves = Vec::new();
    collect_leaves(table, prefix, &mut leaves);
    keys.extend(leaves.into_iter().map(|(key, _)| key));
}

fn get<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let (first, rest) =
        key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    match (table.get(first)?, rest) {
        (Value::Table(inner), Some(rest)) => get(inner, rest),
        (value, None) => Some(value),
        _ => None,
    }
}

fn insert(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default() -> SettingsBuilder {
        SettingsBuilder::new(&Preset::Default.settings()).unwrap()
    }

    #[test]
    fn every_preset_survives_its_own_file() {
        for preset in [Preset::Paper, Preset::Default] {
            let settings = preset.settings();
            assert_eq!(SettingsBuilder::new(&settings).unwrap().build().unwrap(), settings);
        }
    }

    #[test]
    fn single_keys_are_read_as_toml_or_as_text() {
        let settings = default()
            .assignment("policy.samples=32")
            .and_then(|builder| builder.assignment("policy.sigma = relative(0.5)"))
            .and_then(|builder| builder.assignment("optimizer.learning_rate=1"))
            .and_then(SettingsBuilder::build)
            .unwrap();
        assert_eq!(settings.policy.samples, 32);
        assert_eq!(settings.policy.sigma, Sigma::Relative(0.5));
        assert!((settings.optimizer.learning_rate - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = default().assignment("policy.sample=3").unwrap_err().to_string();
        assert!(error.contains("no setting `policy.sample`"), "{error}");
        assert!(error.contains("policy.samples"), "{error}");
    }

    #[test]
    fn a_wrong_value_names_its_key() {
        for (assignment, key) in [
            ("policy.samples=many", "policy.samples"),
            ("policy.samples=-1", "policy.samples"),
            ("embedding.power=0.7", "embedding.power"),
            ("retrieval.hnsw.scalar=i8", "retrieval.hnsw.scalar"),
            ("optimizer.learning_rate=0", "optimizer.learning_rate"),
            ("policy.sigma=huge", "policy.sigma"),
        ] {
            let error = default().assignment(assignment).and_then(SettingsBuilder::build);
            let message = error.unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")), "{assignment}: {message}");
        }
    }

    #[test]
    fn biased_combinations_are_refused_with_the_reason() {
        let error = default().assignment("policy.antithetic=true").and_then(SettingsBuilder::build);
        assert!(error.unwrap_err().to_string().contains("S/(S − 1)"));
    }

    #[test]
    fn differences_name_key_and_both_values() {
        let other =
            default().assignment("policy.samples=3").and_then(SettingsBuilder::build).unwrap();
        let differences = Preset::Default.settings().differences(&other);
        assert_eq!(differences[0].1, "policy.samples: 10 → 3");
    }
}
