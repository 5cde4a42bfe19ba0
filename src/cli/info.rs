//! `slate info`: a prepared folder, a run or a bundle in, its description out.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::report::Report;
use crate::bundle::{self, MANIFEST};
use crate::device;
use crate::prepared::{Manifest, Prepared};
use crate::run::{CheckpointState, RunFolder, RunOrigin, Which};
use crate::settings::Settings;

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// A prepared folder, a run or a bundle; without one, this build is described.
    #[arg(value_hint = ValueHint::DirPath)]
    folder: Option<PathBuf>,
}

/// The features of this build.
#[derive(Debug, Serialize)]
struct Build {
    version: &'static str,
    devices: Vec<&'static str>,
    train: bool,
    prepare: bool,
}

/// A run and its progress.
#[derive(Debug, Serialize)]
struct Run {
    origin: RunOrigin,
    settings: Settings,
    checkpoints: Vec<u64>,
    last: Option<CheckpointState>,
}

pub(super) fn run(args: &InfoArgs) -> Result<Report> {
    let Some(folder) = &args.folder else { return build() };
    if folder.join(MANIFEST).exists() {
        let (bundle, digest) = bundle::Manifest::read(folder)?;
        let text = format!("bundle {digest}\n\n{}", toml::to_string(&bundle)?);
        return Report::new(&bundle, text);
    }
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

fn build() -> Result<Report> {
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        devices: device::compiled(),
        train: cfg!(feature = "train"),
        prepare: cfg!(feature = "prepare"),
    };
    let part = |there| if there { "yes" } else { "no" };
    let text = format!(
        "slate {}\ndevices  {}\ntrain    {}\nprepare  {}",
        build.version,
        build.devices.join(", "),
        part(build.train),
        part(build.prepare)
    );
    Report::new(&build, text)
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
