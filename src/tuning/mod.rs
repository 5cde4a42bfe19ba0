//! Choosing a run's settings: successive halving (Jamieson & Talwalkar, AISTATS 2016). Trials draw
//! their settings from a [`Space`], all train for a short budget, the third with the best validation
//! rewards train again for three times as long, and so on to the last. The first trial has the
//! settings that the search started from, so that what it finds is never worse than those, on the
//! users it looks at.
//!
//! A longer rung trains from the start: a learning rate that falls over a short budget has not led
//! where the same rate over a long one leads.

mod space;

pub use space::{Dimension, Space};

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::Device;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::dataset::Split;
use crate::error::{Error, Result, toml_problem};
use crate::files::write_atomic;
use crate::prepared::Prepared;
use crate::task::Task;
use crate::run::{Best, RunFolder, RunOrigin, Which};
use crate::settings::Settings;
use crate::training::{Ending, Trainer};

/// Of the trials of a rung, one in so many goes on, for so many times the budget.
pub const KEEP_ONE_IN: u64 = 3;

/// What is searched, and for how long: all that a search depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Trials of the first rung, at least 1.
    pub trials: u64,
    /// What is tried.
    pub space: Space,
    /// What the search started from. Their budget is that of a trial of the first rung, their seed
    /// also that of the search.
    pub settings: Settings,
    /// What they are tried on.
    pub origin: RunOrigin,
}

/// What has come of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Its number, from 0; 0 has the settings that the search started from.
    pub trial: u64,
    /// The rung it was in, from 0.
    pub rung: u64,
    /// Its run.
    pub run: PathBuf,
    /// Its best validation reward, and when.
    pub best: Best,
    /// What was tried, as `key=value`.
    pub settings: Vec<String>,
}

/// What a search has come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// Every trial at the last rung it reached, best first: by rung, then by reward.
    pub trials: Vec<Tried>,
    /// Whether it was asked to stop and can go on.
    pub interrupted: bool,
}

/// Who watches a search. `()` does not look.
pub trait Watcher {
    /// After every trial, with how many are done in all rungs and how many there are.
    fn tried(&mut self, _tried: &Tried, _done: u64, _of: u64) {}
}

impl Watcher for () {}

const PLAN: &str = "tune.toml";

impl Plan {
    /// Trials in all rungs, those that go on counted again.
    #[must_use]
    pub fn trainings(&self) -> u64 {
        rungs(self.trials).iter().sum()
    }

    /// The budget of all trials together, in budgets of a trial of the first rung: what a time for
    /// the whole search is divided by.
    #[must_use]
    pub fn total(trials: u64) -> u64 {
        let longer = std::iter::successors(Some(1), |length| Some(KEEP_ONE_IN * length));
        rungs(trials).iter().zip(longer).map(|(count, length)| count * length).sum()
    }

    /// Begins a search in `folder`.
    ///
    /// # Errors
    /// [`Error::File`] when there is one already, [`Error::Setting`] for a plan without trials or
    /// data without validation users, an I/O error.
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

    /// The search that was begun in `folder`.
    ///
    /// # Errors
    /// [`Error::File`] where there is none or its file cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(PLAN);
        if !path.exists() {
            let problem = format!("no search here (no {PLAN}); start one with `slate tune`");
            return Err(Error::file(folder, problem));
        }
        let text = fs::read_to_string(&path)?;
        toml::from_str(&text).map_err(|error| Error::file(&path, toml_problem(&error, &text)))
    }

    /// The settings of a trial, with the budget of the first rung, and what was tried.
    fn settings_of(&self, trial: u64) -> Result<(Settings, Vec<String>)> {
        if trial == 0 {
            return Ok((self.settings.clone(), Vec::new()));
        }
        self.space.draw(&self.settings, trial, self.trials)
    }
}

/// How many trials each rung has: `n, ⌈n/3⌉, …, 1`.
fn rungs(trials: u64) -> Vec<u64> {
    let next = |count: &u64| (*count > 1).then(|| count.div_ceil(KEEP_ONE_IN));
    std::iter::successors(Some(trials), next).collect()
}

