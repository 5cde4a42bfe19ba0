//! Queries in, what the shards of a catalogue answer out, each shard being asked at one of its replicas.
//!
//! A replica that fails, or that is late, is asked no more until it answers again; a question goes to
//! another replica of the shard at once where one failed, and where it is later than 19 of 20 answers are,
//! as long as no more than one question in twenty is asked twice. A shard that does not answer in time
//! is missing. So is one that holds another part than its place among the addresses says.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderValue, Request, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::api::ShardsAnswered;
use super::loaded::Loaded;
use super::replicas::{Addresses, Group, Replica};
use super::wire::{KIND, LARGEST, Place, parts, question, read_answer, rows_of};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::retrieval::{FanOut, Partial, Queries};

/// One question in so many may be asked twice.
const HEDGED: u64 = 20;
/// The answers whose times say what late is.
const RECENT: usize = 256;
/// How often replicas are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Where the shards of a bundle are.
#[derive(Clone, Debug)]
pub struct Shards {
    /// The replicas of each shard.
    pub addresses: Addresses,
    /// The fewest shards that make an answer; all of them if there is no number.
    pub least: Option<usize>,
    /// The time in which a shard answers.
    pub timeout: Duration,
    /// The shards' admin token.
    pub token: Option<String>,
}

/// The shards of the bundle that answers.
#[derive(Debug)]
pub(super) struct Front {
    groups: Vec<Group>,
    least: usize,
    timeout: Duration,
    token: Option<HeaderValue>,
    client: Client<HttpConnector, Body>,
    runtime: tokio::runtime::Handle,
    /// The times of the last answers.
    recent: Mutex<VecDeque<Duration>>,
    questions: AtomicU64,
    pub(super) hedges: AtomicU64,
    pub(super) missing: AtomicU64,
}

/// What is asked of every shard.
struct Asking {
    body: Bytes,
    rows: usize,
    slate_size: usize,
}

impl Front {
    /// Asks with the runtime of the caller.
    ///
    /// # Errors
    /// [`Error::Setting`] for a least number of shards that there is not, or no token.
    pub(super) fn new(shards: Shards) -> Result<Self> {
        let Shards { addresses, least, timeout, token } = shards;
        let groups = addresses.groups();
        let least = least.unwrap_or(groups.len());
        if !(1..=groups.len()).contains(&least) {
            let problem =
                format!("is {least}, expected 1 to {}, the number of shards", groups.len());
            return Err(Error::setting("min-shards", problem));
        }
        let token = token.map(|token| {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            value.map_err(|_| Error::setting("shard-token", "is no text of a header"))
        });
        Ok(Self {
            groups,
            least,
            timeout,
            token: token.transpose()?,
            client: Client::builder(TokioExecutor::new()).build_http(),
            runtime: tokio::runtime::Handle::current(),
            recent: Mutex::default(),
            questions: AtomicU64::new(0),
            hedges: AtomicU64::new(0),
            missing: AtomicU64::new(0),
        })
    }

    /// The number of shards.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// The shards of which no replica answered what it was asked last.
    pub(super) fn silent(&self) -> Vec<String> {
        let silent = |group: &&Group| {
            !group.replicas.iter().any(|replica| replica.answers.load(Ordering::Relaxed))
        };
        self.groups.iter().filter(silent).map(Group::described).collect()
    }

    /// True if enough shards answer.
    pub(super) fn is_ready(&self) -> bool {
        self.len() - self.silent().len() >= self.least
    }

