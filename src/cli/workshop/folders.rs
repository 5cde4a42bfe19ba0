//! A prepared folder or a run in, its description or its recommender out.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::cli::report::Report;
use crate::experiment::shell;
use crate::facade::Policy;
use crate::prepared::{Manifest, Prepared};
use crate::run::{CheckpointState, RunFolder, RunOrigin, Which};
use crate::settings::Settings;

/// The flag of verbs that open a run where they may open a bundle.
#[derive(Debug, Args)]
pub(crate) struct OfRun {
    /// The checkpoint of a run: best (by validation reward; step 0 unless one beats it by more than chance), last, or a step [default: best].
    #[arg(long)]
    pub(crate) checkpoint: Option<Which>,
}

impl OfRun {
    /// Opens the policy of the run.
    pub(crate) fn open(&self, run: &Path, device: Option<&str>) -> Result<Policy> {
        Ok(Policy::open(run, self.checkpoint.unwrap_or_default(), device)?)
    }
}

/// A path as a shell takes it.
pub(super) fn typed(path: &Path) -> String {
    shell(&[path.display().to_string()])
}

/// A run and its progress.
#[derive(Debug, Serialize)]
struct Run {
    origin: RunOrigin,
    settings: Settings,
    checkpoints: Vec<u64>,
    last: Option<CheckpointState>,
}

/// Describes a run or a prepared folder.
pub(crate) fn describe(folder: &Path) -> Result<Report> {
    let run = RunFolder::new(folder);
    if run.exists() {
        return describe_run(&run);
    }
    if !folder.join("prepare.toml").exists() {
        bail!("{}: neither a prepared folder nor a run nor a bundle", folder.display());
    }
    let manifest: Manifest = Prepared::open(folder)?.manifest;
    let text = format!(
        "prepared from {} by version {}\n{}\n\n{}",
        manifest.input,
        manifest.version,
        manifest.statistics,
        toml::to_string(&manifest.settings)?
    );
    Report::new(&manifest, text)
}

fn describe_run(run: &RunFolder) -> Result<Report> {
    let (settings, origin) = run.read_settings()?;
    let checkpoints = run.checkpoints()?;
    let last = if checkpoints.is_empty() { None } else { Some(run.checkpoint(Which::Last)?.state) };
    let mut text = format!(
        "run on {} ({}), version {}\n",
        origin.data.display(),
        origin.device,
        origin.version
    );
    if let Some(init) = &origin.init {
        text += &format!("began with the model of {} at step {}\n", init.run.display(), init.step);
    }
    if let Some(refit) = &origin.refit {
        text += &format!(
            "does again, on everybody, what {} did until step {}\n",
            refit.run.display(),
            refit.step
        );
    }
    if let Some(name) = &origin.reward {
        text += &format!("trained for the reward `{name}` of a program\n");
    }
    if let Some(name) = &origin.noise {
        text += &format!("trained with the noise `{name}` of a program\n");
    }
    match &last {
        None => text += "no checkpoint yet\n",
        Some(state) => {
            text += &format!("step {} after {:.1} s\n", state.step, state.seconds);
            if let Some(best) = state.best {
                text +=
                    &format!("best validation reward {:.4} at step {}\n", best.reward, best.step);
            }
        }
    }
    text += &format!("\n{}", toml::to_string(&settings)?);
    Report::new(&Run { origin, settings, checkpoints, last }, text)
}
