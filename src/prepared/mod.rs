//! The prepared folder: sessions, embeddings and indexes of one data set, which every run on it
//! shares. It appears whole or not at all; only indexes join it later, each when first needed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::dataset::{Sessions, Statistics, tables};
use crate::embedding::{ActionEmbeddings, EmbeddingFile, Power};
use crate::error::{Error, Result, toml_problem};
use crate::files::{digest_bytes, digest_file};
use crate::retrieval::{BuildObserver, Hnsw, HnswOptions};
use crate::settings::{Preset, Settings};

#[cfg(feature = "prepare")]
mod create;
#[cfg(feature = "prepare")]
mod phase;

#[cfg(feature = "prepare")]
pub use create::{EmbeddingSource, Input, Phases, PrepareSettings, prepare};
#[cfg(feature = "prepare")]
pub use phase::Phase;

const MANIFEST: &str = "prepare.toml";
const EMBEDDINGS: &str = "embeddings.safetensors";
const INDEX: &str = "index";

/// `prepare.toml`: where the folder came from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this crate that wrote the folder.
    pub version: String,
    /// The file of interactions, or what was made up.
    pub input: String,
    /// SHA-256 of that file; empty for synthetic sessions.
    pub input_digest: String,
    /// SHA-256 of each file of the folder.
    pub files: BTreeMap<String, String>,
    /// What each phase of the preparation depended on, as SHA-256: where a later preparation
    /// comes to the same, it takes the files over.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
    /// Every resolved setting.
    pub settings: toml::Table,
    /// What there is.
    pub statistics: Statistics,
}

impl Manifest {
    fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        if !path.exists() {
            let problem =
                format!("no prepared folder (no {MANIFEST}); make one with `slate prepare`");
            return Err(Error::file(folder, problem));
        }
        let text = fs::read_to_string(&path)?;
        toml::from_str(&text).map_err(|error| {
            Error::file(&path, format!("cannot be read: {}", toml_problem(&error, &text)))
        })
    }
}

/// A prepared folder, read.
#[derive(Clone, Debug)]
pub struct Prepared {
    folder: PathBuf,
    digest: String,
    /// Where it came from.
    pub manifest: Manifest,
    /// Who has seen and hidden what.
    pub sessions: Arc<Sessions>,
    /// V and, where there is one, s, on disk.
    pub embeddings: EmbeddingFile,
    observer: Arc<dyn BuildObserver>,
}

impl Prepared {
    /// Reads a prepared folder.
    ///
    /// # Errors
    /// [`Error::File`] where there is none, or naming the file that is missing or damaged;
    /// [`Error::Shape`] when embeddings and sessions do not have the same actions.
    pub fn open(folder: &Path) -> Result<Self> {
        let manifest = Manifest::read(folder)?;
        // Readers of damaged Parquet may ask for any amount of memory, so damage is found first.
        for (name, digest) in &manifest.files {
            let path = folder.join(name);
            if digest_file(&path)? != *digest {
                let problem = "is not what `slate prepare` wrote; prepare the data again";
                return Err(Error::file(path, problem));
            }
        }
        Self::new(folder, manifest, tables::read_sessions(folder)?)
    }

    /// The folder that holds these.
    fn new(folder: &Path, manifest: Manifest, sessions: Sessions) -> Result<Self> {
        let embeddings_path = folder.join(EMBEDDINGS);
        let embeddings = EmbeddingFile::open(&embeddings_path)?;
        if embeddings.num_actions() != sessions.num_actions {
            return Err(Error::Shape {
                what: format!("{}: `beta`", embeddings_path.display()),
                expected: format!("[{}, L], the rows of actions.parquet", sessions.num_actions),
                found: format!("[{}, {}]", embeddings.num_actions(), embeddings.latent_dim()),
            });
        }
        let digests: String = manifest.files.values().map(String::as_str).collect();
        Ok(Self {
            folder: fs::canonicalize(folder)?,
            digest: digest_bytes(digests.as_bytes()),
            manifest,
            sessions: Arc::new(sessions),
            embeddings,
            observer: Arc::new(()),
        })
    }

    /// The same folder, which tells `observer` when it builds an index.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn BuildObserver>) -> Self {
        Self { observer, ..self }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// SHA-256 over what is in it (but for the indexes), in hex.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The settings of `preset` as far as this folder allows them: embeddings without singular
    /// values are taken as they are.
    #[must_use]
    pub fn preset(&self, preset: Preset) -> Settings {
        let mut settings = preset.settings();
        if !self.embeddings.has_singular_values() {
            settings.embedding.power = Power::Zero;
        }
        settings
    }

    /// The index of `actions` with `options`, built if no run has needed it before.
    ///
    /// # Errors
    /// [`Error::File`] for an index that belongs to other embeddings, or a full disk.
    pub fn index(&self, actions: &Arc<ActionEmbeddings>, options: &HnswOptions) -> Result<Hnsw> {
        let started = std::time::Instant::now();
        let (folder, observer) = (self.folder.join(INDEX), self.observer.as_ref());
        let (index, built) = Hnsw::open_or_build(&folder, Arc::clone(actions), options, observer)?;
        if built {
            tracing::info!(
                "built an index of {} actions in {:.1} s",
                actions.num_actions(),
                started.elapsed().as_secs_f64()
            );
        }
        Ok(index)
    }
}
