//! The flags of `slate prepare` in, the settings of a preparation out.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueHint};

use super::data::{DataArgs, recorded};
use crate::cli::workshop::prologue::{named, share};
use crate::dataset::{FeatureSource, ITEM_ID};
use crate::embedding::{AlsOptions, Import, Missing, SessionPart, SvdOptions};
use crate::prepared::{EmbeddingSource, Input, Judge, PrepareSettings};
use crate::reward::RewardKind;
use crate::settings::Preset;

#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    #[command(flatten)]
    data: DataArgs,
    /// The prepared folder to write.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(super) out: PathBuf,
    /// Replace the prepared folder if it exists.
    #[arg(long)]
    pub(super) force: bool,
    /// The named defaults: paper or default.
    #[arg(long, value_parser = named::<Preset>, default_value = "default")]
    pub(super) preset: Preset,
    /// The source of the embeddings: auto (what earns most on training users that it was not fitted
    /// on), svd, als (implicit alternating least squares), an earlier prepared folder (what was chosen
    /// there, fitted to this log), or a file. A .parquet file has a column of
    /// item ids, and a column of lists of floats or several columns of
    /// floats. A .npy or .safetensors (`beta`) file has rows in the order of actions.parquet or
    /// --embedding-ids [default: auto; svd with --preset paper, or with a flag of svd].
    #[arg(long, value_name = "auto|svd|als|FOLDER|FILE", value_hint = ValueHint::AnyPath)]
    embeddings: Option<String>,
    /// The seconds in which auto looks for embeddings [default: 180].
    #[arg(long, value_name = "SECONDS", value_parser = recorded())]
    within: Option<u64>,
    /// The reward that auto looks at, as in reward.kind [default: discounted].
    #[arg(long, value_parser = named::<RewardKind>)]
    reward: Option<RewardKind>,
    /// K of the slates that auto looks at [default: 5].
    #[arg(long)]
    slate_size: Option<usize>,
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
    #[arg(long, value_name = "error|zero", value_parser = named::<Missing>)]
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
    /// Build no index now, even if runs with the preset train with one: the first that does builds it.
    #[arg(long, conflicts_with = "recall")]
    pub(super) no_index: bool,
}

impl PrepareArgs {
    /// The interactions to prepare.
    pub(super) fn input(&self) -> Result<Input> {
        self.data.input(self.preset)
    }

    pub(super) fn settings(&self) -> Result<PrepareSettings> {
        Ok(PrepareSettings {
            split: self.data.split(self.preset)?,
            embedding: self.embedding()?,
            features: self.features()?,
        })
    }

    fn embedding(&self) -> Result<EmbeddingSource> {
        let source = self.source_of_embeddings();
        self.require_fitting_flags(source)?;
        let interactions =
            if self.observed_only { SessionPart::Observed } else { SessionPart::All };
        Ok(match source {
            "auto" => {
                let default = Judge::default();
                EmbeddingSource::Auto(Judge {
                    reward: self.reward.unwrap_or(default.reward),
                    slate_size: self.slate_size.unwrap_or(default.slate_size),
                    within: self.within.unwrap_or(default.within),
                    ..default
                })
            }
            "svd" => {
                let default = SvdOptions::of(self.preset);
                let latent_dim = self.latent_dim.unwrap_or(default.latent_dim);
                let normalization = self.normalization.unwrap_or(default.normalization);
                let options = SvdOptions { latent_dim, normalization, ..default };
                EmbeddingSource::Svd { interactions, options }
            }
            "als" => {
                let default = AlsOptions::default();
                let options = AlsOptions {
                    latent_dim: self.latent_dim.unwrap_or(default.latent_dim),
                    iterations: self.iterations.unwrap_or(default.iterations),
                    regularization: self.regularization.unwrap_or(default.regularization),
                    confidence: self.confidence.unwrap_or(default.confidence),
                };
                EmbeddingSource::Als { interactions, options }
            }
            folder if Path::new(folder).is_dir() => EmbeddingSource::again(folder.as_ref())?,
            path => EmbeddingSource::Import(Import {
                path: path.into(),
                id_column: self.id_column.clone().unwrap_or_else(|| ITEM_ID.into()),
                ids: self.embedding_ids.clone(),
                missing: self.missing_embeddings.unwrap_or_default(),
            }),
        })
    }

    /// The source that was asked for, by name or by a flag that only svd has; anything but the three
    /// names is a path.
    fn source_of_embeddings(&self) -> &str {
        let of_svd =
            self.normalization.is_some() || self.latent_dim.is_some() || self.observed_only;
        match &self.embeddings {
            Some(source) => source,
            None if of_svd || self.preset == Preset::Paper => "svd",
            None => "auto",
        }
    }

    /// Fails on a flag that the embeddings have no use for.
    fn require_fitting_flags(&self, source: &str) -> Result<()> {
        let [auto, svd, als] = ["auto", "svd", "als"].map(|name| source == name);
        let is_path = !(auto || svd || als);
        let file = is_path && !Path::new(source).is_dir();
        for (flag, is_given, fits, of) in [
            ("--within", self.within.is_some(), auto, "auto"),
            ("--reward", self.reward.is_some(), auto, "auto"),
            ("--slate-size", self.slate_size.is_some(), auto, "auto"),
            ("--confidence", self.confidence.is_some(), als, "als"),
            ("--regularization", self.regularization.is_some(), als, "als"),
            ("--iterations", self.iterations.is_some(), als, "als"),
            ("--normalization", self.normalization.is_some(), svd, "svd"),
            ("--latent-dim", self.latent_dim.is_some(), svd || als, "svd or als"),
            ("--observed-only", self.observed_only, svd || als, "svd or als"),
            ("--id-column", self.id_column.is_some(), file, "FILE"),
            ("--embedding-ids", self.embedding_ids.is_some(), file, "FILE"),
            ("--missing-embeddings", self.missing_embeddings.is_some(), file, "FILE"),
        ] {
            match self.latent_dim {
                _ if !is_given || fits => {}
                Some(_) if self.embeddings.is_none() && of == "auto" => bail!(
                    "{flag} goes with --embeddings auto, and --latent-dim means --embeddings svd: \
                     leave one of them out"
                ),
                _ => bail!("{flag} goes with --embeddings {of}"),
            }
        }
        if is_path && !Path::new(source).exists() {
            bail!(
                "{source}: no such file; --embeddings is auto, svd, als, a prepared folder or a file"
            );
        }
        Ok(())
    }

    fn features(&self) -> Result<Option<FeatureSource>> {
        let Some(path) = &self.user_features else { return Ok(None) };
        let Some(id_column) = self.feature_id_column.as_ref().or(self.data.user_column.as_ref())
        else {
            bail!(
                "{}: which column holds the users? Say it with --feature-id-column",
                path.display()
            );
        };
        let (path, columns) = (path.clone(), self.feature_columns.clone());
        Ok(Some(FeatureSource { path, id_column: id_column.clone(), columns }))
    }
}
