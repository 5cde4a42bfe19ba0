//! A task and a recall in, the least `ef_search` out: of the graph that a method trains with, or of the
//! one that serves.

use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;

use super::audit::INDEX_QUERIES;
use super::{Audits, Graph, Task};
use crate::encoder::Known;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::model::Model;
use crate::prepared::Prepared;
use crate::retrieval::{Hnsw, HnswOptions, Queries, Retriever as _, overlap};

/// The result of the search for the least `ef_search`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EfSearch {
    /// The recall asked for, in `[0, 1]`.
    pub target: f64,
    /// The least `ef_search` that reached it; none if none did.
    pub ef_search: Option<usize>,
    /// By ascending `ef_search`.
    pub tried: Vec<TriedWidth>,
}

/// An `ef_search` and its audited recall.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TriedWidth {
    /// Candidates kept while searching.
    pub ef_search: usize,
    /// Mean share of the exact top K that the training search returns.
    pub recall: f64,
}

impl EfSearch {
    /// The least of what was tried that reaches the target.
    fn new(target: f64, mut tried: Vec<TriedWidth>) -> Self {
        tried.sort_unstable_by_key(|tried| tried.ef_search);
        let reached = tried.iter().find(|tried| tried.recall >= target);
        Self { target, ef_search: reached.map(|tried| tried.ef_search), tried }
    }

    /// The highest recall found.
    #[must_use]
    pub fn best_recall(&self) -> f64 {
        self.tried.iter().map(|tried| tried.recall).fold(0.0, f64::max)
    }
}

impl Audits<'_> {
    /// The least `retrieval.hnsw.ef_search` with which the index of `options` has an audited recall
    /// of at least `target` on the queries that `model` makes. It is doubled from K on (a narrower
    /// search is one of K) until it is enough, then bisected. `prepared` is the folder that the task
    /// was loaded from; its index is the same for any `ef_search`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a target outside 0 to 1, or where training does not search the graph;
    /// fails if the index or the device fails.
    pub fn least_ef_search(
        &self,
        prepared: &Prepared,
        options: HnswOptions,
        model: &Model,
        target: f64,
    ) -> Result<EfSearch> {
        check_target(target)?;
        let Some(sample) = self.index_sample(model)? else {
            let problem = "is not used: with these settings training does not search the graph";
            return Err(Error::setting("retrieval.hnsw.ef_search", problem));
        };
        least(sample.top, HnswOptions::LARGEST, target, |ef_search| {
            let options = HnswOptions { ef_search, ..options };
            let graph = Arc::new(Graph::new(prepared, options));
            let task = Task { graph, ..self.task.clone() };
            Ok(Audits { task: &task, ..*self }.compare(&sample, 0)?.recall)
        })
    }
}

/// The widest search of a served graph is this or [`OVER`] times K: where it misses more, a denser
/// graph is faster.
const WIDEST_SERVED: usize = 256;
/// See [`WIDEST_SERVED`].
const OVER: usize = 8;
/// The most neighbours of a served graph.
const DENSEST_SERVED: usize = 48;

impl Audits<'_> {
    /// The graph that serves `model`: with the least `ef_search` that finds a share of `target` of what
    /// a thousand training users would be shown, on average, all they have taken being known. Where no search of a bearable width does,
    /// its connectivity is twice the run's, and twice again; then what is best of it is returned.
    ///
    /// # Errors
    /// [`Error::Setting`] for a target outside 0 to 1; [`Error::SlateTooLarge`]; fails if the index
    /// cannot be built.
    pub fn served(
        &self,
        model: &Model,
        slate_size: usize,
        target: f64,
    ) -> Result<(HnswOptions, Hnsw, EfSearch)> {
        check_target(target)?;
        if slate_size > HnswOptions::LARGEST {
            let (most, problem) = (HnswOptions::LARGEST, "export without an index");
            let problem =
                format!("a graph finds {most} items at most, and K is {slate_size}; {problem}");
            return Err(Error::setting("index", problem));
        }
        let Task { sessions, profiles, encoder, exact, graph, actions, .. } = self.task;
        let sample = self.sampled(INDEX_QUERIES);
        let mut contexts = Matrix::zeros(sample.len(), encoder.dim());
        let histories: Vec<Vec<u32>> = contexts
            .par_rows_mut()
            .zip(&sample)
            .map(|(row, &context)| {
                let (known, times) = profiles.history(sessions, context);
                let features = profiles.features_of(context);
                encoder.encode(Known { actions: &known, times: times.as_deref(), features }, row);
                known
            })
            .collect();
        let latent = model.latent(&contexts)?;
        let seen: Vec<&[u32]> = histories.iter().map(Vec::as_slice).collect();
        let queries = Queries { latent: &latent, slate_size, excluded: Some(&seen) };
        let wanted = exact.search(queries)?;
        let Graph { prepared, options, .. } = &**graph;
        let mut options = *options;
        loop {
            let mut graph = prepared.index(actions, &options)?;
            let widest = WIDEST_SERVED.max(OVER * slate_size).min(HnswOptions::LARGEST);
            let found = least(slate_size, widest, target, |width| {
                graph.set_ef_search(width);
                Ok(overlap(&graph.search(queries)?, &wanted))
            })?;
            let denser = 2 * options.connectivity;
            if found.ef_search.is_some() || denser > DENSEST_SERVED {
                options.ef_search = found.ef_search.unwrap_or(widest);
                graph.set_ef_search(options.ef_search);
                return Ok((options, graph, found));
            }
            options.connectivity = denser;
        }
    }
}

fn check_target(target: f64) -> Result<()> {
    if (0.0..=1.0).contains(&target) {
        return Ok(());
    }
    Err(Error::setting("recall", format!("is {target}, expected 0 to 1")))
}

/// The least of `first..=last` whose recall is at least `target`, for a recall that does not fall.
fn least(
    first: usize,
    last: usize,
    target: f64,
    mut recall: impl FnMut(usize) -> Result<f64>,
) -> Result<EfSearch> {
    let mut tried = Vec::new();
    let mut reaches = |ef_search| {
        let recall = recall(ef_search)?;
        tried.push(TriedWidth { ef_search, recall });
        Ok::<_, Error>(recall >= target)
    };
    // `too_few` is known not to be enough, `enough` to be so once the first loop is over.
    let (mut too_few, mut enough) = (first - 1, first.min(last));
    while !reaches(enough)? {
        if enough == last {
            return Ok(EfSearch::new(target, tried));
        }
        (too_few, enough) = (enough, (2 * enough).min(last));
    }
    while too_few + 1 < enough {
        let middle = usize::midpoint(too_few, enough);
        if reaches(middle)? {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    Ok(EfSearch::new(target, tried))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_reaches_is_found_in_few_tries() {
        for enough in 5..=200 {
            let found = least(5, 200, 0.9, |ef| Ok(if ef < enough { 0.5 } else { 0.95 })).unwrap();
            assert_eq!(found.ef_search, Some(enough));
            assert!(found.tried.len() <= 14 && found.tried.is_sorted_by_key(|t| t.ef_search));
        }
    }

    #[test]
    fn a_target_out_of_reach_leaves_the_best_recall_found() {
        let found = least(5, 100, 0.9, |ef| Ok(ef as f64 / 1000.0)).unwrap();
        assert_eq!(found.ef_search, None);
        assert_eq!(found.tried.last().unwrap().ef_search, 100);
        assert!((found.best_recall() - 0.1).abs() < 1e-12);
    }
}
