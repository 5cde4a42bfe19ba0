//! A policy and a log of what it, or another one over the same vectors, has shown → what the policy is worth,
//! and a task to learn from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::Policy;
use crate::dataset::Split;
use crate::device;
use crate::error::{Error, Result};
use crate::log::{Impressions, Log};
use crate::logged::rewards::LoggedReward;
use crate::logged::{Logged, Reading, ShownSlates, Unused, Value, Weighed};
use crate::method::{LoggedMethod, Method};
use crate::run::{LearnedFrom, RunFolder, RunOrigin, Which};
use crate::seed::Seed;
use crate::settings::{Settings, SettingsBuilder};
use crate::task::Task;
use crate::training::Trainer;

/// A log to learn from, read by the policy that training begins with.
#[derive(Clone, Debug)]
pub struct Lesson {
    /// The task: its contexts are the rows.
    pub task: Task,
    /// What the run's record says of the log.
    pub from: LearnedFrom,
    /// The rows that say nothing of this policy.
    pub unused: Unused,
}

/// What a log says of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Steps behind the model.
    pub step: u64,
    /// Rows of persons that the policy has not learned from.
    #[serde(flatten)]
    pub value: Value,
    /// The persons among them who are lists of items or contexts: somebody whose list changes is several.
    pub unnamed: usize,
    /// Rows of persons that it has learned from, or was stopped by; they do not count.
    pub learned_from: usize,
    /// A bound below the gain over the policy that logged, where it was asked for.
    pub gain_bound: Option<f64>,
    /// The rows that say nothing of this policy, by reason.
    pub unused: Unused,
}

impl Lesson {
    /// Learns what the policy of the run `from` does not know yet, records the run in the folder `out` and
    /// returns the policy of its best checkpoint.
    ///
    /// # Errors
    /// The errors of [`RunFolder::begin_from`]; fails if the training fails.
    pub fn learn(&self, from: &Path, settings: &Settings, out: &Path) -> Result<Policy> {
        let (before, origin) = RunFolder::new(from).read_settings()?;
        let chosen = device::choose(Some(&origin.device))?;
        self.check(&before, settings)?;
        self.task.check(settings, &chosen.device)?;
        let run = RunFolder::new(out);
        let _lock = run.lock()?;
        run.begin_from(
            from,
            settings,
            self.origin(origin),
            settings.correction(&self.task.actions),
        )?;
        Trainer::new(&self.task, settings, &run, &chosen.device).train(&mut ())?;
        Policy::open(out, Which::Best, Some(chosen.name))
    }

    /// Checks the settings of a run that learns from this, where those of the run before are `before`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a method that does not learn from such a log, and for what the task has from
    /// the run before.
    pub fn check(&self, before: &Settings, settings: &Settings) -> Result<()> {
        let changed = before.differences_in_model(settings);
        if !changed.is_empty() {
            let problem =
                format!("a log continues the model as it is; leave out {}", changed.join("; "));
            return Err(Error::setting("model", problem));
        }
        let by_weights = matches!(settings.method, Method::Logged(_));
        let problem = match (by_weights, self.from.reading.estimate.is_some()) {
            (true, true) if matches!(before.method, Method::Logged(_)) => Some(
                "an estimate does not follow a run that learned from a log by weights; begin with the run \
                 before it",
            ),
            (true, true) => Some(
                "`logged` weighs the rows of a log, and --estimate wants a method that samples slates, such \
                 as --method lgp-mips",
            ),
            (false, false) => Some(
                "expected `logged`, which weighs the rows of a log; --estimate lets other methods learn \
                 from it",
            ),
            (true, false) | (false, true) => None,
        };
        if let Some(problem) = problem {
            return Err(Error::setting("method.kind", problem));
        }
        let (own, others) = (settings.method.gaussian_sigma(), before.method.gaussian_sigma());
        if let (true, Some(own), Some(others)) = (by_weights && own != others, own, others) {
            let problem = format!("is {own}, but the slates were drawn by {others}; leave it out");
            return Err(Error::setting("method.sigma", problem));
        }
        let kept = |key: &str| {
            ["slate_size", "retrieval.", "reward."].iter().any(|kept| key.starts_with(kept))
        };
        match before.differences(settings).into_iter().find(|(key, _)| kept(key)) {
            None => Ok(()),
            Some((key, change)) => {
                let problem = format!(
                    "stays as it was in the run that the log continues; leave it out ({change})"
                );
                Err(Error::Setting { key, problem })
            }
        }
    }

