//! What operators ask for: is it alive, is it ready, how is it, take the new bundle.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::metrics::OPEN_METRICS;
use super::problem::{Problem, ProblemBody};
use super::service::Service;

/// The route that loads a bundle.
pub(super) const RELOAD: &str = "/v1/reload";

/// The bundle that answers from now on.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Reloaded {
    /// Its digest.
    digest: String,
}

/// The process answers.
#[utoipa::path(get, path = "/livez", tag = "operations", responses((status = 200)))]
pub(super) async fn livez() -> &'static str {
    "alive\n"
}

/// Requests may be sent here.
#[utoipa::path(
    get, path = "/readyz", tag = "operations",
    responses(
        (status = 200),
        (status = 503, body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn readyz(State(service): State<Arc<Service>>) -> Result<&'static str, Problem> {
    if let Some(front) = service.front.as_ref().filter(|front| !front.is_ready()) {
        let problem = format!("no answer of {}", front.silent().join(", "));
        return Err(Problem::unavailable("shards", problem));
    }
    if let Some(damage) = service.loaded().damage.get() {
        return Err(Problem::unavailable("damaged", damage));
    }
    Ok("ready\n")
}

/// Counters and histograms for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses((status = 200)))]
pub(super) async fn metrics(
    State(service): State<Arc<Service>>,
) -> Result<impl IntoResponse, Problem> {
    let Service { metrics, journal, front, .. } = &*service;
    let text = metrics.text(&service.loaded(), journal.as_ref(), front.as_deref());
    let text = text.map_err(|error| Problem::internal(&error))?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text))
}

/// Loads what the bundle's folder holds now.
#[utoipa::path(
    post, path = "/v1/reload", tag = "operations",
    responses(
        (status = 200, body = Reloaded),
        (status = 409, body = ProblemBody, content_type = "application/problem+json",
         description = "the bundle was refused, and the old one goes on"),
    )
)]
pub(super) async fn reload(State(service): State<Arc<Service>>) -> Result<Json<Reloaded>, Problem> {
    // In a task of its own: a bundle may take longer than a client waits.
    let reloading = tokio::spawn(async move { service.reload().await });
    let digest = reloading.await.map_err(|error| Problem::internal(&error))??;
    Ok(Json(Reloaded { digest }))
}
