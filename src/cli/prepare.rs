//! `slate prepare`.

use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use super::bench::recall;
use super::prologue::{preset, share, watched};
use super::report::Report;
use crate::dataset::{
    FeatureColumn, FeatureSource, FeatureTable, Filters, ITEM_ID, RowFilter, Source, SplitSettings,
};
use crate::device;
use crate::embedding::{AlsOptions, Import, Missing, SessionPart, SvdOptions};
use crate::error::Error;
use crate::prepared::{
    EmbeddingSource, Input, Manifest, Phase, Phases, PrepareSettings, Prepared, prepare,
};
use crate::seed::Seed;
use crate::settings::{Preset, Settings};
use crate::task::{Audit, Audits, EfSearch, Task};

#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// A known data set's folder, archive or file (see `slate datasets`), any CSV, TSV (gzipped or
    /// not) or Parquet file, a folder of Parquet files, or a pattern in quotes such as 'log/*.csv'.
    #[arg(value_hint = ValueHint::AnyPath)]
    input: PathBuf,
    /// The prepared folder to write.
    #[arg(long, value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Replace a prepared folder that is there.
    #[arg(long)]
    force: bool,
    #[arg(long, value_parser = preset, default_value = "default")]
    preset: Preset,
    /// Column of user ids (a known data set's has its own).
    #[arg(long)]
    user_column: Option<String>,
    /// Column of item ids.
    #[arg(long)]
    item_column: Option<String>,
    /// Column of ratings, for --min-rating.
    #[arg(long)]
    rating_column: Option<String>,
    /// Column of times, kept for context.half_life: seconds since 1970 (milli-, micro- and
    /// nanoseconds are told by their size) or, in Parquet, dates and times without a zone.
    #[arg(long)]
    time_column: Option<String>,
    /// Rows that count as interactions: COLUMN=VALUE, all, or what is known of the data set.
    #[arg(long, default_value_t)]
    rows: RowFilter,
    /// Skip up to so many rows that cannot be read, and say how many there were. Every line is
    /// then a row, even within quotes.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad_rows: u64,
    /// Keep interactions rated at least this; all without it.
    #[arg(long)]
    min_rating: Option<f64>,
    /// Keep users with at least so many interactions.
    #[arg(long, default_value_t = 20)]
    min_user_interactions: u32,
    /// Keep items with at least so many interactions.
    #[arg(long, default_value_t = 1)]
    min_item_interactions: u32,
    /// Share of each user's items that is observed; the rest is hidden.
    #[arg(long, default_value_t = 0.5)]
    observed_share: f64,
    /// Share of the users kept for validation [default: 0.1].
    #[arg(long)]
    validation_share: Option<f64>,
    /// Share of the users kept for the final test [default: 0.1; 0 with --preset paper].
    #[arg(long)]
    test_share: Option<f64>,
    /// Where embeddings come from: svd, als (implicit alternating least squares), or a file: a
    /// .parquet with a column of item ids and one of lists of floats or several of floats, or a
    /// .npy or .safetensors (`beta`) with rows in the order of actions.parquet or --embedding-ids.
    #[arg(long, value_name = "svd|als|FILE", value_hint = ValueHint::FilePath,
        default_value = "svd")]
    embeddings: Embeddings,
    /// L, the length of an embedding [default: 100; a file has its own].
    #[arg(long)]
    latent_dim: Option<usize>,
    /// η of SVD, from 0 to 1: it is of (n_u n_a)^−η A_{ua}, n the interactions of a user and an item
    /// [default: 0.25; 0 with --preset paper].
    #[arg(long)]
    normalization: Option<f32>,
    /// Compute embeddings from the training users' observed interactions alone.
    #[arg(long)]
    observed_only: bool,
    /// ALS: α, where an interaction weighs 1 + α and what is none 1 [default: 10].
    #[arg(long, value_name = "ALPHA", allow_negative_numbers = true)]
    confidence: Option<f64>,
    /// ALS: λ, the weight of the squared norms [default: 1].
    #[arg(long, value_name = "LAMBDA", allow_negative_numbers = true)]
    regularization: Option<f64>,
    /// ALS: sweeps over users and items [default: 15].
    #[arg(long)]
    iterations: Option<usize>,
    /// Column of item ids in a Parquet file of embeddings [default: item_id].
    #[arg(long)]
    id_column: Option<String>,
    /// Text file of item ids, one a line: those of the rows of a .npy or .safetensors.
    #[arg(long, value_hint = ValueHint::FilePath)]
    embedding_ids: Option<PathBuf>,
    /// What becomes of items that a file with ids does not have: error or zero [default: error].
    #[arg(long, value_name = "error|zero", value_parser = missing)]
    missing_embeddings: Option<Missing>,
    /// A table of users, a .parquet, .csv or .tsv file: what context.encoders = [..., "features"]
    /// knows of a user beside the items.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    user_features: Option<PathBuf>,
    /// Its column of user ids [default: --user-column].
    #[arg(long, value_name = "NAME", requires = "user_features")]
    feature_id_column: Option<String>,
    /// Its columns of features, by commas [default: all others]: numbers are standardised, text and
    /// booleans become a column for each of the 100 most frequent categories.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "user_features")]
    feature_columns: Vec<String>,
    /// Also find the least retrieval.hnsw.ef_search that has this recall, such as 0.98.
    #[arg(long, value_parser = share)]
    recall: Option<f64>,
    /// Build no index now; a run that searches one builds it.
    #[arg(long, conflicts_with = "recall")]
    no_index: bool,
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Where embeddings come from.
#[derive(Clone, Debug)]
enum Embeddings {
    Svd,
    Als,
    File(PathBuf),
}