/// A search at work.
#[derive(Debug)]
pub struct Tuner<'a> {
    /// What is searched.
    pub plan: &'a Plan,
    /// What it is tried on.
    pub prepared: &'a Prepared,
    /// Where the search was begun; each trial's run goes below it.
    pub folder: &'a Path,
    /// The device, without autodiff.
    pub device: &'a Device,
    /// Set by whoever wants the search to stop where it can go on.
    pub stop: &'a AtomicBool,
}

impl Tuner<'_> {
    /// Searches to the end, going on from what is there.
    ///
    /// # Errors
    /// Those of loading and training, naming the trial's run.
    pub fn run(&self, watcher: &mut dyn Watcher) -> Result<Tuned> {
        let mut problems = Problems { prepared: self.prepared, loaded: HashMap::new() };
        let mut reached: HashMap<u64, Tried> = HashMap::new();
        let mut trials: Vec<u64> = (0..self.plan.trials).collect();
        let (mut done, of) = (0, self.plan.trainings());
        let mut length = 1;
        for (rung, count) in (0..).zip(rungs(self.plan.trials)) {
            trials.truncate(usize::try_from(count).unwrap_or(usize::MAX));
            for &trial in &trials {
                let Some(tried) = self.train(&mut problems, rung, trial, length)? else {
                    return Ok(Tuned { trials: ranked(reached), interrupted: true });
                };
                done += 1;
                watcher.tried(&tried, done, of);
                reached.insert(trial, tried);
            }
            trials.sort_by(|a, b| {
                let reward =
                    |trial| reached.get(trial).map_or(f64::NEG_INFINITY, |t| t.best.reward);
                reward(b).total_cmp(&reward(a)).then(a.cmp(b))
            });
            length *= KEEP_ONE_IN;
        }
        Ok(Tuned { trials: ranked(reached), interrupted: false })
    }

    /// Trains a trial for a rung, or goes on with it; none if it was interrupted.
    fn train(
        &self,
        problems: &mut Problems<'_>,
        rung: u64,
        trial: u64,
        length: u64,
    ) -> Result<Option<Tried>> {
        let (mut settings, drawn) = self.plan.settings_of(trial)?;
        settings.budget.amount *= length;
        settings.checkpoint.keep = 1;
        let run = RunFolder::new(self.folder.join(format!("rung-{rung}/trial-{trial:03}")));
        let _lock = run.lock()?;
        if run.exists() {
            run.require_same_path(&settings, &self.plan.origin)?;
        } else {
            run.begin(&settings, &self.plan.origin)?;
        }
        let task = problems.of(&settings)?;
        let stop = self.stop;
        let trainer =
            Trainer { task, settings: &settings, run: &run, device: self.device, stop };
        let outcome = trainer.train(&mut ())?;
        if outcome.ending == Ending::Interrupted || stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let best = run.checkpoint(Which::Last)?.state.best;
        let best = best.ok_or_else(|| Error::file(run.path(), "has no validation reward"))?;
        let run = run.path().to_owned();
        Ok(Some(Tried { trial, rung, run, best, settings: drawn }))
    }
}

fn ranked(reached: HashMap<u64, Tried>) -> Vec<Tried> {
    let mut trials: Vec<Tried> = reached.into_values().collect();
    trials.sort_by(|a, b| {
        let by_reward = b.best.reward.total_cmp(&a.best.reward);
        b.rung.cmp(&a.rung).then(by_reward).then(a.trial.cmp(&b.trial))
    });
    trials
}

/// The problems that trials pose, each loaded once: β, contexts and indexes are the same for most.
struct Problems<'a> {
    prepared: &'a Prepared,
    loaded: HashMap<String, Task>,
}

impl Problems<'_> {
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
        assert_eq!(rungs(27), [27, 9, 3, 1]);
        assert_eq!(rungs(10), [10, 4, 2, 1]);
        assert_eq!(rungs(1), [1]);
        // Every rung of 27 takes as long as the first.
        assert_eq!(Plan::total(27), 4 * 27);
        assert_eq!(Plan::total(10), 10 + 4 * 3 + 2 * 9 + 27);
    }
}
