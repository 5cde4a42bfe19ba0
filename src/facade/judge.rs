//! A policy in, the reward of its decision on held-out users out, beside the rewards of other
//! recommenders on the same users.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::Policy;
use crate::baseline::{Asked, Baseline};
use crate::dataset::Split;
use crate::error::{Error, Result};
use crate::estimate::{Estimate, Interval};
use crate::evaluation::{CHOSEN_HERE, Evaluation, MetricAt, Metrics, Panel};
use crate::experiment::{BaselineTrial, TunedBaseline};
use crate::interrupt;
use crate::model::Model;
use crate::retrieval::Search;
use crate::run::Which;
use crate::seed::Seed;
use crate::task::Task;

/// The users that a policy is judged on, the recommenders beside it, and the metrics.
#[derive(Clone, Debug, Default)]
pub struct Judging {
    /// The users; none for those of the test, or of the validation if the test has none.
    pub split: Option<Split>,
    /// Names of baselines, or folders of runs on the same sessions.
    pub against: Vec<PathBuf>,
    /// The time in which each baseline is tuned on the validation users; zero for its defaults.
    pub tune: Duration,
    /// Metrics beside those of the slates. They are computed on exact slates of their own length.
    pub metrics: Vec<MetricAt>,
    /// How many halves of their items users are asked about; none for one, and for users who validate as many
    /// as in training.
    pub halves: Option<u64>,
    /// Retrieves through the index instead of exactly.
    pub index: bool,
    /// The checkpoint that the policy was opened at, and that other runs are opened at.
    pub checkpoint: Which,
    /// The device of other runs.
    pub device: Option<String>,
}

/// What was judged.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Steps behind the model.
    pub step: u64,
    /// The users.
    pub split: Split,
    /// How many there are.
    pub contexts: usize,
    /// How many halves of their items each is asked about.
    pub halves: u64,
    /// K.
    pub slate_size: usize,
    /// True if the slates were retrieved through the index.
    pub through_index: bool,
    /// Says so if these users were trained on or chose the checkpoint.
    pub note: Option<&'static str>,
    /// The policy's own.
    #[serde(flatten)]
    pub scores: Scores,
    /// Gain over the run's own step 0, paired.
    pub gain: Interval,
    /// The measures of step 0.
    pub start: Scores,
    /// The others, in the order in which they were asked for.
    pub against: Vec<Row>,
}

/// The reward and the metrics of a recommender.
#[derive(Clone, Debug, Serialize)]
pub struct Scores {
    /// Mean reward.
    pub reward: f64,
    /// Its standard error.
    pub reward_se: f64,
    /// The metrics of the slates.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// The metrics asked for, by name.
    #[serde(flatten)]
    pub metrics_at: BTreeMap<String, f64>,
}

/// A recommender that the policy is compared with.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The baseline's name, or the run's folder.
    pub name: String,
    /// Its scores, or why there are none.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What it is.
    #[serde(flatten)]
    pub how: How,
    /// Says so if these users were trained on or chose its checkpoint or its settings, or if there may be better
    /// settings.
    pub note: Option<String>,
}

/// The scores of a recommender, or why there are none.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The recommender was judged.
    Judged {
        /// Its scores.
        #[serde(flatten)]
        scores: Scores,
        /// The policy's reward minus this one's, paired.
        difference: Interval,
    },
    /// The recommender cannot be fitted here.
    Refused {
        /// The reason.
        refused: String,
    },
}

/// The recommender behind a row.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum How {
    /// Another run.
    Run {
        /// Steps behind its model.
        step: u64,
    },
    /// A baseline.
    Baseline {
        /// The algorithm and its hyperparameters.
        settings: Baseline,
        /// What was tried.
        tried: Vec<BaselineTrial>,
        /// Time of all fits and evaluations.
        seconds: f64,
    },
}

/// What is said of whatever is judged on the users that it learned from.
const TRAINED_HERE: &str = "these users were trained on";

/// What is said of a baseline that is judged on the users it was tuned on.
const TUNED_HERE: &str = "these settings were chosen on these users";

/// What is said of a baseline that was tuned as far as there are values.
const AT_AN_END: &str = "at an end of the values tried, beyond which others may be better";

/// What is said of a baseline for which the time was too short.
const NOT_TUNED: &str = "only the values that it begins with were tried: give more time";

/// The times that users are asked to tune a baseline, up to which they are asked about several halves.
const TUNED_BY: usize = 20_000;

/// What the policy is compared with.
#[derive(Clone, Copy)]
enum Other<'a> {
    Baseline(Baseline),
    Run(&'a Path),
}

impl<'a> Other<'a> {
    fn named(name: &'a Path) -> Result<Self> {
        let name = name.to_str().map_or(name, |name| Path::new(name.trim()));
        if let Some(baseline) = name.to_str().map(Baseline::named).transpose()?.flatten() {
            return Ok(Self::Baseline(baseline));
        }
        if !name.exists() {
            let names = Baseline::all().map(Baseline::name).join(", ");
            let problem = format!("{}: neither a run's folder nor one of {names}", name.display());
            return Err(Error::setting("against", problem));
        }
        Ok(Self::Run(name))
    }
}

