//! A prepared folder and settings go in; settings with a higher validation reward come out, by
//! successive halving (Jamieson & Talwalkar, AISTATS 2016).
//!
//! Trials draw their settings from a [`Space`]. All of them train for a short budget, the best third
//! of them for a longer one, and so on until one is left. Trial 0 has the settings as given and
//! trains in every rung, so that the winner is compared with them at an equal budget. The training
//! with the highest validation reward wins, so the result is never worse than the settings as given
//! on the users that judge.
//!
//! The rungs divide the wall-clock time that is left equally, and the trials of a rung divide its
//! time equally, less what loading and evaluating took per trial so far. The first rung ends with
//! the trial that fits its time; the later rungs are planned from what the first one measured.
//! A longer budget trains from the start: a learning rate that falls over a short budget does not
//! lead where the same rate leads over a long one.

mod record;
mod space;

pub use space::{Dimension, Space};

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use self::record::{Record, Rung, Spent};
use super::search::{Deadline, Judged, search};
use crate::dataset::Split;
use crate::error::{Error, Result, toml_problem};
use crate::files::write_atomic;
use crate::prepared::Prepared;
use crate::run::{Best, RunFolder, RunOrigin, Which};
use crate::settings::{BudgetSettings, BudgetUnit, Settings};
use crate::task::Task;
use crate::training::{Ending, Trainer};

/// One in this many trials of a rung goes on. With a fixed budget, the next rung's is this many
/// times as long.
pub const KEEP_ONE_IN: u64 = 3;

/// All that a search depends on, kept in `tune.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The most trials of the first rung, at least 1.
    pub trials: u64,
    /// Wall-clock seconds of the whole search. None: the budget of `settings` is the one of each
    /// trial of the first rung, however long that takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<u64>,
    /// The keys to search and their values.
    pub space: Space,
    /// The settings as given; their seed is also the search's.
    pub settings: Settings,
    /// The data and the device.
    pub origin: RunOrigin,
}

/// The result of one training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The trial's number, from 0; trial 0 has the settings as given.
    pub trial: u64,
    /// The rung, from 0.
    pub rung: u64,
    /// The folder of its run.
    pub run: PathBuf,
    /// Its best validation reward, and the step of that.
    pub best: Best,
    /// Wall-clock seconds, loading and evaluations included.
    pub seconds: f64,
    /// The drawn settings, as `key=value`.
    pub settings: Vec<String>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// Every training, the highest validation reward first.
    pub trials: Vec<Tried>,
    /// Wall-clock seconds of the search, those before an interruption included.
    pub seconds: f64,
    /// True if the search was asked to stop and can go on.
    pub interrupted: bool,
}

/// Watches a search. `()` does nothing.
pub trait Watcher {
    /// Called after every training, with the number of trainings so far.
    fn tried(&mut self, _tried: &Tried, _done: usize) {}
}

impl Watcher for () {}

const PLAN: &str = "tune.toml";

impl Plan {
    /// Begins a search in `folder`.
    ///
    /// # Errors
    /// [`Error::File`] if there is a search already, or if the data has no validation users;
    /// [`Error::Setting`] for a plan without trials; an I/O error.
    pub fn begin(&self, folder: &Path, prepared: &Prepared) -> Result<()> {
        let path = folder.join(PLAN);
        if path.exists() {
            let problem =
                "there is a search here already; go on with --resume, or give another --out";
            return Err(Error::file(folder, problem));
        }
        if self.trials == 0 {
            return Err(Error::setting("trials", "expected at least 1, found 0"));
        }
        if prepared.sessions.contexts(Split::Validation).is_empty() {
            let problem = "has no validation user to choose settings by; prepare it with a \
                           --validation-share";
            return Err(Error::file(prepared.folder(), problem));
        }
        let text = toml::to_string(self).map_err(|error| Error::library(PLAN, error))?;
        fs::create_dir_all(folder)?;
        write_atomic(&path, |file| Ok(file.write_all(text.as_bytes())?))
    }

