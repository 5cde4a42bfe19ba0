//! The closed loop: a policy serves with exploration, its log is learned from and judged, and what surely
//! earns more is shipped, round after round, by users of whom the truth is known.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{SimulationSettings, TrueReward, World, number};
use crate::bundle::{Answer, Options, Query, Request, Who};
use crate::dataset::{Catalogue, SplitSettings};
use crate::device;
use crate::embedding::{SessionPart, SvdOptions};
use crate::error::{Error, Result};
use crate::estimate::Interval;
use crate::estimator::ControlVariate;
use crate::facade::{Policy, Verdict};
use crate::log::{Exposure, Feedback, Log};
use crate::logged::rewards::LoggedReward;
use crate::logged::{Cut, Outcome, Reading};
use crate::method::{LatentMethod, Method};
use crate::policy::{Radial, Sigma};
use crate::prepared::{EmbeddingSource, Input, PrepareSettings, Prepared};
use crate::reward::{RewardKind, SlateReward};
use crate::run::{RunFolder, RunOrigin, Which};
use crate::seed::{Purpose, Seed};
use crate::settings::{BudgetSettings, BudgetUnit, Preset, Settings};
use crate::task::Task;
use crate::training::Trainer;

/// The loop to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoopSettings {
    /// The users.
    pub world: SimulationSettings,
    /// Rounds of serving and learning.
    pub rounds: u32,
    /// Slates that a round shows.
    pub requests: u32,
    /// L.
    pub latent_dim: usize,
    /// c: the noise that explores has c times the length of the query.
    pub exploration: f32,
    /// Steps of learning in a round.
    pub steps: u64,
    /// The reward that a round estimates to train on; none to learn by weights.
    pub estimate: Option<LoggedReward>,
    /// Seed of who comes, of the noise and of the clicks; the division of persons follows from it too.
    pub seed: Seed,
}

impl Default for LoopSettings {
    fn default() -> Self {
        Self {
            // Users who tire soon: what they took says little of the slate that they want.
            world: SimulationSettings {
                users: 30_000,
                actions: 500,
                satiation: 0.2,
                ..SimulationSettings::default()
            },
            rounds: 10,
            requests: 100_000,
            latent_dim: 8,
            exploration: 1.0,
            steps: 300,
            estimate: None,
            seed: Seed(0),
        }
    }
}

/// The expected clicks on a policy's slates, averaged over all users: what no log can say exactly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Truth {
    /// The value of the policy that explores, `h + σε`.
    pub exploring: f64,
    /// The value of its decision without noise.
    pub decision: f64,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Round {
    /// From 1.
    pub round: u32,
    /// The value of the policy that served.
    pub true_reward: f64,
    /// The value of what was learned from its log.
    pub learned_true_reward: f64,
    /// The estimate of it, by persons that it has not learned from.
    pub estimate: Option<Interval>,
    /// The bound below its gain.
    pub gain_bound: Option<f64>,
    /// True if it serves from now on.
    pub shipped: bool,
    /// Rows that were learned from, stopped by or judged by.
    pub rows: usize,
}

/// A finished loop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rounds {
    /// The policy that served first.
    pub start: Truth,
    /// The policy that serves at the end.
    pub end: Truth,
    /// LGP, trained on the true reward from the same start.
    pub reference: Truth,
    /// What the best slate of each user would earn.
    pub ceiling: f64,
    /// The share of the way from the start to the reference that the exploring policy went; none where the
    /// reference is no better than the start.
    pub gap_closed: Option<f64>,
    /// In their order.
    pub rounds: Vec<Round>,
}

/// Draws of each user's noise behind a truth.
const DRAWS: u64 = 5;

/// Requests that are answered at once.
const BLOCK: u32 = 8192;

