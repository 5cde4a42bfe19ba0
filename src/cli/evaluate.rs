//! `slate evaluate`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

use super::Report;
use super::args::EvaluateArgs;
use crate::baseline::{Asked, Baseline};
use crate::dataset::Split;
use crate::evaluation::{Evaluation, Interval, Metrics};
use crate::experiment::{BaselineTrial, TunedBaseline};
use crate::problem::Search;
use crate::recommend::TrainedPolicy;
use crate::seed::Seed;

#[derive(Debug, Serialize)]
struct Evaluated {
    run: PathBuf,
    step: u64,
    split: Split,
    contexts: usize,
    slate_size: usize,
    through_index: bool,
    #[serde(flatten)]
    scores: Scores,
    /// Over the run's own step 0, paired.
    gain: Interval,
    start: Scores,
    against: Vec<Row>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Scores {
    reward: f64,
    reward_se: f64,
    #[serde(flatten)]
    metrics: Metrics,
}

/// What the run is compared with.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    outcome: Outcome,
    #[serde(flatten)]
    how: How,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Outcome {
    /// What it earned.
    Judged {
        #[serde(flatten)]
        scores: Scores,
        /// Of the run's reward over this one's, paired.
        difference: Interval,
    },
    /// Why there is none.
    Refused { refused: String },
}

/// Where a row's slates are from.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum How {
    Run { step: u64 },
    Baseline { settings: Baseline, tried: Vec<BaselineTrial>, seconds: f64 },
}

impl Scores {
    fn of(evaluation: &Evaluation) -> Self {
        Self {
            reward: evaluation.mean(),
            reward_se: evaluation.standard_error(),
            metrics: evaluation.metrics(),
        }
    }
}

/// The run and whom it is judged on.
struct Judge<'a> {
    args: &'a EvaluateArgs,
    trained: &'a TrainedPolicy,
    contexts: &'a [u32],
    now: &'a Evaluation,
}

pub(super) fn run(args: &EvaluateArgs) -> Result<Report> {
    let trained = TrainedPolicy::open(&args.run, args.checkpoint, args.device.device.as_deref())?;
    let problem = &trained.problem;
    let contexts = problem.sessions.contexts(args.split);
    let data = trained.origin.data.display();
    if contexts.is_empty() {
        bail!("{data}: no user is in the {} split", args.split);
    }
    if args.tune > 0 && problem.sessions.contexts(Split::Validation).is_empty() {
        bail!("{data}: no user is in the validation split, on which --tune tunes");
    }
    let now = Evaluation::of(problem, &trained.model, &contexts, args.search())?;
    let start = Evaluation::of(problem, &trained.initial, &contexts, args.search())?;
    let judge = Judge { args, trained: &trained, contexts: &contexts, now: &now };
    let evaluated = Evaluated {
        run: args.run.clone(),
        step: trained.step,
        split: args.split,
        contexts: contexts.len(),
        slate_size: problem.slate_size(),
        through_index: args.index,
        scores: Scores::of(&now),
        gain: now.gain_over(&start),
        start: Scores::of(&start),
        against: args.against.iter().map(|name| judge.row(name)).collect::<Result<_>>()?,
    };
    Report::new(&evaluated, evaluated.text())
}

impl EvaluateArgs {
    fn search(&self) -> Search {
        if self.index { Search::Training } else { Search::Exact }
    }
}

