//! What has come of a comparison: one entry a cell, whatever it came to.

use std::env::consts::{ARCH, OS};
use std::num::NonZero;
use std::path::PathBuf;
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use super::amounts::Bytes;
use super::cell::Cell;
use super::grid::Grid;
use crate::dataset::{Split, Statistics};
use crate::training::GradientStatistics;

/// A comparison, as far as it has come.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// What was compared, and how.
    pub grid: Grid,
    /// On what, in the grid's order.
    pub data: Vec<DataDescription>,
    /// Where.
    pub machine: Machine,
    /// Every cell that has ended, in the order in which they are trained.
    pub cells: Vec<CellResult>,
    /// Cells that there are.
    pub of: usize,
    /// What the searches for learning rates came to.
    pub searches: Vec<Searched>,
}

/// A data set as it was prepared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataDescription {
    /// Its name in the grid.
    pub name: String,
    /// The command, or commands, that prepared it.
    pub commands: Vec<String>,
    /// What there is.
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
    /// Of this crate.
    pub version: String,
}

/// A cell and what it came to.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// What it came to.
    pub outcome: CellOutcome,
    /// Its evaluations, by step.
    pub measurements: Vec<Measurement>,
    /// Its run's folder.
    pub run: PathBuf,
    /// The command that trains it again.
    pub command: String,
}

/// What a cell came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum CellOutcome {
    /// It trained to its end.
    Trained {
        /// Steps taken.
        steps: u64,
        /// Training clock.
        seconds: f64,
        /// Learning rate at step 0.
        learning_rate: f64,
        /// The share of the exact top that the search returned on training queries at the end; none
        /// where it is exact.
        recall: Option<f64>,
        /// The most memory that its process had.
        peak_memory: Option<Bytes>,
        /// What of it came with training: beyond what there was before the first step.
        training_memory: Option<Bytes>,
    },
    /// "N/A".
    NotAvailable {
        /// Why.
        reason: String,
    },
}

/// An evaluation of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Steps taken.
    pub step: u64,
    /// Training clock.
    pub seconds: f64,
    /// The decision's reward on each split that was looked at.
    pub rewards: Vec<SplitReward>,
    /// The gradient, where that was asked for (`evaluation.gradient_draws`).
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

/// What a search for a learning rate came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    /// The data set.
    pub data: String,
    /// The row.
    pub row: String,
    /// S that it was searched with.
    pub samples: usize,
    /// K that it was searched with.
    pub slate_size: usize,
    /// Every rate tried, with the reward on validation users it ended with.
    pub tried: Vec<(f64, f64)>,
    /// The best of them.
    pub best: f64,
}

impl Machine {
    /// This machine, training on the backend of that name.
    #[must_use]
    pub fn here(device: &str) -> Self {
        let what = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(what);
        let processor = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
        Self {
            processor: processor.filter(|name| !name.is_empty()).unwrap_or_else(|| ARCH.to_owned()),
            cores: available_parallelism().map_or(1, NonZero::get),
            memory: system.total_memory(),
            system: System::long_os_version().unwrap_or_else(|| OS.to_owned()),
            device: device.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl Measurement {
    /// The reward on `split`, if it was looked at.
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