/// Runs the loop in the folder `out`, which must not be there; `each` is told of a round when it ends.
///
/// # Errors
/// [`Error::Setting`] for settings out of range; fails if a training fails or a file cannot be written.
pub fn rounds(settings: &LoopSettings, out: &Path, mut each: impl FnMut(&Round)) -> Result<Rounds> {
    settings.validate()?;
    if out.exists() {
        return Err(Error::file(out, "there is something here already; give another --out"));
    }
    let theatre = Theatre::new(settings, out)?;
    let mut serving = out.join("start");
    let mut policy = theatre.start(&serving)?;
    let start = theatre.truth(&policy)?;
    let reference = theatre.truth(&theatre.reference(&serving)?)?;
    let mut now = start;
    let (mut logs, mut rounds) = (Vec::new(), Vec::new());
    for round in 1..=settings.rounds {
        let folder = out.join(format!("round-{round:02}"));
        theatre.serve(&policy, round)?.write(&folder.join("log"))?;
        logs.push(folder.join("log"));
        let lesson = policy.lesson(&logs, theatre.reading())?;
        let learned = lesson.learn(&serving, &theatre.to_learn(&policy)?, &folder.join("run"))?;
        let verdict = match lesson.task.logged() {
            Some(rows) => learned.verdict(rows, lesson.unused, true)?,
            None => learned.by_log(&logs, theatre.reading(), true)?,
        };
        let Verdict { value, gain_bound, .. } = verdict;
        let truth = theatre.truth(&learned)?;
        let shipped = learned.step > 0 && gain_bound.is_some_and(|bound| bound > 0.0);
        rounds.push(Round {
            round,
            true_reward: now.exploring,
            learned_true_reward: truth.exploring,
            estimate: value.plain,
            gain_bound,
            shipped,
            rows: lesson.task.contexts.rows(),
        });
        rounds.last().into_iter().for_each(&mut each);
        if shipped {
            // What the next policy is learned from, it has shown itself.
            (policy, now, serving) = (learned, truth, folder.join("run"));
            logs.clear();
        }
    }
    let gap = reference.exploring - start.exploring;
    Ok(Rounds {
        start,
        end: now,
        reference,
        ceiling: theatre.ceiling(),
        gap_closed: (gap > 0.0).then(|| (now.exploring - start.exploring) / gap),
        rounds,
    })
}

impl LoopSettings {
    fn validate(&self) -> Result<()> {
        for (key, value) in [("rounds", u64::from(self.rounds)), ("steps", self.steps)] {
            if value == 0 {
                return Err(Error::setting(key, "expected at least 1, found 0"));
            }
        }
        if self.requests < 1000 {
            let problem = format!("expected at least 1000 a round, found {}", self.requests);
            return Err(Error::setting("requests", problem));
        }
        if let Some(estimate @ (LoggedReward::Ips | LoggedReward::DoublyRobust)) = self.estimate {
            let problem = format!(
                "{estimate} needs the propensity of each item at its position, which a log of slates by noise on \
                 the query does not have"
            );
            return Err(Error::setting("estimate", problem));
        }
        if !(self.exploration > 0.0 && self.exploration.is_finite()) {
            let problem = format!("expected a positive number, found {}", self.exploration);
            return Err(Error::setting("exploration", problem));
        }
        Ok(())
    }
}

/// The users, and what is known of them beforehand.
struct Theatre<'a> {
    settings: &'a LoopSettings,
    world: Arc<World>,
    prepared: Prepared,
}

impl<'a> Theatre<'a> {
    fn new(settings: &'a LoopSettings, out: &Path) -> Result<Self> {
        let world = Arc::new(World::new(&settings.world)?);
        let input = Input::Synthetic(settings.world.sessions());
        let options = SvdOptions { latent_dim: settings.latent_dim, ..SvdOptions::default() };
        let embedding = EmbeddingSource::Svd { interactions: SessionPart::All, options };
        let prepare =
            PrepareSettings { split: SplitSettings::default(), embedding, features: None };
        let prepared = Prepared::create(&input, &prepare, &out.join("data"), false)?;
        Ok(Self { settings, world, prepared })
    }

