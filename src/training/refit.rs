//! The record of a run → how far another goes that does the same on everybody, where nobody is left to
//! choose a checkpoint.

use super::batches::Batches;
use super::budget::{Clock, Whole};
use super::metrics::{MetricsRow, read};
use super::record::watch;
use crate::dataset::Split;
use crate::error::Result;
use crate::run::{CheckpointState, Refit, RunFolder, Which};

impl Refit {
    /// What led `run` to a checkpoint, which was taught by these `contexts`.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) for a checkpoint that is not there, or for a record that cannot be
    /// read.
    pub fn of(run: &RunFolder, which: Which, contexts: Vec<u32>) -> Result<Self> {
        let (settings, _) = run.read_settings()?;
        let CheckpointState { step, seconds, .. } = run.checkpoint(which)?.state;
        let batches = Batches::new(vec![contexts], settings.optimizer.batch_size, settings.seed);
        let whole = Whole::new(&settings, &batches);
        let growths = growths(step, &read(&run.metrics_path())?);
        Ok(Self {
            run: run.path().to_owned(),
            step,
            share: whole.spent(Clock { step, seconds }),
            growths: growths.into_iter().map(|at| whole.spent(at)).collect(),
        })
    }
}

/// When the rate grew before `step`.
fn growths(step: u64, rows: &[MetricsRow]) -> Vec<Clock> {
    let (mut growths, mut state, mut start) = (Vec::new(), CheckpointState::default(), None);
    for row in rows {
        let MetricsRow::Evaluation {
            step: at,
            seconds,
            split: Split::Validation,
            reward,
            gain,
            ..
        } = row
        else {
            continue;
        };
        if *at > step {
            break;
        }
        let grown = state.growths;
        watch(&mut state, *at, *start.get_or_insert(*reward) + gain.mean, *gain);
        if state.growths > grown {
            growths.push(Clock { step: *at, seconds: *seconds });
        }
    }
    growths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Interval;

    fn row(step: u64, split: Split, gain: f64) -> MetricsRow {
        MetricsRow::Evaluation {
            step,
            seconds: step as f64,
            split,
            reward: 0.5,
            reward_se: 0.01,
            gain: Interval { mean: gain, low: gain - 0.01, high: gain + 0.01 },
            contexts: 100,
            halves: 1,
            learning_rate: 0.1,
        }
    }

    #[test]
    fn a_rate_grew_where_validation_users_surely_gained_more_than_before() {
        let gains = [(0, 0.0), (25, 0.005), (50, 0.02), (75, 0.015), (100, 0.03)];
        let both =
            |(step, gain)| [row(step, Split::Validation, gain), row(step, Split::Train, 0.1)];
        let rows: Vec<MetricsRow> = gains.into_iter().flat_map(both).collect();
        let steps = |step| growths(step, &rows).iter().map(|at| at.step).collect::<Vec<_>>();
        // A gain that may be chance lets nothing grow, and a lower one no more.
        assert!(steps(0).is_empty());
        assert!(steps(25).is_empty());
        assert_eq!(steps(75), [50]);
        assert_eq!(steps(100), [50, 100]);
        // Nobody judges.
        let alone: Vec<MetricsRow> = gains.map(|(step, _)| row(step, Split::Train, 0.1)).into();
        assert!(growths(100, &alone).is_empty());
    }
}
