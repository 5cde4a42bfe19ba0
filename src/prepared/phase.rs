//! A key for each phase of a preparation → files that are made, or taken over from an earlier one.
//! `prepare.toml` records each phase that has ended, in a folder under construction too, with its
//! key: the digest of everything it depended on. A preparation with the same key takes the files
//! over if their digests are still those of the record, and makes all others again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::folds::FOLDS;
use super::{CHOICE, EMBEDDINGS, FEATURE_TABLE, FEATURES, INDEX, MANIFEST};
use crate::dataset::tables;
use crate::error::Result;
use crate::files::{digest_file, read_toml, write_toml};

/// A part of a preparation; it is not made again while nothing it depends on changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Reading, filtering and splitting the log.
    Sessions,
    /// The fits, or the import.
    Embeddings,
    /// The features of users, where there are any.
    Features,
}

impl Phase {
    /// The name in the report and in `prepare.toml`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Embeddings => "embeddings",
            Self::Features => "features",
        }
    }

    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Sessions => &tables::FILES,
            Self::Embeddings => &[EMBEDDINGS, CHOICE],
            Self::Features => &[FEATURES, FEATURE_TABLE],
        }
    }
}

/// True for the name of a file or folder that a preparation makes, or made in an earlier version.
pub(super) fn is_ours(name: &str) -> bool {
    let phases = [Phase::Sessions, Phase::Embeddings, Phase::Features];
    [MANIFEST, FOLDS, INDEX].contains(&name)
        || phases.iter().any(|phase| phase.files().contains(&name))
}

/// The files of the phases that have ended: a part of `prepare.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    /// SHA-256 of each file.
    pub(super) files: BTreeMap<String, String>,
    /// The key of each phase.
    #[serde(default)]
    pub(super) keys: BTreeMap<String, String>,
}

impl Made {
    /// Reads the record; it is empty where there is none, or one that cannot be read.
    fn read(folder: &Path) -> Self {
        read_toml(&folder.join(MANIFEST)).unwrap_or_default()
    }

    /// True if `folder` holds the files that `phase` makes from `key`.
    fn holds(&self, folder: &Path, phase: Phase, key: &str) -> bool {
        let is_whole = |name: &&str| {
            let digest = digest_file(&folder.join(name));
            self.files.get(*name).is_some_and(|expected| digest.is_ok_and(|it| it == *expected))
        };
        self.keys.get(phase.name()).is_some_and(|found| found == key)
            && phase.files().iter().all(is_whole)
    }
}

/// A folder that the phases fill.
#[derive(Debug)]
pub(super) struct Work {
    folder: PathBuf,
    pub(super) made: Made,
    /// The folder that it will replace.
    before: PathBuf,
    made_before: Made,
    pub(super) reused: Vec<Phase>,
    /// The phases of `reused` that came from `before`.
    taken_over: Vec<Phase>,
}

impl Work {
    /// Goes on in `folder`, which will replace `before` if that exists.
    pub(super) fn new(folder: &Path, before: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            made: Made::read(folder),
            before: before.to_owned(),
            made_before: Made::read(before),
            reused: Vec::new(),
            taken_over: Vec::new(),
        }
    }

    /// True if the files of `phase` are there, made from `key`; otherwise they are removed.
    pub(super) fn reuse(&mut self, phase: Phase, key: &str) -> Result<bool> {
        if !self.made.holds(&self.folder, phase, key) {
            self.remove(phase)?;
            if !self.made_before.holds(&self.before, phase, key) {
                return Ok(false);
            }
            for name in phase.files() {
                let (from, to) = (self.before.join(name), self.folder.join(name));
                // Files of a prepared folder are never written to, so two folders may share one.
                if fs::hard_link(&from, &to).is_err() {
                    fs::copy(&from, &to)?;
                }
            }
            self.finish(phase, key)?;
            self.taken_over.push(phase);
        }
        tracing::info!(
            "reusing the {} of an earlier preparation: nothing they depend on has changed",
            phase.name()
        );
        self.reused.push(phase);
        Ok(true)
    }

    /// Removes the files of a phase, and the folds, which are fitted to the sessions as the embeddings are.
    pub(super) fn remove(&mut self, phase: Phase) -> Result<()> {
        for name in phase.files() {
            self.made.files.remove(*name);
            let path = self.folder.join(name);
            if path.exists() {
                fs::remove_file(path)?;
            }
        }
        self.made.keys.remove(phase.name());
        let folds = self.folder.join(FOLDS);
        if phase != Phase::Features && folds.exists() {
            fs::remove_dir_all(folds)?;
        }
        Ok(())
    }

    /// Records that `phase` has ended and its files are whole.
    pub(super) fn finish(&mut self, phase: Phase, key: &str) -> Result<()> {
        for name in phase.files() {
            self.made.files.insert((*name).to_owned(), digest_file(&self.folder.join(name))?);
        }
        self.made.keys.insert(phase.name().to_owned(), key.to_owned());
        write_manifest(&self.folder, &self.made)
    }

    /// SHA-256 of the files of a phase that has ended.
    pub(super) fn digests(&self, phase: Phase) -> Vec<Option<&String>> {
        phase.files().iter().map(|name| self.made.files.get(*name)).collect()
    }

    /// The folder that the phases fill.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// True if every file came from the folder that would be replaced.
    pub(super) fn changes_nothing(&self) -> bool {
        self.taken_over.len() == self.made.keys.len() && self.made.keys == self.made_before.keys
    }
}

/// Writes `prepare.toml`.
pub(super) fn write_manifest(folder: &Path, manifest: &impl Serialize) -> Result<()> {
    write_toml(&folder.join(MANIFEST), manifest)
}
