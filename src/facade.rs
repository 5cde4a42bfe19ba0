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
//! for item in policy.recommend("42")? {
//!     println!("{}", item.item_id);
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde::Serialize;

use crate::dataset::Catalogue;
use crate::device;
use crate::encoder::Known;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::model::Model;
use crate::retrieval::{Queries, Retriever, Search};
use crate::run::{RunFolder, RunOrigin};
use crate::task::Task;

pub use crate::prepared::Prepared;
#[cfg(feature = "prepare")]
pub use crate::prepared::{Input, PrepareSettings};
pub use crate::run::Which;
pub use crate::settings::{Preset, Settings};

#[cfg(feature = "prepare")]
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

#[cfg(feature = "prepare")]
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
        let choose = |sessions: &_, times: Option<&_>, judge: &_, seed| {
            Ok(crate::experiment::league(sessions, times, judge, seed)?.0)
        };
        Ok(crate::prepared::prepare(input, settings, &choose, out, replace)?.0)
    }
}

#[cfg(feature = "train")]
impl Prepared {
    /// Trains a policy with `settings` on the best device here, records the run in the folder `out`
    /// and returns the policy of the best checkpoint. Draws its progress on stderr. If `out` holds a
    /// run with the same settings, that run is continued; a finished run is only opened.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings that cannot be trained with, before anything is written;
    /// [`Error::Changed`] if `out` holds a run with other settings; fails if the training fails.
    pub fn train(&self, settings: &Settings, out: &Path) -> Result<Policy> {
        let run = RunFolder::new(out);
        let chosen = device::choose(None)?;
        let task = Task::load(self, settings)?;
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
    /// The data and the device that the run was started on.
    pub origin: RunOrigin,
    /// The model of the checkpoint.
    pub model: Model,
    /// The model at step 0.
    pub initial: Model,
    /// Steps of training behind the checkpoint.
    pub step: u64,
    serving: OnceLock<Arc<Serving>>,
}

/// What only slates for people need; read for the first slate.
#[derive(Debug)]
struct Serving {
    retriever: Arc<dyn Retriever>,
    catalogue: Catalogue,
}

/// An item of a slate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The item's id in the log.
    pub item_id: String,
    /// The item's title, if the log has titles.
    pub title: Option<String>,
    /// `hᵀβ_a`.
    pub score: f32,
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
        let (settings, origin) = folder.read_settings()?;
        let checkpoint = folder.checkpoint(which)?;
        let chosen = device::choose(device)?;
        let prepared = Prepared::open(&origin.data)?;
        if prepared.digest() != origin.data_digest {
            let problem = "has changed since this run was trained on it; train again";
            return Err(Error::file(&origin.data, problem));
        }
        let task = Task::to_decide(&prepared, &settings)?;
        let initial = folder.initial_model(task.initial_model(&settings, &chosen.device)?)?;
        let model = checkpoint.load_model(initial.clone())?;
        let (step, serving) = (checkpoint.state.step, OnceLock::new());
        Ok(Self { task, origin, model, initial, step, serving })
    }

    /// The ids of the users in the prepared data, each once, in the order of their contexts.
    ///
    /// # Errors
    /// [`Error::File`] for a prepared folder that cannot be read.
    pub fn user_ids(&self) -> Result<impl Iterator<Item = &str>> {
        Ok(self.serving()?.catalogue.user_ids())
    }

    /// The slate for a user of the prepared data. The context holds everything that is known of the
    /// user: observed and hidden actions, their times and the user's features. The slate shows none
    /// of these actions.
    ///
    /// # Errors
    /// [`Error::UnknownId`]; fails if the prepared folder cannot be read.
    pub fn recommend(&self, user_id: &str) -> Result<Vec<Recommendation>> {
        let context = self.serving()?.catalogue.context_of(user_id)?;
        let Task { sessions, profiles, .. } = &self.task;
        let (actions, times) = profiles.history(sessions, context);
        let features = profiles.features_of(context);
        self.slate(Known { actions: &actions, times: times.as_deref(), features })
    }

    /// The slate for somebody new who has interacted with `item_ids`, the latest last, and has no
    /// features. The slate shows none of these items. Without items it shows the most popular ones.
    ///
    /// # Errors
    /// [`Error::UnknownId`]; fails if the prepared folder cannot be read.
    pub fn recommend_after(&self, item_ids: &[impl AsRef<str>]) -> Result<Vec<Recommendation>> {
        let catalogue = &self.serving()?.catalogue;
        let mut latest = BTreeMap::new();
        for (place, id) in (0_i64..).zip(item_ids) {
            latest.insert(catalogue.action_of(id.as_ref().trim())?, place);
        }
        let (actions, places): (Vec<u32>, Vec<i64>) = latest.into_iter().unzip();
        self.slate(Known { actions: &actions, times: Some(&places), features: None })
    }

    fn slate(&self, known: Known<'_>) -> Result<Vec<Recommendation>> {
        let Serving { retriever, catalogue } = self.serving()?;
        let mut context = Matrix::zeros(1, self.task.encoder.dim());
        self.task.encoder.encode(known, context.row_mut(0));
        let latent = self.model.latent(&context)?; // [1, L]
        let slates = retriever.search(Queries {
            latent: &latent,
            slate_size: self.task.slate_size(),
            excluded: Some(&[known.actions]),
        })?;
        let placed = slates.slate(0).iter().zip(slates.scores(0));
        let recommendation = |(&action, &score): (&u32, &f32)| Recommendation {
            item_id: catalogue.item_id(action).to_owned(),
            title: catalogue.title(action).map(str::to_owned),
            score,
        };
        Ok(placed.map(recommendation).collect())
    }

    fn serving(&self) -> Result<&Serving> {
        if let Some(serving) = self.serving.get() {
            return Ok(serving);
        }
        let serving = Serving {
            retriever: self.task.retriever(&self.model, Search::Exact)?,
            catalogue: Catalogue::read(&self.origin.data)?,
        };
        Ok(self.serving.get_or_init(|| Arc::new(serving)))
    }
}
