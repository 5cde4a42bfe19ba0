//! `GET /v1/items` and `GET /v1/bundle`: what may be asked for.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;

use super::api::{About, Item, Items, ItemsQuery};
use super::problem::{Problem, ProblemBody};
use super::service::Service;

/// The most items of an answer, the items of one that asks for no number, and the longest query.
const MOST: usize = 100;
const USUAL: usize = 20;
const LONGEST: usize = 200;

/// Items by the beginnings of the words of their titles, or of their ids.
#[utoipa::path(
    get, path = "/v1/items", tag = "catalogue", params(ItemsQuery),
    responses(
        (status = 200, body = Items),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn items(
    State(service): State<Arc<Service>>,
    query: Result<Query<ItemsQuery>, QueryRejection>,
) -> Result<Json<Items>, Problem> {
    let bad = |problem| Problem::new(StatusCode::BAD_REQUEST, "query", problem);
    let Query(ItemsQuery { q, limit }) = query.map_err(|error| bad(error.body_text()))?;
    if q.len() > LONGEST {
        return Err(bad(format!("`q` may have up to {LONGEST} bytes")));
    }
    let limit = limit.unwrap_or(USUAL).min(MOST);
    let loaded = service.loaded();
    let work = move || {
        let items = &loaded.recommender.bundle().items;
        let item = |action| Item {
            item_id: items.ids.id(action).to_owned(),
            title: items.title(action).map(str::to_owned),
            group: items.group(action).map(str::to_owned),
        };
        Items { items: loaded.titles.find(&q, limit).into_iter().map(item).collect() }
    };
    service.search(work).await.map(Json)
}

/// The bundle that answers.
#[utoipa::path(get, path = "/v1/bundle", tag = "catalogue", responses((status = 200, body = About)))]
pub(super) async fn about(State(service): State<Arc<Service>>) -> Json<About> {
    let loaded = service.loaded();
    let bundle = loaded.recommender.bundle();
    Json(About {
        digest: loaded.digest.clone(),
        num_actions: bundle.actions.num_actions(),
        context_dim: loaded.recommender.context_dim(),
        latent_dim: bundle.actions.latent_dim(),
        slate_size: bundle.trained.slate_size,
        reward: bundle.trained.reward.to_string(),
        titles: bundle.items.has_titles(),
        groups: bundle.items.has_groups(),
        users: bundle.users.as_ref().map_or(0, |users| users.ids.len()),
        retrieval: loaded.retrieval(false),
        explores: bundle.sigma.is_some() && service.journal.is_some(),
        logs: service.journal.is_some(),
        version: env!("CARGO_PKG_VERSION"),
    })
}