/// What is no known name is a path.
impl From<&str> for Embeddings {
    fn from(text: &str) -> Self {
        match text {
            "svd" => Self::Svd,
            "als" => Self::Als,
            path => Self::File(path.into()),
        }
    }
}

/// What was prepared.
#[derive(Debug, Serialize)]
struct PreparedReport {
    folder: PathBuf,
    #[serde(flatten)]
    manifest: Manifest,
    /// Where the time went.
    phases: Seconds,
    reused: Vec<Phase>,
    features: Option<FeatureTable>,
    /// Of the preset's index on its own queries.
    recall: Option<Audit>,
    tuning: Option<EfSearch>,
}

/// What was spent on each phase.
#[derive(Debug, Serialize)]
struct Seconds {
    #[serde(flatten)]
    prepared: Phases,
    /// Building the index and looking at its recall.
    index: Option<f64>,
}

pub(super) fn run(args: &PrepareArgs) -> Result<Report> {
    let input = Input::File(args.source(), args.filters());
    let (prepared, phases) = prepare(&input, &args.settings()?, &args.out, args.force)?;
    let prepared = watched(prepared);
    let started = Instant::now();
    let (recall, tuning) = if args.no_index {
        (None, None)
    } else {
        index(&prepared, &prepared.preset(args.preset), args.recall).with_context(|| {
            format!(
                "{} is prepared, but has no index, which training builds when it needs one",
                args.out.display()
            )
        })?
    };
    let index = (!args.no_index).then(|| started.elapsed().as_secs_f64());
    let mut text = prepared.manifest.statistics.to_string();
    text += &format!(
        "\nread and split {:.1} s · embeddings {:.1} s · written {:.1} s",
        phases.sessions, phases.embeddings, phases.written
    );
    if let Some(seconds) = index {
        text += &format!(" · index {seconds:.1} s");
    }
    if !phases.reused.is_empty() {
        let names: Vec<_> = phases.reused.iter().map(|phase| phase.name()).collect();
        text += &format!("\nreused from an earlier preparation: {}", names.join(", "));
    }
    let features = prepared.feature_table()?;
    if let Some(table) = &features {
        text += &format!("\n{}", describe(table));
    }
    if let Some(audit) = recall {
        text += &format!(
            "\nindex recall {:.4} on {} perturbed training queries",
            audit.recall, audit.queries
        );
    }
    if let Some(tuning) = &tuning {
        text += &format!("\n{}", recall::table(tuning).trim_end());
    }
    text += &format!("\ntrain on it with\n  slate train --data {} --out RUN", args.out.display());
    if args.preset == Preset::Paper {
        text += " --preset paper";
    }
    if let Some(set) = tuning.as_ref().and_then(recall::set) {
        text += &format!(" {set}");
    }
    let manifest = prepared.manifest.clone();
    let report = PreparedReport {
        folder: args.out.clone(),
        manifest,
        reused: phases.reused.clone(),
        features,
        phases: Seconds { prepared: phases, index },
        recall,
        tuning,
    };
    Report::new(&report, text)
}

/// What there is of each column, and who has none.
fn describe(table: &FeatureTable) -> String {
    let column = |column: &FeatureColumn| match column {
        FeatureColumn::Number { name, .. } => name.clone(),
        FeatureColumn::Category { name, categories } => {
            format!("{name} ({} categories)", categories.len())
        }
    };
    let columns: Vec<_> = table.columns.iter().map(column).collect();
    let FeatureTable { width, users_without_row, .. } = table;
    let mut text = format!("{width} features of users: {}", columns.join(", "));
    if *users_without_row > 0 {
        text += &format!("; zeros for {users_without_row} users without a row");
    }
    text
}

/// Builds the index that a run with the preset's settings needs and audits it on the queries of
/// such a run's first step; with a target, also says what width has that recall.
fn index(
    prepared: &Prepared,
    settings: &Settings,
    target: Option<f64>,
) -> Result<(Option<Audit>, Option<EfSearch>)> {
    let task = match Task::load(prepared, settings) {
        // A catalogue smaller than the preset's slate can be trained on with a smaller one.
        Err(Error::SlateTooLarge { .. }) => return Ok((None, None)),
        task => task?,
    };
    let chosen = device::choose(None)?;
    let model = task.initial_model(settings, &chosen.device)?;
    let audits = Audits { task: &task, method: &settings.method, seed: settings.seed };
    let audit = audits.recall(&model)?;
    if let Some(warning) = audit.and_then(|audit| audit.warning(&settings.retrieval)) {
        tracing::warn!("{warning}");
    }
    let options = settings.retrieval.hnsw;
    let least = |target| audits.least_ef_search(prepared, options, &model, target);
    Ok((audit, target.map(least).transpose()?))
}

impl PrepareArgs {
    fn source(&self) -> Source {
        Source {
            path: self.input.clone(),
            user_column: self.user_column.clone(),
            item_column: self.item_column.clone(),
            rating_column: self.rating_column.clone(),
            time_column: self.time_column.clone(),
        }
    }

    fn filters(&self) -> Filters {
        Filters {
            rows: self.rows.clone(),
            skip_bad_rows: self.skip_bad_rows,
            min_rating: self.min_rating,
            min_user_interactions: self.min_user_interactions,
            min_item_interactions: self.min_item_interactions,
        }
    }

    fn settings(&self) -> Result<PrepareSettings> {
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
            (&computed, !is_file, "svd or als: those of a file are as long as its rows"),
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
