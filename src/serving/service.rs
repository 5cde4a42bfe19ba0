//! What all requests share: the bundle that answers, the log, limits and keys.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use burn::tensor::Device;
use tokio::sync::{Mutex, Semaphore, oneshot};

use super::journal::Journal;
use super::loaded::{Loaded, Version};
use super::metrics::{Metrics, Outcome};
use super::problem::Problem;
use super::{Access, Limits};
use crate::log::Key;

/// What all requests share.
#[derive(Debug)]
pub(super) struct Service {
    current: RwLock<Arc<Loaded>>,
    /// Where bundles come from; may be a link.
    folder: PathBuf,
    device: Device,
    /// True if the large files of bundles stay on disk.
    map: bool,
    reloading: Mutex<()>,
    searching: Arc<Semaphore>,
    pub(super) access: Access,
    pub(super) limits: Limits,
    pub(super) key: Key,
    pub(super) explore_share: f32,
    pub(super) journal: Option<Journal>,
    pub(super) metrics: Metrics,
    /// True from the signal to stop on.
    pub(super) stopping: std::sync::atomic::AtomicBool,
}

impl Service {
    pub(super) fn new(
        folder: PathBuf,
        (loaded, device, map): (Loaded, Device, bool),
        (access, limits, key): (Access, Limits, Key),
        (journal, explore_share): (Option<Journal>, f32),
    ) -> Self {
        Self {
            current: RwLock::new(Arc::new(loaded)),
            folder,
            device,
            map,
            reloading: Mutex::new(()),
            searching: Arc::new(Semaphore::new(limits.searches)),
            access,
            limits,
            key,
            explore_share,
            journal,
            metrics: Metrics::new(),
            stopping: false.into(),
        }
    }

    /// The bundle that answers now. A request asks for it once, so that no answer is mixed.
    pub(super) fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does `work` on the threads that search, if they are not too many requests behind.
    pub(super) async fn search<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = Arc::clone(&self.searching).try_acquire_owned();
        let permit = permit.map_err(|_| Problem::busy("too many requests at once; try again"))?;
        on_search_threads(move || {
            let done = work();
            drop(permit);
            done
        })
        .await
    }

    /// Loads what the folder holds now and lets it answer; the old bundle goes on where that fails.
    /// Returns the digest of the bundle that answers.
    pub(super) async fn reload(self: &Arc<Self>) -> Result<String, Problem> {
        let Ok(_one) = self.reloading.try_lock() else {
            return Err(Problem::busy("another reload is going on"));
        };
        let (folder, device, map) = (self.folder.clone(), self.device.clone(), self.map);
        let opened = on_search_threads(move || Loaded::open(&folder, &device, map)).await?;
        let count = |outcome| self.metrics.reloads.get_or_create(&Outcome { outcome }).inc();
        match opened {
            Ok(loaded) => {
                let digest = loaded.digest.clone();
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                count("loaded");
                tracing::info!("bundle {digest} answers now");
                self.audit();
                Ok(digest)
            }
            Err(error) => {
                count("refused");
                tracing::warn!("the bundle was not loaded, the old one goes on: {error}");
                let status = axum::http::StatusCode::CONFLICT;
                Err(Problem::new(status, "bundle-refused", error.to_string()))
            }
        }
    }

    /// Checks what was mapped and measures what the index finds, beside the requests.
    pub(super) fn audit(&self) {
        let loaded = self.loaded();
        rayon::spawn(move || {
            if let Err(error) = loaded.audit() {
                tracing::warn!("the audit of the index failed: {error}");
            }
        });
    }

    /// Which bundle the folder leads to.
    pub(super) fn version(&self) -> Option<Version> {
        Version::of(&self.folder)
    }
}

/// Does `work` on the pool of threads that search: the runtime's threads stay free for requests that
/// search nothing.
async fn on_search_threads<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let (done, waiting) = oneshot::channel();
    rayon::spawn_fifo(move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // Nobody waits for it where the client has gone.
        let _ = done.send(result);
    });
    match waiting.await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(_)) => Err(Problem::internal(&"a search panicked")),
        Err(_) => Err(Problem::internal(&"a search was dropped")),
    }
}