    /// The origin of a run that learns from this, where that of the run before is `before`.
    #[must_use]
    pub fn origin(&self, before: RunOrigin) -> RunOrigin {
        RunOrigin {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            reward: None,
            noise: None,
            init: None,
            refit: None,
            logged: Some(self.from.clone()),
            ..before
        }
    }
}

impl Policy {
    /// The rows of `log` that say something of this policy.
    ///
    /// # Errors
    /// [`Error::Setting`] for a policy that does not draw by Gaussian noise, or a reward beyond its
    /// bounds; [`Error::File`] for a log without a usable row.
    pub fn logged(
        &self,
        paths: &[PathBuf],
        log: &Log,
        reading: Reading,
    ) -> Result<(Logged, Unused)> {
        let (logged, unused) = Logged::of(log, self.recommender()?, reading)?;
        if !logged.is_empty() {
            return Ok((logged, unused));
        }
        Err(nothing(paths, &unused))
    }

    /// The settings of a run that learns from a log what this policy does not know yet: by weights, or
    /// with the method of this run where the reward is estimated.
    ///
    /// # Errors
    /// [`Error::Setting`] for a policy that does not draw by Gaussian noise.
    pub fn settings_to_learn(&self, estimate: Option<LoggedReward>) -> Result<Settings> {
        if estimate.is_some() {
            return Ok(self.settings.clone());
        }
        let sigma = self.settings.method.gaussian_sigma().ok_or_else(|| {
            let problem = "this run does not draw by Gaussian noise on its query; what it shows cannot be \
                           weighed";
            Error::setting("method.kind", problem)
        })?;
        let settings = Settings {
            method: Method::Logged(LoggedMethod { sigma, ..LoggedMethod::default() }),
            ..self.settings.clone()
        };
        // A step costs a product of matrices and searches nothing, so it can hold many rows.
        SettingsBuilder::new(&settings)?
            .set("optimizer.batch_size", 1024)?
            .set("optimizer.weight_decay", 0.0)?
            .set("optimizer.growth", 1.0)?
            .build()
    }

    /// The task of learning from the log at `paths`: by the weights of its rows, or with a reward that is
    /// estimated from it. A policy that has learned divides the persons as then, whatever `reading` says.
    ///
    /// # Errors
    /// The errors of [`Log::read`], [`Impressions::read`], [`logged`](Self::logged) and
    /// [`LoggedReward::init`](crate::logged::rewards::LoggedReward::init).
    pub fn lesson(&self, paths: &[PathBuf], reading: Reading) -> Result<Lesson> {
        let reading = self.as_learned(reading);
        let from = |digest| LearnedFrom { paths: paths.to_vec(), digest, reading };
        let Some(estimate) = reading.estimate else {
            let log = Log::read(paths)?;
            let (logged, unused) = self.logged(paths, &log, reading)?;
            require_people(paths, &logged.parts)?;
            let task = self.task.clone().on_log(Arc::new(logged));
            return Ok(Lesson { task, from: from(log.digest()), unused });
        };
        let policy = self.recommender()?;
        let ((rows, unused), digest) = if let Some(table) = Impressions::read(paths)? {
            let Impressions { rows, digest } = table;
            (ShownSlates::of(rows, policy, reading.cut, Unused::default())?, digest)
        } else {
            let log = Log::read(paths)?;
            (ShownSlates::of_log(&log, policy, reading.cut)?, log.digest())
        };
        let ShownSlates { shown, known, people } = rows;
        if shown.parts.is_empty() {
            return Err(nothing(paths, &unused));
        }
        require_people(paths, &shown.parts)?;
        let reward = estimate.init(&shown, &self.task.actions, reading.cut.0)?;
        let task = self.task.clone().on_rows(shown.contexts, known, shown.parts, people);
        let task = task.with_reward(reward);
        Ok(Lesson { task, from: from(digest), unused })
    }

