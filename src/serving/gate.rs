//! Requests in, those that may go on out: addressed to this server, by somebody who may, in JSON, within
//! the time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::service::Service;
use super::{metrics, operations, wire};
use crate::error::{Error, Result};

/// The address of this server that a connection came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached(pub(super) SocketAddr);

/// A secret that a client has to bring; only its digest is kept, and digests are compared in constant
/// time.
#[derive(Clone, Debug)]
pub struct Token(blake3::Hash);

impl Token {
    /// The token in `text`, without the white space around it.
    ///
    /// # Errors
    /// [`Error::Setting`] for fewer than 16 characters, which can be guessed.
    pub fn new(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.len() < 16 {
            let problem = "a token of 16 characters or more is expected; make one with `openssl rand \
                           -hex 32`";
            return Err(Error::setting("token", problem));
        }
        Ok(Self(blake3::hash(text.as_bytes())))
    }

    fn is_in(&self, headers: &HeaderMap) -> bool {
        let value = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let token = value.and_then(|value| value.strip_prefix(b"Bearer "));
        token.is_some_and(|token| blake3::hash(token) == self.0)
    }
}

/// Who may ask, and under which names.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Opens slates, items and feedback; without it `admin` opens them, and without both they are open.
    pub read: Option<Token>,
    /// Opens all; without it, what operators do is closed where there is a `read` token, and open
    /// otherwise.
    pub admin: Option<Token>,
    /// Values of `Host`, beside the address that was reached.
    pub hosts: Vec<String>,
    /// The origin whose pages may ask.
    pub cors_origin: Option<HeaderValue>,
}

impl Access {
    /// True without any token.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.read.is_none() && self.admin.is_none()
    }

    pub(super) fn is_admin(&self, headers: &HeaderMap) -> bool {
        match (&self.admin, &self.read) {
            (Some(admin), _) => admin.is_in(headers),
            (None, read) => read.is_none(),
        }
    }

    fn is_reader(&self, headers: &HeaderMap) -> bool {
        self.read.as_ref().is_some_and(|read| read.is_in(headers)) || self.is_admin(headers)
    }

    /// True for the address itself and the names that were allowed: a page of another name cannot make
    /// a browser ask here, whatever the name resolves to.
    fn knows(&self, host: &str, reached: SocketAddr) -> bool {
        let named = |name: &str| host.eq_ignore_ascii_case(name);
        let (ip, port) = (reached.ip().to_canonical(), reached.port());
        let address = SocketAddr::new(ip, port).to_string();
        let localhost = named(&format!("localhost:{port}")) || port == 80 && named("localhost");
        let loopback = ip.is_loopback() && localhost;
        let usual = port == 80 && named(address.trim_end_matches(":80"));
        named(&address) || loopback || usual || self.hosts.iter().any(|allowed| named(allowed))
    }
}

/// What a request carries, as JSON.
pub(super) fn body<T>(sent: Result<Json<T>, JsonRejection>) -> Result<T, Problem> {
    let rejection = match sent {
        Ok(Json(sent)) => return Ok(sent),
        Err(rejection) => rejection,
    };
    let code = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => "too-large",
        StatusCode::UNPROCESSABLE_ENTITY => "body",
        _ => "not-json",
    };
    Err(Problem::new(rejection.status(), code, rejection.body_text()))
}

/// Who may ask a route.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Reader,
    Operator,
}

/// Refuses those who do not bring the token of the role.
pub(super) async fn only(
    State((service, role)): State<(Arc<Service>, Role)>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (headers, access) = (request.headers(), &service.access);
    let (may, problem) = match role {
        Role::Reader => (
            access.is_reader(headers),
            "expected `authorization: Bearer` with the token that reads",
        ),
        Role::Operator => {
            (access.is_admin(headers), "expected `authorization: Bearer` with the admin token")
        }
    };
    if may {
        return Ok(next.run(request).await);
    }
    Err(Problem::new(StatusCode::UNAUTHORIZED, "token", problem))
}

/// Refuses what is addressed to another host, and what a form on another page could send.
async fn addressed(
    service: &Service,
    reached: SocketAddr,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| service.access.knows(host, reached)) {
        let problem = format!(
            "`Host` is `{}`, not the address of this server; start it with --allowed-hosts",
            host.unwrap_or_default()
        );
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host", problem));
    }
    if request.method() == Method::POST {
        // No form can send either.
        let expected =
            if request.uri().path() == wire::PATH { wire::KIND } else { "application/json" };
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case(expected) {
            let problem = format!("expected `content-type: {expected}`, also of an empty body");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", problem));
        }
    }
    if request.uri().path() == operations::RELOAD {
        // It takes as long as the bundle is large, and asking again would not make it shorter.
        return Ok(next.run(request).await);
    }
    let answered = tokio::time::timeout(service.limits.request, next.run(request)).await;
    answered.map_err(|_| {
        let problem = "the request took too long";
        Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", problem)
    })
}

/// What every answer says to browsers.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Around everything: counts, times, checks the address, and adds the headers of every answer.
pub(super) async fn every(
    State(service): State<Arc<Service>>,
    Extension(Reached(reached)): Extension<Reached>,
    request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let path = request.extensions().get::<MatchedPath>();
    let route = path.map_or("other", MatchedPath::as_str).to_owned();
    let answered = addressed(&service, reached, request, next).await;
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let status = response.status().as_u16();
    let seconds = service.metrics.seconds.get_or_create(&metrics::Route { route: route.clone() });
    seconds.observe(started.elapsed().as_secs_f64());
    service.metrics.requests.get_or_create(&metrics::Request { route, status }).inc();
    response
}
