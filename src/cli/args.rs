//! What was typed.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

#[cfg(feature = "train")]
use super::plot::PlotArgs;
use crate::dataset::Split;
#[cfg(feature = "prepare")]
use crate::dataset::{PAPER_SHAPES, RowFilter, Shape};
#[cfg(feature = "prepare")]
use crate::embedding::Missing;
#[cfg(feature = "train")]
use crate::experiment::tune::Dimension;
use crate::run::Which;
#[cfg(feature = "train")]
use crate::settings::Method;
#[cfg(any(feature = "train", feature = "prepare"))]
use crate::settings::Preset;

/// Trains the slate a recommender shows, directly for its own reward.
#[derive(Debug, Parser)]
#[command(name = "slate", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Print the result as one JSON object.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Turn a file of interactions into sessions, embeddings and an index.
    #[cfg(feature = "prepare")]
    Prepare(PrepareArgs),
    /// List the public data sets that `prepare` reads as they are published.
    #[cfg(feature = "prepare")]
    Datasets,
    /// Make a log up: users with known tastes, at the size of a data set of the paper or any other.
    #[cfg(feature = "prepare")]
    Synth(SynthArgs),
    /// Train a policy on a prepared folder.
    #[cfg(feature = "train")]
    Train(TrainArgs),
    /// Choose a run's settings by their validation reward: successive halving in a time budget.
    #[cfg(feature = "train")]
    Tune(TuneArgs),
    /// Report the reward of a run's decision on held-out users.
    Evaluate(EvaluateArgs),
    /// Print slates for a user, or for somebody new.
    Recommend(RecommendArgs),
    /// Describe this build, a prepared folder or a run.
    Info(InfoArgs),
    /// Measure where the time goes.
    #[command(subcommand)]
    Bench(BenchVerb),
    /// Compare how noisy the methods' gradients are.
    #[cfg(feature = "train")]
    Variance(VarianceArgs),
    /// Train a grid of methods under equal time or equal iterations, and draw what came of it.
    #[cfg(all(feature = "train", feature = "prepare"))]
    Compare(CompareArgs),
    /// Draw runs' learning curves, here and as a picture.
    #[cfg(feature = "train")]
    Plot(PlotArgs),
    /// The whole path on built-in synthetic sessions; needs no files and no network.
    #[cfg(all(feature = "train", feature = "prepare"))]
    Demo(DemoArgs),
    /// Print a completion script.
    Completions(CompletionsArgs),
}

