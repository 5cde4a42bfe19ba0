//! `POST /v1/slates`: who asks in, slates out; what was shown goes to the log before it is shown.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, StatusCode};

use super::api::{ManySlates, OneSlate, ShardsAnswered, Slate, Slates, SlatesRequest, texts};
use super::front::AskedOnce;
use super::gate::body;
use super::journal::Journal;
use super::loaded::Loaded;
use super::metrics::Explored;
use super::problem::{Problem, ProblemBody};
use super::service::Service;
use crate::bundle::{Answer, Filter, Options, Recommender, Request, Who};
use crate::error::{Error, Result};
use crate::log::{Exposure, Record};
use crate::retrieval::Search;
use crate::seed::Seed;

/// What may be shown, as the request says it.
struct Lists {
    allow: Option<Vec<String>>,
    deny: Vec<String>,
}

/// What is asked for.
struct Asked {
    askers: Vec<Request>,
    options: Options,
    lists: Lists,
    exact: bool,
    strict: bool,
    /// True without `requests`.
    alone: bool,
}

/// Slates for somebody, or for many.
#[utoipa::path(
    post, path = "/v1/slates", tag = "slates", request_body = SlatesRequest,
    responses(
        (status = 200, body = Slates),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
        (status = "5XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn slates(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    sent: Result<Json<SlatesRequest>, JsonRejection>,
) -> Result<Json<Slates>, Problem> {
    let started = Instant::now();
    let mut request = body(sent)?;
    let alone = request.requests.is_none();
    let bad = |problem| Problem::refused("who", problem);
    let askers = request.take_askers().map_err(bad)?;
    if askers.len() > service.limits.batch {
        let problem = format!("up to {} at once, found {}", service.limits.batch, askers.len());
        return Err(Problem::refused("batch-size", problem));
    }
    let (explore, share) = explores(&service, &headers, request.explore)?;
    let on_demand = request.explore == Some(true);
    let loaded = service.loaded();
    let (exact, strict) = (request.exact, request.strict);
    let options = Options {
        slate_size: request.k,
        exclude_seen: request.exclude_seen.unwrap_or(true),
        search: exact.then_some(Search::Exact),
        max_per_group: request.max_per_group.map(NonZeroUsize::get),
        explore: if explore { Some(Seed(random()?)) } else { None },
        queries: service.journal.is_some(),
        ..Options::default()
    };
    let lists = Lists { allow: request.allow.map(texts), deny: texts(request.deny) };
    let k = options.slate_size.unwrap_or(loaded.recommender.bundle().trained.slate_size);
    fits(&service, askers.len(), k, &lists)?;

    let asked = Asked { askers, options, lists, exact, strict, alone };
    let (mut answers, mut asked, mut shards) = answer(&service, &loaded, asked).await?;
    let issue = |answers: &[Answer]| answers.iter().map(|_| service.key.issue()).collect();
    let mut ids: Vec<String> = issue(&answers);
    if let Some(journal) = &service.journal {
        let shown = Shown { loaded: &loaded, asked: &asked, share, shards };
        let rows = ids.iter().zip(&mut answers).zip(&asked.askers);
        let rows: Vec<Record> =
            rows.map(|((id, answer), asker)| shown.record(id, answer, asker)).collect();
        match journal.store(&rows).await {
            Ok(()) => {}
            Err(problem) if on_demand => return Err(problem),
            Err(_) => {
                // What is drawn to learn from is worth nothing without its row: the decision is shown,
                // under other ids, since a disk that hangs may still take the rows.
                if asked.options.explore.take().is_some() {
                    (answers, asked, shards) = answer(&service, &loaded, asked).await?;
                    ids = issue(&answers);
                }
                service.metrics.unlogged.inc_by(answers.len() as u64);
            }
        }
    }
    let mut ignored = std::mem::take(&mut asked.options.filter.ignored);
    if let ([answer], true) = (&mut answers[..], alone) {
        answer.ignored.append(&mut ignored);
    }
    let explore = asked.options.explore.is_some();
    let explored = Explored { explored: explore };
    service.metrics.slates.get_or_create(&explored).inc_by(answers.len() as u64);
    let slates = ids.into_iter().zip(answers);
    let mut slates = slates.map(|(id, answer)| Slate::new(id, answer, explore));
    let (bundle, milliseconds) = (loaded.digest.clone(), started.elapsed().as_secs_f64() * 1e3);
    if alone && let Some(slate) = slates.next() {
        return Ok(Json(Slates::One(OneSlate { bundle, milliseconds, shards, slate })));
    }
    let answers = slates.collect();
    Ok(Json(Slates::Many(ManySlates { bundle, milliseconds, shards, ignored, answers })))
}

/// The answers to what is `asked`, and the shards behind them.
async fn answer(
    service: &Service,
    loaded: &Loaded,
    mut asked: Asked,
) -> Result<(Vec<Answer>, Asked, Option<ShardsAnswered>), Problem> {
    let explore = asked.options.explore.is_some();
    let ask = |front| AskedOnce::new(front, &loaded.digest, asked.exact, explore);
    let through = service.front.as_ref().map(ask);
    let recommender = loaded.recommender.clone();
    let recommender = match through.clone() {
        Some(through) => recommender.through(through),
        None => recommender,
    };
    let work = move || (asked.search(&recommender), asked);
    let (answered, asked) = service.search(work).await?;
    let shards = through.as_ref().map(|through| through.shards());
    if let (Some(through), Some(ShardsAnswered { answered: some, of })) = (through, shards) {
        // What a shard that is missing has may be what the request asks for.
        let too_few = matches!(answered, Err(Error::SlateTooLarge { .. })) && some < of;
        if through.failed() || too_few {
            let few = if too_few { ", which have too few items" } else { "" };
            let problem = format!("{some} of {of} shards answered{few}");
            return Err(Problem::unavailable("shards", problem));
        }
    }
    let context_dim = loaded.recommender.context_dim();
    let answers = answered.map_err(|error| match asked.at_fault(&error, context_dim) {
        Some(at) => asked.problem(at, error.into()),
        None => error.into(),
    })?;
    for (at, (answer, asker)) in answers.iter().zip(&asked.askers).enumerate() {
        check(answer, asker, asked.strict).map_err(|problem| asked.problem(at, problem))?;
    }
    Ok((answers, asked, shards))
}

impl Asked {
    fn search(&mut self, recommender: &Recommender) -> Result<Vec<Answer>> {
        let Lists { allow, deny } = &self.lists;
        if allow.is_some() || !deny.is_empty() {
            self.options.filter = Filter::new(recommender.bundle(), allow.as_deref(), deny)?;
        }
        recommender.recommend(&self.askers, &self.options)
    }

    /// The place of the asker whom `error` is about.
    fn at_fault(&self, error: &Error, context_dim: usize) -> Option<usize> {
        self.askers.iter().position(|asker| match (error, &asker.who) {
            (Error::UnknownId { id: unknown, .. }, Who::User { id, .. }) => unknown == id,
            (Error::Setting { key, .. }, Who::User { .. }) => key == "user",
            (Error::Shape { .. }, Who::Context(context)) => context.len() != context_dim,
            _ => false,
        })
    }

    /// The `problem` with the asker at this place.
    fn problem(&self, at: usize, problem: Problem) -> Problem {
        if self.alone { problem } else { problem.of_request(at) }
    }
}

/// Refuses `count` slates of `k` items that are too many, or too long, together.
fn fits(service: &Service, count: usize, k: usize, lists: &Lists) -> Result<(), Problem> {
    let most = service.limits.slate;
    if k > most {
        return Err(Problem::refused("slate-size", format!("k may be up to {most}")));
    }
    // Each row of the log has its own lists.
    let ids = lists.allow.iter().flatten().chain(&lists.deny).filter(|_| service.journal.is_some());
    let (listed, bytes) = ids.fold((0, 0), |(listed, bytes), id| (listed + 1, bytes + id.len()));
    let most = service.limits.items;
    if count.saturating_mul(k.max(listed)) > most {
        let problem = format!(
            "{count} slates of {k} items, each logged with {listed} ids of `allow` and `deny`: up to {most} items \
             and ids in all; ask for fewer slates at once"
        );
        return Err(Problem::refused("batch-size", problem));
    }
    let most = service.limits.listed;
    if count.saturating_mul(bytes) > most {
        let problem = format!(
            "{count} slates, each logged with {bytes} bytes of `allow` and `deny`: up to {most} bytes in all; \
             ask for fewer slates at once"
        );
        return Err(Problem::refused("batch-size", problem));
    }
    Ok(())
}

/// Whether to explore, and in what share of the requests like this one.
fn explores(
    service: &Service,
    headers: &HeaderMap,
    asked: Option<bool>,
) -> Result<(bool, f32), Problem> {
    match asked {
        Some(true) if service.journal.is_none() => {
            let problem = "this server keeps no log, without which nothing is learned; start it \
                           with --log";
            Err(Problem::refused("no-log", problem))
        }
        Some(true) if !service.access.is_admin(headers) => {
            let problem = "`explore` needs the admin token";
            Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", problem))
        }
        Some(true) => Ok((true, 1.0)),
        // Without its row nothing is learned: nobody is drawn while the log cannot be written.
        None if service.explore_share > 0.0
            && service.journal.as_ref().is_some_and(Journal::is_healthy) =>
        {
            let drawn = (random()? >> 40) as f32 / 16_777_216.0;
            Ok((drawn < service.explore_share, service.explore_share))
        }
        None | Some(false) => Ok((false, 0.0)),
    }
}

fn random() -> Result<u64, Problem> {
    getrandom::u64().map_err(|error| Problem::internal(&error))
}

/// The unknown items that a message names.
const NAMED: usize = 5;

/// Refuses what is worse than no slate.
fn check(answer: &Answer, asker: &Request, strict: bool) -> Result<(), Problem> {
    if let Who::Items(items) = &asker.who
        && answer.cold
        && !items.is_empty()
    {
        let more = items.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = items[..items.len().min(NAMED)].join(", ");
        let problem = format!("the catalogue has none of {named}{more}");
        return Err(Problem::refused("unknown-items", problem));
    }
    if strict && answer.short {
        let problem = format!("only {} items may be shown", answer.slate.len());
        return Err(Problem::refused("short", problem));
    }
    Ok(())
}

/// What the rows of a request have in common.
struct Shown<'a> {
    loaded: &'a Loaded,
    asked: &'a Asked,
    share: f32,
    shards: Option<ShardsAnswered>,
}

