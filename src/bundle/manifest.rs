//! `bundle.toml` ↔ its content. The file's last table is the digest of all text above it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::PartOf;
use crate::encoder::Fitted;
use crate::error::{Error, Result, toml_problem};
use crate::files::{Mapped, blake3_bytes, blake3_pass, read_text};
use crate::policy::Sigma;
use crate::retrieval::HnswOptions;
use crate::reward::RewardKind;
use crate::tower::{Radius, TowerForm};

/// The name of the file that makes a folder a bundle.
pub const MANIFEST: &str = "bundle.toml";

/// The version of the format.
const FORMAT: i64 = 2;

/// The beginning of the last table.
const DIGEST: &str = "\n[digest]\n";

const AGAIN: &str = "export the bundle again";

/// What a bundle says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format.
    pub format: i64,
    /// The rule for σ of the policy `h + σε`, ε Gaussian; none for a policy that draws otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigma: Option<Sigma>,
    /// Sizes.
    pub shapes: Shapes,
    /// The numbers in `vectors.safetensors`.
    pub vectors: Scales,
    /// How the layers make h of M; none where h is M.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tower: Option<TowerForm>,
    /// How far each correction of h may go, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<Radius>,
    /// Options of the graph, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<HnswOptions>,
    /// The catalogue that it is a part of, if it is a shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartOf>,
    /// The context encoders, in the order in which they are joined.
    pub encoders: Vec<Fitted>,
    /// Size and digest of each file beside this one.
    pub files: BTreeMap<String, FileRecord>,
    /// What trained it.
    pub trained: Trained,
}

/// The sizes of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shapes {
    /// P.
    pub num_actions: usize,
    /// D.
    pub context_dim: usize,
    /// L.
    pub latent_dim: usize,
    /// Users whose histories are part of it.
    pub users: usize,
}

/// The type of the numbers in `vectors.safetensors`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VectorScalar {
    /// Four bytes: scores are those of the run.
    #[default]
    F32,
    /// Two bytes, eleven significant bits: half of the disk, and scores that are off by rounding.
    F16,
}

/// The type of the numbers, and the power of two that each tensor was multiplied with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scales {
    /// The type.
    pub scalar: VectorScalar,
    /// A factor for each tensor; 1 in f32.
    pub scales: BTreeMap<String, f32>,
}

/// A file's size and digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Its size.
    pub bytes: u64,
    /// Its digest, in hex.
    pub blake3: String,
}

/// What trained a policy, and what it was trained for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trained {
    /// The version of this crate that exported it.
    pub version: String,
    /// Digest of the prepared folder.
    pub data: String,
    /// Digest of β as it was trained with, before any rounding: policies over the same vectors can learn
    /// from each other's logs.
    pub vectors: String,
    /// Optimiser steps behind the model.
    pub step: u64,
    /// K, unless a request asks for another.
    pub slate_size: usize,
    /// The reward of a slate.
    pub reward: RewardKind,
    /// The name of the reward that a program brought along, in the place of `reward`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_reward: Option<String>,
    /// Every setting of the run.
    pub settings: toml::Table,
}

impl Manifest {
    /// The version that is written.
    pub(super) const FORMAT: i64 = FORMAT;

    /// The text of the file.
    pub(super) fn text(&self) -> Result<String> {
        Ok(format!("{}{DIGEST}blake3 = \"{}\"\n", self.body()?, self.digest()?))
    }

    /// The bundle's digest.
    pub(super) fn digest(&self) -> Result<String> {
        Ok(blake3_bytes(self.body()?.as_bytes()))
    }

