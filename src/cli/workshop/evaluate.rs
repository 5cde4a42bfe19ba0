//! `slate evaluate`: a run in, the reward of its decision on held-out users out, beside the rewards of
//! other recommenders on the same users.

mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::baseline::{Asked, Baseline};
use crate::cli::flags::{DeviceArgs, split};
use crate::cli::report::Report;
use crate::dataset::Split;
use crate::estimate::{Estimate, Interval};
use crate::evaluation::{CHOSEN_HERE, Evaluation, MetricAt, Metrics};
use crate::experiment::{BaselineTrial, TunedBaseline};
use crate::facade::Policy;
use crate::model::Model;
use crate::retrieval::Search;
use crate::run::Which;
use crate::seed::Seed;
use crate::task::Task;

#[derive(Debug, Args)]
pub(crate) struct EvaluateArgs {
    /// The run's folder.
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,
    /// The users to judge on: train, validation or test [default: test, or validation if no user is
    /// in the test split].
    #[arg(long, value_parser = split)]
    split: Option<Split>,
    /// Recommenders to compare with on the same users, separated by commas: popularity, uniform,
    /// svd, als, ease, item-knn, or the folder of another run on the same sessions (write ./svd for
    /// a folder called svd).
    #[arg(long, value_name = "BASELINE|RUN", value_delimiter = ',', value_hint = ValueHint::DirPath)]
    against: Vec<PathBuf>,
    /// Tune each baseline on the reward of the validation users for this many seconds, in which
    /// fits and evaluations count.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "against")]
    tune: u64,
    /// Also report these metrics, separated by commas: recall@K, ndcg@K or hits@K for any K. They are
    /// computed on exact slates, whose length need not be the run's.
    #[arg(long, value_name = "METRIC@K", value_delimiter = ',')]
    metrics: Vec<MetricAt>,
    /// Retrieve through the index instead of exactly.
    #[arg(long)]
    index: bool,
    /// The checkpoint to judge: best (by validation reward), last, or a step.
    #[arg(long, default_value_t = Which::Best)]
    checkpoint: Which,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, Serialize)]
struct Evaluated {
    run: PathBuf,
    step: u64,
    split: Split,
    contexts: usize,
    slate_size: usize,
    through_index: bool,
    /// Says so if these users chose the checkpoint.
    note: Option<&'static str>,
    #[serde(flatten)]
    scores: Scores,
    /// Gain over the run's own step 0, paired.
    gain: Interval,
    start: Scores,
    against: Vec<Row>,
    /// The metrics asked for.
    #[serde(skip)]
    asked: Vec<String>,
}

/// The reward and the metrics of a recommender.
#[derive(Clone, Debug, Serialize)]
struct Scores {
    reward: f64,
    reward_se: f64,
    #[serde(flatten)]
    metrics: Metrics,
    /// The metrics asked for, by name.
    #[serde(flatten)]
    metrics_at: BTreeMap<String, f64>,
}

/// A recommender that the run is compared with.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    outcome: Outcome,
    #[serde(flatten)]
    how: How,
    /// Says so if these users chose its checkpoint or its settings.
    note: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Outcome {
    Judged {
        #[serde(flatten)]
        scores: Scores,
        /// The run's reward minus this one's, paired.
        difference: Interval,
    },
    /// The reason why the recommender cannot be fitted here.
    Refused { refused: String },
}

/// The recommender behind a row.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum How {
    Run { step: u64 },
    Baseline { settings: Baseline, tried: Vec<BaselineTrial>, seconds: f64 },
}

/// What `--tune` says of a baseline that is judged on the users it was tuned on.
const TUNED_HERE: &str = "these settings were chosen on these users";

/// The run and the users it is judged on.
struct Judge<'a> {
    args: &'a EvaluateArgs,
    split: Split,
    policy: &'a Policy,
    contexts: &'a [u32],
    now: &'a Evaluation,
}

pub(super) fn run(args: &EvaluateArgs) -> Result<Report> {
    let policy = Policy::open(&args.run, args.checkpoint, args.device.device.as_deref())?;
    let task = &policy.task;
    let test_users = !task.sessions.contexts(Split::Test).is_empty();
    let split = args.split.unwrap_or(if test_users { Split::Test } else { Split::Validation });
    let contexts = task.sessions.contexts(split);
    let data = policy.origin.data.display();
    if contexts.is_empty() {
        bail!("{data}: no user is in the {split} split");
    }
    if args.tune > 0 && task.sessions.contexts(Split::Validation).is_empty() {
        bail!("{data}: no user is in the validation split, on which --tune tunes");
    }
    args.check_metrics(task, &contexts)?;
    let now = args.decisions(task, task, &policy.model, &contexts)?;
    let start = args.decisions(task, task, &policy.initial, &contexts)?;
    let judge = Judge { args, split, policy: &policy, contexts: &contexts, now: &now };
    let evaluated = Evaluated {
        run: args.run.clone(),
        step: policy.step,
        split,
        contexts: contexts.len(),
        slate_size: task.slate_size(),
        through_index: args.index,
        note: judge.chosen_here(),
        scores: args.scores(&now),
        gain: now.gain_over(&start),
        start: args.scores(&start),
        against: args.against.iter().map(|name| judge.row(name)).collect::<Result<_>>()?,
        asked: args.metrics.iter().map(MetricAt::to_string).collect(),
    };
    Report::new(&evaluated, evaluated.text())
}