impl Shown<'_> {
    /// The row of one answer, whose query it takes.
    fn record(&self, request_id: &str, answer: &mut Answer, asker: &Request) -> Record {
        let bundle = self.loaded.recommender.bundle();
        let Asked { options, lists, exact, .. } = self.asked;
        let query = answer.query.take();
        let (h, z, sigma) =
            query.map_or_else(Default::default, |query| (query.h, query.z, query.sigma));
        let k = options.slate_size.unwrap_or(bundle.trained.slate_size);
        let most = options.max_per_group;
        Record::from(Exposure {
            request: request_id.to_owned(),
            time: now(),
            bundle: self.loaded.digest.clone(),
            vectors: bundle.trained.vectors.clone(),
            retrieval: match self.shards {
                Some(ShardsAnswered { of, .. }) => {
                    format!("{of} shards {}", self.loaded.retrieval(*exact))
                }
                None => self.loaded.retrieval(*exact),
            },
            who: asker.who.clone(),
            h,
            z,
            sigma,
            exploring: options.explore.is_some(),
            share: self.share,
            k: u32::try_from(k).unwrap_or(u32::MAX),
            exclude_seen: options.exclude_seen,
            exclude: asker.exclude.clone(),
            filter: None,
            allow: lists.allow.clone().unwrap_or_default(),
            deny: lists.deny.clone(),
            filters: most.map(|most| format!("max_per_group={most}")).into_iter().collect(),
            slate: answer.slate.iter().map(|item| item.item_id.clone()).collect(),
            scores: answer.slate.iter().map(|item| item.score).collect(),
            shards_answered: self.shards.map_or(1, |shards| shards.answered),
            shards: self.shards.map_or(1, |shards| shards.of),
            fallback: false,
        })
    }
}

/// Milliseconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
