//! What a run's settings were applied to: data, device, reward, log and the model before it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::logged::Reading;
use crate::prepared::Prepared;
use crate::tower::Radius;

/// The data and the device that a run's settings were applied to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunOrigin {
    /// The prepared folder.
    pub data: PathBuf,
    /// Digest of its sessions and embeddings.
    pub data_digest: String,
    /// The backend.
    pub device: String,
    /// The version of this crate that started the run.
    pub version: String,
    /// The name of the reward that a program brought along, if it did: `reward.kind` was not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<String>,
    /// The name of the latent noise that a program brought along, if it did: that of the method was not
    /// used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<String>,
    /// True if actions are searched for in shards ([`Task::through`](crate::task::Task::through)).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sharded: bool,
    /// The run whose model this one began with, if it did not begin anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<WarmStart>,
    /// The log that it learns from, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logged: Option<LearnedFrom>,
    /// The run that it does again, on everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refit: Option<Refit>,
}

/// What a run does again that another did, while some users or items were held out: as much of the budget
/// as led to a checkpoint there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refit {
    /// The other run's folder.
    pub run: PathBuf,
    /// Steps behind the checkpoint there.
    pub step: u64,
    /// The share of the budget that led to it, from 0 to 1.
    pub share: f64,
    /// The shares at which the learning rate grew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growths: Vec<f64>,
}

impl Refit {
    /// True if the other does the same, whatever its run is called.
    pub(crate) fn does_as(&self, other: &Self) -> bool {
        let what = |of: &Self| (of.step, of.share, of.growths.clone());
        what(self) == what(other)
    }
}

/// The log that a run learns from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedFrom {
    /// Folders and files.
    pub paths: Vec<PathBuf>,
    /// Digest of all rows.
    pub digest: String,
    /// How it is read, and how its persons are divided.
    pub reading: Reading,
}

/// A model of another run to begin with. The run keeps a copy of it, so that the other one may
/// change or go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmStart {
    /// The other run's folder.
    pub run: PathBuf,
    /// Steps behind the model there.
    pub step: u64,
    /// How far each correction of the query may go that logs have taught; the last is this run's own, if
    /// it learns from one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<Radius>,
}

impl RunOrigin {
    /// A run on `prepared` that starts now, on the device of that name.
    #[must_use]
    pub fn new(prepared: &Prepared, device: &str) -> Self {
        Self {
            data: prepared.folder().to_owned(),
            data_digest: prepared.digest().to_owned(),
            device: device.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            reward: None,
            noise: None,
            sharded: false,
            init: None,
            logged: None,
            refit: None,
        }
    }

    /// True for a run that was trained from its data alone.
    pub(crate) fn is_first(&self) -> bool {
        let Self { init, logged, noise, refit, .. } = self;
        init.is_none() && logged.is_none() && noise.is_none() && refit.is_none()
    }

    /// What leads a run elsewhere from the start if it goes on with `now`.
    pub(super) fn differences(&self, now: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        if self.data_digest != now.data_digest {
            differences
                .push(format!("the prepared folder {} holds other data", now.data.display()));
        }
        if self.device != now.device {
            differences.push(format!("device: {} → {}", self.device, now.device));
        }
        if self.logged.as_ref().map(|log| &log.digest) != now.logged.as_ref().map(|log| &log.digest)
        {
            differences.push("the log holds other rows".into());
        }
        let brought = [("reward", &self.reward, &now.reward), ("noise", &self.noise, &now.noise)];
        for (what, before, now) in brought.into_iter().filter(|(_, before, now)| before != now) {
            let name = |own: Option<&String>| {
                own.map_or("one of the settings".to_owned(), |name| {
                    format!("`{name}` of a program")
                })
            };
            let (before, now) = (name(before.as_ref()), name(now.as_ref()));
            differences.push(format!("{what}: {before} → {now}"));
        }
        if self.sharded != now.sharded {
            let place = |sharded| if sharded { "in shards" } else { "in one place" };
            let (before, now) = (place(self.sharded), place(now.sharded));
            differences.push(format!("actions are searched for {before} → {now}"));
        }
        differences
    }
}
