//! Approximate search takes queries and returns nearly their top K, from a navigable graph (Malkov &
//! Yashunin 2016) by usearch. usearch's distances `1 − dot` of quantised vectors only propose actions;
//! scores are computed from β.

use std::path::Path;
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt as _;
use rayon::prelude::*;
use usearch::ffi::Matches;
use usearch::{Index, VectorType};

use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::{Matrix, norm};
use crate::retrieval::best::rank;
use crate::retrieval::graph::{BuildObserver, REPRODUCIBLE, graph, scale};
use crate::retrieval::slots::{Slot, Slots};
use crate::retrieval::store::{self, Source};
use crate::retrieval::twins::Twins;
use crate::retrieval::{
    Exact, HnswOptions, Queries, Retriever, Scalar, Slates, check, is_excluded,
};

/// So many times K are looked for where the width does not exceed this.
const OVER: usize = 2;

/// A graph over β. Queries for which the graph finds fewer than K actions get an exact search.
pub struct Hnsw {
    index: Index,
    exact: Exact,
    scalar: Scalar,
    /// The width of a search.
    ef_search: usize,
    twins: Twins,
    slots: Slots,
}

impl std::fmt::Debug for Hnsw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hnsw").field("nodes", &self.index.size()).finish_non_exhaustive()
    }
}

impl Hnsw {
    /// Opens the index of `actions` and `options` below `folder` (such as `prepared/index`), or
    /// builds it there when there is none. The flag is true if it was built.
    ///
    /// Up to 50 000 actions are added by one thread, and the same β gives the same graph; more are
    /// added by all threads, and graphs of the same β differ in a few edges. An index is opened
    /// memory-mapped, after checking that it is undamaged and belongs to `actions` and `options`. Its
    /// folder appears whole or not at all.
    ///
    /// # Errors
    /// [`Error::Setting`] for impossible options; an I/O error; [`Error::File`] when the disk is full,
    /// or the index is damaged or belongs to other embeddings; [`Error::Library`] from usearch.
    pub fn open_or_build(
        folder: &Path,
        actions: Arc<ActionEmbeddings>,
        options: &HnswOptions,
        observer: &dyn BuildObserver,
    ) -> Result<(Self, bool)> {
        options.validate()?;
        let twins = Twins::of(actions.beta());
        let source = Source::new(&actions, twins.len(), options);
        let folder = folder.join(source.folder_name());
        let missing = !folder.exists();
        if missing {
            let parallel = actions.num_actions() > REPRODUCIBLE;
            let index = graph(&actions, &twins, options, parallel, observer)?;
            store::save(&folder, &index, source)?;
        }
        Ok((Self::open(&folder, actions, twins, options)?, missing))
    }

    /// Builds the index of `actions` and `options` in memory, as [`open_or_build`](Self::open_or_build)
    /// does.
    ///
    /// # Errors
    /// [`Error::Setting`] for impossible options; [`Error::Library`] from usearch.
    pub fn build(actions: Arc<ActionEmbeddings>, options: &HnswOptions) -> Result<Self> {
        options.validate()?;
        let twins = Twins::of(actions.beta());
        let parallel = actions.num_actions() > REPRODUCIBLE;
        let index = graph(&actions, &twins, options, parallel, &())?;
        // Adding reserves a slot for each thread that builds; searching takes others.
        Self::new(index, actions, twins, options)
    }

    /// Opens the index in `folder`.
    fn open(
        folder: &Path,
        actions: Arc<ActionEmbeddings>,
        twins: Twins,
        options: &HnswOptions,
    ) -> Result<Self> {
        let source = Source::new(&actions, twins.len(), options);
        let index = store::open(folder, &source, &actions, options, scale(&actions))?;
        Self::new(index, actions, twins, options)
    }

    /// Reads an index of [`save`](Self::save) from the `bytes` of the file at `path`, or maps the file
    /// where there are none. They must be what was written: usearch reads beyond its memory where they
    /// are not.
    pub(crate) fn load(
        path: &Path,
        bytes: Option<&[u8]>,
        actions: Arc<ActionEmbeddings>,
        options: &HnswOptions,
    ) -> Result<Self> {
        options.validate()?;
        let (index, twins) = store::load(path, bytes, &actions, options)?;
        Self::new(index, actions, twins, options)
    }

    /// Searches as widely as this from now on.
    pub(crate) fn set_ef_search(&mut self, ef_search: usize) {
        self.ef_search = ef_search;
        self.index.change_expansion_search(ef_search);
    }