    /// The settings of the policy that serves first: it knows what users took, not what sates them.
    fn first(&self) -> Settings {
        let mut settings = self.prepared.preset(Preset::Default);
        settings.seed = self.settings.seed;
        settings.slate_size = self.settings.world.slate_size;
        settings.reward.kind = RewardKind::Hits;
        settings.context.folds = 0;
        // Users may like again what they liked before.
        settings.retrieval.exclude_observed = false;
        settings.method = Method::Lgp(LatentMethod {
            sigma: Sigma::Relative(self.settings.exploration),
            radial: Radial::Project,
            baseline: ControlVariate::LeaveOneOut,
            samples: 30,
            ..LatentMethod::gaussian()
        });
        settings
    }

    fn start(&self, out: &Path) -> Result<Policy> {
        self.train(&self.first(), out, None)
    }

    /// LGP from the start `from`, trained on what is true.
    fn reference(&self, from: &Path) -> Result<Policy> {
        let out = from.with_file_name("reference");
        self.train(&self.first(), &out, Some(from))
    }

    fn train(&self, settings: &Settings, out: &Path, from: Option<&Path>) -> Result<Policy> {
        let chosen = device::choose(Some("ndarray"))?;
        let mut task = Task::load(&self.prepared, settings)?;
        let run = RunFolder::new(out);
        let mut origin = RunOrigin::new(&self.prepared, chosen.name);
        match from {
            None => run.begin(settings, &origin)?,
            Some(from) => {
                task = task.with_reward(self.true_reward()?);
                origin.reward = Some("true".into());
                run.begin_from(from, settings, origin, None)?;
            }
        }
        Trainer::new(&task, settings, &run, &chosen.device).train(&mut ())?;
        Policy::open(out, Which::Best, Some(chosen.name))
    }

    fn to_learn(&self, policy: &Policy) -> Result<Settings> {
        let mut settings = policy.settings_to_learn(self.settings.estimate)?;
        settings.budget = BudgetSettings { unit: BudgetUnit::Steps, amount: self.settings.steps };
        Ok(settings)
    }

    fn reading(&self) -> Reading {
        let bounds = self.world.bounds();
        let &LoopSettings { seed, estimate, .. } = self.settings;
        Reading { outcome: Outcome::Sum, bounds, cut: Cut(seed), estimate }
    }

    /// The true reward under the numbers of the prepared data.
    fn true_reward(&self) -> Result<Arc<dyn SlateReward>> {
        let Catalogue { users, items, contexts } = Catalogue::read(self.prepared.folder())?;
        let known = |id: &str| {
            number(id)
                .ok_or_else(|| Error::file(self.prepared.folder(), format!("no number: {id}")))
        };
        let mut user_of = vec![0; self.prepared.sessions.num_contexts()];
        for (id, context) in users.iter().zip(contexts) {
            user_of[context as usize] = known(id)?;
        }
        let actions = items.ids.iter().map(known).collect::<Result<Vec<u32>>>()?;
        Ok(Arc::new(TrueReward::numbered(Arc::clone(&self.world), user_of, actions)))
    }

    /// The users' numbers in the world, and their requests.
    fn requests(users: impl Iterator<Item = u32>) -> (Vec<u32>, Vec<Request>) {
        let request = |user: u32| {
            let who = Who::User { id: (user + 1).to_string(), newer: Vec::new() };
            (user, Request::from(who))
        };
        users.map(request).unzip()
    }

