//! Exact search on a GPU takes queries up, multiplies them with one part of β after another, and brings
//! down what may get onto a slate: the products above the K-th best of the parts before. Parts grow by a
//! constant factor, so little passes and the host waits seldom, and the device never holds `[queries, P]`.
//! What lies within rounding of the K-th best is ranked by [`dot`](crate::matrix::dot) in the end, so the
//! answer is that of [`Exact`], bit for bit.
//!
//! β may lie there in f16: then more is within rounding, and nothing else changes.
//!
//! The products of the first part come down whole. A part of which more passes than there is room for is
//! searched half by half. Burn can also find the greatest numbers of a row by itself (`topk`); that was tried
//! and dropped: on a software adapter its answers are wrong from somewhere between 100 and 116 numbers on.

mod probe;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{DType, Int, Tensor, TensorData, Transaction};
use rayon::prelude::*;

pub use self::probe::Trials;
use super::best::{TopKeys, is_above};
use super::{Exact, Queries, Retriever, Slates, check, is_excluded, nth_included};
use crate::device::{Chosen, Manner, Over, Passed, failed, pass, rows_to_device};
use crate::embedding::{ActionEmbeddings, Blocks};
use crate::error::Result;
use crate::matrix::norm;

/// The products of a query and its actions that neither overflow nor lose digits lie between these, in
/// absolute value.
const ORDINARY: Range<f32> = 1e-20..1e30;

/// The most actions of which all products come down at once.
const WHOLE: usize = 4096;

/// The fewest actions of which all products come down first.
const FIRST: usize = 512;

/// So many times the actions merged are merged after the next part.
const GROWTH: usize = 4;

/// The products for which a part has room, for each query: so many times K, and some more.
const ROOM: (usize, usize) = (2 * GROWTH, 32);

/// The most products that come down with their number, in one wait; of more, as many as there are, in a
/// second. A megabyte.
const AT_ONCE: usize = (1 << 20) / 12;

/// Scores every action for every query on a GPU.
#[derive(Clone, Debug)]
pub struct OnDevice {
    host: Exact,
    blocks: Arc<Blocks>,
    manner: Manner,
    /// The largest error of a product, relative to the norms of the query and of the longest vector.
    precision: f32,
    /// None if the manner was given.
    trials: Option<Trials>,
}

/// What has been found for a query.
struct Found {
    best: TopKeys,
    /// What a score must exceed; every score passes a NaN.
    threshold: f32,
}

/// Queries of a search that are on the device together.
struct Together<'a> {
    queries: Queries<'a>,
    /// The row of the first.
    first: usize,
    /// `[N, L]`.
    latent: Tensor<2>,
    /// Where the excluded actions of each query begin, and all of them.
    excluded: [Tensor<1, Int>; 2],
}

/// Products on the host: query and action of each, and its score.
type Pairs = (Vec<[i32; 2]>, Vec<f32>);

