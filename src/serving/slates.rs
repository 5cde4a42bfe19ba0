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
use super::loaded::Loaded;
use super::metrics::Explored;
use super::problem::{Problem, ProblemBody};
use super::service::Service;
use crate::bundle::{Answer, Filter, Options, Request, Who};
use crate::error::{Error, Result};
use crate::log::{Exposure, Record};
use crate::retrieval::Search;
use crate::seed::Seed;

/// What may be shown, as the request says it.
struct Lists {
    allow: Option<Vec<String>>,
    deny: Vec<String>,
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
    let loaded = service.loaded();
    let (exact, strict) = (request.exact, request.strict);
    let mut options = Options {
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

    let ask = |front| AskedOnce::new(front, &loaded.digest, exact, explore);
    let asked = service.front.as_ref().map(ask);
    let (answering, through) = (Arc::clone(&loaded), asked.clone());
    let work = move || {
        if lists.allow.is_some() || !lists.deny.is_empty() {
            let bundle = answering.recommender.bundle();
            options.filter = Filter::new(bundle, lists.allow.as_deref(), &lists.deny)?;
        }
        let recommender = answering.recommender.clone();
        let recommender = match through {
            Some(asked) => recommender.through(asked),
            None => recommender,
        };
        let answers = recommender.recommend(&askers, &options)?;
        Ok::<_, Error>((answers, askers, options, lists))
    };
    let answered = service.search(work).await?;
    let shards = asked.as_ref().map(|asked| asked.shards());
    if let (Some(asked), Some(ShardsAnswered { answered: some, of })) = (asked, shards) {
        // What a shard that is missing has may be what the request asks for.
        let too_few = matches!(answered, Err(Error::SlateTooLarge { .. })) && some < of;
        if asked.failed() || too_few {
            let few = if too_few { ", which have too few items" } else { "" };
            let problem = format!("{some} of {of} shards answered{few}");
            return Err(Problem::unavailable("shards", problem));
        }
    }
    let (mut answers, askers, mut options, lists) = answered?;
    for (at, (answer, asker)) in answers.iter().zip(&askers).enumerate() {
        check(answer, asker, strict).map_err(|(code, problem)| {
            let which = if alone { String::new() } else { format!("requests[{at}]: ") };
            Problem::refused(code, which + &problem)
        })?;
    }
    let mut ignored = std::mem::take(&mut options.filter.ignored);
    if let ([answer], true) = (&mut answers[..], alone) {
        answer.ignored.append(&mut ignored);
    }

    let ids: Vec<String> = answers.iter().map(|_| service.key.issue()).collect();
    if let Some(journal) = &service.journal {
        let shown =
            Shown { loaded: &loaded, options: &options, lists: &lists, exact, share, shards };
        let rows = ids.iter().zip(&mut answers).zip(askers);
        let rows: Vec<Record> =
            rows.map(|((id, answer), asker)| shown.record(id, answer, asker)).collect();
        match journal.store(&rows).await {
            // What is drawn to learn from is worth nothing without its row.
            Err(problem) if explore => return Err(problem),
            Err(_) => drop(service.metrics.unlogged.inc_by(answers.len() as u64)),
            Ok(()) => {}
        }
    }
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

/// Refuses `count` slates of `k` items that are too many, or too long, together.
fn fits(service: &Service, count: usize, k: usize, lists: &Lists) -> Result<(), Problem> {
    let most = service.limits.slate;
    if k > most {
        return Err(Problem::refused("slate-size", format!("k may be up to {most}")));
    }
    // Each row of the log has its own lists.
    let listed = lists.allow.as_ref().map_or(0, Vec::len) + lists.deny.len();
    let listed = if service.journal.is_some() { listed } else { 0 };
    let most = service.limits.items;
    if count.saturating_mul(k.max(listed)) > most {
        let problem = format!(
            "{count} slates of {k} items, each logged with {listed} ids of `allow` and `deny`: up to {most} items \
             and ids in all; ask for fewer slates at once"
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
        None if service.explore_share > 0.0 => {
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

/// Refuses what is worse than no slate, with the code and the words of the problem.
fn check(answer: &Answer, asker: &Request, strict: bool) -> Result<(), (&'static str, String)> {
    if let Who::Items(items) = &asker.who
        && answer.cold
        && !items.is_empty()
    {
        let more = items.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = items[..items.len().min(NAMED)].join(", ");
        return Err(("unknown-items", format!("the catalogue has none of {named}{more}")));
    }
    if strict && answer.short {
        return Err(("short", format!("only {} items may be shown", answer.slate.len())));
    }
    Ok(())
}

/// What the rows of a request have in common.
struct Shown<'a> {
    loaded: &'a Loaded,
    options: &'a Options,
    lists: &'a Lists,
    exact: bool,
    share: f32,
    shards: Option<ShardsAnswered>,
}

impl Shown<'_> {
    /// The row of one answer, whose query it takes.
    fn record(&self, request_id: &str, answer: &mut Answer, asker: Request) -> Record {
        let bundle = self.loaded.recommender.bundle();
        let query = answer.query.take();
        let (h, z, sigma) =
            query.map_or_else(Default::default, |query| (query.h, query.z, query.sigma));
        let k = self.options.slate_size.unwrap_or(bundle.trained.slate_size);
        let most = self.options.max_per_group;
        Record::from(Exposure {
            request: request_id.to_owned(),
            time: now(),
            bundle: self.loaded.digest.clone(),
            vectors: bundle.trained.vectors.clone(),
            retrieval: match self.shards {
                Some(ShardsAnswered { of, .. }) => {
                    format!("{of} shards {}", self.loaded.retrieval(self.exact))
                }
                None => self.loaded.retrieval(self.exact),
            },
            who: asker.who,
            h,
            z,
            sigma,
            exploring: self.options.explore.is_some(),
            share: self.share,
            k: u32::try_from(k).unwrap_or(u32::MAX),
            exclude_seen: self.options.exclude_seen,
            exclude: asker.exclude,
            filter: None,
            allow: self.lists.allow.clone().unwrap_or_default(),
            deny: self.lists.deny.clone(),
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