    /// Asks every replica an empty question of the bundle `whole`, and returns the shards that have
    /// no replica which knows that bundle.
    pub(super) async fn look(self: &Arc<Self>, whole: &str, latent_dim: usize) -> Vec<String> {
        // No query at all: that takes no time however many items there are.
        let latent = Matrix::zeros(0, latent_dim);
        let queries = Queries { latent: &latent, slate_size: 1, excluded: None };
        let body = Bytes::from(question(whole, true, queries));
        let mut asked = JoinSet::new();
        for (at, group) in self.groups.iter().enumerate() {
            for replica in &group.replicas {
                let asking = Asking { body: body.clone(), rows: 0, slate_size: 1 };
                let (front, replica) = (Arc::clone(self), Arc::clone(replica));
                asked.spawn(async move {
                    let place = front.groups[at].place;
                    let answer = timeout(front.timeout, front.one(&replica, place, &asking)).await;
                    let answers = matches!(answer, Ok(Some(_)));
                    replica.answers.store(answers, Ordering::Relaxed);
                    (at, answers)
                });
            }
        }
        let mut known = vec![false; self.len()];
        while let Some(answered) = asked.join_next().await {
            if let Ok((at, true)) = answered {
                known[at] = true;
            }
        }
        let unknown = self.groups.iter().zip(known).filter(|(_, known)| !known);
        unknown.map(|(group, _)| group.described()).collect()
    }

    /// What is wrong with shards that do not know a bundle yet, if they are too many.
    pub(super) async fn agreed(self: &Arc<Self>, loaded: &Loaded) -> Option<Error> {
        let latent_dim = loaded.recommender.bundle().actions.latent_dim();
        let unknown = self.look(&loaded.digest, latent_dim).await;
        if self.len() - unknown.len() >= self.least {
            return None;
        }
        let problem = format!(
            "{} of {} shards do not have it: load it there first ({})",
            unknown.len(),
            self.len(),
            unknown.join(", ")
        );
        Some(Error::setting("shards", problem))
    }

    /// [`look`](Self::look)s again and again, at the bundle that `current` names.
    pub(super) async fn watch(self: Arc<Self>, current: impl Fn() -> (String, usize)) {
        loop {
            let (whole, latent_dim) = current();
            self.look(&whole, latent_dim).await;
            sleep(LOOK).await;
        }
    }

    /// The time after which an answer is late: later than 19 of 20 were.
    fn late(&self) -> Duration {
        let mut times: Vec<Duration> =
            self.recent.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let place = times.len() * 19 / 20;
        if times.len() < RECENT / 8 {
            return self.timeout / 4;
        }
        *times.select_nth_unstable(place).1
    }

    fn took(&self, time: Duration) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(time);
    }

    /// True if another question may be asked twice.
    fn may_hedge(&self) -> bool {
        let (asked, hedged) =
            (self.questions.load(Ordering::Relaxed), self.hedges.load(Ordering::Relaxed));
        let may = (hedged + 1) * HEDGED <= asked;
        if may {
            self.hedges.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// What one replica answers for the part at `place`; none if it does not, or something else.
    async fn one(&self, replica: &Replica, place: Place, asking: &Asking) -> Option<Partial> {
        let mut request = Request::post(&replica.address).header(header::CONTENT_TYPE, KIND);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Body::from(asking.body.clone())).ok()?;
        let response = self.client.request(request).await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        let body = to_bytes(Body::new(response.into_body()), LARGEST).await.ok()?;
        let (found, partial) = read_answer(&body, asking.rows, asking.slate_size)?;
        replica.holds(found, place).then_some(partial)
    }

    /// What a shard answers in time.
    async fn of_group(self: Arc<Self>, at: usize, asking: Arc<Asking>) -> Option<Partial> {
        let group = &self.groups[at];
        self.questions.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let turn = group.turn.fetch_add(1, Ordering::Relaxed);
        let count = group.replicas.len();
        let mut order: Vec<_> =
            (0..count).map(|at| Arc::clone(&group.replicas[(turn + at) % count])).collect();
        // Those that did not answer come last: if all are silent, one of them is back, perhaps.
        order.sort_by_key(|replica| !replica.answers.load(Ordering::Relaxed));
        let (mut next, mut asked) = (0, JoinSet::new());
        let mut ask = |asked: &mut JoinSet<_>| {
            let Some(replica) = order.get(next).map(Arc::clone) else { return };
            next += 1;
            let (front, asking) = (Arc::clone(&self), Arc::clone(&asking));
            asked.spawn(async move {
                let found = front.one(&replica, front.groups[at].place, &asking).await;
                replica.answers.store(found.is_some(), Ordering::Relaxed);
                found
            });
        };
        let whole = async {
            ask(&mut asked);
            let mut hedge = std::pin::pin!(sleep(self.late()));
            let mut waiting = count > 1;
            loop {
                tokio::select! {
                    answered = asked.join_next() => match answered {
                        Some(Ok(Some(found))) => return Some(found),
                        // Nobody is left to ask.
                        None => return None,
                        Some(_) => ask(&mut asked),
                    },
                    () = &mut hedge, if waiting => {
                        waiting = false;
                        if self.may_hedge() {
                            ask(&mut asked);
                        }
                    }
                }
            }
        };
        let found = timeout(self.timeout, whole).await.ok().flatten();
        if found.is_some() {
            self.took(started.elapsed());
        } else {
            self.missing.fetch_add(1, Ordering::Relaxed);
            // Those that were late are asked last until they answer again.
            let late = order.iter().take(next);
            late.for_each(|replica| replica.answers.store(false, Ordering::Relaxed));
        }
        found
    }

    /// What each shard answers; none for a shard that is missing.
    async fn ask(self: &Arc<Self>, asking: Asking) -> Vec<Option<Partial>> {
        let asking = Arc::new(asking);
        let mut asked = JoinSet::new();
        for at in 0..self.len() {
            let (front, asking) = (Arc::clone(self), Arc::clone(&asking));
            asked.spawn(async move { (at, front.of_group(at, asking).await) });
        }
        let mut found: Vec<Option<Partial>> = vec![None; self.len()];
        while let Some(answered) = asked.join_next().await {
            if let Ok((at, answer)) = answered {
                found[at] = answer;
            }
        }
        found
    }
}

