//! `slate evaluate`: a run in, the reward of its decision on held-out users out, beside the rewards of
//! other recommenders on the same users.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::flags::{DeviceArgs, split};
use super::report::Report;
use crate::baseline::{Asked, Baseline};
use crate::dataset::Split;
use crate::estimate::{Estimate, Interval};
use crate::evaluation::{CHOSEN_HERE, Evaluation, Metrics};
use crate::experiment::{BaselineTrial, TunedBaseline};
use crate::facade::Policy;
use crate::retrieval::Search;
use crate::run::Which;
use crate::seed::Seed;

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
}

/// The reward and the metrics of a recommender.
#[derive(Clone, Copy, Debug, Serialize)]
struct Scores {
    reward: f64,
    reward_se: f64,
    #[serde(flatten)]
    metrics: Metrics,
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

impl Scores {
    fn of(evaluation: &Evaluation) -> Self {
        let Estimate { mean: reward, standard_error: reward_se } = evaluation.reward();
        Self { reward, reward_se, metrics: evaluation.metrics() }
    }
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
    let now = Evaluation::of(task, &policy.model, &contexts, args.search())?;
    let start = Evaluation::of(task, &policy.initial, &contexts, args.search())?;
    let judge = Judge { args, split, policy: &policy, contexts: &contexts, now: &now };
    let evaluated = Evaluated {
        run: args.run.clone(),
        step: policy.step,
        split,
        contexts: contexts.len(),
        slate_size: task.slate_size(),
        through_index: args.index,
        note: judge.chosen_here(),
        scores: Scores::of(&now),
        gain: now.gain_over(&start),
        start: Scores::of(&start),
        against: args.against.iter().map(|name| judge.row(name)).collect::<Result<_>>()?,
    };
    Report::new(&evaluated, evaluated.text())
}

impl EvaluateArgs {
    fn search(&self) -> Search {
        if self.index { Search::Hnsw } else { Search::Exact }
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
        Outcome::Judged { scores: Scores::of(evaluation), difference }
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
        let slates = |block: &[u32]| tuned.fitted.slates(Asked::of(task, block));
        let evaluation = Evaluation::by(task, self.contexts, slates)?;
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
        let theirs = other.task.with_slate_size(task.slate_size());
        let retriever = theirs.retriever(&other.model, self.args.search())?;
        let slates = |block: &[u32]| theirs.decide(&other.model, block, retriever.as_ref());
        let evaluation = Evaluation::by(task, self.contexts, slates)?;
        let outcome = self.judged(&evaluation);
        let (name, how) = (run.display().to_string(), How::Run { step: other.step });
        Ok(Row { name, outcome, how, note: self.chosen_here() })
    }
}

/// The widest name of a row, in characters.
const WIDEST: usize = 19;

impl Evaluated {
    fn text(&self) -> String {
        let mut text = format!(
            "{}, {} {} users, K = {}, {} retrieval\n",
            self.run.display(),
            self.contexts,
            self.split,
            self.slate_size,
            if self.through_index { "index" } else { "exact" },
        );
        let mut rows = vec![
            (format!("policy, step {}", self.step), self.scores.text()),
            ("its step 0".into(), format!("{}  {}", self.start.text(), self.gain)),
        ];
        rows.extend(self.against.iter().map(|row| (row.label(), row.outcome.text())));
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        text += &format!(
            "{:width$}  {:>15}  {:>6}  {:>6}  {:>6}  {:>9}  policy − row, 95 % interval\n",
            "", "reward", "nDCG", "recall", "hits", "catalogue"
        );
        for (name, scores) in rows {
            text += format!("{name:width$}  {scores}").trim_end();
            text += "\n";
        }
        let own = self.note.map(|note| format!("policy: {note}"));
        let notes: Vec<String> =
            own.into_iter().chain(self.against.iter().filter_map(Row::notes)).collect();
        if !notes.is_empty() {
            text += &format!("\n{}", notes.join("\n"));
        }
        text
    }
}

impl Scores {
    fn text(&self) -> String {
        let Metrics { ndcg, recall, hit_rate, catalogue_coverage } = self.metrics;
        let reward = Estimate { mean: self.reward, standard_error: self.reward_se }.to_string();
        let catalogue = 100.0 * catalogue_coverage;
        format!("{reward:>15}  {ndcg:>6.4}  {recall:>6.4}  {hit_rate:>6.4}  {catalogue:>7.2} %")
    }
}

impl Outcome {
    fn text(&self) -> String {
        match self {
            Self::Judged { scores, difference } => format!("{}  {difference}", scores.text()),
            Self::Refused { .. } => format!("{:>15}", "N/A"),
        }
    }
}

impl Row {
    /// The end of a name that is too long for the table.
    fn label(&self) -> String {
        let step = match self.how {
            How::Run { step } => format!(", step {step}"),
            How::Baseline { .. } => String::new(),
        };
        let name: Vec<char> = (self.name.clone() + &step).chars().collect();
        match name.len().checked_sub(WIDEST) {
            None | Some(0) => name.iter().collect(),
            Some(cut) => std::iter::once('…').chain(name[cut + 1..].iter().copied()).collect(),
        }
    }

    /// How a baseline was fitted or why it was not, and whether these users chose anything.
    fn notes(&self) -> Option<String> {
        let name = &self.name;
        let How::Baseline { settings, tried, seconds } = &self.how else {
            return self.note.map(|note| format!("{}: {note}", self.label()));
        };
        if let Outcome::Refused { refused } = &self.outcome {
            return Some(format!("{name}: N/A: {refused}"));
        }
        let settings = settings.to_string();
        if settings.is_empty() {
            return None;
        }
        let best = tried.iter().filter_map(|trial| trial.reward).reduce(f64::max);
        let mut text = match best {
            None => format!("{name}: {settings} (not tuned: --tune SECONDS), {seconds:.1} s"),
            Some(best) => {
                let count = tried.len();
                format!(
                    "{name}: {settings}, validation reward {best:.4}, the best of {count} tried in {seconds:.1} s"
                )
            }
        };
        if let Some(note) = self.note {
            text += &format!("; {note}");
        }
        Some(text)
    }
}
