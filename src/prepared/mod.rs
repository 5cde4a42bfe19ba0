//! A log → the prepared folder: sessions, embeddings and indexes of one data set, which all runs on
//! it share. The folder appears whole or not at all; indexes and the embeddings of folds join it
//! later, each when first needed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::dataset::{FeatureTable, Sessions, Statistics, Times, tables};
use crate::embedding::tensors::TensorFile;
use crate::embedding::{ActionEmbeddings, EmbeddingFile, Form, Power};
use crate::encoder::EncoderKind;
use crate::error::{Error, Result};
use crate::files::{digest_bytes, digest_file, read_toml};
use crate::matrix::Matrix;
use crate::retrieval::{BuildObserver, Hnsw, HnswOptions};
use crate::reward::RewardKind;
use crate::seed::Seed;
use crate::settings::{Preset, Settings};

mod create;
mod folds;
mod phase;
mod refit;
mod source;

pub use create::{Input, Phases, PrepareSettings, prepare};
pub use phase::Phase;
pub use source::{Choice, Choose, Chosen, ChosenSettings, EmbeddingSource, HeldOut, Judge};

const MANIFEST: &str = "prepare.toml";
const EMBEDDINGS: &str = "embeddings.safetensors";
/// The [`Choice`] that a preparation made.
const CHOICE: &str = "choice.toml";
const FEATURES: &str = "features.safetensors";
/// The one tensor of [`FEATURES`].
const FEATURES_TENSOR: &str = "features";
const FEATURE_TABLE: &str = "features.toml";
const INDEX: &str = "index";

/// `prepare.toml`: what the folder was made from, and what is in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this crate that wrote the folder.
    pub version: String,
    /// The file of interactions, the files of a given split, or "synthetic sessions".
    pub input: String,
    /// SHA-256 of each file; empty for synthetic sessions.
    pub input_digest: String,
    /// SHA-256 of each file of the folder.
    pub files: BTreeMap<String, String>,
    /// SHA-256 of everything that each phase of the preparation depended on. A later preparation
    /// with the same key takes the files over.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
    /// Every resolved setting.
    pub settings: toml::Table,
    /// Numbers of users, actions and interactions.
    pub statistics: Statistics,
    /// The source of the embeddings; none in a folder of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// The width of the graph search that an audit chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<AuditedSearch>,
}

/// The least `retrieval.hnsw.ef_search` that had a recall, with a preset's graph on the queries of its
/// first step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditedSearch {
    /// The preset.
    pub preset: Preset,
    /// The recall that was asked for.
    pub recall: f64,
    /// The least that had this recall.
    pub ef_search: usize,
}

impl Manifest {
    fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => {
                let problem =
                    format!("no prepared folder (no {MANIFEST}); make one with `slate prepare`");
                return Err(Error::file(folder, problem));
            }
            Err(error) => return Err(Error::file(&path, error.to_string())),
        }
        let manifest: Self = read_toml(&path)?;
        // A name such as `..` or `/dev/zero` leads out of the folder.
        let is_plain = |name: &String| Path::new(name).file_name() == Some(name.as_ref());
        if let Some(name) = manifest.files.keys().find(|name| !is_plain(name)) {
            let problem = format!("expected names of files in this folder, found `{name}`");
            return Err(Error::file(&path, problem));
        }
        Ok(manifest)
    }

    /// True for built-in synthetic sessions.
    #[must_use]
    pub fn is_synthetic(&self) -> bool {
        self.settings.contains_key("synthetic")
    }

    /// The source of the embeddings.
    fn source(&self) -> Option<EmbeddingSource> {
        if let Some(choice) = &self.choice {
            return Some(choice.source.clone());
        }
        self.settings.get("embedding")?.clone().try_into().ok()
    }

    /// What the embeddings were chosen by, if they were.
    fn judge(&self) -> Option<Judge> {
        match self.settings.get("embedding")?.clone().try_into().ok()? {
            EmbeddingSource::Auto(judge) => Some(judge),
            EmbeddingSource::Again { judge, .. } => judge,
            _ => None,
        }
    }

    /// The seed of the preparation, which decides splits, folds and embeddings.
    pub(crate) fn seed(&self) -> Seed {
        let seed = self.settings.get("split").and_then(|split| split.get("seed"));
        seed.and_then(|seed| seed.clone().try_into().ok()).unwrap_or_default()
    }
}

/// A prepared folder, read.
#[derive(Clone, Debug)]
pub struct Prepared {
    folder: PathBuf,
    digest: String,
    /// What the folder was made from.
    pub manifest: Manifest,
    /// The observed and hidden actions of every user.
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

    /// Opens the embeddings of a folder whose manifest and sessions have been read.
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