#[cfg(feature = "prepare")]
#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// A known data set's folder, archive or file (see `slate datasets`), any CSV, TSV (gzipped or
    /// not) or Parquet file, a folder of Parquet files, or a pattern in quotes such as 'log/*.csv'.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) input: PathBuf,
    /// The prepared folder to write.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// Replace a prepared folder that is there.
    #[arg(long)]
    pub(crate) force: bool,
    #[arg(long, value_parser = preset, default_value = "default")]
    pub(crate) preset: Preset,
    /// Column of user ids (a known data set's has its own).
    #[arg(long)]
    pub(crate) user_column: Option<String>,
    /// Column of item ids.
    #[arg(long)]
    pub(crate) item_column: Option<String>,
    /// Column of ratings, for --min-rating.
    #[arg(long)]
    pub(crate) rating_column: Option<String>,
    /// Column of times, kept for context.half_life: seconds since 1970 (milli-, micro- and
    /// nanoseconds are told by their size) or, in Parquet, dates and times without a zone.
    #[arg(long)]
    pub(crate) time_column: Option<String>,
    /// Rows that count as interactions: COLUMN=VALUE, all, or what is known of the data set.
    #[arg(long, default_value_t)]
    pub(crate) rows: RowFilter,
    /// Skip up to so many rows that cannot be read, and say how many there were. Every line is
    /// then a row, even within quotes.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) skip_bad_rows: u64,
    /// Keep interactions rated at least this; all without it.
    #[arg(long)]
    pub(crate) min_rating: Option<f64>,
    /// Keep users with at least so many interactions.
    #[arg(long, default_value_t = 20)]
    pub(crate) min_user_interactions: u32,
    /// Keep items with at least so many interactions.
    #[arg(long, default_value_t = 1)]
    pub(crate) min_item_interactions: u32,
    /// Share of each user's items that is observed; the rest is hidden.
    #[arg(long, default_value_t = 0.5)]
    pub(crate) observed_share: f64,
    /// Share of the users kept for validation [default: 0.1].
    #[arg(long)]
    pub(crate) validation_share: Option<f64>,
    /// Share of the users kept for the final test [default: 0.1; 0 with --preset paper].
    #[arg(long)]
    pub(crate) test_share: Option<f64>,
    /// Where embeddings come from: svd, als (implicit alternating least squares), or a file: a
    /// .parquet with a column of item ids and one of lists of floats or several of floats, or a
    /// .npy or .safetensors (`beta`) with rows in the order of actions.parquet or --embedding-ids.
    #[arg(long, value_name = "svd|als|FILE", value_hint = ValueHint::FilePath,
        default_value = "svd")]
    pub(crate) embeddings: Embeddings,
    /// L, the length of an embedding [default: 100; a file has its own].
    #[arg(long)]
    pub(crate) latent_dim: Option<usize>,
    /// η of SVD, from 0 to 1: it is of (n_u n_a)^−η A_{ua}, n the interactions of a user and an item
    /// [default: 0.25; 0 with --preset paper].
    #[arg(long)]
    pub(crate) normalization: Option<f32>,
    /// Compute embeddings from the training users' observed interactions alone.
    #[arg(long)]
    pub(crate) observed_only: bool,
    /// ALS: α, where an interaction weighs 1 + α and what is none 1 [default: 10].
    #[arg(long, value_name = "ALPHA", allow_negative_numbers = true)]
    pub(crate) confidence: Option<f64>,
    /// ALS: λ, the weight of the squared norms [default: 1].
    #[arg(long, value_name = "LAMBDA", allow_negative_numbers = true)]
    pub(crate) regularization: Option<f64>,
    /// ALS: sweeps over users and items [default: 15].
    #[arg(long)]
    pub(crate) iterations: Option<usize>,
    /// Column of item ids in a Parquet file of embeddings [default: item_id].
    #[arg(long)]
    pub(crate) id_column: Option<String>,
    /// Text file of item ids, one a line: those of the rows of a .npy or .safetensors.
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) embedding_ids: Option<PathBuf>,
    /// What becomes of items that a file with ids does not have: error or zero [default: error].
    #[arg(long, value_name = "error|zero", value_parser = missing)]
    pub(crate) missing_embeddings: Option<Missing>,
    /// A table of users, a .parquet, .csv or .tsv file: what context.encoders = [..., "features"]
    /// knows of a user beside the items.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) user_features: Option<PathBuf>,
    /// Its column of user ids [default: --user-column].
    #[arg(long, value_name = "NAME", requires = "user_features")]
    pub(crate) feature_id_column: Option<String>,
    /// Its columns of features, by commas [default: all others]: numbers are standardised, text and
    /// booleans become a column for each of the 100 most frequent categories.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "user_features")]
    pub(crate) feature_columns: Vec<String>,
    /// Also find the least retrieval.hnsw.ef_search that has this recall, such as 0.98.
    #[arg(long, value_parser = share)]
    pub(crate) recall: Option<f64>,
    /// Build no index now; a run that searches one builds it.
    #[arg(long, conflicts_with = "recall")]
    pub(crate) no_index: bool,
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

/// Where embeddings come from.
#[cfg(feature = "prepare")]
#[derive(Clone, Debug)]
pub(crate) enum Embeddings {
    Svd,
    Als,
    File(PathBuf),
}

/// What is no known name is a path.
#[cfg(feature = "prepare")]
impl From<&str> for Embeddings {
    fn from(text: &str) -> Self {
        match text {
            "svd" => Self::Svd,
            "als" => Self::Als,
            path => Self::File(path.into()),
        }
    }
}

#[cfg(feature = "prepare")]
#[derive(Debug, Args)]
pub(crate) struct SynthArgs {
    /// As large as this data set of the paper: movielens-25m, twitch or goodreads.
    #[arg(long, value_parser = shape, conflicts_with_all = ["users", "actions", "density"],
        required_unless_present_all = ["users", "actions", "density"])]
    pub(crate) like: Option<Shape>,
    /// U, the number of users.
    #[arg(long)]
    pub(crate) users: Option<u32>,
    /// P, the number of actions.
    #[arg(long)]
    pub(crate) actions: Option<u32>,
    /// Share of the U · P pairs that are interactions.
    #[arg(long)]
    pub(crate) density: Option<f64>,
    /// The file to write, a .parquet or .csv.
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Replace a file that is there.
    #[arg(long)]
    pub(crate) force: bool,
    /// Number of topics [default: 200, or P where that is less].
    #[arg(long)]
    pub(crate) topics: Option<u32>,
    /// Users over whom the rewards of the oracle and of popularity are averaged [default: 10000].
    #[arg(long)]
    pub(crate) ceiling_users: Option<u32>,
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

