//! A log in, slates out, in a few lines. The parts underneath stay public.
//!
//! ```no_run
//! use std::path::Path;
//! use fast_slate::facade::{Input, PrepareSettings, Prepared, Preset};
//!
//! # fn main() -> fast_slate::Result<()> {
//! let log = Input::log("log.csv", "user_id", "item_id");
//! let data = Prepared::create(&log, &PrepareSettings::default(), Path::new("data"), false)?;
//! let policy = data.train(&data.preset(Preset::Default), Path::new("run"))?;
//! for item in policy.recommend("42")?.slate {
//!     println!("{}", item.item_id);
//! }
//! // All that serving needs, in a folder of its own.
//! policy.bundle(true)?.write(Path::new("bundle"), Default::default(), false)?;
//! # Ok(())
//! # }
//! ```

mod judge;
mod learn;
mod refit;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::bundle::{Bundle, Options, ServedIndex, Trained, Users, Who};
use crate::dataset::Catalogue;
use crate::device;
use crate::embedding::Vectors;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::prepared::AuditedSearch;
use crate::run::{Checkpoint, RunFolder, RunOrigin};
use crate::task::{Audit, Audits, EfSearch, Task};

pub use crate::bundle::{Answer, Recommendation, Recommender};
pub use judge::{How, Judged, Judging, Outcome, Row, Scores};
pub use learn::{Lesson, Verdict};
pub use refit::Refitting;

pub use crate::prepared::Prepared;
pub use crate::prepared::{Input, PrepareSettings};
pub use crate::run::Which;
pub use crate::settings::{Preset, Settings};

impl Input {
    /// A log of interactions: a CSV, TSV or Parquet file with a column of user ids and a column of
    /// item ids. Every row counts as an interaction.
    #[must_use]
    pub fn log(path: impl Into<std::path::PathBuf>, user_column: &str, item_column: &str) -> Self {
        let source = crate::dataset::Source {
            path: path.into(),
            user_column: Some(user_column.to_owned()),
            item_column: Some(item_column.to_owned()),
            ..Default::default()
        };
        Self::File(source, crate::dataset::Filters::default())
    }
}

impl Prepared {
    /// Prepares `input` into the folder `out`; with `replace`, in the place of another prepared
    /// folder. Phases that this folder, or a killed preparation, has finished with the same input
    /// and settings are not done again.
    ///
    /// # Errors
    /// An error naming the file and row at fault; [`Error::File`] if `out` exists already, or another
    /// process is preparing it. Nothing is left under its name then.
    pub fn create(
        input: &Input,
        settings: &PrepareSettings,
        out: &Path,
        replace: bool,
    ) -> Result<Self> {
        let choose = |sessions: &_, held_out: crate::prepared::HeldOut<'_>, judge: &_, seed| {
            Ok(crate::experiment::league(sessions, held_out, judge, seed)?.0)
        };
        Ok(crate::prepared::prepare(input, settings, &choose, out, replace)?.0)
    }
}

impl Prepared {
    /// Builds the index that a run with the preset's settings needs. With a target, or a preset that
    /// has one, finds the least width with that recall and records it for such runs. Audits the index
    /// on the queries of a run's first step.
    ///
    /// # Errors
    /// Fails if the index cannot be built or recorded.
    pub fn build_index(
        &mut self,
        preset: Preset,
        target: Option<f64>,
    ) -> Result<(Option<Audit>, Option<EfSearch>)> {
        let mut settings = self.preset(preset);
        let mut task = match Task::to_decide(self, &settings) {
            // A catalogue smaller than the preset's slate can be trained on with a smaller one.
            Err(Error::SlateTooLarge { .. }) => return Ok((None, None)),
            task => task?,
        };
        let chosen = device::choose(None)?;
        let model = task.initial_model(&settings, &chosen.device)?;
        let mut tuning = None;
        if let Some(recall) = target.or(preset.recall()) {
            let audits = Audits { task: &task, method: &settings.method, seed: settings.seed };
            let found = audits.least_ef_search(self, settings.retrieval.hnsw, &model, recall)?;
            if let Some(ef_search) = found.ef_search {
                self.keep_search(AuditedSearch { preset, recall, ef_search })?;
                settings = self.preset(preset);
                task = Task::to_decide(self, &settings)?;
            }
            tuning = Some(found);
        }
        let audits = Audits { task: &task, method: &settings.method, seed: settings.seed };
        let audit = audits.recall(&model)?;
        if let Some(warning) = audit.and_then(|audit| audit.warning(&settings.retrieval)) {
            tracing::warn!("{warning}");
        }
        Ok((audit, tuning))
    }

