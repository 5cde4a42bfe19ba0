//! The prepared folder: sessions, embeddings and indexes of one data set, which every run on it
//! shares. It appears whole or not at all; only indexes join it later, each when first needed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::dataset::{Sessions, Statistics, tables};
use crate::embedding::{ActionEmbeddings, EmbeddingFile};
use crate::error::{Error, Result, toml_problem};
use crate::files::{digest_bytes, digest_file};
use crate::retrieval::{BuildObserver, Hnsw, HnswOptions};

#[cfg(feature = "prepare")]
pub use create::{EmbeddingSource, Input, PrepareSettings};

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
    /// Every resolved setting.
    pub settings: toml::Table,
    /// What there is.
    pub statistics: Statistics,
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
    /// V and s, on disk.
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
        let manifest_path = folder.join(MANIFEST);
        if !manifest_path.exists() {
            let problem =
                format!("no prepared folder (no {MANIFEST}); make one with `slate prepare`");
            return Err(Error::file(folder, problem));
        }
        let text = fs::read_to_string(&manifest_path)?;
        let manifest: Manifest = toml::from_str(&text).map_err(|error| {
            let problem = toml_problem(&error, &text);
            Error::file(&manifest_path, format!("cannot be read: {problem}"))
        })?;
        // Readers of damaged Parquet may ask for any amount of memory, so damage is found first.
        for (name, digest) in &manifest.files {
            let path = folder.join(name);
            if digest_file(&path)? != *digest {
                let problem = "is not what `slate prepare` wrote; prepare the data again";
                return Err(Error::file(path, problem));
            }
        }
        let sessions = tables::read_sessions(folder)?;
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

#[cfg(feature = "prepare")]
mod create {
    use std::io::Write as _;

    use super::{EMBEDDINGS, MANIFEST, Manifest, Prepared};
    use crate::dataset::{
        self, Filters, Sessions, Source, SplitSettings, SyntheticSettings, assemble, tables,
    };
    use crate::embedding::{
        Interactions, StoredEmbeddings, SvdOptions, import, training_matrix, truncated_svd,
    };
    use crate::error::{Error, Result};
    use crate::files::{StagedFolder, digest_file, write_atomic};
    use serde::{Deserialize, Serialize};
    use std::path::{Path, PathBuf};

    /// What sessions are made of.
    #[derive(Clone, Debug)]
    pub enum Input {
        /// A file of interactions.
        File(Source, Filters),
        /// Made-up interactions.
        Synthetic(SyntheticSettings),
    }

    /// Where V comes from.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum EmbeddingSource {
        /// The truncated SVD of the training interactions.
        Svd {
            /// Which of them.
            interactions: Interactions,
            /// How.
            options: SvdOptions,
        },
        /// A file with one row per action, in the order of `actions.parquet`.
        Import(PathBuf),
    }

    /// How a folder is prepared.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct PrepareSettings {
        /// How sessions are cut; its seed is also that of the SVD's start.
        pub split: SplitSettings,
        /// Where V comes from.
        pub embedding: EmbeddingSource,
    }

    impl Default for PrepareSettings {
        /// FOPO's procedure, with a tenth of the users each for validation and test.
        fn default() -> Self {
            Self {
                split: SplitSettings::default(),
                embedding: EmbeddingSource::Svd {
                    interactions: Interactions::All,
                    options: SvdOptions::default(),
                },
            }
        }
    }

    impl Prepared {
        /// Prepares `input` into the folder `out`; with `replace`, in the place of another
        /// prepared folder.
        ///
        /// # Errors
        /// What is wrong with the input, by file and row; [`Error::File`] when `out` is there
        /// already. Nothing is left under its name then.
        pub fn create(
            input: &Input,
            settings: &PrepareSettings,
            out: &Path,
            replace: bool,
        ) -> Result<Self> {
            require_free(out, replace)?;
            let interactions = match input {
                Input::File(source, filters) => dataset::read(source, filters)?,
                Input::Synthetic(synthetic) => dataset::synthetic(synthetic)?,
            };
            let dataset = assemble(interactions, &settings.split)?;
            let embeddings = embed(&dataset.sessions, settings)?;
            let staged = StagedFolder::new(out)?;
            tables::write(&dataset, staged.path())?;
            embeddings.save(&staged.path().join(EMBEDDINGS))?;
            let mut manifest = manifest(input, settings, dataset.statistics)?;
            for entry in fs_err::read_dir(staged.path())? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                manifest.files.insert(name, digest_file(&entry.path())?);
            }
            let text =
                toml::to_string(&manifest).map_err(|error| Error::library(MANIFEST, error))?;
            write_atomic(&staged.path().join(MANIFEST), |file| {
                Ok(file.write_all(text.as_bytes())?)
            })?;
            staged.commit()?;
            Self::open(out)
        }
    }

    fn require_free(out: &Path, replace: bool) -> Result<()> {
        let taken = out.exists() && fs_err::read_dir(out)?.next().is_some();
        match (taken, replace) {
            (false, _) => Ok(()),
            (true, true) if out.join(MANIFEST).exists() => Ok(()),
            (true, true) => {
                Err(Error::file(out, "is not a prepared folder, so it is not replaced"))
            }
            (true, false) => Err(Error::file(
                out,
                "is there already; give another --out, or replace it with --force",
            )),
        }
    }

    fn embed(sessions: &Sessions, settings: &PrepareSettings) -> Result<StoredEmbeddings> {
        match &settings.embedding {
            EmbeddingSource::Import(path) => import(path, sessions.num_actions),
            EmbeddingSource::Svd { interactions, options } => {
                let matrix = training_matrix(sessions, *interactions);
                truncated_svd(&matrix, sessions.num_actions, *options, settings.split.seed)
            }
        }
    }

    fn manifest(
        input: &Input,
        settings: &PrepareSettings,
        statistics: dataset::Statistics,
    ) -> Result<Manifest> {
        let table = |result: Result<toml::Table, toml::ser::Error>| {
            result.map_err(|error| Error::library(MANIFEST, error))
        };
        let mut all = table(toml::Table::try_from(settings))?;
        let (input, input_digest) = match input {
            Input::File(source, filters) => {
                all.insert("filters".into(), table(toml::Table::try_from(filters))?.into());
                (source.path.display().to_string(), dataset::digest(source)?)
            }
            Input::Synthetic(synthetic) => {
                all.insert("synthetic".into(), table(toml::Table::try_from(synthetic))?.into());
                ("synthetic sessions".to_owned(), String::new())
            }
        };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Manifest {
            version,
            input,
            input_digest,
            files: std::collections::BTreeMap::new(),
            settings: all,
            statistics,
        })
    }
}
