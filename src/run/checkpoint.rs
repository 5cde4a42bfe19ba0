//! A checkpoint: the parameters, what training needs to go on from them, and the digests that say
//! whether they are what was written.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use burn::module::Module as _;
use burn::store::ModuleRecord;
use burn::tensor::Bytes;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, toml_problem};
use crate::files::{digest_file, write_toml};
use crate::model::Model;

pub(super) const MODEL: &str = "model.bpk";
const STATE: &str = "state.toml";
/// How the names of Burn's records end.
const RECORD: &str = ".bpk";

/// The state of a run beside the parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointState {
    /// Optimiser steps taken.
    pub step: u64,
    /// The training clock, seconds.
    pub seconds: f64,
    /// The best validation reward so far, and its step. Later than the start only with a gain over it
    /// whose paired interval is above 0.
    pub best: Option<Best>,
    /// The highest validation reward so far, chance or not.
    #[serde(default)]
    pub highest: Option<f64>,
    /// Evaluations since the highest.
    pub since_best: u64,
    /// How often the learning rate has grown.
    #[serde(default)]
    pub growths: u32,
    /// True if the last evaluation found too little in the shared candidates, so that every sample
    /// is searched for.
    pub per_sample: bool,
    /// The folds of training users that there was memory for; a run goes on with as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folds: Option<u16>,
    /// SHA-256 of the other files.
    pub digests: std::collections::BTreeMap<String, String>,
}

/// The best evaluation so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// Its step.
    pub step: u64,
    /// Its validation reward.
    pub reward: f64,
}

/// Which checkpoint to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The one of the best validation reward; the last where there is no validation.
    #[default]
    Best,
    /// The last.
    Last,
    /// The one at this step.
    Step(u64),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "best" => Ok(Self::Best),
            "last" => Ok(Self::Last),
            step => {
                step.parse().map(Self::Step).map_err(|_| "expected best, last or a step".into())
            }
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => f.write_str("best"),
            Self::Last => f.write_str("last"),
            Self::Step(step) => write!(f, "{step}"),
        }
    }
}

pub(super) fn write_state(folder: &Path, state: &CheckpointState) -> Result<()> {
    write_toml(&folder.join(STATE), state)
}

/// Fails, with `advice`, unless every file is what was written.
pub(super) fn open(path: PathBuf, advice: &str) -> Result<Checkpoint> {
    let damaged = |problem: &dyn fmt::Display| {
        Error::file(&path, format!("damaged checkpoint: {problem}; {advice}"))
    };
    let text = fs::read_to_string(path.join(STATE)).map_err(|error| damaged(&error))?;
    let state: CheckpointState = toml::from_str(&text)
        .map_err(|error| damaged(&format!("{STATE}: {}", toml_problem(&error, &text))))?;
    for entry in fs::read_dir(&path)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // It would be read as it is.
        if name.ends_with(RECORD) && !state.digests.contains_key(&name) {
            return Err(damaged(&format!("{STATE} has no digest of {name}")));
        }
    }
    for (name, expected) in &state.digests {
        let found = digest_file(&path.join(name)).map_err(|error| damaged(&error))?;
        if found != *expected {
            return Err(damaged(&format!("{name} is not what was written")));
        }
    }
    Ok(Checkpoint { path, state })
}

/// A checkpoint whose files are what was written.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub(super) path: PathBuf,
    /// The state beside the parameters.
    pub state: CheckpointState,
}

impl Checkpoint {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the checkpoint's parameters into `model`.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Library`] when they do not fit it.
    pub fn load_model(&self, model: Model) -> Result<Model> {
        let path = self.path.join(MODEL);
        let failed =
            |error: burn::store::RecordError| Error::library(path.display().to_string(), error);
        let record = ModuleRecord::from_bytes(self.read(MODEL)?).map_err(failed)?;
        model.try_load_record(record).map_err(failed)
    }

    /// The bytes of a record. Burn opens a record's file when its numbers are needed, which may be after a
    /// later checkpoint or a new bundle has taken its place.
    pub(crate) fn read(&self, record: &str) -> Result<Bytes> {
        Ok(Bytes::from_bytes_vec(fs::read(self.path.join(record))?))
    }
}