/// The shards, as one request asks them.
#[derive(Debug)]
pub(super) struct AskedOnce {
    front: Arc<Front>,
    /// The digest of the bundle whose shards are asked.
    whole: String,
    exact: bool,
    least: usize,
    /// The fewest shards that answered a question of this request.
    answered: AtomicUsize,
}

impl AskedOnce {
    /// Asks for items of the bundle `whole`, of all shards if `all`.
    pub(super) fn new(front: &Arc<Front>, whole: &str, exact: bool, all: bool) -> Arc<Self> {
        Arc::new(Self {
            front: Arc::clone(front),
            whole: whole.to_owned(),
            exact,
            least: if all { front.len() } else { front.least },
            answered: AtomicUsize::new(front.len()),
        })
    }

    /// How many answered.
    pub(super) fn shards(&self) -> ShardsAnswered {
        let count = |shards: usize| u16::try_from(shards).unwrap_or(u16::MAX);
        let answered = count(self.answered.load(Ordering::Relaxed));
        ShardsAnswered { answered, of: count(self.front.len()) }
    }

    /// True if too few answered to make slates.
    pub(super) fn failed(&self) -> bool {
        self.answered.load(Ordering::Relaxed) < self.least
    }
}

impl FanOut for AskedOnce {
    /// Blocks; not to be called from a thread of the runtime.
    fn ask(&self, queries: Queries<'_>) -> Result<Vec<Partial>> {
        let mut found = vec![Partial { actions: Vec::new(), scores: Vec::new() }; self.front.len()];
        for rows in parts(queries)? {
            let (latent, lists) = rows_of(queries, rows.clone());
            let queries = Queries { latent: &latent, excluded: Some(&lists), ..queries };
            let (rows, slate_size) = (rows.len(), queries.slate_size);
            let body = Bytes::from(question(&self.whole, self.exact, queries));
            let asking = Asking { body, rows, slate_size };
            let answers = self.front.runtime.block_on(self.front.ask(asking));
            let answered = answers.iter().flatten().count();
            self.answered.fetch_min(answered, Ordering::Relaxed);
            if self.failed() {
                let message = format!("{answered} of {} answered", self.front.len());
                return Err(Error::Library { context: "asking the shards".into(), message });
            }
            for (found, answer) in found.iter_mut().zip(answers) {
                // A shard may answer one part and miss another.
                let answer = answer.unwrap_or_else(|| Partial::nothing(rows, slate_size));
                found.actions.extend(answer.actions);
                found.scores.extend(answer.scores);
            }
        }
        Ok(found)
    }
}