impl Judge<'_> {
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
        let problem = &self.trained.problem;
        let name = baseline.name().to_owned();
        let budget = Duration::from_secs(self.args.tune);
        tracing::info!("fitting {name}");
        // What a baseline cannot do here is said in its row; the others have theirs.
        let tuned = match TunedBaseline::new(problem, baseline, budget, Seed::default()) {
            Ok(tuned) => tuned,
            Err(error) => {
                let outcome = Outcome::Refused { refused: error.to_string() };
                let how = How::Baseline { settings: baseline, tried: Vec::new(), seconds: 0.0 };
                return Ok(Row { name, outcome, how });
            }
        };
        let slates = |block: &[u32]| tuned.fitted.slates(Asked::of(problem, block));
        let evaluation = Evaluation::by(problem, self.contexts, slates)?;
        let seconds = tuned.elapsed.as_secs_f64();
        let how = How::Baseline { settings: tuned.baseline, tried: tuned.tried, seconds };
        Ok(Row { name, outcome: self.judged(&evaluation), how })
    }

    /// Another run, at this one's slate size and by its reward.
    fn run(&self, run: &Path) -> Result<Row> {
        if !run.exists() {
            let names = Baseline::all().map(Baseline::name).join(", ");
            bail!("--against {}: neither a run's folder nor one of {names}", run.display());
        }
        let device = self.args.device.device.as_deref();
        let other = TrainedPolicy::open(run, self.args.checkpoint, device)?;
        let problem = &self.trained.problem;
        if other.problem.sessions != problem.sessions {
            let (ours, theirs) = (self.trained.origin.data.display(), other.origin.data.display());
            bail!(
                "{}: was trained on {theirs}, whose sessions are not those of {ours}",
                run.display()
            );
        }
        let theirs = other.problem.with_slate_size(problem.slate_size());
        let retriever = theirs.retriever(&other.model, self.args.search())?;
        let slates = |block: &[u32]| theirs.decide(&other.model, block, retriever.as_ref());
        let evaluation = Evaluation::by(problem, self.contexts, slates)?;
        let outcome = self.judged(&evaluation);
        Ok(Row { name: run.display().to_string(), outcome, how: How::Run { step: other.step } })
    }
}

/// The widest name of a row, in characters.
const WIDEST: usize = 20;

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
            ("its step 0".into(), self.start.text() + &difference(&self.gain)),
        ];
        rows.extend(self.against.iter().map(|row| (row.label(), row.outcome.text())));
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        text += &format!(
            "{:width$}  {:>15}  {:>6}  {:>6}  {:>6}  {:>8}  policy − row, 95 % interval\n",
            "", "reward", "nDCG", "recall", "hits", "coverage"
        );
        for (name, scores) in rows {
            text += format!("{name:width$}  {scores}").trim_end();
            text += "\n";
        }
        let notes: Vec<String> = self.against.iter().filter_map(Row::note).collect();
        if !notes.is_empty() {
            text += &format!("\n{}", notes.join("\n"));
        }
        text
    }
}

impl Scores {
    fn text(&self) -> String {
        let Metrics { ndcg, recall, hit_rate, coverage } = self.metrics;
        format!(
            "{:>15}  {ndcg:>6.4}  {recall:>6.4}  {hit_rate:>6.4}  {:>6.2} %",
            format!("{:.4} ± {:.4}", self.reward, self.reward_se),
            100.0 * coverage
        )
    }
}

fn difference(Interval { mean, low, high }: &Interval) -> String {
    format!("  {mean:+.4} [{low:+.4}, {high:+.4}]")
}

impl Outcome {
    fn text(&self) -> String {
        match self {
            Self::Judged { scores, difference: over } => scores.text() + &difference(over),
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

    /// How a baseline came by its slates, or why it has none.
    fn note(&self) -> Option<String> {
        let name = &self.name;
        let How::Baseline { settings, tried, seconds } = &self.how else { return None };
        if let Outcome::Refused { refused } = &self.outcome {
            return Some(format!("{name}: N/A: {refused}"));
        }
        let settings = settings.to_string();
        if settings.is_empty() {
            return None;
        }
        let best = tried.iter().filter_map(|trial| trial.reward).reduce(f64::max);
        Some(match best {
            None => format!("{name}: {settings} (not tuned: --tune SECONDS), {seconds:.1} s"),
            Some(best) => {
                let count = tried.len();
                format!(
                    "{name}: {settings}, validation reward {best:.4}, the best of {count} tried in {seconds:.1} s"
                )
            }
        })
    }
}