    fn body(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::library(MANIFEST, error))
    }

    /// Reads the file in `folder`, and the bundle's digest.
    ///
    /// # Errors
    /// [`Error::File`] where there is no bundle, for one of a newer format, and for a file that is not
    /// what was written.
    pub fn read(folder: &Path) -> Result<(Self, String)> {
        let path = folder.join(MANIFEST);
        if !path.exists() {
            let problem = format!("no bundle (no {MANIFEST}); make one with `slate export`");
            return Err(Error::file(folder, problem));
        }
        let text = read_text(&path)?;
        let bad =
            |problem: String| Error::file(&path, format!("cannot be read: {problem}; {AGAIN}"));
        let table: toml::Table = text.parse().map_err(|error| bad(toml_problem(&error, &text)))?;
        match table.get("format").and_then(toml::Value::as_integer) {
            Some(FORMAT) => {}
            Some(format) if format > FORMAT => {
                let problem = format!(
                    "is of format {format}, which a newer fast-slate wrote; this one reads up to \
                     {FORMAT}"
                );
                return Err(Error::file(&path, problem));
            }
            Some(format) => {
                let problem =
                    format!("is of format {format}, which an older fast-slate wrote; {AGAIN}");
                return Err(Error::file(&path, problem));
            }
            _ => return Err(bad("it has no known `format`".into())),
        }
        let damaged = || Error::file(&path, format!("is not what was written; {AGAIN}"));
        let (body, _) = text.rsplit_once(DIGEST).ok_or_else(damaged)?;
        let recorded = table.get("digest").and_then(|table| table.get("blake3")?.as_str());
        let digest = blake3_bytes(body.as_bytes());
        if recorded != Some(&digest) {
            return Err(damaged());
        }
        let manifest: Self =
            toml::from_str(body).map_err(|error| bad(toml_problem(&error, body)))?;
        // A name such as `..` leads out of the folder.
        let is_plain = |name: &String| Path::new(name).file_name() == Some(name.as_ref());
        if let Some(name) = manifest.files.keys().find(|name| !is_plain(name)) {
            return Err(bad(format!("`{name}` is no name of a file in this folder")));
        }
        match manifest.part.as_ref().filter(|part| !part.holds(manifest.shapes.num_actions)) {
            Some(part) => {
                Err(bad(format!("its items end after the {} of the whole", part.num_actions)))
            }
            None => Ok((manifest, digest)),
        }
    }

    /// The bytes of every file, each read once, side by side; those of the files `mapped` stay on disk
    /// and only their length is checked.
    ///
    /// # Errors
    /// [`Error::File`] naming a file that is not what was written; an I/O error naming the file.
    pub(super) fn read_files(
        &self,
        folder: &Path,
        mapped: &[&str],
    ) -> Result<BTreeMap<String, Bytes>> {
        let read = |(name, record): (&String, &FileRecord)| {
            let path = folder.join(name);
            record.check_length(&path)?;
            let bytes = if mapped.contains(&name.as_str()) {
                Bytes::Mapped(Arc::new(Mapped::open(&path)?))
            } else {
                Bytes::Read(record.read(&path)?)
            };
            Ok((name.clone(), bytes))
        };
        self.files.par_iter().map(read).collect()
    }
}

/// The bytes of a file.
pub(super) enum Bytes {
    /// They are what was written.
    Read(Vec<u8>),
    /// They are as many as were written.
    Mapped(Arc<Mapped>),
}

impl Bytes {
    /// The bytes, if they were read.
    pub(super) fn read(&self) -> Option<&[u8]> {
        match self {
            Self::Read(bytes) => Some(bytes),
            Self::Mapped(_) => None,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

impl FileRecord {
    /// The record of a file that was just written.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let mut bytes = 0;
        let blake3 = blake3_pass(path, |piece| bytes += piece.len() as u64)?;
        Ok(Self { bytes, blake3 })
    }

    fn check_length(&self, path: &Path) -> Result<()> {
        let found = fs_err::metadata(path)?.len();
        if found == self.bytes {
            return Ok(());
        }
        let problem = format!("has {found} bytes, {} were written; {AGAIN}", self.bytes);
        Err(Error::file(path, problem))
    }

    /// Passes the bytes to `each` and compares their digest.
    pub(super) fn check(&self, path: &Path, each: impl FnMut(&[u8])) -> Result<()> {
        if blake3_pass(path, each)? == self.blake3 {
            return Ok(());
        }
        Err(Error::file(path, format!("is not what was written; {AGAIN}")))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.bytes).unwrap_or_default());
        self.check(path, |piece| bytes.extend_from_slice(piece))?;
        Ok(bytes)
    }
}
