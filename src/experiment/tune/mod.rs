//! A prepared folder and settings go in; settings with a higher validation reward come out, by
//! successive halving (Jamieson & Talwalkar, AISTATS 2016).
//!
//! Trials draw their settings from a [`Space`]. All of them train for a short budget, the best third
//! of them for a longer one, and so on until one is left. Trial 0 has the settings as given and
//! trains in every rung beside the others, so that they are compared at equal budgets. The training
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

pub use record::Tried;
pub use space::{Dimension, Space};

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use self::record::{Record, Rung, Spent};
use super::search::{Deadline, Judged, search};
use crate::dataset::Split;
use crate::device::Chosen;
use crate::error::{Error, Result};
use crate::files::{read_toml, write_toml};
use crate::prepared::Prepared;
use crate::run::{RunFolder, RunOrigin, Which};
use crate::settings::{BudgetSettings, BudgetUnit, Settings};
use crate::task::Task;
use crate::training::{Ending, Trainer};

/// One in this many trials of a rung goes on. A fixed budget grows by this factor per rung.
pub const KEEP_ONE_IN: usize = 3;

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
        fs::create_dir_all(folder)?;
        write_toml(&path, self)
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
        read_toml(&path)
    }

    /// The settings of a trial: as given, or drawn.
    fn draw(&self, trial: u64) -> Result<Drawn> {
        let (settings, assignments) = match trial {
            0 => (self.settings.clone(), Vec::new()),
            _ => self.space.draw(&self.settings, trial, self.trials)?,
        };
        Ok(Drawn { trial, settings, assignments })
    }
}

/// The settings of a trial, and what was drawn of them, as `key=value`.
#[derive(Clone)]
struct Drawn {
    trial: u64,
    settings: Settings,
    assignments: Vec<String>,
}

impl Drawn {
    /// True if a training failed because of this trial alone: its parameters overflow, or what was drawn does
    /// not fit the data. The settings as given were checked before the search began.
    fn is_at_fault(&self, error: &Error) -> bool {
        match error {
            Error::NotFinite { .. } => true,
            Error::Setting { .. } | Error::SlateTooLarge { .. } => self.trial != 0,
            _ => false,
        }
    }
}

/// The trials beside trial 0 in a rung with `count` of them and in those after it: `n, ⌈n/3⌉, …, 1`.
fn rungs(count: usize) -> impl Iterator<Item = usize> {
    let next = |count: &usize| (*count > 1).then(|| count.div_ceil(KEEP_ONE_IN));
    std::iter::successors(Some(count), next)
}

/// A search at work.
#[derive(Debug)]
pub struct Tuner<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The data.
    pub prepared: &'a Prepared,
    /// The search's folder; each trial's run goes below it.
    pub folder: &'a Path,
    /// The device.
    pub device: &'a Chosen,
    /// When this process began to work on the search; loading the data counts.
    pub started: Instant,
    /// Set this flag to stop the search where it can go on.
    pub stop: &'a AtomicBool,
}

