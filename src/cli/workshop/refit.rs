//! `slate refit`: a run in, another out that does on everybody what it did while some were held out.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::folders::typed;
use super::train::{Ready, Trained};
use crate::cli::flags::DeviceArgs;
use crate::cli::progress::IndexBar;
use crate::cli::report::Report;
use crate::facade::Refitting;
use crate::run::{RunFolder, Which};

#[derive(Debug, Args)]
pub(crate) struct RefitArgs {
    /// The folder of the run.
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,
    /// The folder to write the new run to, with all of the data in its folder `data`. If it was begun there, it goes on.
    #[arg(long, value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// The checkpoint whose training is done again: best (by validation reward; step 0, with no training, unless one beats it by more than chance), last, or a step.
    #[arg(long, default_value_t = Which::Best)]
    checkpoint: Which,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, Serialize)]
struct Refitted {
    /// The run that was done again.
    of: PathBuf,
    /// The users that it was done on.
    users: usize,
    #[serde(flatten)]
    trained: Trained,
}

pub(super) fn run(args: &RefitArgs) -> Result<Report> {
    let again = Refitting::of(&args.run, args.checkpoint)?;
    if let Some(name) = &again.origin.reward {
        let run = args.run.display();
        bail!("{run}: was trained for the reward `{name}` of a program, which has to refit it too");
    }
    let again = again.with_observer(Arc::new(IndexBar::default()));
    let device = args.device.choose(Some(&again.origin.device))?;
    let out = RunFolder::new(&args.out);
    let _lock = out.lock()?;
    let (ready, users) = Ready::again(&again, &out, device)?;
    let trained = ready.train(&out)?;
    let refitted = Refitted { of: args.run.clone(), users, trained };
    let interrupted = refitted.trained.is_interrupted();
    Ok(Report::new(&refitted, refitted.text(args))?.interrupted_if(interrupted))
}

impl Refitted {
    fn text(&self, args: &RefitArgs) -> String {
        let (run, out) = (typed(&args.run), typed(&args.out));
        let step = self.trained.step;
        if self.trained.is_interrupted() {
            let mut again = format!("slate refit {run} --out {out}");
            if args.checkpoint != Which::Best {
                again += &format!(" --checkpoint {}", args.checkpoint);
            }
            if let Some(device) = &args.device.device {
                again += &format!(" --device {device}");
            }
            return format!("interrupted at step {step}; continue with\n  {again}");
        }
        format!(
            "{}: fitted on all {} users, step {step}\n\
             nobody is held out of it; what it was before is judged with\n  slate evaluate {run}\n\
             look at slates with\n  slate recommend {out} --user ID\n\
             serve it with\n  slate export {out} --out BUNDLE --histories",
            args.out.display(),
            self.users
        )
    }
}
