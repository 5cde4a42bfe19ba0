//! `metrics.jsonl`: one JSON object a line, appended and synced before the checkpoint that it
//! belongs to.

use std::io::Write as _;
use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::diagnostics::GradientStatistics;
use crate::dataset::Split;
use crate::error::{Error, Result};
use crate::evaluation::Interval;
use crate::files::{sync_folder, write_atomic};
use crate::policy::Rejections;

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum MetricsRow {
    /// The decision's reward on one split.
    Evaluation {
        /// Optimiser steps taken.
        step: u64,
        /// Training clock.
        seconds: f64,
        /// The split.
        split: Split,
        /// Mean reward of the decision.
        reward: f64,
        /// Its standard error over contexts.
        reward_se: f64,
        /// Gain over step 0 on the same contexts, with its paired 95 % interval.
        gain: Interval,
        /// Contexts evaluated.
        contexts: usize,
        /// The halves of the own items that each was asked about; the reward is the mean over them.
        #[serde(default = "once")]
        halves: u64,
        /// Learning rate of the next step.
        learning_rate: f64,
    },
    /// The share of the exact top that the shared candidates hold for training queries.
    Coverage {
        /// Optimiser steps taken.
        step: u64,
        /// Training clock.
        seconds: f64,
        /// The share, from 0 to 1.
        coverage: f64,
        /// True if the next steps share candidates, false if they search for every sample.
        shared: bool,
        /// Queries audited.
        queries: usize,
    },
    /// The share of the exact top that the index returns for training queries.
    Recall {
        /// Optimiser steps taken.
        step: u64,
        /// Training clock.
        seconds: f64,
        /// Recall at `top`.
        recall: f64,
        /// K, or the length of the head that an estimator retrieves.
        top: usize,
        /// Queries audited.
        queries: usize,
    },
    /// Acceptances and rejections on training queries.
    Rejection {
        /// Optimiser steps taken.
        step: u64,
        /// Training clock.
        seconds: f64,
        /// Accepted proposals over all.
        acceptance_rate: f64,
        /// The counts.
        rejections: Rejections,
    },
    /// The variance of the gradient estimate over the policy's draws.
    Gradient {
        /// Optimiser steps taken.
        step: u64,
        /// Training clock.
        seconds: f64,
        /// The statistics.
        #[serde(flatten)]
        gradient: GradientStatistics,
    },
}

/// What records say that do not say it.
fn once() -> u64 {
    1
}

impl MetricsRow {
    /// The step of the row.
    #[must_use]
    pub fn step(&self) -> u64 {
        match self {
            Self::Evaluation { step, .. }
            | Self::Coverage { step, .. }
            | Self::Recall { step, .. }
            | Self::Rejection { step, .. }
            | Self::Gradient { step, .. } => *step,
        }
    }
}

/// Appends rows and waits until they are on disk.
pub(super) fn append(path: &Path, rows: &[MetricsRow]) -> Result<()> {
    let is_new = !path.exists();
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
    let mut text = String::new();
    for row in rows {
        text += &serde_json::to_string(row).map_err(|error| Error::library("metrics", error))?;
        text.push('\n');
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    if let Some(folder) = path.parent().filter(|_| is_new) {
        sync_folder(folder)?;
    }
    Ok(())
}

/// The rows of a record.
///
/// # Errors
/// [`Error::File`] naming the line that is not a row.
pub fn read(path: &Path) -> Result<Vec<MetricsRow>> {
    let text = fs::read_to_string(path)?;
    let parse = |(at, line)| {
        serde_json::from_str(line)
            .map_err(|error| Error::file(path, format!("line {}: {error}", at + 1)))
    };
    text.lines().enumerate().map(parse).collect()
}

/// Cuts the rows beyond `step`, and a last line that a crash tore.
pub(super) fn cut(path: &Path, step: Option<u64>) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let text = fs::read_to_string(path)?;
    let kept = text.split_inclusive('\n').take_while(|line| {
        let row = serde_json::from_str::<MetricsRow>(line).ok().filter(|_| line.ends_with('\n'));
        row.is_some_and(|row| step.is_some_and(|step| row.step() <= step))
    });
    let kept: String = kept.collect();
    write_atomic(path, |file| Ok(file.write_all(kept.as_bytes())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: u64) -> MetricsRow {
        MetricsRow::Recall { step, seconds: 0.5, recall: 1.0, top: 5, queries: 9 }
    }

    #[test]
    fn rows_beyond_the_checkpoint_and_a_torn_line_are_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        append(&path, &[row(0), row(10), row(20)]).unwrap();
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"kind\":\"recall\",\"st").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 4"));
        cut(&path, Some(10)).unwrap();
        assert_eq!(read(&path).unwrap(), [row(0), row(10)]);
        cut(&path, None).unwrap();
        assert_eq!(read(&path).unwrap(), []);
    }
}
