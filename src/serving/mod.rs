//! A bundle → answers over HTTP/1.1.
//!
//! | route | token | what |
//! |---|---|---|
//! | `POST /v1/slates` | read | slates for somebody new, a known user or a context; up to 1 024 at once |
//! | `POST /v1/feedback` | read | what happened to an item that was shown |
//! | `GET /v1/items`, `GET /v1/bundle` | read | search in titles; what may be asked for |
//! | `POST /v1/reload`, `GET /metrics` | admin | takes the folder's new bundle; numbers for Prometheus |
//! | `POST /v1/search` | admin | the best items here for a query, for a server that asks shards |
//! | `GET /livez`, `GET /readyz`, `GET /openapi.json` | | for orchestrators and for generators of clients |
//! | `GET /` | | a page to look at slates with |
//!
//! A connection passes, in this order: a limit on connections, before anything is read; a time for the
//! head; `Host`, which must name this server; the token; a limit on the body; a limit on the requests
//! that search at once. The search runs on rayon's threads, never on those of the runtime, so health and
//! metrics answer whatever is searched. What does not fit a limit is refused at once and told when to come
//! back; nothing queues.
//!
//! With [`Shards`] a server keeps encoder, tower and ids, and asks others for the items.
//!
//! TLS and HTTP/2 are a reverse proxy's.

mod accept;
mod api;
mod catalogue;
mod feedback;
mod front;
mod gate;
mod journal;
mod loaded;
mod metrics;
mod operations;
mod page;
mod problem;
mod replicas;
mod search;
mod service;
mod slates;
mod titles;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::CorsLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use front::Shards;
pub use gate::{Access, Token};
pub use replicas::Addresses;

use crate::device;
use crate::error::{Error, Result};
use crate::log::{Key, Options as LogOptions, Writer};
use front::Front;
use gate::Role;
use journal::Journal;
use loaded::Loaded;
use problem::Problem;
use service::Service;

/// What is served, where, and to whom.
#[derive(Debug)]
pub struct ServeOptions {
    /// The bundle's folder, or a link to it.
    pub bundle: PathBuf,
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// True to leave vectors and index on disk ([`Recommender::map`](crate::bundle::Recommender::map));
    /// their digests are compared while the server answers already.
    pub map: bool,
    /// Where the items are searched for, if not here.
    pub shards: Option<Shards>,
    /// The backend of the tower (see [`device::choose`]).
    pub device: Option<String>,
    /// The folder of the log; without it nothing is logged.
    pub log: Option<PathBuf>,
    /// The share of the requests that are answered by the policy itself, from 0 to 1.
    pub explore_share: f32,
    /// Who may ask.
    pub access: Access,
    /// True to listen elsewhere than on this machine without tokens.
    pub insecure: bool,
    /// True to reload when the bundle's folder is another one, or has another bundle.
    pub watch: bool,
    /// What is too much.
    pub limits: Limits,
    /// Signs request ids; replicas share it. Without it, the log's folder keeps one.
    pub key: Option<Key>,
}

/// What is too much, and too long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// Requests that search or wait to search.
    pub searches: usize,
    /// Bytes of a body.
    pub body: usize,
    /// Slates of a request.
    pub batch: usize,
    /// Items of a slate.
    pub slate: usize,
    /// Items of all slates of a request, and the ids of its lists times its slates, which are logged with each.
    pub items: usize,
    /// Bytes of these ids.
    pub listed: usize,
    /// The time for a head, and between requests.
    pub head: Duration,
    /// The time for the rest of a request.
    pub request: Duration,
    /// The time in which what was begun may end when the server stops.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            searches: 32 * rayon::current_num_threads(),
            body: 1 << 20,
            batch: 1024,
            slate: 1000,
            items: 1 << 17,
            listed: LogOptions::default().queue_bytes,
            head: Duration::from_secs(10),
            request: Duration::from_secs(10),
            stop: Duration::from_secs(10),
        }
    }
}

/// The description of the interface.
#[derive(OpenApi)]
#[openapi(info(
    title = "fast-slate",
    description = "Slates from a trained policy, and what happened to them."
))]
struct Interface;

/// How often a watched folder is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// When a bundle that was refused is tried again: twice as late each time, up to the longest.
const AGAIN: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_mins(10);

