//! What went wrong in, `application/problem+json` (RFC 9457) out.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::Error;

/// An answer that is no answer. `code` is stable: clients may branch on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    retry_after: Option<u32>,
}

/// The body of an error.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProblemBody {
    /// The status in words.
    title: &'static str,
    /// The status.
    #[schema(example = 422)]
    status: u16,
    /// The problem's name, which does not change between versions.
    #[schema(example = "unknown-items")]
    code: &'static str,
    /// What was expected, what was found, what to do.
    detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None }
    }

    /// A request that can be read but not answered.
    pub(super) fn refused(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
    }

    /// The problem with one of `requests`.
    pub(super) fn of_request(self, at: usize) -> Self {
        Self { detail: format!("requests[{at}]: {}", self.detail), ..self }
    }

    /// More work than is taken at once; another try in a second may be taken.
    pub(super) fn busy(detail: &str) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", detail);
        Self { retry_after: Some(1), ..problem }
    }

    /// What cannot be done now, but may be in a while.
    pub(super) fn unavailable(code: &'static str, detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail);
        Self { retry_after: Some(5), ..problem }
    }

    /// A defect of this program. Its words are for the operator.
    pub(super) fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!("a request failed: {cause}");
        let detail = "this request failed; the server's log says why";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match &error {
            Error::SlateTooLarge { slate_size, available, why } => {
                let problem = format!("`k` is {slate_size}, expected 1 to {available}{why}");
                Self::refused("slate-size", problem)
            }
            Error::UnknownId { kind, id, .. } => {
                Self::refused("unknown-user", format!("no {kind} `{id}`"))
            }
            Error::Shape { expected, found, .. } => {
                let problem = format!("`context`: expected shape {expected}, found {found}");
                Self::refused("context", problem)
            }
            Error::NotFinite { .. } => Self::refused("context", error.to_string()),
            Error::Setting { key, problem } => {
                let code = match key.as_str() {
                    "user" => "no-histories",
                    "search" => "no-index",
                    "explore" => "no-exploration",
                    "allow" => "nothing-allowed",
                    "max_per_group" => "no-groups",
                    _ => "refused",
                };
                Self::refused(code, problem)
            }
            Error::Record { .. } => Self::refused("row", error.to_string()),
            Error::Busy { .. } => Self::busy("the log cannot keep up; try again"),
            // All that searches is in memory.
            Error::Io(_) | Error::File { .. } => {
                tracing::warn!("{error}");
                Self::unavailable("log", "the log cannot be written; the server's own log says why")
            }
            _ => Self::internal(&error),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = ProblemBody {
            title: self.status.canonical_reason().unwrap_or("error"),
            status: self.status.as_u16(),
            code: self.code,
            detail: self.detail,
        };
        let body = serde_json::to_string(&body).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        let kind = header::HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = header::HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