    /// Trains a policy with `settings` on the best device here, records the run in the folder `out`
    /// and returns the policy of the best checkpoint. Draws its progress on stderr. If `out` holds a
    /// run with the same settings, that run is continued; a finished run is only opened.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings that cannot be trained with, before anything is written;
    /// [`Error::Changed`] if `out` holds a run with other settings; fails if the training fails.
    pub fn train(&self, settings: &Settings, out: &Path) -> Result<Policy> {
        // Before folds are fitted, which the prepared folder keeps.
        settings.validate()?;
        let run = RunFolder::new(out);
        let chosen = device::choose(None)?;
        let task = Task::load(self, settings)?.on(&chosen)?;
        task.check(settings, &chosen.device)?;
        let _lock = run.lock()?;
        let origin = RunOrigin::new(self, chosen.name);
        if run.exists() {
            run.resume(settings, origin)?;
        } else {
            run.begin(settings, &origin)?;
        }
        let trainer = crate::training::Trainer::new(&task, settings, &run, &chosen.device);
        trainer.train(&mut crate::training::Console::new())?;
        Policy::open(out, Which::Best, Some(chosen.name))
    }
}

/// The trained policy of a run, and the task that it was trained on.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The task.
    pub task: Task,
    /// The settings of the run.
    pub settings: Settings,
    /// The data and the device that the run was started on.
    pub origin: RunOrigin,
    /// The model of the checkpoint.
    pub model: Model,
    /// The model at step 0.
    pub initial: Model,
    /// Steps of training behind the checkpoint.
    pub step: u64,
    /// Made for the first slate.
    recommender: OnceLock<Arc<Recommender>>,
}

impl Policy {
    /// Opens a run's checkpoint on `device` (see [`device::choose`]), which need not be the device of
    /// the training.
    ///
    /// # Errors
    /// [`Error::File`] for a run, checkpoint or prepared folder that is missing, damaged or not the
    /// one that the run was trained on.
    pub fn open(run: &Path, which: Which, device: Option<&str>) -> Result<Self> {
        let folder = RunFolder::new(run);
        let checkpoint = folder.read_settings().and_then(|_| folder.checkpoint(which))?;
        Self::at(&folder, Some(&checkpoint), None, device)
    }

    /// Opens a run to go on with it: at its last checkpoint, or at its start if it was stopped before the
    /// first; `data` is where its prepared folder is now.
    pub(crate) fn to_go_on(run: &Path, data: Option<&Path>, device: &str) -> Result<Self> {
        let folder = RunFolder::new(run);
        let begun = !folder.checkpoints()?.is_empty();
        let checkpoint = begun.then(|| folder.checkpoint(Which::Last)).transpose()?;
        Self::at(&folder, checkpoint.as_ref(), data, Some(device))
    }

    fn at(
        folder: &RunFolder,
        checkpoint: Option<&Checkpoint>,
        data: Option<&Path>,
        device: Option<&str>,
    ) -> Result<Self> {
        let (settings, mut origin) = folder.read_settings()?;
        if let Some(data) = data {
            data.clone_into(&mut origin.data);
        }
        let chosen = device::choose(device)?;
        if !origin.data.exists() {
            let problem = format!(
                "was trained on {}, which is not there; put it back, or say where it is with `slate train \
                 --resume --out {} --data FOLDER`, which trains nothing if the run has ended",
                origin.data.display(),
                folder.path().display()
            );
            return Err(Error::file(folder.path(), problem));
        }
        let prepared = Prepared::open(&origin.data)?;
        if prepared.digest() != origin.data_digest {
            let problem = "has changed since this run was trained on it; train again";
            return Err(Error::file(&origin.data, problem));
        }
        let task = Task::to_decide(&prepared, &settings)?.on(&chosen)?;
        let fresh = task.initial_model(&settings, &chosen.device)?;
        let initial = folder.initial_model(fresh, task.shape())?;
        let (model, step) = match checkpoint {
            None => (initial.clone(), 0),
            Some(checkpoint) => (checkpoint.load_model(initial.clone())?, checkpoint.state.step),
        };
        let recommender = OnceLock::new();
        Ok(Self { task, settings, origin, model, initial, step, recommender })
    }