    /// Reads the plan of the search that was begun in `folder`.
    ///
    /// # Errors
    /// [`Error::File`] if there is none or its file cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(PLAN);
        if !path.exists() {
            let problem = format!("no search here (no {PLAN}); start one with `slate tune`");
            return Err(Error::file(folder, problem));
        }
        let text = fs::read_to_string(&path)?;
        toml::from_str(&text).map_err(|error| Error::file(&path, toml_problem(&error, &text)))
    }

    /// The settings of a trial, and what was drawn.
    fn settings_of(&self, trial: u64) -> Result<(Settings, Vec<String>)> {
        if trial == 0 {
            return Ok((self.settings.clone(), Vec::new()));
        }
        self.space.draw(&self.settings, trial, self.trials)
    }
}

/// The number of trials that go on from a rung with `count`.
fn going_on(count: usize) -> usize {
    count.div_ceil(KEEP_ONE_IN as usize)
}

/// The number of rungs from one with `count` trials to the last, which has one: `n, ⌈n/3⌉, …, 1`.
fn rungs_left(count: usize) -> u32 {
    let next = |count: &usize| (*count > 1).then(|| going_on(*count));
    u32::try_from(std::iter::successors(Some(count), next).count()).unwrap_or(u32::MAX)
}

/// A search at work.
#[derive(Debug)]
pub struct Tuner<'a> {
    /// What is searched.
    pub plan: &'a Plan,
    /// The data.
    pub prepared: &'a Prepared,
    /// The search's folder; each trial's run goes below it.
    pub folder: &'a Path,
    /// The device, without autodiff.
    pub device: &'a Device,
    /// When this process began to work on the search; loading the data counts.
    pub started: Instant,
    /// Set this flag to stop the search where it can go on.
    pub stop: &'a AtomicBool,
}