impl EvaluateArgs {
    fn search(&self) -> Search {
        if self.index { Search::Hnsw } else { Search::Exact }
    }

    /// Fails on a metric of more actions than there are for one of `contexts`.
    fn check_metrics(&self, task: &Task, contexts: &[u32]) -> Result<()> {
        let observed = &task.sessions.observed;
        let excluded = contexts.iter().map(|context| observed.of(*context).len()).max();
        let excluded = excluded.filter(|_| task.excluded().is_some()).unwrap_or(0);
        let most = task.sessions.num_actions - excluded;
        if let Some(metric) = self.metrics.iter().find(|metric| metric.k() > most) {
            bail!("--metrics {metric}: only {most} items can be shown to every user");
        }
        Ok(())
    }

    /// Judges the decisions of `model`, made for the contexts of `theirs`, by the reward of `task`.
    /// The metrics asked for are always those of exact slates.
    fn decisions(
        &self,
        task: &Task,
        theirs: &Task,
        model: &Model,
        contexts: &[u32],
    ) -> Result<Evaluation> {
        let judged = |search: Search, metrics: &[MetricAt]| {
            let theirs = theirs.clone().with_slate_size(Evaluation::longest(task, metrics));
            let retriever = theirs.retriever(model, search)?;
            let slates = |block: &[u32]| theirs.decide(model, block, retriever.as_ref());
            Evaluation::with_metrics(task, contexts, metrics, slates)
        };
        if self.index && !self.metrics.is_empty() {
            let exact = judged(Search::Exact, &self.metrics)?;
            return Ok(judged(Search::Hnsw, &[])?.with_metrics_of(exact));
        }
        Ok(judged(self.search(), &self.metrics)?)
    }

    fn scores(&self, evaluation: &Evaluation) -> Scores {
        let Estimate { mean: reward, standard_error: reward_se } = evaluation.reward();
        let metrics_at = self.metrics.iter().map(MetricAt::to_string);
        let metrics_at = metrics_at.zip(evaluation.metrics_at().iter().copied()).collect();
        Scores { reward, reward_se, metrics: evaluation.metrics(), metrics_at }
    }
}

impl Judge<'_> {
    /// What to say of a checkpoint if its rewards on these users chose it.
    fn chosen_here(&self) -> Option<&'static str> {
        let chosen = self.split == Split::Validation && self.args.checkpoint == Which::Best;
        chosen.then_some(CHOSEN_HERE)
    }

    fn row(&self, name: &Path) -> Result<Row> {
        match name.to_str().and_then(Baseline::named) {
            Some(baseline) => self.baseline(baseline),
            None => self.run(name),
        }
    }

    fn judged(&self, evaluation: &Evaluation) -> Outcome {
        let difference = self.now.gain_over(evaluation);
        Outcome::Judged { scores: self.args.scores(evaluation), difference }
    }

    fn baseline(&self, baseline: Baseline) -> Result<Row> {
        let task = &self.policy.task;
        let name = baseline.name().to_owned();
        let budget = Duration::from_secs(self.args.tune);
        tracing::info!("fitting {name}");
        // A baseline that cannot be fitted here says so in its row; the other rows stay.
        let tuned = match TunedBaseline::new(task, baseline, budget, Seed::default()) {
            Ok(tuned) => tuned,
            Err(error) => {
                let outcome = Outcome::Refused { refused: error.to_string() };
                let how = How::Baseline { settings: baseline, tried: Vec::new(), seconds: 0.0 };
                return Ok(Row { name, outcome, how, note: None });
            }
        };
        let metrics = &self.args.metrics;
        let slate_size = Evaluation::longest(task, metrics);
        let slates =
            |block: &[u32]| tuned.fitted.slates(Asked { slate_size, ..Asked::of(task, block) });
        let evaluation = Evaluation::with_metrics(task, self.contexts, metrics, slates)?;
        let seconds = tuned.elapsed.as_secs_f64();
        let chosen = self.split == Split::Validation && !tuned.tried.is_empty();
        let how = How::Baseline { settings: tuned.baseline, tried: tuned.tried, seconds };
        let note = chosen.then_some(TUNED_HERE);
        Ok(Row { name, outcome: self.judged(&evaluation), how, note })
    }

    /// Judges another run at this run's slate size and by its reward.
    fn run(&self, run: &Path) -> Result<Row> {
        if !run.exists() {
            let names = Baseline::all().map(Baseline::name).join(", ");
            bail!("--against {}: neither a run's folder nor one of {names}", run.display());
        }
        let device = self.args.device.device.as_deref();
        let other = Policy::open(run, self.args.checkpoint, device)?;
        let task = &self.policy.task;
        if other.task.sessions != task.sessions {
            let (ours, theirs) = (self.policy.origin.data.display(), other.origin.data.display());
            bail!(
                "{}: was trained on {theirs}, whose sessions are not those of {ours}",
                run.display()
            );
        }
        let evaluation = self.args.decisions(task, &other.task, &other.model, self.contexts)?;
        let outcome = self.judged(&evaluation);
        let (name, how) = (run.display().to_string(), How::Run { step: other.step });
        Ok(Row { name, outcome, how, note: self.chosen_here() })
    }
}