    /// Writes the graph alone into one file, which usearch reads in any language: the key of a vector
    /// is the lowest action that has it, and the vectors are β times a power of two. Errors name it
    /// `named`.
    pub(crate) fn save(&self, path: &Path, named: &Path) -> Result<()> {
        store::save_graph(&self.index, path, named).map(drop)
    }

    fn new(
        index: Index,
        actions: Arc<ActionEmbeddings>,
        twins: Twins,
        options: &HnswOptions,
    ) -> Result<Self> {
        let slots = Slots::new();
        index
            .reserve_capacity_and_threads(index.size(), slots.count)
            .map_err(|error| Error::library("opening the index", error))?;
        let HnswOptions { scalar, ef_search, .. } = *options;
        Ok(Self { index, exact: Exact::new(actions), scalar, ef_search, twins, slots })
    }

    /// Writes the K actions and scores of one query `[L]`; false where the graph finds fewer than K.
    fn answer(
        &self,
        task: &mut Task<'_>,
        query: &[f32],
        excluded: &[u32],
        actions: &mut [u32],
        scores: &mut [f32],
    ) -> Result<bool> {
        let length = norm(query);
        // A query without direction, or of a norm that f32 cannot hold.
        if !length.is_normal() {
            return Ok(false);
        }
        task.direction.clear();
        task.direction.extend(query.iter().map(|value| value / length));
        let wide = self.width(actions.len());
        let matches = if self.scalar == Scalar::F16 {
            self.find(task.half_precision(), wide, excluded)
        } else {
            self.find(&task.direction, wide, excluded)
        }?;
        #[allow(clippy::cast_possible_truncation, reason = "keys are actions, u32")]
        let nodes = matches.keys.iter().map(|&key| key as u32);
        // The lower of equal actions are the better.
        let included = |node| self.included(node, excluded).take(actions.len());
        task.found.clear();
        task.found.extend(nodes.flat_map(included));
        if task.found.len() < actions.len() {
            return Ok(false);
        }
        rank(query, self.exact.actions(), task.found.iter().copied(), actions, scores);
        Ok(true)
    }

    /// The actions for which `node` stands that are not `excluded`, ascending.
    fn included(&self, node: u32, excluded: &[u32]) -> impl Iterator<Item = u32> {
        self.twins.of_node(node).filter(move |&action| !is_excluded(excluded, action))
    }

    /// The number of nodes to look for, for a slate of K. A search as narrow as its slate is long
    /// misses many at the slate's end, so a slate above half of `ef_search` is looked for at
    /// [`OVER`] times its length, whatever K the width was chosen for.
    fn width(&self, slate_size: usize) -> usize {
        let wide = OVER * slate_size;
        let count = if wide > self.ef_search { wide } else { slate_size };
        count.min(self.index.size())
    }

    fn find<T: VectorType>(
        &self,
        direction: &[T],
        count: usize,
        excluded: &[u32],
    ) -> Result<Matches> {
        if excluded.is_empty() {
            self.index.search(direction, count)
        } else {
            #[allow(clippy::cast_possible_truncation, reason = "keys are actions, u32")]
            let allowed = |key| self.included(key as u32, excluded).next().is_some();
            self.index.filtered_search(direction, count, allowed)
        }
        .map_err(|error| Error::library("searching the index", error))
    }
}

impl Retriever for Hnsw {
    fn search(&self, queries: Queries<'_>) -> Result<Slates> {
        let embeddings = self.exact.actions();
        check(queries, embeddings.num_actions(), embeddings.latent_dim())?;
        let (count, slate_size) = (queries.latent.rows(), queries.slate_size);
        let mut actions = vec![0; count * slate_size];
        let mut scores = vec![0.0; count * slate_size];
        let unanswered: Vec<usize> = actions
            .par_chunks_mut(slate_size)
            .zip(scores.par_chunks_mut(slate_size))
            .enumerate()
            .map_init(
                || Task::new(&self.slots),
                |task, (i, (actions, scores))| {
                    let (query, excluded) = (queries.latent.row(i), queries.excluded_of(i));
                    let answered = self.answer(task, query, excluded, actions, scores)?;
                    Ok((!answered).then_some(i))
                },
            )
            .filter_map(Result::transpose)
            .collect::<Result<_>>()?;
        if !unanswered.is_empty() {
            let rows = unanswered.iter().flat_map(|&i| queries.latent.row(i)).copied().collect();
            let latent = Matrix::new(rows, embeddings.latent_dim())?;
            let excluded: Vec<&[u32]> =
                unanswered.iter().map(|&i| queries.excluded_of(i)).collect();
            let found = self.exact.search(Queries {
                latent: &latent,
                slate_size,
                excluded: Some(&excluded),
            })?;
            for (from, i) in unanswered.into_iter().enumerate() {
                let at = i * slate_size..(i + 1) * slate_size;
                actions[at.clone()].copy_from_slice(found.slate(from));
                scores[at].copy_from_slice(found.scores(from));
            }
        }
        Ok(Slates::new(slate_size, actions, scores))
    }
}