/// Serves until the process is told to stop (SIGTERM, SIGINT); `started` hears the address.
///
/// # Errors
/// [`Error::Setting`] for an address that others reach without tokens, exploration without a log or by
/// a policy that cannot, or a number of shards that there is not; [`Error::File`] for a bundle or a log that cannot be used; an I/O error for an
/// address that is taken.
pub fn serve(options: ServeOptions, started: impl FnOnce(SocketAddr)) -> Result<()> {
    let ServeOptions { bundle, map, listen, device, log, explore_share, .. } = options;
    let (access, limits) = (options.access, options.limits);
    if access.is_open() && !listen.ip().is_loopback() && !options.insecure {
        let problem = "others reach this address, and there is no token: give one with \
                       --read-token-file and --admin-token-file, or say --insecure";
        return Err(Error::setting("listen", problem));
    }
    if !(0.0..=1.0).contains(&explore_share) {
        let problem = format!("expected a share from 0 to 1, found {explore_share}");
        return Err(Error::setting("explore-share", problem));
    }
    if explore_share > 0.0 && log.is_none() {
        let problem = "what is drawn to learn from has to be logged: give --log";
        return Err(Error::setting("explore-share", problem));
    }
    let device = device::choose(device.as_deref())?;
    let loaded = Loaded::open(&bundle, &device, map)?;
    loaded.warm()?;
    loaded.require_exploration(explore_share)?;
    let open = |folder| Writer::open(folder, LogOptions::default());
    let writer = log.as_deref().map(open).transpose()?;
    let key = match (options.key, &log) {
        (Some(key), _) => key,
        (None, Some(folder)) => Key::of_log(folder)?,
        (None, None) => Key::random(),
    };
    // Long before the request is given up.
    let journal = writer.clone().map(|writer| Journal::new(writer, limits.request / 2));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let runs = runtime.enter();
    let front = options.shards.map(Front::new).transpose()?.map(Arc::new);
    drop(runs);
    let (opened, asked) = ((loaded, device, map), (access, limits, key));
    let service = Arc::new(Service::new(bundle, opened, front, asked, (journal, explore_share)));

    until_stopped(runtime, writer.as_ref(), async {
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            Error::Io(std::io::Error::new(error.kind(), format!("listening on {listen}: {error}")))
        })?;
        service.audit();
        started(listener.local_addr()?);
        let reloads = tokio::spawn(reload_on_signal(Arc::clone(&service)));
        let watch = options.watch.then(|| tokio::spawn(watch(Arc::clone(&service))));
        let looks = service.front.as_ref().map(|front| {
            let service = Arc::clone(&service);
            tokio::spawn(Arc::clone(front).watch(move || {
                let loaded = service.loaded();
                let latent_dim = loaded.recommender.bundle().actions.latent_dim();
                (loaded.digest.clone(), latent_dim)
            }))
        });
        accept::accept(listener, router(&service), Arc::clone(&service), told_to_stop()).await;
        reloads.abort();
        for task in watch.into_iter().chain(looks) {
            task.abort();
        }
        Ok(())
    })
}

/// Does `work`, then closes the log. A bundle that is being loaded or compared is not waited for: that
/// changes nothing.
fn until_stopped<T>(runtime: Runtime, log: Option<&Writer>, work: impl Future<Output = T>) -> T {
    let result = runtime.block_on(work);
    if let Some(log) = log {
        log.close();
    }
    runtime.shutdown_background();
    result
}

/// All routes, behind their gates.
fn router(service: &Arc<Service>) -> Router {
    let read = OpenApiRouter::with_openapi(Interface::openapi())
        .routes(routes!(slates::slates))
        .routes(routes!(feedback::feedback))
        .routes(routes!(catalogue::items))
        .routes(routes!(catalogue::about))
        .route_layer(from_fn_with_state((Arc::clone(service), Role::Reader), gate::only));
    let large = DefaultBodyLimit::max(wire::LARGEST);
    let search = OpenApiRouter::new().routes(routes!(search::search)).layer(large);
    let admin = OpenApiRouter::new()
        .merge(search)
        .routes(routes!(operations::reload))
        .routes(routes!(operations::metrics))
        .route_layer(from_fn_with_state((Arc::clone(service), Role::Operator), gate::only));
    let open =
        OpenApiRouter::new().routes(routes!(operations::livez)).routes(routes!(operations::readyz));
    let (router, interface) = read.merge(admin).merge(open).split_for_parts();
    let unknown = || async { Problem::new(StatusCode::NOT_FOUND, "not-found", "no such route") };
    let method = || async {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Problem::new(status, "method", "this route has another method")
    };
    let panicked = |_| axum::response::IntoResponse::into_response(Problem::internal(&"a panic"));
    let mut router = router
        .merge(page::routes())
        .route("/openapi.json", get(move || async move { Json(interface) }))
        .fallback(unknown)
        .method_not_allowed_fallback(method)
        .layer(DefaultBodyLimit::max(service.limits.body))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(Arc::clone(service), gate::every));
    if let Some(origin) = &service.access.cors_origin {
        let cors = CorsLayer::new()
            .allow_origin(origin.clone())
            .allow_methods([Method::GET, Method::POST])
            .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE]);
        router = router.layer(cors);
    }
    router.with_state(Arc::clone(service))
}

/// Reloads when another bundle is where the old one was. A bundle that was refused is tried again when
/// it has changed, and when what stood in its way may have passed.
async fn watch(service: Arc<Service>) {
    let (mut refused, mut again, mut wait) = (None, Instant::now(), AGAIN);
    loop {
        tokio::time::sleep(LOOK).await;
        let found = service.version();
        if found.is_none() || found == service.loaded().version || service.is_reloading() {
            continue;
        }
        if found != refused {
            wait = AGAIN;
        } else if Instant::now() < again {
            continue;
        }
        if service.reload().await.is_err() {
            (refused, again, wait) = (found, Instant::now() + wait, LONGEST.min(2 * wait));
        }
    }
}

#[cfg(unix)]
async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        _ => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn told_to_stop() {
    let _ = tokio::signal::ctrl_c().await;
}

#[cfg(unix)]
async fn reload_on_signal(service: Arc<Service>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    while hangup.recv().await.is_some() {
        let _ = service.reload_in_turn().await;
    }
}

#[cfg(not(unix))]
async fn reload_on_signal(_service: Arc<Service>) {}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::log::{Log, samples};

    #[test]
    fn the_end_waits_for_the_log_and_not_for_a_bundle() {
        let folder = tempfile::tempdir().unwrap();
        let log = Writer::open(folder.path(), LogOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        let (_go_on, reads) = mpsc::channel::<()>();
        // As a request that was cut off holds it.
        let cut_off = log.clone();
        let started = Instant::now();
        until_stopped(runtime, Some(&log), async {
            tokio::task::spawn_blocking(move || reads.recv_timeout(Duration::from_mins(1)));
            cut_off.append(&[samples::feedback(1).into()]).unwrap();
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(cut_off);
            });
        });
        assert!(started.elapsed() < Duration::from_secs(30), "the end waits for a bundle");
        assert_eq!(Log::read(&[folder.path()]).unwrap().feedback, [samples::feedback(1)]);
    }
}
