//! Connections in, requests out. `axum::serve` waits for a request's head without end and takes any
//! number of connections; here both are limited before anything is read.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt as _;

use super::gate::Reached;
use super::service::Service;

/// The most bytes and lines of a request's head.
const HEAD: usize = 16 << 10;
const LINES: usize = 64;

/// Connections that are told so before they are closed; more are closed at once.
const TOLD: usize = 64;

const TOO_MANY: &str = concat!(
    "HTTP/1.1 429 Too Many Requests\r\n",
    "content-type: application/problem+json\r\n",
    "retry-after: 1\r\n",
    "connection: close\r\n",
    "content-length: 100\r\n",
    "\r\n",
    r#"{"title":"Too Many Requests","status":429,"code":"connections","detail":"too many connections open"}"#,
);

/// Serves `router` on `listener` until `stop`, then lets what was begun end.
pub(super) async fn accept(
    listener: TcpListener,
    router: Router,
    service: Arc<Service>,
    stop: impl Future<Output = ()>,
) {
    let limits = service.limits;
    let open = Arc::new(Semaphore::new(limits.connections));
    let told = Arc::new(Semaphore::new(TOLD));
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    // The time for a head runs from the end of the request before it: it limits idle connections too.
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HEAD);
    http.max_headers(LINES);
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // No descriptor is left; some will be.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&open).try_acquire_owned() else {
            service.metrics.turned_away.inc();
            if let Ok(permit) = Arc::clone(&told).try_acquire_owned() {
                tokio::spawn(async move {
                    turn_away(stream).await;
                    drop(permit);
                });
            }
            continue;
        };
        let Ok(reached) = stream.local_addr() else { continue };
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        let answer = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Reached(reached));
            router.clone().oneshot(request)
        });
        // Who reads too slowly gives the connection back.
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(limits.request));
        let stream = TokioIo::new(Box::pin(stream));
        let connection = graceful.watch(http.serve_connection(stream, answer));
        let counted = Arc::clone(&service);
        tokio::spawn(async move {
            counted.metrics.connections.inc();
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            counted.metrics.connections.dec();
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(limits.stop, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were cut off");
    }
}

/// Says that there are too many connections. What the client sends is read, or closing would take
/// back what was said.
async fn turn_away(mut stream: TcpStream) {
    let say = async {
        stream.write_all(TOO_MANY.as_bytes()).await?;
        stream.shutdown().await?;
        let mut sent = [0; 1024];
        while stream.read(&mut sent).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), say).await;
}