impl Tuner<'_> {
    /// Searches to the end, going on from what is there. A trial that cannot be trained drops out.
    ///
    /// # Errors
    /// Fails if loading or training fails, naming the trial's run; [`Error::NotFinite`] if every trial
    /// drops out.
    pub fn run(&self, watcher: &mut dyn Watcher) -> Result<Tuned> {
        let mut record = Record::read(self.folder)?;
        let limit = self.plan.within.map(Duration::from_secs);
        let before = Duration::from_secs_f64(record.seconds);
        let clock = Deadline::new(self.started, limit).after(before);
        let (prepared, device) = (self.prepared, self.device);
        // The first trial's time is not for an index that has to be built.
        let mut tasks = Tasks::new(prepared, device, &self.plan.settings)?;
        let mut others: Vec<u64> = (1..self.plan.trials).collect();
        let mut dropped = None;
        for rung in 0.. {
            if record.rungs.len() == rung {
                record.rungs.push(self.begin(&record, others.len(), clock));
                record.save(self.folder, clock)?;
            }
            // What a rung that is over has not tried is not tried any more; what it has tried counts, late
            // as it is.
            let is_over = record.rungs.len() > rung + 1 || record.rungs[rung].is_over(clock);
            let mut waiting: Vec<u64> = others.iter().rev().copied().chain([0]).collect();
            waiting.retain(|trial| !is_over && !record.has_ended(rung, *trial));
            let until = record.rungs[rung].until.map(Duration::from_secs_f64);
            let found = search(
                clock.until(until),
                |_| waiting.pop(),
                |&trial| {
                    let drawn = self.plan.draw(trial)?;
                    let tried = match self.train(&mut tasks, &mut record, rung, &drawn, clock) {
                        Err(error) if drawn.is_at_fault(&error) => {
                            tracing::warn!(
                                "trial {trial} of rung {rung} cannot be trained: {error}"
                            );
                            dropped.get_or_insert(error);
                            record.rungs[rung].dropped.push(trial);
                            record.save(self.folder, clock)?;
                            return Ok(Judged::Impossible);
                        }
                        tried => tried?,
                    };
                    let Some(tried) = tried else { return Ok(Judged::Stopped) };
                    let reward = tried.best.reward;
                    record.rungs[rung].trials.push(tried.clone());
                    record.save(self.folder, clock)?;
                    watcher.tried(&tried, record.trainings());
                    Ok(Judged::Reward(reward))
                },
            )?;
            if found.stopped || others.len() <= 1 {
                if let Some(error) = dropped.filter(|_| !found.stopped && record.trainings() == 0) {
                    return Err(error);
                }
                let (trials, seconds) = (record.ranked(), clock.elapsed().as_secs_f64());
                return Ok(Tuned { trials, seconds, interrupted: found.stopped });
            }
            let mut tried: Vec<(u64, f64)> = record.rungs[rung].rewards().collect();
            tried.retain(|(trial, _)| *trial != 0);
            tried.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            tried.truncate(tried.len().div_ceil(KEEP_ONE_IN));
            others = tried.into_iter().map(|(trial, _)| trial).collect();
        }
        unreachable!("a rung has fewer trials than the one before it")
    }

    /// A rung that begins with trial 0 and `others`: the budget of each trial, and when it ends.
    fn begin(&self, record: &Record, others: usize, clock: Deadline) -> Rung {
        let mut budget = self.plan.settings.budget.clone();
        let Some(left) = clock.left() else {
            let longer = |amount: u64, _: &Rung| amount.saturating_mul(KEEP_ONE_IN as u64);
            budget.amount = record.rungs.iter().fold(budget.amount, longer);
            return Rung { budget, until: None, trials: Vec::new(), dropped: Vec::new() };
        };
        let own = left.as_secs_f64() / rungs(others).count() as f64;
        let each = own / (others + 1) as f64 - record.overhead();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least 1")]
        let amount = each.max(1.0) as u64;
        budget = BudgetSettings { unit: BudgetUnit::Seconds, amount };
        // Only the first rung does not know yet what a trial takes beyond its budget.
        let first = record.rungs.is_empty();
        let until = first.then(|| clock.elapsed().as_secs_f64() + own);
        Rung { budget, until, trials: Vec::new(), dropped: Vec::new() }
    }

    /// Trains a trial in a rung, or goes on with it; returns none if it was interrupted.
    fn train(
        &self,
        tasks: &mut Tasks<'_>,
        record: &mut Record,
        rung: usize,
        drawn: &Drawn,
        clock: Deadline,
    ) -> Result<Option<Tried>> {
        let began = clock.elapsed();
        let Drawn { trial, mut settings, assignments } = drawn.clone();
        settings.budget = record.rungs[rung].budget.clone();
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
        let device = &self.device.device;
        let trainer = Trainer { task, settings: &settings, run: &run, device, stop };
        let outcome = trainer.train(&mut Spent::new(record, self.folder, clock))?;
        if outcome.ending == Ending::Interrupted || stop.load(Ordering::Relaxed) {
            record.save(self.folder, clock)?;
            return Ok(None);
        }
        let best = run.checkpoint(Which::Last)?.state.best;
        let best = best.ok_or_else(|| Error::file(run.path(), "has no validation reward"))?;
        let (run, seconds) =
            (run.path().to_owned(), clock.elapsed().saturating_sub(began).as_secs_f64());
        Ok(Some(Tried { trial, rung, run, best, seconds, settings: assignments }))
    }
}

/// A task, and what it depends on.
type Loaded = (String, Task);

/// The tasks of the trials: β, contexts and indexes are the same for most. Of others the last one stays: with
/// all of them the memory would be left for fewer and fewer folds.
struct Tasks<'a> {
    prepared: &'a Prepared,
    device: &'a Chosen,
    given: Loaded,
    last: Option<Loaded>,
}

impl<'a> Tasks<'a> {
    fn new(prepared: &'a Prepared, device: &'a Chosen, given: &Settings) -> Result<Self> {
        let task = Task::load(prepared, given)?.on(device)?;
        Ok(Self { prepared, device, given: (Task::depends_on(given), task), last: None })
    }

    fn of(&mut self, settings: &Settings) -> Result<&Task> {
        let key = Task::depends_on(settings);
        if key == self.given.0 {
            return Ok(&self.given.1);
        }
        let last = match self.last.take() {
            Some(last) if last.0 == key => last,
            other => {
                drop(other);
                (key, Task::load(self.prepared, settings)?.on(self.device)?)
            }
        };
        Ok(&self.last.insert(last).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_each_rung_goes_on() {
        let rungs = |count| rungs(count).collect::<Vec<_>>();
        assert_eq!(rungs(27), [27, 9, 3, 1]);
        assert_eq!(rungs(10), [10, 4, 2, 1]);
        assert_eq!(rungs(1), [1]);
        assert_eq!(rungs(0), [0]);
    }
}