    /// The log of a round: who comes, what they are shown, and what they click on.
    fn serve(&self, policy: &Policy, round: u32) -> Result<Log> {
        let (seed, users) = (self.settings.seed, self.settings.world.users);
        let mut who = seed.stream(Purpose::Visitors, round.into(), 0);
        let mut log = Log::default();
        for block in (0..self.settings.requests).step_by(BLOCK as usize) {
            let end = (block + BLOCK).min(self.settings.requests);
            let (visitors, requests) = Self::requests((block..end).map(|_| who.below(users)));
            let answers = self.answers(policy, &requests, Some((1 + u64::from(round), block)))?;
            for ((at, user), (request, answer)) in
                (block..end).zip(visitors).zip(requests.into_iter().zip(answers))
            {
                let id = format!("{round}-{at}");
                let time = i64::from(round) * 1_000_000_000 + i64::from(at) * 10;
                let slate: Vec<u32> =
                    answer.slate.iter().filter_map(|item| number(&item.item_id)).collect();
                let mut stream = seed.stream(Purpose::Clicks, round.into(), at.into());
                let clicks = self.world.clicks(user, &slate, &mut stream);
                let clicked = (0_u32..).zip(clicks).filter(|(_, clicked)| *clicked);
                log.feedback.extend(clicked.map(|(position, _)| Feedback {
                    request: id.clone(),
                    position,
                    value: 1.0,
                    event: format!("{id}-{position}"),
                    time: time + 1 + i64::from(position),
                }));
                log.exposures.push(exposure(policy, id, time, request.who, answer)?);
            }
        }
        Ok(log)
    }

    /// Slates for `requests`; with noise, drawn from a seed of this round and block.
    fn answers(
        &self,
        policy: &Policy,
        requests: &[Request],
        noise: Option<(u64, u32)>,
    ) -> Result<Vec<Answer>> {
        let explore = noise.map(|(round, block)| {
            let address = [self.settings.seed.0, round, block.into()];
            Seed(address.into_iter().fold(0, |seed, part| {
                (seed ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
            }))
        });
        let options = Options {
            slate_size: Some(self.settings.world.slate_size),
            exclude_seen: false,
            explore,
            queries: true,
            ..Options::default()
        };
        policy.recommender()?.recommend(requests, &options)
    }

    fn truth(&self, policy: &Policy) -> Result<Truth> {
        let value = |noise: Option<(u64, u32)>| -> Result<f64> {
            let mut sum = 0.0;
            let users: Vec<u32> = (0..self.settings.world.users).collect();
            for block in users.chunks(BLOCK as usize) {
                let noise = noise.map(|(draw, _)| (draw, block[0]));
                let (users, requests) = Self::requests(block.iter().copied());
                for (user, answer) in users.into_iter().zip(self.answers(policy, &requests, noise)?)
                {
                    let slate: Vec<u32> =
                        answer.slate.iter().filter_map(|item| number(&item.item_id)).collect();
                    sum += self.world.expected(user, &slate);
                }
            }
            Ok(sum / f64::from(self.settings.world.users))
        };
        // Other seeds than those of the rounds.
        let draws = (0..DRAWS).map(|draw| value(Some((u64::MAX - draw, 0))));
        let exploring = draws.sum::<Result<f64>>()? / DRAWS as f64;
        Ok(Truth { exploring, decision: value(None)? })
    }

    fn ceiling(&self) -> f64 {
        let users = self.settings.world.users;
        let best = |user| self.world.expected(user, &self.world.best(user));
        (0..users).map(best).sum::<f64>() / f64::from(users)
    }
}

/// What the log keeps of an answer.
fn exposure(
    policy: &Policy,
    request: String,
    time: i64,
    who: Who,
    answer: Answer,
) -> Result<Exposure> {
    let trained = &policy.recommender()?.bundle().trained;
    let query = answer.query.unwrap_or_else(|| Query { h: Vec::new(), z: Vec::new(), sigma: 0.0 });
    Ok(Exposure {
        request,
        time,
        bundle: format!("step {}", trained.step),
        vectors: trained.vectors.clone(),
        retrieval: "exact".into(),
        who,
        h: query.h,
        z: query.z,
        sigma: query.sigma,
        exploring: true,
        share: 1.0,
        k: u32::try_from(answer.slate.len()).unwrap_or(u32::MAX),
        exclude: Vec::new(),
        exclude_seen: false,
        filter: None,
        allow: Vec::new(),
        deny: Vec::new(),
        filters: Vec::new(),
        slate: answer.slate.iter().map(|item| item.item_id.clone()).collect(),
        scores: answer.slate.iter().map(|item| item.score).collect(),
        shards_answered: 1,
        shards: 1,
        fallback: false,
    })
}