/// Buffers and thread slot for the queries that one thread answers in a row.
struct Task<'a> {
    direction: Vec<f32>,
    halves: Vec<f16>,
    bits: Vec<i16>,
    found: Vec<u32>,
    _slot: Slot<'a>,
}

impl<'a> Task<'a> {
    fn new(slots: &'a Slots) -> Self {
        let (direction, halves) = (Vec::new(), Vec::new());
        Self { direction, halves, bits: Vec::new(), found: Vec::new(), _slot: slots.take() }
    }

    /// The direction in f16: usearch itself would convert it number by number.
    fn half_precision(&mut self) -> &[usearch::f16] {
        self.halves.resize(self.direction.len(), f16::ZERO);
        self.halves.convert_from_f32_slice(&self.direction);
        self.bits.clear();
        self.bits.extend(self.halves.iter().map(|half| half.to_bits().cast_signed()));
        usearch::f16::from_i16s(&self.bits)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::retrieval::exact::normals;
    use crate::retrieval::overlap;

    fn embeddings(seed: u64, num_actions: usize) -> Arc<ActionEmbeddings> {
        Arc::new(ActionEmbeddings::new(normals(seed, num_actions, 16)).unwrap())
    }

    fn small(actions: &Arc<ActionEmbeddings>, options: &HnswOptions) -> (tempfile::TempDir, Hnsw) {
        let folder = tempfile::tempdir().unwrap();
        let (hnsw, built) =
            Hnsw::open_or_build(folder.path(), actions.clone(), options, &()).unwrap();
        assert!(built);
        (folder, hnsw)
    }

    #[test]
    fn recall_is_high_whatever_the_scalar_and_scores_are_inner_products() {
        // Far from f16's range: the scale must bring them in.
        let mut beta = normals(1, 2000, 16);
        beta.as_mut_slice().iter_mut().for_each(|value| *value *= 1e-7);
        let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
        let latent = normals(2, 200, 16);
        let lists: Vec<Vec<u32>> = (0..200).map(|i| (i..i + 300).step_by(3).collect()).collect();
        let rows: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
        for scalar in [Scalar::F32, Scalar::F16, Scalar::Bf16] {
            let (_folder, hnsw) =
                small(&actions, &HnswOptions { scalar, ..HnswOptions::default() });
            for excluded in [None, Some(rows.as_slice())] {
                let queries = Queries { latent: &latent, slate_size: 5, excluded };
                let exact = Exact::new(actions.clone()).search(queries).unwrap();
                let recall = overlap(&hnsw.search(queries).unwrap(), &exact);
                assert!(recall >= 0.9, "{scalar:?}: recall {recall}");
                let found = hnsw.search(queries).unwrap();
                for i in 0..200 {
                    for (&action, &score) in found.slate(i).iter().zip(found.scores(i)) {
                        assert!(!is_excluded(queries.excluded_of(i), action));
                        let dot = crate::matrix::dot(latent.row(i), actions.row(action));
                        assert!((score - dot).abs() <= f32::EPSILON * dot.abs());
                    }
                    assert!(found.scores(i).is_sorted_by(|a, b| a >= b));
                }
            }
        }
    }

    #[test]
    fn zero_queries_and_nearly_everything_excluded_are_answered_exactly() {
        let actions = embeddings(1, 300);
        let (_folder, hnsw) = small(&actions, &HnswOptions::default());
        let mut latent = normals(2, 2, 16);
        latent.row_mut(0).fill(0.0);
        let excluded: Vec<u32> = (0..300).filter(|action| action % 60 != 7).collect();
        let rows = [&[0, 1][..], &excluded];
        let queries = Queries { latent: &latent, slate_size: 5, excluded: Some(&rows) };
        let found = hnsw.search(queries).unwrap();
        assert_eq!(found.slate(0), [2, 3, 4, 5, 6]);
        assert_eq!(found, Exact::new(actions).search(queries).unwrap());
        let too_many = Queries { slate_size: 6, ..queries };
        assert!(matches!(hnsw.search(too_many), Err(Error::SlateTooLarge { available: 5, .. })));
    }

    #[test]
    fn an_index_is_built_once_and_alike_and_serves_any_ef() {
        let actions = embeddings(1, 1000);
        let options = HnswOptions::default();
        let (folder, first) = small(&actions, &options);
        let (_other_folder, other) = small(&actions, &options);
        let latent = normals(2, 50, 16);
        let queries = Queries { latent: &latent, slate_size: 10, excluded: None };
        let answer = first.search(queries).unwrap();
        assert_eq!(other.search(queries).unwrap(), answer);

        let reopen = |options| Hnsw::open_or_build(folder.path(), actions.clone(), &options, &());
        let (again, built) = reopen(options).unwrap();
        assert!(!built);
        assert_eq!(again.search(queries).unwrap(), answer);
        assert!(!reopen(HnswOptions { ef_search: 300, ..options }).unwrap().1);
        assert!(reopen(HnswOptions { connectivity: 6, ..options }).unwrap().1);
    }

    #[test]
    fn equal_vectors_are_found_together_and_hide_no_others() {
        // 40 vectors, each of 50 actions, and 200 of one action.
        let mut beta = normals(1, 2200, 16);
        for action in 40..2000 {
            let row = beta.row(action % 40).to_vec();
            beta.row_mut(action).copy_from_slice(&row);
        }
        let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
        let (_folder, hnsw) = small(&actions, &HnswOptions::default());
        assert_eq!(hnsw.index.size(), 240);
        let latent = normals(2, 50, 16);
        let lists: Vec<Vec<u32>> = (0..50).map(|i| (i % 7..1500).step_by(2).collect()).collect();
        let rows: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
        for excluded in [None, Some(rows.as_slice())] {
            for slate_size in [5, 70] {
                let queries = Queries { latent: &latent, slate_size, excluded };
                let exact = Exact::new(actions.clone()).search(queries).unwrap();
                let found = hnsw.search(queries).unwrap();
                assert_eq!(found.actions(), exact.actions(), "K = {slate_size}");
            }
        }
    }

    #[derive(Debug, Default)]
    struct Heard(std::sync::Mutex<Vec<usize>>);

    impl BuildObserver for Heard {
        fn added(&self, actions: usize, of: usize) {
            assert_eq!(of, 2000);
            self.0.lock().unwrap().push(actions);
        }
    }

    #[test]
    fn all_threads_build_an_index_as_good_and_tell_of_every_action() {
        let actions = embeddings(1, 2000);
        let options = HnswOptions::default();
        let folder = tempfile::tempdir().unwrap();
        let latent = normals(2, 200, 16);
        let queries = Queries { latent: &latent, slate_size: 5, excluded: None };
        for parallel in [false, true] {
            let heard = Heard::default();
            let twins = Twins::default();
            let index = graph(&actions, &twins, &options, parallel, &heard).unwrap();
            let at = folder.path().join(parallel.to_string());
            store::save(&at, &index, Source::new(&actions, 0, &options)).unwrap();
            let hnsw = Hnsw::open(&at, actions.clone(), twins, &options).unwrap();
            let exact = Exact::new(actions.clone()).search(queries).unwrap();
            let recall = overlap(&hnsw.search(queries).unwrap(), &exact);
            assert!(recall >= 0.95, "parallel {parallel}: recall {recall}");
            let mut heard = heard.0.into_inner().unwrap();
            assert_eq!((heard[0], heard[heard.len() - 1]), (0, 2000));
            heard.sort_unstable();
            heard.dedup();
            assert_eq!(heard.len(), 2001);
        }
    }

    #[test]
    fn many_threads_search_at_once() {
        let actions = embeddings(1, 1000);
        let (_folder, hnsw) = small(&actions, &HnswOptions::default());
        let latent = normals(2, 20, 16);
        let queries = Queries { latent: &latent, slate_size: 5, excluded: None };
        let answer = hnsw.search(queries).unwrap();
        // More threads than slots, each its own pool: rayon's global one would serialise them.
        std::thread::scope(|scope| {
            for _ in 0..hnsw.slots.count + 20 {
                scope.spawn(|| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
                    for _ in 0..20 {
                        assert_eq!(pool.install(|| hnsw.search(queries)).unwrap(), answer);
                    }
                });
            }
        });
        assert_eq!(hnsw.slots.taken.load(Ordering::Acquire), 0);
    }
}