/// The exact search among `actions` where the `chosen` device computes: on a GPU if it is one, else on the
/// host. Both give the same answers.
///
/// # Errors
/// The errors of [`OnDevice::new`].
pub fn exact_on(actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Arc<dyn Retriever>> {
    Ok(match chosen.memory {
        Some(_) => Arc::new(OnDevice::new(actions, chosen)?),
        None => Arc::new(Exact::new(Arc::clone(actions))),
    })
}

impl OnDevice {
    /// Searches among `actions` on the `chosen` GPU, in the manner that it names, else in the one that is the
    /// fastest there.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the device has too little memory, or multiplies with fewer
    /// digits than f16.
    pub fn new(actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        if let Some(manner) = chosen.manner {
            return Self::by(manner, actions, chosen);
        }
        if actions.num_actions() <= WHOLE {
            return Self::by(Manner::Products, actions, chosen);
        }
        // By itself, so that β does not lie there twice.
        let half = Self::by(Manner::Half, actions, chosen).and_then(|half| half.trial());
        chosen.device.memory_cleanup();
        let products = Self::by(Manner::Products, actions, chosen)?;
        let (seconds, expected) = products.trial()?;
        // A device may refuse the larger kernel, as one with little shared memory does.
        let seconds_of = |manner: Manner, trial: Result<(f64, Slates)>| match trial {
            Ok((seconds, found)) if found == expected => Some(seconds),
            Ok(_) => {
                tracing::warn!("{} finds something else by {manner:?}: not used", chosen.name);
                None
            }
            Err(error) => {
                tracing::debug!("{} does not search by {manner:?}: {error}", chosen.name);
                None
            }
        };
        let sweep = Self { manner: Manner::Sweep, ..products.clone() };
        let trials = Trials {
            queries: expected.len(),
            products: seconds,
            sweep: seconds_of(Manner::Sweep, sweep.trial()),
            half: seconds_of(Manner::Half, half),
        };
        tracing::debug!("{} searches for so many queries in so many s: {trials:?}", chosen.name);
        let fastest = match trials.fastest() {
            Manner::Products => products,
            Manner::Sweep => sweep,
            Manner::Half => {
                drop((products, sweep));
                chosen.device.memory_cleanup();
                Self::by(Manner::Half, actions, chosen)?
            }
        };
        Ok(Self { trials: Some(trials), ..fastest })
    }

    /// Who multiplies.
    #[must_use]
    pub fn manner(&self) -> Manner {
        self.manner
    }

    /// What the manner was chosen by; none if it was given, or if there are too few actions to matter.
    #[must_use]
    pub fn trials(&self) -> Option<Trials> {
        self.trials
    }

    /// β on the device.
    #[must_use]
    pub fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// Searches in one manner, whatever its speed.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Device`](crate::Error::Device) if β cannot lie there in f16.
    pub fn by(manner: Manner, actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        let blocks = Arc::new(match manner {
            Manner::Half => Blocks::in_half(actions, chosen)?,
            Manner::Products | Manner::Sweep => Blocks::new(actions, chosen)?,
        });
        let host = Exact::new(Arc::clone(actions));
        let mut this = Self { host, blocks, manner, precision: 0.0, trials: None };
        this.precision = this.measured_precision()?;
        Ok(this)
    }

    /// Queries on the device, so that their products with β there are those with β.
    fn queries(&self, numbers: &[f32], dim: usize) -> Tensor<2> {
        let factor = 1.0 / self.blocks.scale();
        let numbers: Vec<f32> = numbers.iter().map(|number| factor * number).collect();
        rows_to_device(&numbers, dim, self.blocks.device())
    }

    /// The difference of two products of `query` on the device that rounding may explain; the host's
    /// own rounding is among it.
    fn rounding(&self, query: &[f32]) -> f32 {
        4.0 * self.precision * norm(query) * self.host.largest_norm()
    }

    /// Adds what may get onto a slate among the actions `part` to what was `found`.
    fn merge(&self, part: Range<usize>, asked: &Together<'_>, found: &mut [Found]) -> Result<()> {
        if let Some(passed) = self.passing(&part, asked, found)?
            && let Some(pairs) = received(passed)?
        {
            offer(&pairs, found);
            return Ok(());
        }
        if part.len() <= WHOLE {
            return self.merge_whole(part, asked, found);
        }
        // The thresholds of the second half are higher.
        let middle = part.start + part.len() / 2;
        self.merge(part.start..middle, asked, found)?;
        self.merge(middle..part.end, asked, found)
    }

    /// Asks for the products of a part above the thresholds of what was `found`; none on a device that
    /// runs no kernels of ours.
    fn passing(
        &self,
        part: &Range<usize>,
        asked: &Together<'_>,
        found: &[Found],
    ) -> Result<Option<Passed>> {
        let (blocks, device) = (&*self.blocks, self.blocks.device());
        // Every product exceeds the least number.
        let threshold = |found: &Found| found.threshold.max(f32::MIN);
        let thresholds: Vec<f32> = found.iter().map(threshold).collect();
        let thresholds = Tensor::from_data(TensorData::from(thresholds.as_slice()), device);
        let (times, more) = ROOM;
        let room = found.len() * (times * asked.queries.slate_size + more);
        let capacity = room.min(blocks.products() / 2).max(1);
        let passed = Passed::with_room(capacity, device);
        let [starts, excluded] = &asked.excluded;
        for (at, rows) in blocks.pieces(part.clone()) {
            let beta = blocks.block(at);
            let products =
                (self.manner == Manner::Products).then(|| product(&asked.latent, &beta, &rows));
            let over = Over {
                queries: &asked.latent,
                beta: &beta,
                products: products.as_ref(),
                part: rows,
                offset: blocks.range(at).start,
                thresholds: &thresholds,
                starts,
                excluded,
                capacity,
            };
            if pass(&over, &passed).is_none() {
                return Ok(None);
            }
            if !blocks.is_resident(at) {
                // Otherwise copies of all blocks on their way would lie in the host's memory.
                device.sync().map_err(|error| failed(&error))?;
            }
        }
        Ok(Some(passed))
    }

    /// Adds all products of a part to what was `found`.
    fn merge_whole(
        &self,
        part: Range<usize>,
        asked: &Together<'_>,
        found: &mut [Found],
    ) -> Result<()> {
        for (at, rows) in self.blocks.pieces(part) {
            let first = self.blocks.range(at).start + rows.start;
            let products = floats(product(&asked.latent, &self.blocks.block(at), &rows))?;
            let of_rows = products.par_chunks(rows.len()).zip(&mut *found).enumerate();
            of_rows.for_each(|(at, (products, found))| {
                let excluded = asked.queries.excluded_of(asked.first + at);
                #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
                let first = first as u32;
                for (action, &score) in (first..).zip(products) {
                    if is_above(score, found.threshold) && !is_excluded(excluded, action) {
                        found.offer(score, action);
                    }
                }
                found.prune();
            });
        }
        Ok(())
    }

    /// The K best, and the ones within rounding of them, for each of the queries `rows`.
    fn best_of(&self, queries: Queries<'_>, rows: Range<usize>) -> Result<Vec<TopKeys>> {
        let (first, device) = (rows.start, self.blocks.device());
        let dim = queries.latent.cols();
        let numbers = &queries.latent.as_slice()[first * dim..rows.end * dim];
        let (starts, excluded) = excluded_lists(queries, rows.clone());
        let excluded =
            [starts, excluded].map(|list| Tensor::from_data(TensorData::from(&*list), device));
        let latent = self.queries(numbers, dim);
        let asked = Together { queries, first, latent, excluded };
        let found = rows.map(|row| {
            let rounding = self.rounding(queries.latent.row(row));
            Found { best: TopKeys::new(queries.slate_size, rounding), threshold: f32::NAN }
        });
        let mut found: Vec<Found> = found.collect();
        let num_actions = self.blocks.actions().num_actions();
        let mut merged = num_actions.min(FIRST.max(GROWTH * queries.slate_size));
        for start in (0..merged).step_by(WHOLE) {
            self.merge_whole(start..merged.min(start + WHOLE), &asked, &mut found)?;
        }
        while merged < num_actions {
            let end = num_actions.min(merged.saturating_mul(GROWTH));
            // Little that is left comes along, which saves a wait.
            let end = if num_actions - end < merged { num_actions } else { end };
            self.merge(merged..end, &asked, &mut found)?;
            merged = end;
        }
        Ok(found.into_iter().map(|found| found.best).collect())
    }

    /// Searches for the ordinary queries on the device and for the others here. A query of zeros gets
    /// the lowest actions without a search.
    fn search_apart(
        &self,
        queries: Queries<'_>,
        is_ordinary: impl Fn(&[f32]) -> bool,
    ) -> Result<Slates> {
        let (latent, slate_size) = (queries.latent, queries.slate_size);
        let mut actions = vec![0; latent.rows() * slate_size];
        let mut scores = vec![0.0; actions.len()];
        let (mut ordinary, mut others) = (Vec::new(), Vec::new());
        for (row, query) in (0_u32..).zip(latent.iter_rows()) {
            if is_ordinary(query) {
                ordinary.push(row);
            } else if query.iter().any(|number| *number != 0.0) {
                others.push(row);
            } else {
                let at = row as usize * slate_size;
                for (place, action) in (0_u32..).zip(&mut actions[at..at + slate_size]) {
                    *action = nth_included(queries.excluded_of(row as usize), place);
                }
            }
        }
        for (retriever, rows) in [(self as &dyn Retriever, ordinary), (&self.host, others)] {
            let excluded: Vec<&[u32]> =
                rows.iter().map(|row| queries.excluded_of(*row as usize)).collect();
            let latent = latent.select(&rows);
            let of_rows = Queries { latent: &latent, slate_size, excluded: Some(&excluded) };
            let found = retriever.search(of_rows)?;
            for (at, row) in rows.iter().enumerate() {
                let place = *row as usize * slate_size..(*row as usize + 1) * slate_size;
                actions[place.clone()].copy_from_slice(found.slate(at));
                scores[place].copy_from_slice(found.scores(at));
            }
        }
        Ok(Slates::new(slate_size, actions, scores))
    }
}

impl Found {
    fn offer(&mut self, score: f32, action: u32) {
        if is_above(score, self.threshold)
            && let Some(higher) = self.best.offer(score, action)
        {
            self.threshold = higher;
        }
    }

    /// Drops what cannot be among the K best, and raises the threshold.
    fn prune(&mut self) {
        if let Some(higher) = self.best.prune() {
            self.threshold = higher;
        }
    }
}

/// Brings down what `passed`; none if some of it was not kept. Waits for the device.
fn received(passed: Passed) -> Result<Option<Pairs>> {
    let Passed { count, places, scores } = passed;
    let capacity = scores.dims()[0];
    let (count, both) = if capacity <= AT_ONCE {
        let read = Transaction::default().register(count).register(places).register(scores);
        let [count, places, scores] = together(read)?;
        (integers(count)?, Ok([places, scores]))
    } else {
        (integers(count.try_into_data().map_err(|error| failed(&error))?)?, Err((places, scores)))
    };
    let count = count.first().map_or(0, |count| usize::try_from(*count).unwrap_or(usize::MAX));
    if count > capacity {
        return Ok(None);
    }
    if count == 0 {
        return Ok(Some(Pairs::default()));
    }
    let [places, scores] = match both {
        Ok(both) => both,
        Err((places, scores)) => {
            let (places, scores) = (places.narrow(0, 0, 2 * count), scores.narrow(0, 0, count));
            together(Transaction::default().register(places).register(scores))?
        }
    };
    let mut places = integers(places)?.as_chunks::<2>().0.to_vec();
    let mut scores: Vec<f32> = scores.try_into_vec().map_err(|error| failed(&error))?;
    places.truncate(count);
    scores.truncate(count);
    Ok(Some((places, scores)))
}

/// Offers products to the queries that they are of, one query beside the other.
#[allow(clippy::cast_sign_loss, reason = "no query and no action is negative")]
fn offer((places, scores): &Pairs, found: &mut [Found]) {
    // A counting sort by query.
    let mut starts = vec![0; found.len() + 1];
    for [row, _] in places {
        starts[*row as usize + 1] += 1;
    }
    for row in 0..found.len() {
        starts[row + 1] += starts[row];
    }
    let (mut sorted, mut next) = (vec![(0.0, 0); scores.len()], starts.clone());
    for ([row, action], score) in places.iter().zip(scores) {
        let place = &mut next[*row as usize];
        sorted[*place] = (*score, *action as u32);
        *place += 1;
    }
    found.par_iter_mut().enumerate().for_each(|(row, found)| {
        for (score, action) in &sorted[starts[row]..starts[row + 1]] {
            found.offer(*score, *action);
        }
        found.prune();
    });
}

/// The products of queries with rows of a block, `[N, rows]`.
fn product(latent: &Tensor<2>, beta: &Tensor<2>, rows: &Range<usize>) -> Tensor<2> {
    let beta = beta.clone().narrow(0, rows.start, rows.len()).cast(DType::F32);
    latent.clone().matmul(beta.transpose())
}

/// Device → host; waits for the device.
pub(super) fn floats<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    let data = tensor.try_into_data().map_err(|error| failed(&error))?;
    data.try_into_vec().map_err(|error| failed(&error))
}

