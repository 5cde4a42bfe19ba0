//! A task, a method and a model in, the cost of an approximation out: the recall of the index and of
//! shared candidates on the queries that training makes, and the acceptance rate of the rejection
//! sampler.

use serde::Serialize;

use super::Task;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::method::{LatentMethod, Method, Searched};
use crate::model::Model;
use crate::policy::{BatchRows, LatentPerturbation, Rejections, SlatePolicy as _};
use crate::retrieval::{Queries, Search, Slates, overlap};
use crate::seed::{Purpose, Seed};
use crate::settings::RetrievalSettings;

/// The result of comparing a search with an exact one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Audit {
    /// Mean share of the exact top K that the search returns.
    pub recall: f64,
    /// K: the slate's, or the length of the head.
    pub top: usize,
    /// Queries compared.
    pub queries: usize,
}

impl Audit {
    /// A warning for the user if the recall of the index is below the setting.
    #[must_use]
    pub fn warning(&self, retrieval: &RetrievalSettings) -> Option<String> {
        (self.recall < retrieval.recall_warning).then(|| {
            format!(
                "retrieval finds {:.1} % of the true top {}, less than {:.1} %: raise \
                 retrieval.hnsw.ef_search ({}) or choose a method with exact search",
                100.0 * self.recall,
                self.top,
                100.0 * retrieval.recall_warning,
                retrieval.hnsw.ef_search
            )
        })
    }
}

/// The step under which an audit draws its noise; no training step gets there.
const AUDIT_STEP: u64 = u64::MAX;

/// Least number of queries in an audit of the index.
pub(super) const INDEX_QUERIES: usize = 1000;

/// Least number of queries in an audit of shared candidates, which every evaluation makes.
const CANDIDATE_QUERIES: usize = 256;

/// Most samples of a context in an audit: another context says more than another sample.
const AUDIT_SAMPLES: usize = 2;

/// The audits of a task under a method.
#[derive(Clone, Copy, Debug)]
pub struct Audits<'a> {
    /// The searches, and the contexts to search for.
    pub task: &'a Task,
    /// The method, which says what is searched for.
    pub method: &'a Method,
    /// Seed of the contexts and the noise that are audited.
    pub seed: Seed,
}

