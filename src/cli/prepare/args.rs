//! The flags of `slate prepare` in, the settings of a preparation out.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};

use crate::cli::prologue::{preset, share};
use crate::dataset::{FeatureSource, Filters, ITEM_ID, RowFilter, Source, SplitSettings};
use crate::embedding::{AlsOptions, Import, Missing, SessionPart, SvdOptions};
use crate::prepared::{EmbeddingSource, PrepareSettings};
use crate::seed::Seed;
use crate::settings::Preset;

#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// The log: the folder, archive or file of a known data set (see `slate datasets`), a CSV or TSV
    /// file (gzipped or not), a Parquet file, a folder of Parquet files, or a pattern in quotes such
    /// as 'log/*.csv'.
    #[arg(value_hint = ValueHint::AnyPath)]
    input: PathBuf,
    /// The prepared folder to write.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(super) out: PathBuf,
    /// Replace the prepared folder if it exists.
    #[arg(long)]
    pub(super) force: bool,
    /// The named defaults: paper or default.
    #[arg(long, value_parser = preset, default_value = "default")]
    pub(super) preset: Preset,
    /// The column of user ids; a known data set needs none.
    #[arg(long)]
    user_column: Option<String>,
    /// The column of item ids; a known data set needs none.
    #[arg(long)]
    item_column: Option<String>,
    /// The column of ratings, for --min-rating.
    #[arg(long)]
    rating_column: Option<String>,
    /// The column of times, for context.half_life: seconds, milli-, micro- or nanoseconds since 1970
    /// (their size tells which), or in Parquet also dates and times without a time zone.
    #[arg(long)]
    time_column: Option<String>,
    /// The rows that count as interactions: COLUMN=VALUE, all, or known (the rule of a known data
    /// set).
    #[arg(long, default_value_t)]
    rows: RowFilter,
    /// Skip up to this many rows that cannot be read, and report how many there were. Every line is
    /// then a row, even within quotes.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad_rows: u64,
    /// Keep only interactions with at least this rating.
    #[arg(long)]
    min_rating: Option<f64>,
    /// Keep only users with at least this many interactions.
    #[arg(long, default_value_t = 20)]
    min_user_interactions: u32,
    /// Keep only items with at least this many interactions.
    #[arg(long, default_value_t = 1)]
    min_item_interactions: u32,
    /// The share of each user's items that is observed; the rest is hidden.
    #[arg(long, default_value_t = 0.5)]
    observed_share: f64,
    /// The share of the users in the validation split [default: 0.1].
    #[arg(long)]
    validation_share: Option<f64>,
    /// The share of the users in the test split [default: 0.1; 0 with --preset paper].
    #[arg(long)]
    test_share: Option<f64>,
    /// The source of the embeddings: svd, als (implicit alternating least squares), or a file. A
    /// .parquet file has a column of item ids, and a column of lists of floats or several columns of
    /// floats. A .npy or .safetensors (`beta`) file has rows in the order of actions.parquet or
    /// --embedding-ids.
    #[arg(long, value_name = "svd|als|FILE", value_hint = ValueHint::FilePath,
        default_value = "svd")]
    embeddings: Embeddings,
    /// L, the length of an embedding [default: 100; the length of the rows of a file].
    #[arg(long)]
    latent_dim: Option<usize>,
    /// The η of svd, from 0 to 1. The matrix to decompose is (n_u n_a)^−η A_{ua}, where n_u and n_a
    /// count the interactions of user and item [default: 0.25; 0 with --preset paper].
    #[arg(long)]
    normalization: Option<f32>,
    /// Compute the embeddings from the observed interactions of the training users only.
    #[arg(long)]
    observed_only: bool,
    /// The α of als: an interaction weighs 1 + α, and a missing one 1 [default: 10].
    #[arg(long, value_name = "ALPHA", allow_negative_numbers = true)]
    confidence: Option<f64>,
    /// The λ of als, the weight of the squared norms [default: 1].
    #[arg(long, value_name = "LAMBDA", allow_negative_numbers = true)]
    regularization: Option<f64>,
    /// The number of sweeps of als over users and items [default: 15].
    #[arg(long)]
    iterations: Option<usize>,
    /// The column of item ids in a Parquet file of embeddings [default: item_id].
    #[arg(long)]
    id_column: Option<String>,
    /// A text file with the item id of each row of a .npy or .safetensors file, one id a line.
    #[arg(long, value_hint = ValueHint::FilePath)]
    embedding_ids: Option<PathBuf>,
    /// What to do with items that are missing in a file with ids: report an error, or set their
    /// embedding to zero [default: error].
    #[arg(long, value_name = "error|zero", value_parser = missing)]
    missing_embeddings: Option<Missing>,
    /// A table of user features, a .parquet, .csv or .tsv file, for the encoder called features.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    user_features: Option<PathBuf>,
    /// The column of user ids in --user-features [default: --user-column].
    #[arg(long, value_name = "NAME", requires = "user_features")]
    feature_id_column: Option<String>,
    /// The columns of features in --user-features, separated by commas [default: all others]. Numbers
    /// are standardised; text and booleans become a column for each of the 100 most frequent
    /// categories.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "user_features")]
    feature_columns: Vec<String>,
    /// Find the least retrieval.hnsw.ef_search with this recall, such as 0.98, and record it for runs
    /// with the preset [default: none; 0.7 with --preset paper].
    #[arg(long, value_parser = share)]
    pub(super) recall: Option<f64>,
    /// Build no index now; the first run that needs an index builds it.
    #[arg(long, conflicts_with = "recall")]
    pub(super) no_index: bool,
    /// The seed of the splits and of the embeddings.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// The source of the embeddings.