/// Device → host of several tensors in one wait.
fn together<const N: usize>(read: Transaction) -> Result<[TensorData; N]> {
    let read = read.try_execute().map_err(|error| failed(&error))?;
    read.try_into().map_err(|read: Vec<TensorData>| failed(&read.len()))
}

fn integers(data: TensorData) -> Result<Vec<i32>> {
    data.convert::<i32>().try_into_vec().map_err(|error| failed(&error))
}

/// Where the excluded actions of each of the queries `rows` begin, and all of them, at least one number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "actions fit 31 bits"
)]
fn excluded_lists(queries: Queries<'_>, rows: Range<usize>) -> (Vec<i32>, Vec<i32>) {
    let (mut starts, mut all) = (vec![0], Vec::new());
    for row in rows {
        all.extend(queries.excluded_of(row).iter().map(|action| *action as i32));
        starts.push(all.len() as i32);
    }
    if all.is_empty() {
        all.push(0);
    }
    (starts, all)
}

impl Retriever for OnDevice {
    fn on_device(&self) -> Option<&OnDevice> {
        Some(self)
    }

    fn search(&self, queries: Queries<'_>) -> Result<Slates> {
        let (actions, latent) = (self.blocks.actions(), queries.latent);
        check(queries, actions.num_actions(), actions.latent_dim())?;
        let is_ordinary =
            |query: &[f32]| ORDINARY.contains(&(norm(query) * self.host.largest_norm()));
        if !latent.iter_rows().all(is_ordinary) {
            return self.search_apart(queries, is_ordinary);
        }
        let mut found = Vec::with_capacity(latent.rows());
        for first in (0..latent.rows()).step_by(self.blocks.queries()) {
            let rows = first..(first + self.blocks.queries()).min(latent.rows());
            found.extend(self.blocks.attempt(|| self.best_of(queries, rows))?);
        }
        Ok(self.host.ranked(queries, &found, |query| self.rounding(query)))
    }
}

#[cfg(test)]
mod tests;