/// The policy and the users it is judged on.
struct Judge<'a> {
    asked: &'a Judging,
    policy: &'a Policy,
    panel: &'a Panel<'a>,
    now: &'a Evaluation,
}

impl Policy {
    /// Judges the policy by the reward of its task.
    ///
    /// # Errors
    /// [`Error::File`] if nobody is in the split or to tune on, or a run has other sessions;
    /// [`Error::Setting`] for a metric of more items than can be shown, or a name that neither a
    /// baseline nor a folder has; fails if the device or a search fails.
    pub fn judge(&self, asked: &Judging) -> Result<Judged> {
        let task = &self.task;
        let test_users = !task.sessions.contexts(Split::Test).is_empty();
        let split = asked.split.unwrap_or(if test_users { Split::Test } else { Split::Validation });
        if asked.index && self.model.actions.is_some() {
            let problem =
                "this model learned its action vectors and is searched exactly; leave it out";
            return Err(Error::setting("index", problem));
        }
        let panel = match asked.halves {
            None => self.panel(split),
            Some(halves) => self.asked_about(split, halves)?,
        };
        let nobody = |problem: String| Err(Error::file(&self.origin.data, problem));
        if panel.contexts().is_empty() {
            return nobody(match &self.origin.refit {
                None => format!("no user is in the {split} split"),
                Some(refit) => format!(
                    "everybody is trained on, and nobody in the {split} split: judge {}, which this run \
                     does again",
                    refit.run.display()
                ),
            });
        }
        if !asked.tune.is_zero() && task.sessions.contexts(Split::Validation).is_empty() {
            return nobody(
                "no user is in the validation split, on which baselines are tuned".into(),
            );
        }
        asked.check_metrics(task, panel.contexts())?;
        // Before minutes of tuning.
        let others: Vec<Other<'_>> =
            asked.against.iter().map(|name| Other::named(name)).collect::<Result<_>>()?;
        let own = |model| panel.evaluate(|task, _| asked.decisions(&panel, task, task, model));
        let (now, start) = (own(&self.model)?, own(&self.initial)?);
        let judge = Judge { asked, policy: self, panel: &panel, now: &now };
        Ok(Judged {
            step: self.step,
            split,
            contexts: panel.contexts().len(),
            halves: panel.halves(),
            slate_size: task.slate_size(),
            through_index: asked.index,
            note: judge.known_here(),
            scores: asked.scores(&now),
            gain: now.gain_over(&start),
            start: asked.scores(&start),
            against: others.into_iter().map(|other| judge.row(other)).collect::<Result<_>>()?,
        })
    }

    /// The users of a split, asked about so many halves of their items.
    fn asked_about(&self, split: Split, halves: u64) -> Result<Panel<'_>> {
        // Where a split hid the latest items, training users have other halves, which are drawn by time.
        if halves > 1 && !self.task.has_other_halves(Split::Test) {
            let problem = "users can be asked only about the halves of the split, or of the reward; leave \
                           it out";
            return Err(Error::setting("halves", problem));
        }
        Ok(Panel::new(&self.task, split, self.task.sessions.contexts(split))
            .with_all_halves(halves))
    }

    /// The users of a split; those who validate are asked as often as those that training reports on, which
    /// are all of them up to `evaluation.validation_contexts`.
    fn panel(&self, split: Split) -> Panel<'_> {
        let panel = Panel::new(&self.task, split, self.task.sessions.contexts(split));
        match split {
            Split::Validation => panel.with_halves(self.settings.evaluation.validation_halves),
            Split::Train | Split::Test => panel,
        }
    }

    /// The validation users by whom others are tuned: as many as training reports on, and of fewer the more
    /// halves, so that a trial takes about as long as a fit.
    fn tuning_panel(&self) -> Panel<'_> {
        let Self { task, settings, .. } = self;
        let of = &settings.evaluation;
        let users = task.reported(Split::Validation, of.validation_contexts, settings.seed);
        let halves = (TUNED_BY / users.len().max(1)).max(1) as u64;
        Panel::new(task, Split::Validation, users).with_halves(of.validation_halves.min(halves))
    }
}

impl Judging {
    /// Fails on a metric of more actions than there are for one of `contexts`.
    fn check_metrics(&self, task: &Task, contexts: &[u32]) -> Result<()> {
        let observed = &task.sessions.observed;
        let excluded = contexts.iter().map(|context| observed.of(*context).len()).max();
        let excluded = excluded.filter(|_| task.excluded().is_some()).unwrap_or(0);
        let most = task.sessions.num_actions - excluded;
        match self.metrics.iter().find(|metric| metric.k() > most) {
            None => Ok(()),
            Some(metric) => {
                let problem = format!("{metric}: only {most} items can be shown to every user");
                Err(Error::setting("metrics", problem))
            }
        }
    }