#[cfg(feature = "train")]
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// The prepared folder [default with --resume: the run's own].
    #[arg(long, value_hint = ValueHint::DirPath, required_unless_present = "resume")]
    pub(crate) data: Option<PathBuf>,
    /// The run's folder.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// Go on from the last checkpoint.
    #[arg(long, conflicts_with_all = ["preset", "config", "init"])]
    pub(crate) resume: bool,
    /// Begin with the best model of this run, of the same tower on the same data.
    #[arg(long, value_name = "RUN", value_hint = ValueHint::DirPath)]
    pub(crate) init: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[cfg(feature = "train")]
#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// The prepared folder [default with --resume: the search's own].
    #[arg(long, value_hint = ValueHint::DirPath, required_unless_present = "resume")]
    pub(crate) data: Option<PathBuf>,
    /// The search's folder; every trial is a run below it.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// Go on where the search was stopped.
    #[arg(long, conflicts_with_all = ["preset", "config", "set", "over", "trials", "within", "budget"])]
    pub(crate) resume: bool,
    /// Seconds that the whole search may take: loading, training and evaluations all count. A budget
    /// in steps, epochs or seconds is the one of each trial of the first rung instead.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, conflicts_with = "budget")]
    pub(crate) within: u64,
    /// The most trials of the first rung. A third of each rung trains on for longer; the settings
    /// as given train in every rung.
    #[arg(long, default_value_t = 27, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) trials: u64,
    /// What to search: KEY=A|B|C or KEY=LOW..HIGH, as in `optimizer.learning_rate=1e-4..1e-2`; may
    /// be given again [default: learning rate, samples, σ, the power of β's singular values, tower].
    #[arg(long, value_name = "KEY=VALUES", value_parser = super::tune::dimension)]
    pub(crate) over: Vec<Dimension>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

/// Where a run's settings come from, each overlaying those before it.
#[cfg(feature = "train")]
#[derive(Debug, Default, Args)]
pub(crate) struct SettingsArgs {
    /// Named defaults: `paper` or `default`.
    #[arg(long, value_parser = preset)]
    pub(crate) preset: Option<Preset>,
    /// A TOML file: any part of what a run.toml holds.
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// A single setting, as in `policy.samples=32`; may be given again.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Budget in optimiser steps.
    #[arg(long, group = "budget")]
    pub(crate) steps: Option<u64>,
    /// Budget in passes over the training users.
    #[arg(long, group = "budget")]
    pub(crate) epochs: Option<u64>,
    /// Budget in seconds of training; evaluations do not count.
    #[arg(long, group = "budget")]
    pub(crate) seconds: Option<u64>,
    /// lgp, lrp or plackett-luce.
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// score-function, pl-rank, covariance, covariance-as-printed, fopo or likelihood.
    #[arg(long)]
    pub(crate) estimator: Option<String>,
    /// S, the number of sampled slates per user and step.
    #[arg(long)]
    pub(crate) samples: Option<usize>,
    /// K, the number of items on a slate.
    #[arg(long)]
    pub(crate) slate_size: Option<usize>,
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

#[derive(Debug, Default, Args)]
pub(crate) struct DeviceArgs {
    /// ndarray, flex, wgpu or cuda [default: a real GPU if there is one, otherwise the CPU].
    #[arg(long)]
    pub(crate) device: Option<String>,
}

#[cfg(all(feature = "train", feature = "prepare"))]
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// A grid, as in `examples/paper`.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) grid: PathBuf,
    /// The comparison's folder. What has ended there is not done again.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// Which of the grid's scales.
    #[arg(long, value_name = "NAME", default_value = crate::experiment::SCALE)]
    pub(crate) scale: String,
    /// Where the grid's logs are [default: $FAST_SLATE_DATA, or the current folder].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) files: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EvaluateArgs {
    /// The run's folder.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) run: PathBuf,
    /// train, validation or test.
    #[arg(long, value_parser = split, default_value = "validation")]
    pub(crate) split: Split,
    /// What to compare with on the same users, by commas: popularity, uniform, svd, als, ease,
    /// item-knn, or the folder of another run on the same sessions (./svd is a folder).
    #[arg(long, value_name = "BASELINE|RUN", value_delimiter = ',', value_hint = ValueHint::DirPath)]
    pub(crate) against: Vec<PathBuf>,
    /// Tune each baseline on the reward of the validation users for this many seconds, in which
    /// fits and evaluations count.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "against")]
    pub(crate) tune: u64,
    /// Retrieve through the index instead of exactly.
    #[arg(long)]
    pub(crate) index: bool,
    /// best, last or a step.
    #[arg(long, default_value_t = Which::Best)]
    pub(crate) checkpoint: Which,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("who").required(true)))]