    /// Returns the folder with an `observer` that is told of index builds.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn BuildObserver>) -> Self {
        Self { observer, ..self }
    }

    /// The path of the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// SHA-256 over its files, in hex; indexes and folds do not count.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The settings of `preset`, adapted to this folder. `retrieval.hnsw.ef_search` is the audited
    /// one, if there is one for the preset. Embeddings without singular values are taken as they are.
    /// With embeddings of ALS, the fold-in takes α and λ of ALS and is the encoder of the default
    /// preset; of a blend β is what scores by it, at p = ½. The default preset takes what the preparation chose and chose by, a smaller learning rate for vectors
    /// longer than 100, and no folds if the embeddings were not fitted here.
    #[must_use]
    pub fn preset(&self, preset: Preset) -> Settings {
        let mut settings = preset.settings();
        if let Some(search) = self.manifest.search.filter(|search| search.preset == preset) {
            settings.retrieval.hnsw.ef_search = search.ef_search;
        }
        if !self.embeddings.has_singular_values() {
            settings.embedding.power = Power::Zero;
        }
        let source = self.manifest.source();
        if let Some(EmbeddingSource::Als { options, .. }) = &source {
            settings.context.confidence = options.confidence;
            settings.context.regularization = options.regularization;
            if preset == Preset::Default {
                settings.context.encoders = vec![EncoderKind::FoldIn];
            }
        }
        if let Some(EmbeddingSource::Blend { .. }) = &source {
            settings.embedding = Form::default();
        }
        if preset == Preset::Default {
            if let Some(EmbeddingSource::Neighbours { options, .. }) = &source {
                settings.tower.fixed = options.dims;
            }
            // Adam moves every number of a tower alike, and all that it learns add up in each of a query.
            let learned = self.embeddings.latent_dim().saturating_sub(settings.tower.fixed);
            let longer = (learned as f64 / 100.0).max(1.0);
            settings.optimizer.learning_rate /= longer;
            if let Some(judge) = self.manifest.judge() {
                settings.reward.kind = judge.reward;
                settings.slate_size = judge.slate_size;
                settings.retrieval.exclude_observed = judge.exclude_observed;
            }
            let choice = self.manifest.choice.as_ref();
            if let Some(chosen) = choice.and_then(|choice| choice.settings.as_ref()) {
                settings.embedding = chosen.embedding;
                settings.context.encoders = vec![chosen.encoder];
                settings.context.popularity_power = chosen.popularity_power;
                settings.context.recency = chosen.recency;
            }
            if !source.is_some_and(|source| source.is_fitted()) {
                settings.context.folds = 0;
            }
        }
        settings
    }

    /// Says that the embeddings were chosen by another reward, slate size or exclusion than these
    /// settings have, if they were.
    #[must_use]
    pub fn chosen_otherwise(&self, settings: &Settings) -> Option<String> {
        let Judge { reward, slate_size, exclude_observed, .. } = self.manifest.judge()?;
        let (chosen, here) = (
            (reward, slate_size, exclude_observed),
            (settings.reward.kind, settings.slate_size, settings.retrieval.exclude_observed),
        );
        let said = |(reward, slate_size, exclude): (RewardKind, usize, bool)| {
            let observed = if exclude { "without" } else { "with" };
            format!("{reward}, K = {slate_size}, {observed} observed items")
        };
        (chosen != here).then(|| {
            format!(
                "the embeddings were chosen for other slates ({}) than these ({}): `slate prepare` \
                 chooses again with --reward and --slate-size",
                said(chosen),
                said(here)
            )
        })
    }

    /// Says that there are features of users at which no encoder of these settings looks, if so.
    #[must_use]
    pub(crate) fn unused_features(&self, settings: &Settings) -> Option<String> {
        let encoders = self.with_features(settings)?;
        Some(format!(
            "{}: no encoder looks at the features of users: set context.encoders to {encoders}",
            self.folder.display()
        ))
    }

    /// `context.encoders` of `settings` with the features of users beside them, if there are features and
    /// no encoder looks at them.
    #[must_use]
    pub(crate) fn with_features(&self, settings: &Settings) -> Option<String> {
        let mut encoders = settings.context.encoders.clone();
        if !self.manifest.files.contains_key(FEATURES) || encoders.contains(&EncoderKind::Features)
        {
            return None;
        }
        encoders.push(EncoderKind::Features);
        toml::Value::try_from(encoders).ok().map(|encoders| encoders.to_string())
    }

    /// The times of the interactions, if the log was read with a column of times.
    ///
    /// # Errors
    /// An error naming the file that cannot be read.
    pub fn times(&self) -> Result<Option<Times>> {
        tables::read_times(&self.folder, &self.sessions)
    }

    /// True if times decided what of a user is hidden.
    #[must_use]
    pub fn is_split_by_time(&self) -> bool {
        match self.split_kind() {
            Some(toml::Value::String(kind)) => kind == "temporal",
            Some(toml::Value::Table(kind)) => kind.contains_key("dates"),
            _ => false,
        }
    }

    /// True if held-out users hide any of their items: others might as well be hidden.
    #[must_use]
    pub fn hides_at_random(&self) -> bool {
        self.split_kind().and_then(toml::Value::as_str) == Some("random")
    }

    fn split_kind(&self) -> Option<&toml::Value> {
        self.manifest.settings.get("split")?.get("kind")
    }

    /// The features of every user `[U, F]`, if the folder was prepared with any.
    ///
    /// # Errors
    /// An error naming the file that cannot be read; [`Error::Shape`] when it has other users.
    pub fn features(&self) -> Result<Option<Matrix>> {
        if !self.manifest.files.contains_key(FEATURES) {
            return Ok(None);
        }
        let path = self.folder.join(FEATURES);
        let features = TensorFile::open(&path)?.matrix(FEATURES_TENSOR)?;
        if features.rows() != self.sessions.num_contexts() {
            return Err(Error::Shape {
                what: format!("{}: `{FEATURES_TENSOR}`", path.display()),
                expected: format!("[{}, F]", self.sessions.num_contexts()),
                found: format!("[{}, {}]", features.rows(), features.cols()),
            });
        }
        Ok(Some(features))
    }

    /// The meaning of the columns of [`features`](Self::features).
    ///
    /// # Errors
    /// An error naming the file that cannot be read.
    pub fn feature_table(&self) -> Result<Option<FeatureTable>> {
        if !self.manifest.files.contains_key(FEATURE_TABLE) {
            return Ok(None);
        }
        read_toml(&self.folder.join(FEATURE_TABLE)).map(Some)
    }

    /// The index of `actions` with `options`; it is built if no run has needed it before.
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