impl Audits<'_> {
    /// Recall of the index on the queries that training makes, with the task's exclusions:
    /// perturbed ones for latent noise, unperturbed ones for heads. None where training searches
    /// nothing, or exactly.
    ///
    /// # Errors
    /// Fails if the retriever or the device fails.
    pub fn recall(&self, model: &Model) -> Result<Option<Audit>> {
        let sample = self.index_sample(model)?;
        sample.map(|sample| self.compare(&sample, 0)).transpose()
    }

    /// Share of the true top K of perturbed queries that shared candidates hold. None where the
    /// method shares none.
    ///
    /// # Errors
    /// Fails if the retriever or the device fails.
    pub fn candidate_recall(&self, model: &Model) -> Result<Option<Audit>> {
        let Some(latent) = self.method.latent().filter(|latent| latent.shares_candidates()) else {
            return Ok(None);
        };
        let sample = self.sample(model, CANDIDATE_QUERIES)?;
        sample.map(|sample| self.compare(&sample, latent.candidates)).transpose()
    }

    /// Acceptances and rejections of the rejection sampler on training contexts; none where the
    /// method does not use it.
    ///
    /// # Errors
    /// Fails if the retriever or the device fails.
    pub fn rejections(&self, model: &Model) -> Result<Option<Rejections>> {
        let recipe = self.method.recipe();
        let Some(sampler) = recipe.rejection(&self.task.parts(self.method, self.seed)?)? else {
            return Ok(None);
        };
        let (contexts, h) = self.queries(model, INDEX_QUERIES.div_ceil(recipe.num_samples()))?;
        Ok(Some(sampler.sample(rows(&contexts, &h))?.1))
    }

    /// The queries on which the index is audited; none where training does not search it.
    pub(super) fn index_sample(&self, model: &Model) -> Result<Option<Sample>> {
        if self.task.training_search(self.method) != Some(Search::Hnsw) {
            return Ok(None);
        }
        self.sample(model, INDEX_QUERIES)
    }

    /// At least `count` queries that training makes, and their true top; none where it searches
    /// nothing.
    fn sample(&self, model: &Model, count: usize) -> Result<Option<Sample>> {
        let policy = self.policy(0)?;
        let samples = policy.as_ref().map_or(1, |policy| policy.sampling().num_samples);
        let head = match (self.method.recipe().searched(), &policy) {
            (Searched::Head(head), _) => head,
            (_, Some(_)) => 0,
            (_, None) => return Ok(None),
        };
        let (contexts, h) = self.queries(model, count.div_ceil(samples))?;
        let excluded = self.task.excluded_of(&contexts, samples);
        let (queries, top) = if let Some(policy) = policy {
            let rows = rows(&contexts, &h);
            (policy.perturbed(rows).queries, self.task.slate_size)
        } else {
            let most = excluded.iter().flatten().map(|actions| actions.len()).max();
            let left = self.task.actions.num_actions() - most.unwrap_or(0);
            (h.clone(), head.min(left))
        };
        let exactly = Queries { latent: &queries, slate_size: top, excluded: excluded.as_deref() };
        let wanted = self.task.exact.search(exactly)?;
        Ok(Some(Sample { contexts, h, queries, wanted, top }))
    }

    /// The recall on `sample` of the search that training uses, with so many shared candidates.
    pub(super) fn compare(&self, sample: &Sample, candidates: usize) -> Result<Audit> {
        let Sample { contexts, h, queries, top, .. } = sample;
        let found = if let Some(policy) = self.policy(candidates)? {
            policy.search(rows(contexts, h), queries)?
        } else {
            let excluded = self.task.excluded_of(contexts, 1);
            self.task.parts(self.method, self.seed)?.retriever.search(Queries {
                latent: queries,
                slate_size: *top,
                excluded: excluded.as_deref(),
            })?
        };
        let recall = overlap(&found, &sample.wanted);
        Ok(Audit { recall, top: *top, queries: queries.rows() })
    }

    /// The latent policy with an audit's number of samples; none for a method without noise.
    fn policy(&self, candidates: usize) -> Result<Option<LatentPerturbation>> {
        let Some(latent) = self.method.latent() else { return Ok(None) };
        let samples = latent.samples.min(AUDIT_SAMPLES);
        let audited = LatentMethod { samples, candidates, ..latent.clone() };
        audited.policy(&self.task.parts(self.method, self.seed)?).map(Some)
    }

    /// A fixed sample of training contexts.
    pub(super) fn sampled(&self, count: usize) -> Vec<u32> {
        let mut contexts = self.task.taught_by();
        self.seed.stream(Purpose::Audit, 0, 0).shuffle(&mut contexts);
        contexts.truncate(count);
        contexts
    }

    /// A fixed sample of training contexts, and their queries `[N, L]`.
    fn queries(&self, model: &Model, count: usize) -> Result<(Vec<u32>, Matrix)> {
        let contexts = self.sampled(count);
        let h = model.latent(&self.task.contexts.select(&contexts))?;
        Ok((contexts, h))
    }
}

/// Queries that training makes at some contexts, and what an exact search answers.
pub(super) struct Sample {
    contexts: Vec<u32>,
    h: Matrix,       // [N, L]
    queries: Matrix, // [N·S, L]
    wanted: Slates,
    /// K, or the length of the head.
    pub(super) top: usize,
}

fn rows<'a>(contexts: &'a [u32], h: &'a Matrix) -> BatchRows<'a> {
    BatchRows { step: AUDIT_STEP, contexts, h }
}