    /// The graph over β for this policy's bundle, which finds a share of `recall` of the true top K of
    /// training users, on average, in the least time ([`Audits::served`]). It is built if no run has
    /// needed it before.
    ///
    /// # Errors
    /// [`Error::Setting`] for a β that was learned; fails if the index cannot be built.
    pub fn index(&self, slate_size: usize, recall: f64) -> Result<(ServedIndex, EfSearch)> {
        if self.model.learned_actions()?.is_some() {
            let problem = "this model learned its action vectors and is searched exactly; export \
                           without an index";
            return Err(Error::setting("index", problem));
        }
        let Self { task, settings, model, .. } = self;
        let audits = Audits { task, method: &settings.method, seed: settings.seed };
        let (options, graph, found) = audits.served(model, slate_size, recall)?;
        Ok(((options, Arc::new(graph)), found))
    }

    /// All that serving this policy by exact search needs: with the users' `histories`, so that they
    /// are known by id.
    ///
    /// # Errors
    /// Fails if the prepared folder cannot be read.
    pub fn bundle(&self, histories: bool) -> Result<Bundle> {
        let Self { task, settings, origin, .. } = self;
        let learned = self.model.learned_actions()?;
        let Catalogue { users, items, contexts } = Catalogue::read(&origin.data)?;
        let users = histories.then(|| {
            let features = task.profiles.features.as_ref();
            let features = features.map(|features| features.select(&contexts));
            Users::new(users, features, |user| {
                task.profiles.history(&task.sessions, contexts[user as usize])
            })
        });
        let trained = Trained {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data: origin.data_digest.clone(),
            vectors: learned.as_ref().unwrap_or(&*task.actions).digest().to_owned(),
            step: self.step,
            slate_size: settings.slate_size,
            reward: settings.reward.kind,
            own_reward: origin.reward.clone(),
            settings: toml::Table::try_from(settings)
                .map_err(|error| Error::library("settings", error))?,
        };
        let (inputs, fitted) = (Arc::clone(&task.inputs), Arc::clone(&task.actions));
        Ok(Bundle {
            trained,
            sigma: settings.method.gaussian_sigma(),
            model: Model { actions: None, ..self.model.clone() },
            actions: learned.map_or_else(|| Arc::clone(&fitted), Arc::new),
            vectors: Vectors { inputs, actions: fitted },
            encoding: task.encoding.clone(),
            items,
            users,
            index: None,
            onnx: false,
            part: None,
        })
    }

    /// Answers requests as this policy's bundle does, by exact search.
    ///
    /// # Errors
    /// Fails if the prepared folder cannot be read.
    pub fn recommender(&self) -> Result<&Recommender> {
        if let Some(recommender) = self.recommender.get() {
            return Ok(recommender);
        }
        let made = Recommender::new(self.bundle(true)?)?;
        let made = Arc::new(match self.task.gpu() {
            Some(chosen) => made.on(chosen)?,
            None => made,
        });
        Ok(self.recommender.get_or_init(|| made))
    }

    /// The ids of the users in the prepared data, each once, in the order of their contexts.
    ///
    /// # Errors
    /// [`Error::File`] for a prepared folder that cannot be read.
    pub fn user_ids(&self) -> Result<impl Iterator<Item = &str>> {
        let users = self.recommender()?.bundle().users.as_ref();
        Ok(users.into_iter().flat_map(|users| users.ids.iter()))
    }

    /// The slate for a user of the prepared data. The context holds everything that is known of the
    /// user: observed and hidden actions, their times and the user's features. The slate shows none
    /// of these actions.
    ///
    /// # Errors
    /// [`Error::UnknownId`]; fails if the prepared folder cannot be read.
    pub fn recommend(&self, user_id: &str) -> Result<Answer> {
        self.answer(Who::User { id: user_id.to_owned(), newer: Vec::new() })
    }

    /// The slate for somebody new who has interacted with `item_ids`, the latest last, and has no
    /// features. The slate shows none of these items. Without items it shows the most popular ones.
    ///
    /// # Errors
    /// Fails if the prepared folder cannot be read.
    pub fn recommend_after(&self, item_ids: &[impl AsRef<str>]) -> Result<Answer> {
        self.answer(Who::Items(item_ids.iter().map(|id| id.as_ref().to_owned()).collect()))
    }

    fn answer(&self, who: Who) -> Result<Answer> {
        let mut answers = self.recommender()?.recommend(&[who.into()], &Options::default())?;
        Ok(answers.swap_remove(0))
    }
}
