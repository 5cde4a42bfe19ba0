//! A run → another that does on everybody what it did while some users or items were held out. What it
//! earns is what the first one was judged by; what it knows is more.

use std::path::Path;
use std::sync::Arc;

use fs_err as fs;

use super::Policy;
use crate::dataset::Split;
use crate::device;
use crate::error::{Error, Result};
use crate::prepared::Prepared;
use crate::retrieval::BuildObserver;
use crate::run::{Refit, RunFolder, RunOrigin, Which};
use crate::settings::Settings;
use crate::task::Task;
use crate::training::{Console, Trainer};

/// What a run did, to be done again on everybody.
#[derive(Clone, Debug)]
pub struct Refitting {
    /// The settings of the run.
    pub settings: Settings,
    /// What the run was trained on.
    pub origin: RunOrigin,
    refit: Refit,
    prepared: Prepared,
}

impl Refitting {
    /// Reads what led `run` to a checkpoint.
    ///
    /// # Errors
    /// [`Error::File`] for a run, checkpoint or prepared folder that is missing, damaged or not the one that
    /// the run was trained on; for a run that began with another's model, that learned from a log, or that
    /// held nothing out.
    pub fn of(run: &Path, which: Which) -> Result<Self> {
        let folder = RunFolder::new(run);
        let (settings, origin) = folder.read_settings()?;
        let refused = |problem: &str| Err(Error::file(run, problem));
        if let Some(refit) = &origin.refit {
            let problem = format!("is what {} is on everybody already", refit.run.display());
            return refused(&problem);
        }
        if origin.logged.is_some() {
            return refused(
                "learned from a log, by queries of its own vectors: refit the run that it began with, and \
                 serve, log and learn with that",
            );
        }
        if origin.init.is_some() {
            return refused("began with another run's model, which belongs to these vectors alone");
        }
        if origin.noise.is_some() {
            return refused("was trained with the noise of a program, which is not here");
        }
        let prepared = Prepared::open(&origin.data)?;
        if prepared.digest() != origin.data_digest {
            let problem = "has changed since this run was trained on it; train again";
            return Err(Error::file(&origin.data, problem));
        }
        prepared.require_held_out()?;
        let refit = Refit::of(&folder, which, prepared.taught_by(&settings))?;
        Ok(Self { settings, origin, refit, prepared })
    }

    /// Tells an `observer` of index builds.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn BuildObserver>) -> Self {
        Self { prepared: self.prepared.with_observer(observer), ..self }
    }

    /// Removes from the folder `out` what was done again there before the run went on, if it is something else.
    ///
    /// # Errors
    /// An I/O error naming the file; [`Error::File`] while another process trains there.
    pub fn replace(&self, out: &Path) -> Result<()> {
        let folder = RunFolder::new(out);
        if !folder.exists() {
            return Ok(());
        }
        let _lock = folder.lock()?;
        let there = folder.read_settings()?.1.refit;
        if there.is_some_and(|there| !there.does_as(&self.refit)) {
            fs::remove_dir_all(out)?;
        }
        Ok(())
    }

    /// Prepares everything in the folder `data` of `out`, unless it is there, and makes the task and the
    /// origin of the run.
    ///
    /// # Errors
    /// [`Error::File`] if `out` holds something else; fails as [`Prepared::refit`] and [`Task::load`] do.
    pub fn task(&self, out: &Path, device: &str) -> Result<(Task, RunOrigin)> {
        let folder = RunFolder::new(out);
        if !folder.exists() {
            folder.require_new()?;
        } else if !folder.read_settings()?.1.refit.is_some_and(|there| there.does_as(&self.refit)) {
            return Err(Error::file(out, "holds another run; give another --out"));
        }
        let all = self.prepared.refit(&out.join("data"))?;
        let origin = RunOrigin {
            reward: self.origin.reward.clone(),
            refit: Some(self.refit.clone()),
            ..RunOrigin::new(&all, device)
        };
        Ok((origin.task(&all, &self.settings)?, origin))
    }

    /// Starts the run in `out`, or goes on with it.
    ///
    /// # Errors
    /// An I/O error naming the file; [`Error::Changed`] if `out` holds a run on another device.
    pub fn begin(&self, out: &RunFolder, origin: RunOrigin) -> Result<()> {
        if out.exists() {
            return out.resume(&self.settings, origin);
        }
        out.begin(&self.settings, &origin)
    }
}

impl RunOrigin {
    /// The task of this run. Nothing is fitted or built that only training needs if no step is taken.
    ///
    /// # Errors
    /// The errors of [`Task::load`].
    pub fn task(&self, prepared: &Prepared, settings: &Settings) -> Result<Task> {
        if self.refit.as_ref().is_some_and(|refit| refit.share == 0.0) {
            return Ok(Task::to_decide(prepared, settings)?.exactly());
        }
        Task::load(prepared, settings)
    }
}

impl Policy {
    /// True if there are users or items that this policy was not trained on, and [`refit`](Self::refit)
    /// would.
    #[must_use]
    pub fn can_be_refitted(&self) -> bool {
        self.origin.is_first()
            && self.task.sessions.split.iter().any(|split| *split != Split::Train)
    }

    /// Does in the folder `out` on everybody what led `run` to a checkpoint: prepares everything that its
    /// data hold, fits the vectors again and trains as much. If `out` holds that run, it is continued; a
    /// finished one is only opened.
    ///
    /// # Errors
    /// The errors of [`Refitting::of`]; fails if the training fails.
    pub fn refit(run: &Path, which: Which, out: &Path) -> Result<Self> {
        let again = Refitting::of(run, which)?;
        if let Some(name) = &again.origin.reward {
            let problem = format!("was trained for the reward `{name}` of a program");
            return Err(Error::file(run, problem));
        }
        let chosen = device::choose(Some(&again.origin.device))?;
        let folder = RunFolder::new(out);
        let _lock = folder.lock()?;
        let (task, origin) = again.task(out, chosen.name)?;
        let task = task.on(&chosen)?;
        task.check(&again.settings, &chosen.device)?;
        again.begin(&folder, origin)?;
        let trainer = Trainer::new(&task, &again.settings, &folder, &chosen.device);
        trainer.train(&mut Console::new())?;
        Self::open(out, Which::Best, Some(chosen.name))
    }
}
