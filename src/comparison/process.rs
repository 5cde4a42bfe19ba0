//! A training in a process of its own: what it leaves behind in memory does not disturb the next,
//! what it takes can be measured, and one that takes too much is ended.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fs_err as fs;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, Signal, System};

use super::amounts::Bytes;
use crate::error::{Error, Result};
use crate::run::RunFolder;

/// How a training has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// At the end of its budget.
    Finished(Footprint),
    /// It was asked to stop, and can go on.
    Interrupted,
    /// It was ended, for having this much memory.
    TooLarge(Bytes),
}

/// What a training had in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Footprint {
    /// At most.
    pub(super) peak: Option<Bytes>,
    /// Of it, beyond what there was before the first step.
    pub(super) training: Option<Bytes>,
}

/// How often a training is looked at: memory that comes and goes in between is not seen.
const LOOK: Duration = Duration::from_millis(20);

/// What a training prints, beside its run.
const LOG: &str = "train.log";

/// Trains a run that has begun, by `slate train --resume`.
///
/// # Errors
/// The training's own error, naming the run.
pub(super) fn train(
    program: &Path,
    run: &RunFolder,
    ceiling: Option<Bytes>,
    stop: &AtomicBool,
) -> Result<Ended> {
    let log = fs::File::create(run.path().join(LOG))?.into_parts().0;
    let mut command = Command::new(program);
    command.args(["train", "--resume", "--out"]).arg(run.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // Ctrl-C reaches it once, through its parent.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child =
        command.spawn().map_err(|error| Error::library(program.display().to_string(), error))?;
    let mut training = Training { child, system: System::new() };
    let fresh = !run.metrics_path().exists();
    let (mut footprint, mut loaded, mut asked) = (Footprint::default(), None, false);
    loop {
        if let Some(status) = training.child.try_wait()? {
            return match status.code() {
                Some(0) => Ok(Ended::Finished(footprint)),
                Some(INTERRUPTED) => Ok(Ended::Interrupted),
                // Out of memory, as a rule.
                None if !asked => Err(Error::file(run.path(), format!("training died: {status}"))),
                _ if asked => Ok(Ended::Interrupted),
                _ => Err(Error::file(run.path(), last_words(run)?)),
            };
        }
        if let Some(memory) = training.memory() {
            footprint.peak = footprint.peak.max(Some(memory));
            if fresh && run.metrics_path().exists() {
                let loaded = *loaded.get_or_insert(memory);
                let training = Bytes(memory.0.saturating_sub(loaded.0));
                footprint.training = footprint.training.max(Some(training));
            }
            if ceiling.is_some_and(|ceiling| memory > ceiling) {
                return Ok(Ended::TooLarge(memory));
            }
        }
        if !asked && stop.load(Ordering::Relaxed) {
            asked = true;
            training.interrupt();
        }
        thread::sleep(LOOK);
    }
}

/// Exit code of a training that was interrupted.
const INTERRUPTED: i32 = 130;

/// What a training that failed said last.
fn last_words(run: &RunFolder) -> Result<String> {
    let mut text = Vec::new();
    fs::File::open(run.path().join(LOG))?.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("training failed");
    Ok(last.strip_prefix("error: ").unwrap_or(last).to_owned())
}

/// A training at work, ended when dropped.
struct Training {
    child: Child,
    system: System,
}

impl Training {
    /// What it has in memory now, where the system tells.
    fn memory(&mut self) -> Option<Bytes> {
        let pid = Pid::from_u32(self.child.id());
        let what = ProcessRefreshKind::nothing().with_memory();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, what);
        Some(Bytes(self.system.process(pid)?.memory())).filter(|memory| memory.0 > 0)
    }

    /// Asks it to checkpoint and end; where that cannot be asked, ends it at its last checkpoint.
    fn interrupt(&mut self) {
        let process = self.system.process(Pid::from_u32(self.child.id()));
        if process.and_then(|process| process.kill_with(Signal::Interrupt)) != Some(true) {
            let _ = self.child.kill();
        }
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