    fn as_learned(&self, reading: Reading) -> Reading {
        Reading { cut: self.cut().unwrap_or(reading.cut), ..reading }
    }

    /// The value of this policy by a log, on persons that it has not learned from; with `bound`, also the
    /// bound below its gain. A policy that has learned divides the persons as then, whatever `reading` says.
    ///
    /// # Errors
    /// As [`lesson`](Self::lesson); [`Error::Setting`] for a bound without the most that a reward can be.
    pub fn by_log(&self, paths: &[PathBuf], reading: Reading, bound: bool) -> Result<Verdict> {
        let (logged, unused) = self.logged(paths, &Log::read(paths)?, self.as_learned(reading))?;
        self.verdict(&logged, unused, bound)
    }

    /// [`by_log`](Self::by_log) for rows that were read already, by a policy over the same vectors.
    ///
    /// # Errors
    /// [`Error::Setting`] for a bound without the most that a reward can be.
    pub fn verdict(&self, logged: &Logged, unused: Unused, bound: bool) -> Result<Verdict> {
        let all: Vec<u32> = logged.rows_of(None);
        let judges =
            |row: &u32| self.origin.logged.is_none() || logged.parts[*row as usize] == Split::Test;
        let (rows, others): (Vec<u32>, Vec<u32>) = all.into_iter().partition(judges);
        let weighed = |rows: &[u32]| {
            if rows.is_empty() {
                return Ok(Weighed::default());
            }
            let latent = self.model.latent(&logged.contexts.select(rows))?;
            Ok::<_, Error>(logged.weighed(rows, &latent))
        };
        let judging = weighed(&rows)?;
        // Rows that were learned from may have weights that a policy of many parameters made for them.
        let stopped = |row: &u32| logged.parts[*row as usize] == Split::Validation;
        let stopped_by: Vec<u32> = others.iter().copied().filter(stopped).collect();
        let prior = weighed(&stopped_by)?.prior();
        let value = judging.value(prior, Seed::default())?;
        let certain = bound && value.doubt.is_none();
        let gain_bound = if certain { Some(judging.gain_bound(prior)?) } else { None };
        let (unnamed, learned_from) = (logged.unnamed_of(&rows), others.len());
        Ok(Verdict { step: self.step, value, unnamed, learned_from, gain_bound, unused })
    }

    /// The division of persons that this policy has learned with, if it has.
    #[must_use]
    pub fn cut(&self) -> Option<crate::logged::Cut> {
        self.origin.logged.as_ref().map(|log| log.reading.cut)
    }
}

/// Fails on a log whose persons do not both teach and say when to stop.
fn require_people(paths: &[PathBuf], parts: &[Split]) -> Result<()> {
    for (part, why) in [(Split::Train, "to learn from"), (Split::Validation, "to stop by")] {
        if !parts.contains(&part) {
            let path = paths.first().map_or(Path::new("log"), PathBuf::as_path);
            let problem = format!(
                "has no person {why}: persons are divided by chance, three fifths to learn from, a fifth to \
                 stop by and a fifth to judge by; give a log of more persons"
            );
            return Err(Error::file(path, problem));
        }
    }
    Ok(())
}

/// The error of a log without a row that can be used.
fn nothing(paths: &[PathBuf], unused: &Unused) -> Error {
    let reasons: Vec<String> =
        unused.0.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let path = paths.first().map_or(Path::new("log"), PathBuf::as_path);
    Error::file(path, format!("has no row to learn from: {}", reasons.join(", ")))
}
