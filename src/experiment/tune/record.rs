//! Trainings go in; the record of a search on disk comes out. A search that was stopped or killed goes
//! on from the record, and counts the time it had spent.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::experiment::search::Deadline;
use crate::files::write_atomic;
use crate::run::Best;
use crate::settings::BudgetSettings;
use crate::training::{Observer, Progress};

const RECORD: &str = "tried.json";

/// The result of one training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The trial's number, from 0; trial 0 has the settings as given.
    pub trial: u64,
    /// The rung, from 0.
    pub rung: usize,
    /// The folder of its run.
    pub run: PathBuf,
    /// Its best validation reward, and the step of that.
    pub best: Best,
    /// Wall-clock seconds, loading and evaluations included.
    pub seconds: f64,
    /// The drawn settings, as `key=value`.
    pub settings: Vec<String>,
}

/// The rungs so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// Wall-clock seconds spent.
    pub(super) seconds: f64,
    pub(super) rungs: Vec<Rung>,
}

/// A rung that has begun.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rung {
    /// The budget of each of its trials.
    pub(super) budget: BudgetSettings,
    /// The search's clock when the rung ends, in seconds; none: after all its trials.
    pub(super) until: Option<f64>,
    /// Its trainings that have ended, in that order.
    pub(super) trials: Vec<Tried>,
    /// The trials that cannot be trained.
    #[serde(default)]
    pub(super) dropped: Vec<u64>,
}

impl Rung {
    /// Its trials that have ended, each with its reward.
    pub(super) fn rewards(&self) -> impl Iterator<Item = (u64, f64)> {
        self.trials.iter().map(|tried| (tried.trial, tried.best.reward))
    }

    /// True if less than the mean time of its trials is left before it ends; false before its first trial, which
    /// is always trained.
    pub(super) fn is_over(&self, clock: Deadline) -> bool {
        let spent: f64 = self.trials.iter().map(|tried| tried.seconds).sum();
        let mean = spent / self.trials.len().max(1) as f64;
        let late = |until| clock.elapsed().as_secs_f64() + mean > until;
        !self.trials.is_empty() && self.until.is_some_and(late)
    }
}

impl Record {
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(RECORD);
        if !path.exists() {
            return Ok(Self::default());
        }
        let damaged = |problem: String| Error::file(&path, format!("is damaged: {problem}"));
        let record: Self = serde_json::from_str(&fs::read_to_string(&path)?)
            .map_err(|error| damaged(error.to_string()))?;
        let mut times = record.rungs.iter().filter_map(|rung| rung.until).chain([record.seconds]);
        match times.find(|seconds| Duration::try_from_secs_f64(*seconds).is_err()) {
            Some(seconds) => Err(damaged(format!("{seconds} seconds are no time"))),
            None => Ok(record),
        }
    }

    pub(super) fn save(&mut self, folder: &Path, clock: Deadline) -> Result<()> {
        self.seconds = clock.elapsed().as_secs_f64();
        let text = serde_json::to_string(self).map_err(|error| Error::library(RECORD, error))?;
        write_atomic(&folder.join(RECORD), |file| Ok(file.write_all(text.as_bytes())?))
    }

    /// True if a trial of a rung has been trained, or cannot be.
    pub(super) fn has_ended(&self, rung: usize, trial: u64) -> bool {
        let Rung { trials, dropped, .. } = &self.rungs[rung];
        trials.iter().any(|tried| tried.trial == trial) || dropped.contains(&trial)
    }

    pub(super) fn trainings(&self) -> usize {
        self.rungs.iter().map(|rung| rung.trials.len()).sum()
    }

    /// Mean wall-clock seconds that a trial took beyond its budget in seconds.
    pub(super) fn overhead(&self) -> f64 {
        let beyond = |rung: &Rung| {
            let budget = rung.budget.amount as f64;
            rung.trials.iter().map(|tried| tried.seconds - budget).sum::<f64>()
        };
        let sum: f64 = self.rungs.iter().map(beyond).sum();
        (sum / self.trainings().max(1) as f64).max(0.0)
    }

    /// All trainings, the highest reward first; of equal ones the longest, then the first trial.
    pub(super) fn ranked(&self) -> Vec<Tried> {
        let mut all: Vec<Tried> =
            self.rungs.iter().flat_map(|rung| rung.trials.iter().cloned()).collect();
        all.sort_by(|a, b| {
            let by_reward = b.best.reward.total_cmp(&a.best.reward);
            by_reward.then(b.rung.cmp(&a.rung)).then(a.trial.cmp(&b.trial))
        });
        all
    }
}

/// Writes down the time spent, once a second of training.
pub(super) struct Spent<'a> {
    record: &'a mut Record,
    folder: &'a Path,
    clock: Deadline,
    next: Duration,
}

impl<'a> Spent<'a> {
    pub(super) fn new(record: &'a mut Record, folder: &'a Path, clock: Deadline) -> Self {
        Self { record, folder, clock, next: Duration::ZERO }
    }
}

impl Observer for Spent<'_> {
    fn stepped(&mut self, _progress: Progress) {
        if self.clock.elapsed() >= self.next {
            // The search goes on; a full disk stops it at the next checkpoint.
            drop(self.record.save(self.folder, self.clock));
            self.next = self.clock.elapsed() + Duration::from_secs(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::BudgetUnit;

    #[test]
    fn a_record_of_a_time_that_cannot_be_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let read = |seconds: f64| {
            let record = format!(r#"{{"seconds": {seconds}, "rungs": []}}"#);
            fs::write(folder.path().join(RECORD), record).unwrap();
            Record::read(folder.path()).map(|record| record.seconds)
        };
        assert_eq!(read(2.5).unwrap(), 2.5);
        for seconds in [-1.0, 1e300] {
            let error = read(seconds).unwrap_err().to_string();
            assert!(error.contains("is damaged") && error.contains(RECORD), "{error}");
        }
    }

    #[test]
    fn the_best_reward_wins_at_whatever_rung() {
        let tried = |trial, rung, reward| Tried {
            trial,
            rung,
            run: "run".into(),
            best: Best { step: 1, reward },
            seconds: 3.0 + trial as f64,
            settings: Vec::new(),
        };
        let rung = |trials| {
            let budget = BudgetSettings { unit: BudgetUnit::Seconds, amount: 2 };
            Rung { budget, until: None, trials, dropped: vec![7] }
        };
        let (short, long) = (
            rung(vec![tried(0, 0, 0.5), tried(1, 0, 0.6)]),
            rung(vec![tried(0, 1, 0.55), tried(1, 1, 0.4)]),
        );
        let record = Record { seconds: 0.0, rungs: vec![short, long] };
        let ranked = record.ranked();
        let places: Vec<_> = ranked.iter().map(|tried| (tried.trial, tried.rung)).collect();
        assert_eq!(places, [(1, 0), (0, 1), (0, 0), (1, 1)]);
        assert!((record.overhead() - 1.5).abs() < 1e-12);
        assert!(record.has_ended(1, 0) && record.has_ended(1, 7) && !record.has_ended(1, 2));
    }

    #[test]
    fn a_record_is_read_as_it_was_written_to_the_last_bit() {
        // A faster way to read numbers of JSON takes this one for its neighbour.
        let tried = Tried {
            trial: 0,
            rung: 0,
            run: "run".into(),
            best: Best { step: 0, reward: 1.011_458_333_333_333_3 },
            seconds: 0.1,
            settings: Vec::new(),
        };
        let text = serde_json::to_string(&tried).unwrap();
        assert_eq!(serde_json::from_str::<Tried>(&text).unwrap(), tried);
    }
}