impl Tuner<'_> {
    /// Searches to the end, going on from what is there.
    ///
    /// # Errors
    /// Fails if loading or training fails, naming the trial's run.
    pub fn run(&self, watcher: &mut dyn Watcher) -> Result<Tuned> {
        let record = RefCell::new(Record::read(self.folder)?);
        let limit = self.plan.within.map(Duration::from_secs);
        let before = Duration::from_secs_f64(record.borrow().seconds);
        let clock = Deadline::new(self.started, limit).after(before);
        let mut tasks = Tasks { prepared: self.prepared, loaded: HashMap::new() };
        // An index that has to be built is not the first trial's time.
        tasks.of(&self.plan.settings)?;
        let mut trials: Vec<u64> = (0..self.plan.trials).collect();
        for rung in 0.. {
            let last = trials.len() == 1;
            let until = self.begin(&mut record.borrow_mut(), rung, &trials, clock);
            // In a rung that was left behind, nothing is tried that was not tried then.
            let known = record.borrow().left_behind(rung);
            let mut waiting: Vec<u64> = known.unwrap_or_else(|| with_given(&trials));
            waiting.reverse();
            let found = search(
                clock.until(until),
                |_| waiting.pop(),
                |&trial| {
                    let mut record = record.borrow_mut();
                    if let Some(tried) = record.find(rung, trial) {
                        return Ok(Judged::Reward(tried.best.reward));
                    }
                    let Some(tried) = self.train(&mut tasks, &mut record, rung, trial, clock)?
                    else {
                        return Ok(Judged::Stopped);
                    };
                    record.add(rung, tried.clone());
                    record.save(self.folder, clock)?;
                    watcher.tried(&tried, record.trainings());
                    Ok(Judged::Reward(tried.best.reward))
                },
            )?;
            if found.stopped || last {
                let trials = record.borrow().ranked();
                let seconds = clock.elapsed().as_secs_f64();
                return Ok(Tuned { trials, seconds, interrupted: found.stopped });
            }
            let mut tried = found.tried;
            // In the first rung all that were tried compete, whatever the number of the planned.
            let competed = tried.len().min(trials.len());
            tried.sort_by(|a, b| {
                let reward = |tried: &(u64, Option<f64>)| tried.1.unwrap_or(f64::NEG_INFINITY);
                reward(b).total_cmp(&reward(a)).then(a.0.cmp(&b.0))
            });
            trials = tried.iter().take(going_on(competed)).map(|tried| tried.0).collect();
        }
        unreachable!("a rung has fewer trials than the one before, and the last has one")
    }

    /// Writes down a rung that begins, with the budget of its trials; returns when it has to end.
    fn begin(
        &self,
        record: &mut Record,
        rung: u64,
        trials: &[u64],
        clock: Deadline,
    ) -> Option<Duration> {
        if record.rung(rung).is_none() {
            let left = clock.left().map(|left| left / rungs_left(trials.len()));
            let mut budget = self.plan.settings.budget.clone();
            if let Some(left) = left {
                let each = left.as_secs_f64() / with_given(trials).len() as f64;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "≥ 1")]
                let amount = (each - record.overhead()).max(1.0) as u64;
                budget = BudgetSettings { unit: BudgetUnit::Seconds, amount };
            } else {
                budget.amount *= KEEP_ONE_IN.pow(u32::try_from(rung).unwrap_or(u32::MAX));
            }
            // Only the first rung's trials are of unknown length.
            let until = left.filter(|_| rung == 0).map(|left| clock.elapsed() + left);
            let until = until.map(|until| until.as_secs_f64());
            record.rungs.push(Rung { budget, until, trials: Vec::new() });
        }
        record.rung(rung)?.until.map(Duration::from_secs_f64)
    }

    /// Trains a trial in a rung, or goes on with it; returns none if it was interrupted.
    fn train(
        &self,
        tasks: &mut Tasks<'_>,
        record: &mut Record,
        rung: u64,
        trial: u64,
        clock: Deadline,
    ) -> Result<Option<Tried>> {
        let began = clock.elapsed();
        let (mut settings, drawn) = self.plan.settings_of(trial)?;
        if let Some(rung) = record.rung(rung) {
            settings.budget = rung.budget.clone();
        }
        settings.checkpoint.keep = 1;
        let run = RunFolder::new(self.folder.join(format!("rung-{rung}/trial-{trial:03}")));
        let _lock = run.lock()?;
        if run.exists() {
            run.require_same_path(&settings, &self.plan.origin)?;
        } else {
            run.begin(&settings, &self.plan.origin)?;
        }
        let task = tasks.of(&settings)?;
        let stop = self.stop;
        let trainer = Trainer { task, settings: &settings, run: &run, device: self.device, stop };
        let outcome = trainer.train(&mut Spent::new(record, self.folder, clock))?;
        if outcome.ending == Ending::Interrupted || stop.load(Ordering::Relaxed) {
            record.save(self.folder, clock)?;
            return Ok(None);
        }
        let best = run.checkpoint(Which::Last)?.state.best;
        let best = best.ok_or_else(|| Error::file(run.path(), "has no validation reward"))?;
        let (run, seconds) = (run.path().to_owned(), (clock.elapsed() - began).as_secs_f64());
        Ok(Some(Tried { trial, rung, run, best, seconds, settings: drawn }))
    }
}

/// The trials of a rung in the order of training: the settings as given first.
fn with_given(trials: &[u64]) -> Vec<u64> {
    std::iter::once(0).chain(trials.iter().copied().filter(|trial| *trial != 0)).collect()
}

/// The tasks of the trials, each loaded once: β, contexts and indexes are the same for most.
struct Tasks<'a> {
    prepared: &'a Prepared,
    loaded: HashMap<String, Task>,
}

impl Tasks<'_> {
    fn of(&mut self, settings: &Settings) -> Result<&Task> {
        let key = Task::depends_on(settings);
        if !self.loaded.contains_key(&key) {
            self.loaded.insert(key.clone(), Task::load(self.prepared, settings)?);
        }
        Ok(&self.loaded[&key])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_each_rung_goes_on() {
        let rungs = |count| {
            let next = |count: &usize| (*count > 1).then(|| going_on(*count));
            std::iter::successors(Some(count), next).collect::<Vec<_>>()
        };
        assert_eq!(rungs(27), [27, 9, 3, 1]);
        assert_eq!(rungs(10), [10, 4, 2, 1]);
        assert_eq!(rungs(1), [1]);
        assert_eq!([27, 10, 1].map(rungs_left), [4, 4, 1]);
        assert_eq!(with_given(&[4, 0, 2]), [0, 4, 2]);
        assert_eq!(with_given(&[4, 2]), [0, 4, 2]);
    }
}