#[derive(Clone, Debug)]
enum Embeddings {
    Svd,
    Als,
    File(PathBuf),
}

/// Every text but the two names is a path.
impl From<&str> for Embeddings {
    fn from(text: &str) -> Self {
        match text {
            "svd" => Self::Svd,
            "als" => Self::Als,
            path => Self::File(path.into()),
        }
    }
}

impl PrepareArgs {
    pub(super) fn source(&self) -> Source {
        Source {
            path: self.input.clone(),
            user_column: self.user_column.clone(),
            item_column: self.item_column.clone(),
            rating_column: self.rating_column.clone(),
            time_column: self.time_column.clone(),
        }
    }

    pub(super) fn filters(&self) -> Filters {
        Filters {
            rows: self.rows.clone(),
            skip_bad_rows: self.skip_bad_rows,
            min_rating: self.min_rating,
            min_user_interactions: self.min_user_interactions,
            min_item_interactions: self.min_item_interactions,
        }
    }

    pub(super) fn settings(&self) -> Result<PrepareSettings> {
        let preset_test_share = match self.preset {
            Preset::Paper => 0.0,
            Preset::Default => SplitSettings::default().test_share,
        };
        Ok(PrepareSettings {
            split: SplitSettings {
                observed_share: self.observed_share,
                validation_share: self
                    .validation_share
                    .unwrap_or(SplitSettings::default().validation_share),
                test_share: self.test_share.unwrap_or(preset_test_share),
                seed: Seed(self.seed),
            },
            embedding: self.embedding()?,
            features: self.features()?,
        })
    }

    fn embedding(&self) -> Result<EmbeddingSource> {
        self.require_fitting_flags()?;
        let interactions =
            if self.observed_only { SessionPart::Observed } else { SessionPart::All };
        Ok(match &self.embeddings {
            Embeddings::Svd => {
                let default = SvdOptions::default();
                let latent_dim = self.latent_dim.unwrap_or(default.latent_dim);
                let preset = match self.preset {
                    Preset::Paper => 0.0,
                    Preset::Default => default.normalization,
                };
                let normalization = self.normalization.unwrap_or(preset);
                let options = SvdOptions { latent_dim, normalization, ..default };
                EmbeddingSource::Svd { interactions, options }
            }
            Embeddings::Als => {
                let default = AlsOptions::default();
                let options = AlsOptions {
                    latent_dim: self.latent_dim.unwrap_or(default.latent_dim),
                    iterations: self.iterations.unwrap_or(default.iterations),
                    regularization: self.regularization.unwrap_or(default.regularization),
                    confidence: self.confidence.unwrap_or(default.confidence),
                };
                EmbeddingSource::Als { interactions, options }
            }
            Embeddings::File(path) => EmbeddingSource::Import(Import {
                path: path.clone(),
                id_column: self.id_column.clone().unwrap_or_else(|| ITEM_ID.into()),
                ids: self.embedding_ids.clone(),
                missing: self.missing_embeddings.unwrap_or_default(),
            }),
        })
    }

    /// Fails on a flag that the embeddings have no use for.
    fn require_fitting_flags(&self) -> Result<()> {
        let als = [
            ("--confidence", self.confidence.is_some()),
            ("--regularization", self.regularization.is_some()),
            ("--iterations", self.iterations.is_some()),
        ];
        let svd = [("--normalization", self.normalization.is_some())];
        let computed =
            [("--latent-dim", self.latent_dim.is_some()), ("--observed-only", self.observed_only)];
        let file = [
            ("--id-column", self.id_column.is_some()),
            ("--embedding-ids", self.embedding_ids.is_some()),
            ("--missing-embeddings", self.missing_embeddings.is_some()),
        ];
        let (is_als, is_file) = match &self.embeddings {
            Embeddings::Svd => (false, false),
            Embeddings::Als => (true, false),
            Embeddings::File(_) => (false, true),
        };
        for (flags, fit, of) in [
            (&als[..], is_als, "als"),
            (&svd, !is_als && !is_file, "svd"),
            (&computed, !is_file, "svd or als: the rows of a file have their own length"),
            (&file, is_file, "FILE"),
        ] {
            if let Some((flag, _)) = flags.iter().find(|(_, given)| *given && !fit) {
                bail!("{flag} goes with --embeddings {of}");
            }
        }
        match &self.embeddings {
            Embeddings::File(path) if !path.exists() => {
                bail!("{}: no such file; --embeddings is svd, als or a file", path.display())
            }
            _ => Ok(()),
        }
    }

    fn features(&self) -> Result<Option<FeatureSource>> {
        let Some(path) = &self.user_features else { return Ok(None) };
        let Some(id_column) = self.feature_id_column.as_ref().or(self.user_column.as_ref()) else {
            bail!(
                "{}: which column holds the users? Say it with --feature-id-column",
                path.display()
            );
        };
        let (path, columns) = (path.clone(), self.feature_columns.clone());
        Ok(Some(FeatureSource { path, id_column: id_column.clone(), columns }))
    }
}

fn missing(text: &str) -> Result<Missing, String> {
    match text {
        "error" => Ok(Missing::Error),
        "zero" => Ok(Missing::Zero),
        _ => Err("expected error or zero".into()),
    }
}
