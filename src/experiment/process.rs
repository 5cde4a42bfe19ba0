//! A run that has begun goes in; it is trained in a process of its own. The next training then finds
//! clean memory, each training's memory can be measured, and one that takes too much is ended.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fs_err as fs;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, Signal, System};

use super::amounts::Bytes;
use crate::device;
use crate::error::{Error, Result};
use crate::run::RunFolder;

/// How a training has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// At the end of its budget.
    Finished(Footprint),
    /// After it was asked to stop; it can go on.
    Interrupted,
    /// It was ended because it used this much memory.
    TooLarge(Bytes),
}

/// The memory of a training.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Footprint {
    /// The most at any time.
    pub(super) peak: Option<Bytes>,
    /// The most beyond the memory before the first step.
    pub(super) training: Option<Bytes>,
}

/// The interval between two looks at a training; memory that comes and goes between them is not seen.
const LOOK: Duration = Duration::from_millis(20);

/// The file for what a training prints, beside its run.
const LOG: &str = "train.log";

/// Trains a run that has begun, by `slate train --resume`.
///
/// # Errors
/// Fails with the training's own error, naming the run.
pub(super) fn train(
    program: &Path,
    run: &RunFolder,
    ceiling: Option<Bytes>,
    stop: &AtomicBool,
) -> Result<Ended> {
    let log = fs::File::create(run.path().join(LOG))?.into_parts().0;
    let mut command = Command::new(program);
    command.args(["train", "--resume", "--out"]).arg(run.path());
    if let Some(bytes) = device::memory_limit() {
        command.arg("--device-memory").arg(bytes.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // Ctrl-C must reach the child only through its parent.
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
                // Usually out of memory.
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

/// The last line that a failed training printed.
fn last_words(run: &RunFolder) -> Result<String> {
    let mut text = Vec::new();
    fs::File::open(run.path().join(LOG))?.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("training failed");
    Ok(last.strip_prefix("error: ").unwrap_or(last).to_owned())
}

/// A training at work; dropping it ends the training.
struct Training {
    child: Child,
    system: System,
}

impl Training {
    /// Its memory now, if the system tells.
    fn memory(&mut self) -> Option<Bytes> {
        let pid = Pid::from_u32(self.child.id());
        let what = ProcessRefreshKind::nothing().with_memory();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, what);
        Some(Bytes(self.system.process(pid)?.memory())).filter(|memory| memory.0 > 0)
    }

    /// Asks the training to write a checkpoint and end; if that is not possible, kills it.
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