pub(crate) struct RecommendArgs {
    /// The run's folder.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) run: PathBuf,
    /// A user of the prepared data; everything known of them is used, nothing of it is shown.
    #[arg(long, group = "who")]
    pub(crate) user: Option<String>,
    /// Item ids that somebody new has interacted with, by commas; "" for none.
    #[arg(long, group = "who", value_delimiter = ',')]
    pub(crate) items: Option<Vec<String>>,
    /// best, last or a step.
    #[arg(long, default_value_t = Which::Best)]
    pub(crate) checkpoint: Which,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchVerb {
    /// The parts of a training step.
    #[cfg(feature = "train")]
    Step(BenchStepArgs),
    /// Exact search on random embeddings, beside the machine's own product rate.
    Search(BenchSearchArgs),
    /// The least retrieval.hnsw.ef_search that has a recall.
    #[cfg(feature = "train")]
    Recall(BenchRecallArgs),
}

#[cfg(feature = "train")]
#[derive(Debug, Args)]
pub(crate) struct BenchRecallArgs {
    /// The prepared folder.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) data: PathBuf,
    /// The share of the exact top K that training is to find.
    #[arg(long, value_parser = share, default_value_t = 0.98)]
    pub(crate) recall: f64,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[cfg(feature = "train")]
#[derive(Debug, Args)]
pub(crate) struct BenchStepArgs {
    /// The prepared folder.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BenchSearchArgs {
    /// P, the number of actions, by commas.
    #[arg(long, value_delimiter = ',', default_value = "41000,750000,2230000")]
    pub(crate) actions: Vec<NonZeroUsize>,
    /// L, the length of an embedding.
    #[arg(long, default_value = "100")]
    pub(crate) latent_dim: NonZeroUsize,
    /// Queries in a search, by commas.
    #[arg(long, value_delimiter = ',', default_value = "320,3200")]
    pub(crate) queries: Vec<NonZeroUsize>,
    /// K, the number of items on a slate, by commas.
    #[arg(long, value_delimiter = ',', default_value = "5,100")]
    pub(crate) slate_size: Vec<NonZeroUsize>,
    /// Times that everything is measured.
    #[arg(long, default_value = "3")]
    pub(crate) repetitions: NonZeroUsize,
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

#[cfg(feature = "train")]
#[derive(Debug, Args)]
pub(crate) struct VarianceArgs {
    /// The prepared folder.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) data: PathBuf,
    /// By commas: lgp, lgp-mips, pl-pg, pl-rank, covariance, fopo.
    #[arg(long, value_delimiter = ',', default_value = "lgp,pl-pg,pl-rank,covariance")]
    pub(crate) methods: Vec<Method>,
    /// K, by commas.
    #[arg(long, value_delimiter = ',', default_value = "2,5,10")]
    pub(crate) slate_sizes: Vec<usize>,
    /// S, by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,10")]
    pub(crate) sample_sizes: Vec<usize>,
    /// Gradients drawn for each cell and batch.
    #[arg(long, default_value_t = 100)]
    pub(crate) draws: u64,
    /// At the model of this run's checkpoint instead of the initial one.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(crate) run: Option<PathBuf>,
    /// Of that run: best, last or a step.
    #[arg(long, default_value_t = Which::Best, requires = "run")]
    pub(crate) checkpoint: Which,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// A prepared folder or a run.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: Option<PathBuf>,
}

#[cfg(all(feature = "train", feature = "prepare"))]
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where to write; an earlier demo there is replaced.
    #[arg(long, default_value = "artifacts/demo", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: Shell,
}

#[cfg(any(feature = "train", feature = "prepare"))]
fn preset(text: &str) -> Result<Preset, String> {
    match text {
        "paper" => Ok(Preset::Paper),
        "default" => Ok(Preset::Default),
        _ => Err("expected paper or default".into()),
    }
}

#[cfg(any(feature = "train", feature = "prepare"))]
fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1".into()),
    }
}

#[cfg(feature = "prepare")]
fn missing(text: &str) -> Result<Missing, String> {
    match text {
        "error" => Ok(Missing::Error),
        "zero" => Ok(Missing::Zero),
        _ => Err("expected error or zero".into()),
    }
}

#[cfg(feature = "prepare")]
fn shape(text: &str) -> Result<Shape, String> {
    let found = PAPER_SHAPES.iter().find(|(name, _)| *name == text);
    let names = PAPER_SHAPES.map(|(name, _)| name).join(", ");
    found.map(|(_, shape)| *shape).ok_or_else(|| format!("expected one of {names}"))
}

pub(super) fn split(text: &str) -> Result<Split, String> {
    match text {
        "train" => Ok(Split::Train),
        "validation" => Ok(Split::Validation),
        "test" => Ok(Split::Test),
        _ => Err("expected train, validation or test".into()),
    }
}
