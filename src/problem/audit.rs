//! What an approximation costs: the recall of the index and the coverage of shared candidates on
//! the queries that training makes, and the acceptance rate of the rejection sampler.

use serde::Serialize;

use super::Problem;
use crate::dataset::Split;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::model::Model;
use crate::policy::{BatchRows, Rejections, SlateDraws};
use crate::retrieval::{Queries, RetrievalKind, Slates, overlap};
use crate::seed::Purpose;
use crate::settings::{EstimatorKind, Settings};

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
pub(super) const AUDIT_QUERIES: usize = 1000;

/// The same for that of shared candidates, which every evaluation makes.
const COVERAGE_QUERIES: usize = 256;

/// Samples of a context in an audit, at most: another context says more than another sample.
const AUDIT_SAMPLES: usize = 2;

impl Problem {
    /// Recall of the index on the queries that training makes, with the run's exclusions:
    /// perturbed ones for latent noise, the unperturbed ones of training contexts for heads. None
    /// where training searches nothing, or exactly.
    ///
    /// # Errors
    /// Those of the retriever and the device.
    pub fn audit(&self, settings: &Settings, model: &Model) -> Result<Option<Audit>> {
        if settings.retrieval.kind == RetrievalKind::Exact {
            return Ok(None);
        }
        let settings = as_audited(settings, 0);
        let sample = self.sample(&settings, model, AUDIT_QUERIES)?;
        sample.map(|sample| self.audit_on(&settings, &sample)).transpose()
    }

    /// The coverage of shared candidates: what share of the true top K of perturbed queries they
    /// hold. None where the settings share none.
    ///
    /// # Errors
    /// Those of the retriever and the device.
    pub fn coverage(&self, settings: &Settings, model: &Model) -> Result<Option<Audit>> {
        if !settings.shares_candidates() {
            return Ok(None);
        }
        let settings = as_audited(settings, settings.retrieval.candidates);
        let sample = self.sample(&settings, model, COVERAGE_QUERIES)?;
        sample.map(|sample| self.audit_on(&settings, &sample)).transpose()
    }

    /// At least `count` queries that training makes, and their true top; none where it searches
    /// nothing.
    pub(super) fn sample(
        &self,
        settings: &Settings,
        model: &Model,
        count: usize,
    ) -> Result<Option<Sample>> {
        let perturbs = settings.perturbs();
        let heads = settings.policy.draws == SlateDraws::Rejection
            || matches!(settings.estimator.kind, EstimatorKind::Fopo | EstimatorKind::Likelihood);
        if !perturbs && !heads {
            return Ok(None);
        }
        let samples = if perturbs { settings.policy.samples } else { 1 };
        let (contexts, h) = self.audited(settings, model, count.div_ceil(samples))?;
        let sigma_factor = model.sigma_factor()?;
        let excluded = self.excluded_of(&contexts, samples);
        let (queries, top) = if perturbs {
            let rows = audited_rows(&contexts, &h, sigma_factor);
            (self.latent_policy(settings)?.perturbed(rows).queries, self.slate_size)
        } else {
            let most = excluded.iter().flatten().map(|actions| actions.len()).max().unwrap_or(0);
            (h.clone(), settings.estimator.head.min(self.actions.num_actions() - most))
        };
        let exactly = Queries { latent: &queries, slate_size: top, excluded: excluded.as_deref() };
        let wanted = self.exact.search(exactly)?;
        Ok(Some(Sample { contexts, h, sigma_factor, queries, wanted, top }))
    }

    /// The recall of the search that `settings` train with on `sample`.
    pub(super) fn audit_on(&self, settings: &Settings, sample: &Sample) -> Result<Audit> {
        let Sample { contexts, h, queries, top, .. } = sample;
        let found = if settings.perturbs() {
            let rows = audited_rows(contexts, h, sample.sigma_factor);
            self.latent_policy(settings)?.search(rows, queries)?
        } else {
            let excluded = self.excluded_of(contexts, 1);
            self.training_search(settings).search(Queries {
                latent: queries,
                slate_size: *top,
                excluded: excluded.as_deref(),
            })?
        };
        let recall = overlap(&found, &sample.wanted);
        Ok(Audit { recall, top: *top, queries: queries.rows() })
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

/// Queries that training makes at some contexts, and what an exact search answers.
pub(super) struct Sample {
    contexts: Vec<u32>,
    h: Matrix, // [N, L]
    sigma_factor: f32,
    queries: Matrix, // [N·S, L]
    wanted: Slates,
    top: usize,
}

impl Sample {
    /// K, or the length of the head.
    pub(super) fn top(&self) -> usize {
        self.top
    }
}

/// `settings` with this many shared candidates and the samples of an audit.
pub(super) fn as_audited(settings: &Settings, candidates: usize) -> Settings {
    let mut settings = settings.clone();
    settings.policy.samples = settings.policy.samples.min(AUDIT_SAMPLES);
    settings.retrieval.candidates = candidates;
    settings
}

fn audited_rows<'a>(contexts: &'a [u32], h: &'a Matrix, sigma_factor: f32) -> BatchRows<'a> {
    BatchRows { step: AUDIT_STEP, contexts, h, sigma_factor }
}
