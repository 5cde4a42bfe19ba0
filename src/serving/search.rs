//! `POST /v1/search`: queries in, the best items of this bundle out, for a server that asks many shards.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;

use super::problem::{Problem, ProblemBody};
use super::service::Service;
use super::wire::{KIND, LARGEST, Place, Question, answer};
use crate::error::Error;
use crate::retrieval::{Queries, Search};

/// The best items of this bundle for queries.
#[utoipa::path(
    post, path = "/v1/search", tag = "operations",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 409, body = ProblemBody, content_type = "application/problem+json",
         description = "this server holds no part of that bundle"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn search(
    State(service): State<Arc<Service>>,
    body: Bytes,
) -> Result<impl IntoResponse, Problem> {
    let question = Question::read(&body).ok_or_else(|| {
        let problem = "expected a question of a server of this version that asks shards";
        Problem::new(StatusCode::BAD_REQUEST, "no-question", problem)
    })?;
    let loaded = service.holding(&question.whole).ok_or_else(|| {
        let found = service.loaded().recommender.whole().unwrap_or_default().to_owned();
        let problem = format!("expected {}, found a part of {found}", question.whole);
        Problem::new(StatusCode::CONFLICT, "other-bundle", problem)
    })?;
    let (rows, expected) =
        (question.latent.rows(), loaded.recommender.bundle().actions.latent_dim());
    if question.latent.cols() != expected {
        let problem =
            format!("expected queries of {expected} numbers, found {}", question.latent.cols());
        return Err(Problem::refused("no-question", problem));
    }
    // A slate that many groups share looks deeper than any that is shown.
    let fits = rows.checked_mul(8 * question.slate_size).is_some_and(|bytes| bytes <= LARGEST);
    if question.slate_size == 0 || !fits {
        let problem = format!("expected 1 to {} items for all queries together", LARGEST / 8);
        return Err(Problem::refused("slate-size", problem));
    }
    let work = move || {
        let search = question.exact.then_some(Search::Exact);
        let lists: Vec<&[u32]> = question.lists().collect();
        let Question { latent, slate_size, .. } = &question;
        let queries = Queries { latent, slate_size: *slate_size, excluded: Some(&lists) };
        let found = loaded.recommender.shard(search)?.search(queries)?;
        Ok::<_, Error>(answer(Place::of(loaded.recommender.bundle()), &found, *slate_size))
    };
    let body = service.search(work).await??;
    Ok(([(header::CONTENT_TYPE, KIND)], body))
}
