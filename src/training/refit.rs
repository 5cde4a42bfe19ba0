//! The record of a run → how far another goes that does the same on everybody, where nobody is left to
//! choose a checkpoint.

use super::metrics::{MetricsRow, read};
use super::record::watch;
use crate::dataset::Split;
use crate::error::{Error, Result};
use crate::run::{CheckpointState, Refit, RunFolder, Which};
use crate::settings::{BudgetUnit, Settings};

impl Refit {
    /// What led `run` to a checkpoint.
    ///
    /// # Errors
    /// [`Error::File`] for a checkpoint that is not there, or that an interruption wrote, or for a record
    /// that cannot be read.
    pub fn of(run: &RunFolder, which: Which) -> Result<Self> {
        let (settings, _) = run.read_settings()?;
        let step = run.checkpoint(which)?.state.step;
        let rows = read(&run.metrics_path())?;
        let Some((evaluations, growths)) = led_to(step, &rows, &settings) else {
            let problem = format!(
                "its checkpoint of step {step} is of an interruption, not of an evaluation; name another \
                 with --checkpoint, or go on with `slate train --resume`"
            );
            return Err(Error::file(run.path(), problem));
        };
        Ok(Self { run: run.path().to_owned(), step, evaluations, growths })
    }
}

/// The evaluations up to the one of `step`, and those after which the rate grew; none if there was no
/// evaluation then.
fn led_to(step: u64, rows: &[MetricsRow], settings: &Settings) -> Option<(u64, Vec<u64>)> {
    let (mut evaluations, mut last, mut growths) = (0, 0, Vec::new());
    let (mut state, mut start) = (CheckpointState::default(), None);
    for row in rows {
        let MetricsRow::Evaluation { step: at, seconds, split, reward, gain, .. } = row else {
            continue;
        };
        if *at > step {
            break;
        }
        // Validation users and training users have a row each.
        if *at > last {
            last = *at;
            evaluations = match settings.budget.unit {
                BudgetUnit::Steps | BudgetUnit::Epochs => evaluations + 1,
                BudgetUnit::Seconds => within(*seconds, settings),
            };
        }
        if *split == Split::Validation {
            let grown = state.growths;
            watch(&mut state, *at, *start.get_or_insert(*reward) + gain.mean, *gain);
            if state.growths > grown {
                growths.push(evaluations);
            }
        }
    }
    (last == step).then_some((evaluations, growths))
}

/// The evaluations that are due within so many seconds of a budget.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0..=count")]
fn within(seconds: f64, settings: &Settings) -> u64 {
    let share = (seconds / settings.budget.amount as f64).min(1.0);
    (share * settings.evaluation.count as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Interval;
    use crate::settings::Preset;

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
    fn a_checkpoint_is_found_again_by_its_evaluations_and_growths() {
        let gains = [(0, 0.0), (25, 0.005), (50, 0.02), (75, 0.015), (100, 0.03)];
        let both =
            |(step, gain)| [row(step, Split::Validation, gain), row(step, Split::Train, 0.1)];
        let rows: Vec<MetricsRow> = gains.into_iter().flat_map(both).collect();
        let mut settings = Preset::Default.settings();
        (settings.budget.amount, settings.evaluation.count) = (100, 4);
        for unit in [BudgetUnit::Steps, BudgetUnit::Epochs, BudgetUnit::Seconds] {
            settings.budget.unit = unit;
            let led_to = |step| led_to(step, &rows, &settings);
            // A gain that may be chance lets nothing grow, and a lower one no more.
            assert_eq!(led_to(0), Some((0, vec![])));
            assert_eq!(led_to(25), Some((1, vec![])));
            assert_eq!(led_to(75), Some((3, vec![2])));
            assert_eq!(led_to(100), Some((4, vec![2, 4])));
            assert_eq!(led_to(60), None, "an interruption");
        }
        // Nobody judges: training users tell where evaluations were.
        let alone: Vec<MetricsRow> = gains.map(|(step, _)| row(step, Split::Train, 0.1)).into();
        settings.budget.unit = BudgetUnit::Steps;
        assert_eq!(led_to(75, &alone, &settings), Some((3, vec![])));
    }
}
