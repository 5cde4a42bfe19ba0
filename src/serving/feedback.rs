//! `POST /v1/feedback`: what happened to an item that was shown; answered when it is on disk.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;

use super::api::FeedbackRequest;
use super::gate::body;
use super::problem::{Problem, ProblemBody};
use super::service::Service;
use super::slates::now;
use crate::log::{Feedback, Record};

/// The longest event id.
const LONGEST: usize = 128;

/// Stores what happened to an item that was shown.
#[utoipa::path(
    post, path = "/v1/feedback", tag = "slates", request_body = FeedbackRequest,
    responses(
        (status = 204, description = "it is on disk"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
        (status = "5XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn feedback(
    State(service): State<Arc<Service>>,
    sent: Result<Json<FeedbackRequest>, JsonRejection>,
) -> Result<StatusCode, Problem> {
    let FeedbackRequest { request_id, position, value, event_id } = body(sent)?;
    let journal = service.journal.as_ref().ok_or_else(|| {
        Problem::refused("no-log", "this server keeps no log; start it with --log")
    })?;
    if !service.key.verify(&request_id) {
        let problem = "no server with this key has issued this `request_id`";
        return Err(Problem::refused("request-id", problem));
    }
    if !value.is_finite() {
        return Err(Problem::refused("value", "expected a finite number"));
    }
    if position as usize >= service.limits.slate {
        let problem = format!("expected a place below {}, found {position}", service.limits.slate);
        return Err(Problem::refused("position", problem));
    }
    if event_id.is_empty() || event_id.len() > LONGEST {
        let problem = format!("expected 1 to {LONGEST} bytes, found {}", event_id.len());
        return Err(Problem::refused("event-id", problem));
    }
    let row = Feedback { request: request_id, position, value, event: event_id, time: now() };
    journal.store(&[Record::from(row)]).await?;
    service.metrics.feedback.inc();
    Ok(StatusCode::NO_CONTENT)
}