    /// Judges the decisions of `model`, made for the contexts of `theirs`, by the reward of `task`.
    /// The metrics asked for are always those of exact slates.
    fn decisions(
        &self,
        panel: &Panel<'_>,
        task: &Task,
        theirs: &Task,
        model: &Model,
    ) -> Result<Evaluation> {
        let judged = |search: Search, metrics: &[MetricAt]| {
            let theirs = theirs.clone().with_slate_size(Evaluation::longest(task, metrics));
            let retriever = theirs.retriever(model, search)?;
            let slates = |block: &[u32]| theirs.decide(model, block, retriever.as_ref());
            Evaluation::with_metrics(task, panel.contexts(), metrics, slates)
        };
        if self.index && !self.metrics.is_empty() {
            let exact = judged(Search::Exact, &self.metrics)?;
            return Ok(judged(Search::Hnsw, &[])?.with_metrics_of(exact));
        }
        judged(if self.index { Search::Hnsw } else { Search::Exact }, &self.metrics)
    }

    fn scores(&self, evaluation: &Evaluation) -> Scores {
        let Estimate { mean: reward, standard_error: reward_se } = evaluation.reward();
        let metrics_at = self.metrics.iter().map(MetricAt::to_string);
        let metrics_at = metrics_at.zip(evaluation.metrics_at().iter().copied()).collect();
        Scores { reward, reward_se, metrics: evaluation.metrics(), metrics_at }
    }
}

impl Judge<'_> {
    /// What to say of a checkpoint that was trained on these users, or that its rewards on them chose.
    fn known_here(&self) -> Option<&'static str> {
        match self.panel.split() {
            Split::Train => Some(TRAINED_HERE),
            Split::Validation => (self.asked.checkpoint == Which::Best).then_some(CHOSEN_HERE),
            Split::Test => None,
        }
    }

    fn row(&self, other: Other<'_>) -> Result<Row> {
        interrupt::check()?;
        match other {
            Other::Baseline(baseline) => self.baseline(baseline),
            Other::Run(run) => self.run(run),
        }
    }

    fn judged(&self, evaluation: &Evaluation) -> Outcome {
        let difference = self.now.gain_over(evaluation);
        Outcome::Judged { scores: self.asked.scores(evaluation), difference }
    }

    fn baseline(&self, baseline: Baseline) -> Result<Row> {
        let task = &self.policy.task;
        let name = baseline.name().to_owned();
        tracing::info!("fitting {name}");
        // A baseline that cannot be fitted here says so in its row; the other rows stay.
        let panel = self.policy.tuning_panel();
        let tuned = match TunedBaseline::new(&panel, baseline, self.asked.tune, Seed::default()) {
            Ok(tuned) => tuned,
            Err(error @ Error::Interrupted) => return Err(error),
            Err(error) => {
                let outcome = Outcome::Refused { refused: error.to_string() };
                let how = How::Baseline { settings: baseline, tried: Vec::new(), seconds: 0.0 };
                return Ok(Row { name, outcome, how, note: None });
            }
        };
        let metrics = &self.asked.metrics;
        let slate_size = Evaluation::longest(task, metrics);
        let evaluation = self.panel.evaluate_items(|task, contexts| {
            let slates =
                |block: &[u32]| tuned.fitted.slates(Asked { slate_size, ..Asked::of(task, block) });
            Evaluation::with_metrics(task, contexts, metrics, slates)
        })?;
        let seconds = tuned.elapsed.as_secs_f64();
        let here = match self.panel.split() {
            Split::Train => (baseline != Baseline::Uniform).then_some(TRAINED_HERE),
            Split::Validation => (!tuned.tried.is_empty()).then_some(TUNED_HERE),
            Split::Test => None,
        };
        let TunedBaseline { baseline: settings, tried, at_an_end, .. } = tuned;
        let notes = here.into_iter().chain(at_an_end.then_some(AT_AN_END));
        let notes = notes.chain((tried.len() == 1).then_some(NOT_TUNED));
        let note = notes.collect::<Vec<_>>().join("; ");
        let how = How::Baseline { settings, tried, seconds };
        let note = (!note.is_empty()).then_some(note);
        Ok(Row { name, outcome: self.judged(&evaluation), how, note })
    }

    /// Judges another run at this run's slate size, with what it keeps off slates, and by its reward.
    fn run(&self, run: &Path) -> Result<Row> {
        let other = Policy::open(run, self.asked.checkpoint, self.asked.device.as_deref())?;
        let task = &self.policy.task;
        if other.task.sessions != task.sessions {
            let (ours, theirs) = (self.policy.origin.data.display(), other.origin.data.display());
            let problem =
                format!("was trained on {theirs}, whose sessions are not those of {ours}");
            return Err(Error::file(run, problem));
        }
        let both = self.panel.halves_of(task).zip(self.panel.halves_of(&other.task));
        let evaluation = Evaluation::mean_of(both.map(|(task, theirs)| {
            let theirs = theirs.into_owned().with_exclusion(task.excluded().is_some());
            self.asked.decisions(self.panel, &task, &theirs, &other.model)
        }))?;
        let outcome = self.judged(&evaluation);
        let (name, how) = (run.display().to_string(), How::Run { step: other.step });
        Ok(Row { name, outcome, how, note: self.known_here().map(str::to_owned) })
    }
}
