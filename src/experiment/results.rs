//! The results of a comparison: one entry per cell, whatever its outcome.

use std::env::consts::{ARCH, OS};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use super::amounts::Bytes;
use super::cell::Cell;
use super::grid::Grid;
use crate::dataset::{Split, Statistics};
use crate::training::GradientStatistics;

/// The results of a comparison so far.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// The grid.
    pub grid: Grid,
    /// The data sets, in the grid's order.
    pub data: Vec<DataDescription>,
    /// The machine that trained.
    pub machine: Machine,
    /// Every cell that has ended, in the order of training.
    pub cells: Vec<CellResult>,
    /// The number of all cells.
    pub of: usize,
    /// The results of the searches for learning rates.
    pub searches: Vec<Searched>,
}

/// A data set as it was prepared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataDescription {
    /// Its name in the grid.
    pub set: String,
    /// The same, with what a row adds to its preparation.
    pub name: String,
    /// The command, or commands, that prepared it.
    pub commands: Vec<String>,
    /// Numbers of users, actions and interactions.
    pub statistics: Statistics,
    /// L.
    pub latent_dim: usize,
}

/// The machine and the build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Cores that the trainings use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// The operating system.
    pub system: String,
    /// The backend.
    pub device: String,
    /// The version of this crate.
    pub version: String,
}

/// A cell and its results.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// Its outcome.
    pub outcome: CellOutcome,
    /// Its evaluations, by step.
    pub measurements: Vec<Measurement>,
    /// Its run's folder.
    pub run: PathBuf,
    /// The command that trains it again.
    pub command: String,
}

/// The outcome of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum CellOutcome {
    /// It trained to its end.
    Trained {
        /// Steps taken.
        steps: u64,
        /// Seconds of training, without evaluations.
        seconds: f64,
        /// Learning rate at step 0.
        learning_rate: f64,
        /// Share of the exact top K that the training search returns, at the end; none if the search
        /// is exact.
        recall: Option<f64>,
        /// The most memory of its process.
        peak_memory: Option<Bytes>,
        /// The most memory beyond that before the first step.
        training_memory: Option<Bytes>,
    },
    /// The method cannot be trained with these settings or in this memory: "N/A".
    NotAvailable {
        /// The reason.
        reason: String,
        /// The ceiling that its memory was above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ceiling: Option<Bytes>,
    },
}

impl CellOutcome {
    /// True if the cell did not fit under a ceiling below this one, so that it may fit now.
    pub(super) fn may_fit(&self, ceiling: Option<Bytes>) -> bool {
        let Self::NotAvailable { ceiling: Some(before), .. } = self else { return false };
        ceiling.is_none_or(|ceiling| ceiling > *before)
    }
}

/// An evaluation of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Steps taken.
    pub step: u64,
    /// Seconds of training, without evaluations.
    pub seconds: f64,
    /// The decision's reward on each evaluated split.
    pub rewards: Vec<SplitReward>,
    /// Statistics of the gradient, if `evaluation.gradient_draws` asks for them.
    pub gradient: Option<GradientStatistics>,
}

/// A reward on a split.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SplitReward {
    /// The split.
    pub split: Split,
    /// Mean reward of the decision.
    pub reward: f64,
    /// Its standard error over contexts.
    pub reward_se: f64,
    /// Contexts evaluated.
    pub contexts: usize,
}

/// The result of a search for a learning rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    /// The data set.
    pub data: String,
    /// The row.
    pub row: String,
    /// The S of the search.
    pub samples: usize,
    /// The K of the search.
    pub slate_size: usize,
    /// Every rate tried and the validation reward at its end.
    pub tried: Vec<(f64, f64)>,
    /// The best rate.
    pub best: f64,
}

impl Machine {
    /// This machine, with the backend of this name.
    #[must_use]
    pub fn here(device: &str) -> Self {
        let what = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(what);
        let processor = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
        Self {
            processor: processor.filter(|name| !name.is_empty()).unwrap_or_else(|| ARCH.to_owned()),
            cores: rayon::current_num_threads(),
            memory: system.total_memory(),
            system: System::long_os_version().unwrap_or_else(|| OS.to_owned()),
            device: device.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl Measurement {
    /// The reward on `split`, if it was evaluated.
    #[must_use]
    pub fn reward(&self, split: Split) -> Option<SplitReward> {
        self.rewards.iter().find(|reward| reward.split == split).copied()
    }
}

impl CellResult {
    /// The reward on `split` after the last step.
    #[must_use]
    pub fn last_reward(&self, split: Split) -> Option<f64> {
        Some(self.measurements.last()?.reward(split)?.reward)
    }
}
