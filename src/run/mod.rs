//! A run's folder: `run.toml` (the resolved settings and what they were applied to),
//! `metrics.jsonl`, and `checkpoints/`, each a folder that appears whole or not at all; `initial/`
//! where it began with another run's model. Reading a trained model needs nothing of training.

mod checkpoint;
mod first_version;
mod origin;
mod second_version;

use std::fmt;
use std::fs::TryLockError;
use std::path::{Path, PathBuf};

use burn::module::Module;
use fs_err as fs;
use toml::{Table, Value};

use checkpoint::MODEL;
pub use checkpoint::{Best, Checkpoint, CheckpointState, Which};
pub use origin::{LearnedFrom, Refit, RunOrigin, WarmStart};

use crate::error::{Error, Result, toml_problem};
use crate::files::{MadeFolders, StagedFolder, digest_file, is_at, remove_folder, write_toml};
use crate::method::{LatentMethod, Method};
use crate::model::Model;
use crate::settings::{RUN_TABLE, Schedule, Settings};
use crate::tower::Radius;

/// The version of `run.toml`. A file without a number is of the first version.
const FORMAT: i64 = 4;

/// The key of that number in the `[run]` table.
const FORMAT_KEY: &str = "format";

/// A run's folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

/// What folders of other kinds hold.
const OTHERS: [&str; 2] = ["prepare.toml", "bundle.toml"];

/// Beside the run's own checkpoints, the one that it began with.
const INITIAL: &str = "initial";

/// Keeps other processes from training in a run's folder. Dropped where no run was begun, it leaves
/// nothing behind.
#[derive(Debug)]
pub struct RunLock {
    run: RunFolder,
    path: PathBuf,
    _file: fs::File,
    _folders: MadeFolders,
}

