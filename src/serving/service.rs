//! What all requests share: the bundle that answers, the log, limits and keys.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, Semaphore, oneshot};

use super::front::Front;
use super::journal::Journal;
use super::loaded::{Loaded, Version};
use super::metrics::{Metrics, Outcome};
use super::problem::Problem;
use super::{Access, Limits};
use crate::device::Chosen;
use crate::interrupt::interruptible;
use crate::log::Key;

/// How long a shard that was replaced goes on answering.
const KEPT: Duration = Duration::from_mins(10);

/// What all requests share.
#[derive(Debug)]
pub(super) struct Service {
    current: RwLock<Arc<Loaded>>,
    /// The shard before, which those who ask for it have not left yet.
    before: RwLock<Option<Arc<Loaded>>>,
    /// Where the items are searched for, if not here.
    pub(super) front: Option<Arc<Front>>,
    /// Where bundles come from; may be a link.
    folder: PathBuf,
    device: Chosen,
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
}

impl Service {
    pub(super) fn new(
        folder: PathBuf,
        (loaded, device, map): (Loaded, Chosen, bool),
        front: Option<Arc<Front>>,
        (access, limits, key): (Access, Limits, Key),
        (journal, explore_share): (Option<Journal>, f32),
    ) -> Self {
        Self {
            current: RwLock::new(Arc::new(loaded)),
            before: RwLock::default(),
            front,
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
        }
    }

    /// The bundle that answers now. A request asks for it once, so that no answer is mixed.
    pub(super) fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The shard of the bundle `whole`: of the bundle that answers, or of the one before.
    pub(super) fn holding(&self, whole: &str) -> Option<Arc<Loaded>> {
        let before = self.before.read().unwrap_or_else(PoisonError::into_inner).clone();
        let of = |loaded: &Arc<Loaded>| loaded.recommender.whole() == Some(whole);
        [Some(self.loaded()), before].into_iter().flatten().find(of)
    }

    /// Does `work` on the threads that search, if they are not too many requests behind.
    pub(super) async fn search<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = Arc::clone(&self.searching).try_acquire_owned();
        let permit = permit.map_err(|_| Problem::busy("too many requests at once; try again"))?;
        // Dropped with the request, whether it is answered or given up.
        let gone = Gone::default();
        let has_gone = Arc::clone(&gone.0);
        let work = move || {
            let done = interruptible(move || has_gone.load(Ordering::Relaxed), work);
            drop(permit);
            done
        };
        if self.front.is_none() {
            return on_search_threads(work).await;
        }
        // It mostly waits for others.
        tokio::task::spawn_blocking(work).await.map_err(|error| Problem::internal(&error))
    }

    /// Loads what the folder holds now and lets it answer; the old bundle goes on where that fails.
    /// Returns the digest of the bundle that answers.
    pub(super) async fn reload(self: &Arc<Self>) -> Result<String, Problem> {
        let Ok(alone) = self.reloading.try_lock() else {
            return Err(Problem::busy("another reload is going on"));
        };
        self.reload_alone(alone).await
    }

    /// [`reload`](Self::reload), after one that is going on: that may have read what was there before.
    pub(super) async fn reload_in_turn(self: &Arc<Self>) -> Result<String, Problem> {
        let alone = self.reloading.lock().await;
        self.reload_alone(alone).await
    }

    pub(super) fn is_reloading(&self) -> bool {
        self.reloading.try_lock().is_err()
    }

    async fn reload_alone(self: &Arc<Self>, _: MutexGuard<'_, ()>) -> Result<String, Problem> {
        let (folder, device, map) = (self.folder.clone(), self.device.clone(), self.map);
        let share = self.explore_share;
        let open = move || {
            let loaded = Loaded::open(&folder, &device, map)?;
            // Before it takes over: the old bundle may be good.
            loaded.check()?;
            loaded.warm()?;
            loaded.require_exploration(share).map(|()| loaded)
        };
        let mut opened = beside_searches(open).await?;
        if let (Some(front), Ok(loaded)) = (&self.front, &opened) {
            opened = front.agreed(loaded).await.map_or(opened, Err);
        }
        let count = |outcome| self.metrics.reloads.get_or_create(&Outcome { outcome }).inc();
        match opened {
            Ok(loaded) => {
                let digest = loaded.digest.clone();
                let is_shard = loaded.recommender.bundle().part.is_some();
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                let before = std::mem::replace(&mut *current, Arc::new(loaded));
                drop(current);
                // A shard that is loaded twice is not the one before.
                if is_shard && before.digest != digest {
                    self.keep(before);
                }
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

    /// Goes on answering for the shard `before`, until all who ask for it have had the time to reload.
    fn keep(self: &Arc<Self>, before: Arc<Loaded>) {
        *self.kept() = Some(Arc::clone(&before));
        let service = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(KEPT).await;
            let mut kept = service.kept();
            // It may have come again since.
            if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, &before)) {
                *kept = None;
            }
        });
    }

    fn kept(&self) -> RwLockWriteGuard<'_, Option<Arc<Loaded>>> {
        self.before.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks what was mapped and measures what the index finds, beside the requests.
    pub(super) fn audit(&self) {
        let loaded = self.loaded();
        tokio::spawn(async move {
            let audited = beside_searches(move || loaded.audit()).await;
            if let Ok(Err(error)) = audited {
                tracing::warn!("the audit of the index failed: {error}");
            }
        });
    }

    /// Which bundle the folder leads to.
    pub(super) fn version(&self) -> Option<Version> {
        Version::of(&self.folder)
    }
}

/// Says, once it is dropped, that nobody waits any more.
#[derive(Default)]
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` on threads of its own: it may wait for a disk, and the threads that search must not.
async fn beside_searches<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let alone = move || rayon::ThreadPoolBuilder::new().build().map(|pool| pool.install(work));
    let done = tokio::task::spawn_blocking(alone).await;
    let done = done.map_err(|error| Problem::internal(&error))?;
    done.map_err(|error| Problem::internal(&error))
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
