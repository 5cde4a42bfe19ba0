//! The record of a run → how far another goes that does the same on everybody, where nobody is left to
//! choose a checkpoint.

use super::metrics::{MetricsRow, read};
use super::record::watch;
use crate::dataset::Split;
use crate::error::{Error, Result};
use crate::run::{CheckpointState, Refit, RunFolder, Which};
use crate::settings::BudgetUnit;

impl Refit {
    /// What led `run` to a checkpoint.
    ///
    /// # Errors
    /// [`Error::File`] for a checkpoint that is not there, or that an interruption wrote, or for a record
    /// that cannot be read.
    pub fn of(run: &RunFolder, which: Which) -> Result<Self> {
        let (settings, _) = run.read_settings()?;
        let (budget, count) = (&settings.budget, settings.evaluation.count);
        let step = run.checkpoint(which)?.state.step;
        let mut refit = Self { run: run.path().to_owned(), step, evaluations: 0, growths: vec![] };
        let (mut state, mut start, mut last) = (CheckpointState::default(), None, 0);
        for row in read(&run.metrics_path())? {
            let MetricsRow::Evaluation { step: at, seconds, split, reward, gain, .. } = row else {
                continue;
            };
            if at > step {
                break;
            }
            // Validation users and training users have a row each.
            if at > last {
                last = at;
                refit.evaluations = match budget.unit {
                    BudgetUnit::Steps | BudgetUnit::Epochs => refit.evaluations + 1,
                    #[allow(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "0..=count"
                    )]
                    BudgetUnit::Seconds => {
                        ((seconds / budget.amount as f64).min(1.0) * count as f64) as u64
                    }
                };
            }
            if split == Split::Validation {
                let start = *start.get_or_insert(reward);
                let grown = state.growths;
                watch(&mut state, at, start + gain.mean, gain);
                if state.growths > grown {
                    refit.growths.push(refit.evaluations);
                }
            }
        }
        if last != step {
            let problem = format!(
                "its checkpoint of step {step} is of an interruption, not of an evaluation; name another \
                 with --checkpoint, or go on with `slate train --resume`"
            );
            return Err(Error::file(run.path(), problem));
        }
        Ok(refit)
    }
}