impl Drop for RunLock {
    fn drop(&mut self) {
        if !self.run.exists() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl RunFolder {
    /// The folder at `path`, there or not.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `run.toml`.
    #[must_use]
    pub fn settings_path(&self) -> PathBuf {
        self.path.join("run.toml")
    }

    /// `metrics.jsonl`.
    #[must_use]
    pub fn metrics_path(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// True if a run was started here.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.settings_path().exists()
    }

    /// Writes `run.toml`.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn write_settings(&self, settings: &Settings, origin: &RunOrigin) -> Result<()> {
        let as_table = |result: Result<Table, toml::ser::Error>| {
            result.map_err(|error| Error::library("run.toml", error))
        };
        let mut table = as_table(Table::try_from(settings))?;
        let mut origin = as_table(Table::try_from(origin))?;
        origin.insert(FORMAT_KEY.into(), FORMAT.into());
        table.insert(RUN_TABLE.into(), origin.into());
        fs::create_dir_all(&self.path)?;
        write_toml(&self.settings_path(), &table)
    }

    /// Starts a run: writes its settings before its first step.
    ///
    /// # Errors
    /// [`Error::File`] when there is a run already, or what is left of one.
    pub fn begin(&self, settings: &Settings, origin: &RunOrigin) -> Result<()> {
        self.require_new()?;
        self.write_settings(settings, origin)
    }

    /// Fails if a run cannot begin here.
    pub(crate) fn require_new(&self) -> Result<()> {
        if self.exists() {
            let problem = "there is a run here already; go on with --resume, or give another --out";
            return Err(Error::file(&self.path, problem));
        }
        if let Some(other) = OTHERS.iter().find(|name| self.path.join(name).exists()) {
            let problem = format!("is no folder of a run (it holds {other}); give another --out");
            return Err(Error::file(&self.path, problem));
        }
        // A training would go on from them, whatever they were trained with.
        if !self.checkpoints()?.is_empty() {
            let problem = "holds checkpoints of a run whose run.toml is gone; remove its folder \
                           `checkpoints`, or give another --out";
            return Err(Error::file(&self.path, problem));
        }
        Ok(())
    }

    /// Starts a run with the best model of the run `from`, on the same data; one that learns from a log
    /// adds a `correction` to it.
    ///
    /// # Errors
    /// [`Error::File`] when there is a run here already, none there, or one whose model another
    /// tower, β or data made; [`Error::Setting`] for a method that would train what a log has taught.
    pub fn begin_from(
        &self,
        from: &Path,
        settings: &Settings,
        origin: RunOrigin,
        correction: Option<Radius>,
    ) -> Result<()> {
        let other = Self::new(from);
        let (theirs, began) = other.read_settings()?;
        let differences = theirs.differences_in_model(settings);
        if !differences.is_empty() {
            let problem = format!("its model is another one: {}", differences.join("; "));
            return Err(Error::file(from, problem));
        }
        if began.data_digest != origin.data_digest {
            let (theirs, ours) = (began.data.display(), origin.data.display());
            let problem = format!("was trained on {theirs}, which holds other data than {ours}");
            return Err(Error::file(from, problem));
        }
        let mut corrections = began.init.map_or_else(Vec::new, |init| init.corrections);
        // The persons of a log that was learned from would judge as if they had had no part.
        let forgets = began.logged.is_some() && origin.logged.is_none();
        if forgets || correction.is_none() && !corrections.is_empty() {
            let problem = "that run learned from a log, and only a log can teach its model more: give one \
                           with --logged, or begin without --init";
            return Err(Error::setting("init", problem));
        }
        corrections.extend(correction);
        self.require_new()?;
        let Checkpoint { path, mut state } = other.checkpoint(Which::Best)?;
        let init = WarmStart { run: from.to_owned(), step: state.step, corrections };
        let copy = StagedFolder::new(&self.path.join(INITIAL))?;
        fs::copy(path.join(MODEL), copy.path().join(MODEL))?;
        state.digests.retain(|name, _| name == MODEL);
        checkpoint::write_state(copy.path(), &state)?;
        copy.commit()?;
        self.write_settings(settings, &RunOrigin { init: Some(init), ..origin })
    }

    /// The model at step 0: `fresh`, or what the run was begun with in its place. `shape` is [D, L].
    ///
    /// # Errors
    /// [`Error::File`] when that is missing or damaged.
    pub fn initial_model(&self, fresh: Model, shape: [usize; 2]) -> Result<Model> {
        let (settings, origin) = self.read_settings()?;
        let Some(init) = origin.init else { return Ok(fresh) };
        let own = matches!(settings.method, Method::Logged(_));
        let (before, last) = match init.corrections.split_last() {
            Some((last, before)) if own => (before, Some(*last)),
            _ => (init.corrections.as_slice(), None),
        };
        let model = before.iter().fold(fresh, |model, radius| model.corrected(*radius, shape));
        let advice = "start the run anew with --init";
        let model = checkpoint::open(self.path.join(INITIAL), advice)?.load_model(model)?;
        Ok(last.into_iter().fold(model, |model, radius| model.corrected(radius, shape)))
    }

    /// Refuses to continue with settings that would have led elsewhere from the start. Two keys may
    /// differ: the number of checkpoints kept, and the budget's amount. The amount must not differ
    /// where the path depends on it: under a falling learning rate, and where evaluations, which
    /// divide the budget, decide something (shared candidates, patience, growth of the rate).
    ///
    /// # Errors
    /// [`Error::Changed`] with the differences; [`Error::File`] for a run of an earlier version.
    pub fn require_same_path(&self, settings: &Settings, origin: &RunOrigin) -> Result<()> {
        let (recorded, began, format) = self.read()?;
        if format < FORMAT {
            let problem = "is a run of an earlier version, which can be evaluated and recommended \
                           from but not continued; train again with another --out";
            return Err(Error::file(&self.path, problem));
        }
        let latent = settings.method.latent();
        let any_budget = settings.optimizer.schedule == Schedule::Constant
            && settings.optimizer.growth <= 1.0
            && settings.evaluation.patience == 0
            && !latent.is_some_and(LatentMethod::shares_candidates);
        let free = |key: &str| key == "checkpoint.keep" || key == "budget.amount" && any_budget;
        let changed = recorded.differences(settings).into_iter();
        let mut differences: Vec<String> =
            changed.filter(|(key, _)| !free(key)).map(|(_, change)| change).collect();
        differences.extend(began.differences(origin));
        if differences.is_empty() {
            return Ok(());
        }
        Err(Error::Changed { path: self.path.clone(), differences })
    }

    /// Records that the run goes on with `settings`, on data that may have moved.
    ///
    /// # Errors
    /// [`Error::Changed`] if the settings would have led elsewhere from the start.
    pub fn resume(&self, settings: &Settings, origin: RunOrigin) -> Result<()> {
        self.require_same_path(settings, &origin)?;
        let (_, began) = self.read_settings()?;
        self.write_settings(settings, &RunOrigin { data: origin.data, ..began })
    }

    /// Keeps other processes from training here until the lock is dropped; to be taken before
    /// anything is written here.
    ///
    /// # Errors
    /// [`Error::File`] when another process trains here.
    pub fn lock(&self) -> Result<RunLock> {
        let folders = MadeFolders::new(&self.path)?;
        let path = self.path.join("run.lock");
        let file = fs::OpenOptions::new().create(true).append(true).open(&path)?;
        match file.file().try_lock() {
            // Whoever had it may have removed it before it was locked.
            Ok(()) if is_at(&file, &path) => {
                Ok(RunLock { run: self.clone(), path, _file: file, _folders: folders })
            }
            Ok(()) | Err(TryLockError::WouldBlock) => {
                Err(Error::file(&self.path, "another process is training here"))
            }
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// Reads `run.toml`, of this version or an earlier one.
    ///
    /// # Errors
    /// [`Error::File`] where there is no run, for a file that cannot be read, for one that a newer
    /// version wrote, or for a run that did what this version does not do.
    pub fn read_settings(&self) -> Result<(Settings, RunOrigin)> {
        self.read().map(|(settings, origin, _)| (settings, origin))
    }

    /// Settings, origin, and the version of `run.toml`.
    fn read(&self) -> Result<(Settings, RunOrigin, i64)> {
        let path = self.settings_path();
        if !path.exists() {
            return Err(Error::file(
                &self.path,
                "no run here (no run.toml); start one with `slate train`",
            ));
        }
        let bad =
            |error: &dyn fmt::Display| Error::file(&path, format!("not a run's settings: {error}"));
        let text = fs::read_to_string(&path)?;
        let parsed: Result<Table, _> = text.parse();
        let mut table = parsed.map_err(|error| bad(&toml_problem(&error, &text)))?;
        let Some(Value::Table(mut origin)) = table.remove(RUN_TABLE) else {
            return Err(bad(&"no [run] table"));
        };
        let format = match origin.remove(FORMAT_KEY) {
            None => 1,
            Some(Value::Integer(format)) if (1..=FORMAT).contains(&format) => format,
            Some(format) => {
                let problem = format!(
                    "is of format {format}, which a newer fast-slate wrote; this one reads up to \
                     {FORMAT}"
                );
                return Err(Error::file(&path, problem));
            }
        };
        if format == 1 {
            table = first_version::upgraded(table).map_err(|error| bad(&error))?;
        }
        if format < FORMAT {
            table = second_version::upgraded(table).map_err(|error| bad(&error))?;
        }
        let origin = Value::Table(origin).try_into();
        let origin = origin.map_err(|error| bad(&toml_problem(&error, "")))?;
        let settings = table.try_into().map_err(|error| bad(&toml_problem(&error, "")))?;
        Ok((settings, origin, format))
    }

    /// Steps of the checkpoints that are there, ascending.
    ///
    /// # Errors
    /// An I/O error naming the folder.
    pub fn checkpoints(&self) -> Result<Vec<u64>> {
        let folder = self.path.join("checkpoints");
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let mut steps = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let name = entry?.file_name();
            steps.extend(
                name.to_str().and_then(|name| name.strip_prefix("step-")?.parse::<u64>().ok()),
            );
        }
        steps.sort_unstable();
        Ok(steps)
    }

    /// The checkpoint asked for.
    ///
    /// # Errors
    /// [`Error::File`] when it is not there or damaged.
    pub fn checkpoint(&self, which: Which) -> Result<Checkpoint> {
        let steps = self.checkpoints()?;
        let Some(&last) = steps.last() else {
            return Err(Error::file(
                &self.path,
                "no checkpoint yet; continue with `slate train --resume`",
            ));
        };
        let step = match which {
            Which::Last => last,
            Which::Step(step) if steps.contains(&step) => step,
            Which::Step(step) => {
                let problem = format!("no checkpoint of step {step}; there are {steps:?}");
                return Err(Error::file(&self.path, problem));
            }
            Which::Best => {
                let best = self.open_checkpoint(last)?.state.best.map_or(last, |best| best.step);
                if !steps.contains(&best) {
                    let problem = format!(
                        "its best checkpoint, of step {best}, is gone; name another with --checkpoint \
                         (there are {steps:?}), or train again"
                    );
                    return Err(Error::file(&self.path, problem));
                }
                best
            }
        };
        self.open_checkpoint(step)
    }

    /// Writes a checkpoint whole; `write` adds what only training needs.
    ///
    /// # Errors
    /// An I/O error naming the file; no folder of that step appears then.
    pub fn write_checkpoint(
        &self,
        mut state: CheckpointState,
        model: &Model,
        write: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let staged = StagedFolder::new(&self.checkpoint_path(state.step))?;
        let model_path = staged.path().join(MODEL);
        model
            .clone()
            .save_file(&model_path)
            .map_err(|error| Error::library(model_path.display().to_string(), error))?;
        write(staged.path())?;
        state.digests.clear();
        for entry in fs::read_dir(staged.path())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            state.digests.insert(name, digest_file(&entry.path())?);
        }
        checkpoint::write_state(staged.path(), &state)?;
        staged.commit()
    }

    /// Removes all but the last `keep` checkpoints and the best one.
    ///
    /// # Errors
    /// An I/O error naming the folder.
    pub fn prune_checkpoints(&self, keep: usize, best: Option<u64>) -> Result<()> {
        let steps = self.checkpoints()?;
        let drop = steps.len().saturating_sub(keep);
        for &step in steps[..drop].iter().filter(|step| Some(**step) != best) {
            remove_folder(&self.checkpoint_path(step))?;
        }
        Ok(())
    }

    fn checkpoint_path(&self, step: u64) -> PathBuf {
        self.path.join("checkpoints").join(format!("step-{step:09}"))
    }

    fn open_checkpoint(&self, step: u64) -> Result<Checkpoint> {
        let advice = "delete that folder to go on from the one before it";
        checkpoint::open(self.checkpoint_path(step), advice)
    }
}
