//! Takes β and returns the usearch graph over it, while an observer hears how far the building is.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use usearch::Index;

use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::half_scale;
use crate::retrieval::HnswOptions;
use crate::retrieval::twins::Twins;

/// The most actions for which one thread builds the graph, in less than a minute.
pub(super) const REPRODUCIBLE: usize = 50_000;

/// Hears how far the building of an index has come. `()` does not listen.
pub trait BuildObserver: Send + Sync + Debug {
    /// `actions` of `of` different actions are added. Called with 0 first and with `of` last, in between from
    /// several threads at once.
    fn added(&self, actions: usize, of: usize);
}

impl BuildObserver for () {
    fn added(&self, _actions: usize, _of: usize) {}
}

/// The graph of `actions` without those that are `twins`. One thread adds them in their order, or all
/// threads do.
pub(super) fn graph(
    actions: &ActionEmbeddings,
    twins: &Twins,
    options: &HnswOptions,
    parallel: bool,
    observer: &dyn BuildObserver,
) -> Result<Index> {
    fn failed(error: impl std::fmt::Display) -> Error {
        Error::library("building an index", error)
    }
    let (nodes, scale) = (twins.nodes(actions.num_actions()), scale(actions));
    let count = nodes.len();
    let threads = if parallel { rayon::current_num_threads() } else { 1 };
    let index = options.index(actions.latent_dim())?;
    // The slot decides the random levels: with one, the same β gives the same graph.
    index.reserve_capacity_and_threads(count, threads).map_err(failed)?;
    let done = AtomicUsize::new(0);
    let add = |scaled: &mut Vec<f32>, &action: &u32| {
        scaled.clear();
        scaled.extend(actions.row(action).iter().map(|value| value * scale));
        index.add(u64::from(action), scaled).map_err(failed)?;
        observer.added(done.fetch_add(1, Ordering::Relaxed), count);
        Ok::<_, Error>(())
    };
    observer.added(0, count);
    if parallel {
        nodes.par_iter().try_for_each_init(Vec::new, add)?;
    } else {
        let mut scaled = Vec::new();
        nodes.iter().try_for_each(|action| add(&mut scaled, action))?;
    }
    observer.added(count, count);
    Ok(index)
}

/// The factor of β in the graph ([`half_scale`]): `1 − dot` keeps the digits of `dot`.
pub(super) fn scale(actions: &ActionEmbeddings) -> f32 {
    half_scale(actions.beta())
}
