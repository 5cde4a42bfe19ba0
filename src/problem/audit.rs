//! What an approximation costs: the recall of the index and the coverage of shared candidates on
//! the queries that training makes, and the acceptance rate of the rejection sampler.

use serde::Serialize;

use super::Problem;
use crate::dataset::Split;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::model::Model;
use crate::policy::{BatchRows, Rejections, SlateDraws};
use crate::retrieval::{Queries, RetrievalKind, overlap, recall};
use crate::seed::Purpose;
use crate::settings::{EstimatorKind, PolicyKind, Settings};

/// What an audit of a search found.
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
    /// What to tell the user if the recall of the index is below the setting.
    #[must_use]
    pub fn warning(&self, settings: &Settings) -> Option<String> {
        let retrieval = &settings.retrieval;
        (self.recall < retrieval.recall_warning).then(|| {
            format!(
                "retrieval finds {:.1} % of the true top {}, less than {:.1} %: raise \
                 retrieval.hnsw.ef_search ({}) or set retrieval.kind = \"exact\"",
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

/// Queries of an audit, at least.
const AUDIT_QUERIES: usize = 1000;

/// The same for that of shared candidates, which every evaluation makes.
const COVERAGE_QUERIES: usize = 256;

/// Samples of a context in an audit, at most: another context says more than another sample.
const AUDIT_SAMPLES: usize = 2;

impl Problem {
    /// Recall of the index on the queries that training makes, with the run's exclusions:
    /// perturbed ones for latent noise, the unperturbed ones of training contexts for
    /// Plackett–Luce. None where training searches nothing, or exactly.
    ///
    /// # Errors
    /// Those of the retriever and the device.
    pub fn audit(&self, settings: &Settings, model: &Model) -> Result<Option<Audit>> {
        if settings.retrieval.kind == RetrievalKind::Exact {
            return Ok(None);
        }
        if settings.policy.kind != PolicyKind::PlackettLuce {
            return self.audit_perturbed(settings, model, 0, AUDIT_QUERIES).map(Some);
        }
        let heads = settings.policy.draws == SlateDraws::Rejection
            || settings.estimator.kind == EstimatorKind::Fopo;
        if !heads {
            return Ok(None);
        }
        let (contexts, h) = self.audited(settings, model, AUDIT_QUERIES)?; // [N, L]
        let excluded = self.excluded_of(&contexts, 1);
        let most = excluded.iter().flatten().map(|actions| actions.len()).max().unwrap_or(0);
        let top = settings.estimator.head.min(self.actions.num_actions() - most);
        let queries = Queries { latent: &h, slate_size: top, excluded: excluded.as_deref() };
        let search = self.training_search(settings);
        let recall = recall(search.as_ref(), self.exact.as_ref(), queries)?;
        Ok(Some(Audit { recall, top, queries: h.rows() }))
    }

    /// The coverage of shared candidates: what share of the true top K of perturbed queries they
    /// hold. None where the settings share none.
    ///
    /// # Errors
    /// Those of the retriever and the device.
    pub fn coverage(&self, settings: &Settings, model: &Model) -> Result<Option<Audit>> {
        let candidates = settings.retrieval.candidates;
        if candidates == 0 || settings.policy.kind == PolicyKind::PlackettLuce {
            return Ok(None);
        }
        self.audit_perturbed(settings, model, candidates, COVERAGE_QUERIES).map(Some)
    }

    /// What a latent policy finds for at least `count` perturbed queries with this many shared
    /// candidates.
    fn audit_perturbed(
        &self,
        settings: &Settings,
        model: &Model,
        candidates: usize,
        count: usize,
    ) -> Result<Audit> {
        let samples = settings.policy.samples.min(AUDIT_SAMPLES);
        let mut settings = settings.clone();
        settings.policy.samples = samples;
        settings.retrieval.candidates = candidates;
        let (contexts, h) = self.audited(&settings, model, count.div_ceil(samples))?;
        let rows = audited_rows(&contexts, &h, model.sigma_factor()?);
        let policy = self.latent_policy(&settings)?;
        let queries = policy.perturbed(rows).queries; // [N·S, L]
        let excluded = self.excluded_of(&contexts, samples);
        let wanted = self.exact.search(Queries {
            latent: &queries,
            slate_size: self.slate_size,
            excluded: excluded.as_deref(),
        })?;
        let recall = overlap(&policy.search(rows, &queries)?, &wanted);
        Ok(Audit { recall, top: self.slate_size, queries: queries.rows() })
    }

    /// What the rejection sampler refuses on training contexts; none where the settings do not
    /// use it.
    ///
    /// # Errors
    /// Those of the retriever and the device.
    pub fn rejections(&self, settings: &Settings, model: &Model) -> Result<Option<Rejections>> {
        if settings.policy.draws != SlateDraws::Rejection {
            return Ok(None);
        }
        let count = AUDIT_QUERIES.div_ceil(settings.policy.samples);
        let (contexts, h) = self.audited(settings, model, count)?;
        let rows = audited_rows(&contexts, &h, 1.0);
        Ok(Some(self.rejection(settings)?.sample(rows)?.1))
    }

    /// A fixed sample of training contexts, and their queries.
    fn audited(
        &self,
        settings: &Settings,
        model: &Model,
        count: usize,
    ) -> Result<(Vec<u32>, Matrix)> {
        let mut contexts = self.sessions.contexts(Split::Train);
        settings.seed.stream(Purpose::Audit, 0, 0).shuffle(&mut contexts);
        contexts.truncate(count);
        let h = model.latent(&self.contexts.select(&contexts))?; // [N, L]
        Ok((contexts, h))
    }
}

fn audited_rows<'a>(contexts: &'a [u32], h: &'a Matrix, sigma_factor: f32) -> BatchRows<'a> {
    BatchRows { step: AUDIT_STEP, first: 0, contexts, h, sigma_factor }
}
