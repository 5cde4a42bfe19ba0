//! Where a task's slates are found: exactly, through a graph, in the vectors of a fold, on a GPU, or in
//! shards elsewhere.

use std::sync::{Arc, OnceLock};

use super::Task;
use super::folds::{CrossFit, Fit};
use crate::device::Chosen;
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::method::Method;
use crate::model::Model;
use crate::prepared::Prepared;
use crate::retrieval::{
    Exact, FanOut, Hnsw, HnswOptions, Queries, Retriever, Search, Sharded, Slates, exact_on,
};

/// The approximate search over β. Opened when it is first asked for, and built if no run has needed it
/// before: the default settings train with an exact search of few queries a step.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) prepared: Prepared,
    pub(super) options: HnswOptions,
    opened: OnceLock<Arc<Hnsw>>,
}

impl Graph {
    pub(super) fn new(prepared: &Prepared, options: HnswOptions) -> Self {
        Self { prepared: prepared.clone(), options, opened: OnceLock::new() }
    }

    fn open(&self, actions: &Arc<ActionEmbeddings>) -> Result<Arc<Hnsw>> {
        if let Some(opened) = self.opened.get() {
            return Ok(Arc::clone(opened));
        }
        let index = Arc::new(self.prepared.index(actions, &self.options)?);
        Ok(Arc::clone(self.opened.get_or_init(|| index)))
    }
}

impl Task {
    /// Searches β through the shards behind `fan_out`. Contexts of training users stay what they are, but
    /// all users are searched for in β, none in the vectors of a fold.
    #[must_use]
    pub fn through(self, fan_out: Arc<dyn FanOut>) -> Self {
        let (num_actions, dim) = (self.actions.num_actions(), self.actions.latent_dim());
        let sharded: Arc<dyn Retriever> = Arc::new(Sharded::new(fan_out, num_actions, dim));
        Self { elsewhere: Some(Arc::clone(&sharded)), exact: sharded, ..self }
    }

    /// Searches exactly on the `chosen` device if it is a GPU, in β and in the vectors of the folds, which
    /// share its memory. The answers are the same.
    ///
    /// # Errors
    /// [`Error::Device`] if it has too little memory.
    pub fn on(self, chosen: &Chosen) -> Result<Self> {
        if chosen.memory.is_none() || self.elsewhere.is_some() {
            return Ok(self);
        }
        let folds = self.cross.as_ref().map_or(0, |cross| cross.fits.len());
        let chosen = chosen.shared_by(1 + folds);
        let cross = self.cross.map(|cross| {
            let fits = cross.fits.iter().map(|fit| fit.on(&chosen)).collect::<Result<_>>()?;
            Ok::<_, Error>(Arc::new(CrossFit { folds: cross.folds.clone(), fits }))
        });
        let (exact, cross) = (exact_on(&self.actions, &chosen)?, cross.transpose()?);
        Ok(Self { exact, cross, gpu: Some(chosen), ..self })
    }

    /// The GPU of exact searches, if they are made on one.
    #[must_use]
    pub(crate) fn gpu(&self) -> Option<&Chosen> {
        self.gpu.as_ref()
    }

    /// The search that training with `method` uses, if it searches. Folds share no graph: the few
    /// centres of a step are searched exactly.
    pub(crate) fn training_search(&self, method: &Method) -> Option<Search> {
        let search = method.search()?;
        let exactly = self.exactly || self.cross.is_some() || self.elsewhere.is_some();
        Some(if exactly { Search::Exact } else { search })
    }

    /// The folds, where each is searched for in its own vectors.
    pub(super) fn searched_apart(&self) -> Option<&Arc<CrossFit>> {
        self.cross.as_ref().filter(|_| self.elsewhere.is_none())
    }

    /// A search over β.
    ///
    /// # Errors
    /// Fails if the index cannot be opened or built.
    pub fn search(&self, search: Search) -> Result<Arc<dyn Retriever>> {
        match (search, &self.elsewhere) {
            (_, Some(sharded)) => Ok(Arc::clone(sharded)),
            (Search::Exact, None) => Ok(Arc::clone(&self.exact)),
            (Search::Hnsw, None) => Ok(self.index()?),
        }
    }

    /// The approximate search over β.
    ///
    /// # Errors
    /// Fails if the index cannot be opened or built.
    pub fn index(&self) -> Result<Arc<Hnsw>> {
        self.graph.open(&self.actions)
    }

    /// The search that retrieves the decisions of `model`. A model that learns β is searched
    /// exactly.
    ///
    /// # Errors
    /// Fails if the device fails, or if the index cannot be opened or built.
    pub fn retriever(&self, model: &Model, search: Search) -> Result<Arc<dyn Retriever>> {
        match model.learned_actions()? {
            Some(actions) => match &self.gpu {
                Some(chosen) => exact_on(&Arc::new(actions), chosen),
                None => Ok(Arc::new(Exact::new(Arc::new(actions)))),
            },
            None => self.search(search),
        }
    }

    /// The deterministic decision `d_θ(x) = argsort^K h_θ(x)ᵀβ_a` for each of `contexts`, through
    /// `retriever`.
    ///
    /// # Errors
    /// Fails if the retriever or the device fails.
    pub fn decide(
        &self,
        model: &Model,
        contexts: &[u32],
        retriever: &dyn Retriever,
    ) -> Result<Slates> {
        let latent = model.latent(&self.contexts.select(contexts))?; // [B, L]
        let search = |latent: &Matrix, contexts: &[u32], fit: Option<&Fit>| {
            let excluded = self.excluded_of(contexts, 1);
            let slate_size = self.slate_size;
            let queries = Queries { latent, slate_size, excluded: excluded.as_deref() };
            match fit {
                None => retriever.search(queries),
                Some(fit) => fit.search(queries),
            }
        };
        let Some(cross) = self.searched_apart() else { return search(&latent, contexts, None) };
        cross.apart(contexts, &latent, self.slate_size, search)
    }
}
