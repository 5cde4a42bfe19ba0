//! The folder of a training goes in; its outcome and its measurements come out. A training that has
//! ended has an `outcome.json` beside its run.

use std::io::{ErrorKind, Write as _};

use fs_err as fs;

use super::results::{CellOutcome, Measurement, SplitReward};
use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::run::{RunFolder, RunOrigin};
use crate::settings::Settings;
use crate::training::{MetricsRow as Recorded, read_metrics};

/// The file of a training that has ended.
const OUTCOME: &str = "outcome.json";

/// Fails if a run was begun with other settings.
pub(super) fn require_same(run: &RunFolder, settings: &Settings, origin: &RunOrigin) -> Result<()> {
    // A resumed run may change its budget and its checkpoints; a cell may not.
    let (recorded, _) = run.read_settings()?;
    let mut changed = recorded.differences(settings).into_iter().map(|(_, change)| change);
    let problem = match (changed.next(), run.require_same_path(settings, origin)) {
        (None, Ok(())) => return Ok(()),
        (None, Err(error)) => error.to_string(),
        (Some(first), _) => changed.fold(first, |all, change| format!("{all}; {change}")),
    };
    let advice = "delete that folder to train it again, or give another --out";
    Err(Error::file(run.path(), format!("was begun otherwise ({problem}); {advice}")))
}

/// The outcome of a training that has ended.
pub(super) fn ended(run: &RunFolder) -> Result<Option<CellOutcome>> {
    let path = run.path().join(OUTCOME);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path)?;
    let outcome = serde_json::from_str(&text);
    outcome.map(Some).map_err(|error| Error::file(&path, format!("is damaged: {error}; delete it")))
}

/// Writes down the outcome of a training.
pub(super) fn end(run: &RunFolder, outcome: CellOutcome) -> Result<CellOutcome> {
    fs::create_dir_all(run.path())?;
    let text = serde_json::to_string(&outcome).map_err(|error| Error::library(OUTCOME, error))?;
    write_atomic(&run.path().join(OUTCOME), |file| Ok(file.write_all(text.as_bytes())?))?;
    Ok(outcome)
}

/// Forgets the outcome of a training that could not be, if there is one.
pub(super) fn forget(run: &RunFolder) -> Result<()> {
    match fs::remove_file(run.path().join(OUTCOME)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// The last audited recall of a run, if it was audited.
pub(super) fn recall(run: &RunFolder) -> Result<Option<f64>> {
    let rows = read_metrics(&run.metrics_path())?;
    Ok(rows.iter().rev().find_map(|row| match row {
        Recorded::Recall { recall, .. } => Some(*recall),
        _ => None,
    }))
}

/// The evaluations of a run, by step.
pub(super) fn measurements(run: &RunFolder) -> Result<Vec<Measurement>> {
    let mut measured: Vec<Measurement> = Vec::new();
    for row in read_metrics(&run.metrics_path())? {
        let (step, seconds) = match &row {
            Recorded::Evaluation { step, seconds, .. }
            | Recorded::Gradient { step, seconds, .. } => (*step, *seconds),
            _ => continue,
        };
        if measured.last().is_none_or(|last| last.step != step) {
            measured.push(Measurement { step, seconds, rewards: Vec::new(), gradient: None });
        }
        let Some(last) = measured.last_mut() else { continue };
        match row {
            Recorded::Evaluation { split, reward, reward_se, contexts, .. } => {
                last.rewards.push(SplitReward { split, reward, reward_se, contexts });
            }
            Recorded::Gradient { gradient, .. } => last.gradient = Some(gradient),
            _ => {}
        }
    }
    Ok(measured)
}
