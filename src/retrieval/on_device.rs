//! Exact search on a GPU takes queries up, multiplies them with one part of β after another, and brings
//! down what may get onto a slate: the products above the K-th best of the parts before. Parts grow by a
//! constant factor, so little passes, and the device never holds `[queries, P]`. What lies within rounding
//! of the K-th best is ranked by [`dot`](crate::matrix::dot) in the end, so the answer is that of
//! [`Exact`], bit for bit.
//!
//! β may lie there in f16: then more is within rounding, and nothing else changes.
//!
//! The products of the first part, and of one where more passes than there is room for, come down whole.
//! Burn can also find the greatest numbers of a row by itself (`topk`); that was tried and dropped: on a
//! software adapter its answers are wrong from somewhere between 100 and 116 numbers on.

mod probe;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{DType, Int, Tensor, TensorData, Transaction};
use rayon::prelude::*;

use super::best::{TopKeys, is_above};
use super::{Exact, Queries, Retriever, Slates, check, is_excluded, nth_included};
use crate::device::{Chosen, Over, Passed, failed, passing, rows_to_device};
use crate::embedding::{ActionEmbeddings, Blocks};
use crate::error::Result;
use crate::matrix::norm;

/// The products of a query and its actions that neither overflow nor lose digits lie between these, in
/// absolute value.
const ORDINARY: Range<f32> = 1e-20..1e30;

/// Actions of which all products come down at once.
const WHOLE: usize = 4096;

/// A part has at most so many times the actions of those merged before it.
const GROWTH: usize = 4;

/// The products for which a part has room, for each query: so many times K, and some more.
const ROOM: (usize, usize) = (2 * GROWTH, 32);

/// Who multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Burn; a kernel looks through the products.
    Products,
    /// A kernel that multiplies and writes only what passes.
    Sweep,
    /// The same kernel, where β lies on the device in f16: half the memory and the traffic. More is within
    /// rounding of the K-th best then, and the host ranks it.
    Half,
}

/// Scores every action for every query on a GPU.
#[derive(Clone, Debug)]
pub struct OnDevice {
    host: Exact,
    blocks: Arc<Blocks>,
    manner: Manner,
    /// The largest error of a product, relative to the norms of the query and of the longest vector.
    precision: f32,
}

/// A part of the catalogue: rows of a block.
#[derive(Clone, Debug)]
struct Part {
    block: usize,
    rows: Range<usize>,
    /// The action of the block's first row.
    offset: usize,
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

/// The seconds that a search took, and what it found.
type Trial = (f64, Slates);

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
    /// Searches among `actions` on the `chosen` GPU, in the manner that is the fastest there.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the device has too little memory, or multiplies with fewer
    /// digits than f16.
    pub fn new(actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        if actions.num_actions() <= WHOLE {
            return Self::by(Manner::Products, actions, chosen);
        }
        // By itself, so that β does not lie there twice.
        let half = Self::by(Manner::Half, actions, chosen).and_then(|half| half.trial());
        chosen.device.memory_cleanup();
        let products = Self::by(Manner::Products, actions, chosen)?;
        let (seconds, expected) = products.trial()?;
        // A device may refuse the larger kernel, as one with little shared memory does.
        let seconds_of = |manner: Manner, trial: Result<Trial>| match trial {
            Ok((seconds, found)) if found == expected => seconds,
            Ok(_) => {
                tracing::warn!("{} finds something else by {manner:?}: not used", chosen.name);
                f64::INFINITY
            }
            Err(error) => {
                tracing::debug!("{} does not search by {manner:?}: {error}", chosen.name);
                f64::INFINITY
            }
        };
        let sweep = Self { manner: Manner::Sweep, ..products.clone() };
        let by_sweep = seconds_of(Manner::Sweep, sweep.trial());
        let by_half = seconds_of(Manner::Half, half);
        tracing::debug!(
            "{} searches in {seconds:.2e} s by products, in {by_sweep:.2e} s by sweeps, in \
             {by_half:.2e} s by sweeps in f16",
            chosen.name
        );
        if by_half < seconds.min(by_sweep) {
            drop((products, sweep));
            chosen.device.memory_cleanup();
            return Self::by(Manner::Half, actions, chosen);
        }
        Ok(if by_sweep < seconds { sweep } else { products })
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
        let mut this = Self { host, blocks, manner, precision: 0.0 };
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

    /// The parts of the catalogue, in order.
    fn parts(&self, slate_size: usize) -> Vec<Part> {
        let mut parts = Vec::new();
        for block in 0..self.blocks.count() {
            let Range { start: offset, end } = self.blocks.range(block);
            let mut start = offset;
            while start < end {
                let most =
                    if start == 0 { WHOLE.max(GROWTH * slate_size) } else { start * (GROWTH - 1) };
                let next = end.min(start.saturating_add(most));
                parts.push(Part { block, rows: start - offset..next - offset, offset });
                start = next;
            }
        }
        parts
    }

    /// Asks for the products of a part above the thresholds of what was `found`; none on a device that
    /// runs no kernels of ours.
    fn send(&self, part: &Part, asked: &Together<'_>, found: &[Found]) -> Option<Passed> {
        let device = self.blocks.device();
        // Every product exceeds the least number.
        let threshold = |found: &Found| found.threshold.max(f32::MIN);
        let thresholds: Vec<f32> = found.iter().map(threshold).collect();
        let (times, more) = ROOM;
        let room = found.len() * (times * asked.queries.slate_size + more);
        let beta = self.blocks.block(part.block);
        let products =
            (self.manner == Manner::Products).then(|| product(&asked.latent, &beta, &part.rows));
        let [starts, excluded] = &asked.excluded;
        let over = Over {
            queries: &asked.latent,
            beta: &beta,
            products: products.as_ref(),
            part: part.rows.clone(),
            offset: part.offset,
            thresholds: &Tensor::from_data(TensorData::from(thresholds.as_slice()), device),
            starts,
            excluded,
            capacity: room.min(self.blocks.products() / 2).max(1),
        };
        passing(&over, device)
    }

    /// Adds what passed in a part to what was `found`.
    fn receive(
        &self,
        (part, passed): (Part, Passed),
        asked: &Together<'_>,
        found: &mut [Found],
    ) -> Result<()> {
        let Passed { count, places, scores } = passed;
        let capacity = scores.dims()[0];
        let count = integers(count.try_into_data().map_err(|error| failed(&error))?)?;
        let count = count.first().map_or(0, |count| *count as usize);
        if count > capacity {
            return self.receive_whole(&part, asked, found);
        }
        if count == 0 {
            return Ok(());
        }
        let (scores, places) = (scores.narrow(0, 0, count), places.narrow(0, 0, 2 * count));
        let read = Transaction::default().register(scores).register(places).try_execute();
        let read = read.map_err(|error| failed(&error))?;
        let [scores, places] =
            <[TensorData; 2]>::try_from(read).map_err(|read| failed(&read.len()))?;
        let scores: Vec<f32> = scores.try_into_vec().map_err(|error| failed(&error))?;
        for (&score, place) in scores.iter().zip(integers(places)?.as_chunks::<2>().0) {
            let [row, action] = *place;
            found[row as usize].offer(score, action);
        }
        Ok(())
    }

    /// Adds all products of a part to what was `found`.
    fn receive_whole(&self, part: &Part, asked: &Together<'_>, found: &mut [Found]) -> Result<()> {
        let beta = self.blocks.block(part.block);
        for start in part.rows.clone().step_by(WHOLE) {
            let rows = start..(start + WHOLE).min(part.rows.end);
            let products = floats(product(&asked.latent, &beta, &rows))?;
            let of_rows = products.par_chunks(rows.len()).zip(&mut *found).enumerate();
            of_rows.for_each(|(at, (products, found))| {
                let excluded = asked.queries.excluded_of(asked.first + at);
                #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
                let first = (part.offset + start) as u32;
                for (action, &score) in (first..).zip(products) {
                    if is_above(score, found.threshold) && !is_excluded(excluded, action) {
                        found.offer(score, action);
                    }
                }
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
        // The device works at a part while the host merges the one before, unless so few are merged that
        // too much would pass.
        let mut coming: Option<(Part, Passed)> = None;
        let mut merged = 0;
        for part in self.parts(queries.slate_size) {
            let start = part.offset + part.rows.start;
            if GROWTH * merged < part.rows.len() {
                if let Some(before) = coming.take() {
                    self.receive(before, &asked, &mut found)?;
                }
                merged = start;
            }
            let next = if start == 0 { None } else { self.send(&part, &asked, &found) };
            if let Some(before) = coming.take() {
                self.receive(before, &asked, &mut found)?;
                merged = start;
            }
            match next {
                Some(next) => coming = Some((part, next)),
                None => self.receive_whole(&part, &asked, &mut found)?,
            }
        }
        if let Some(last) = coming {
            self.receive(last, &asked, &mut found)?;
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

/// Counts and places, which are not negative.
#[allow(clippy::cast_sign_loss, reason = "no count and no place is negative")]
fn integers(data: TensorData) -> Result<Vec<u32>> {
    let numbers = data.convert::<i32>().try_into_vec::<i32>().map_err(|error| failed(&error))?;
    Ok(numbers.into_iter().map(|number| number as u32).collect())
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
    fn blocks(&self) -> Option<&Arc<Blocks>> {
        Some(&self.blocks)
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
mod tests {
    use super::*;
    use crate::device::{self, Memory};
    use crate::error::Error;
    use crate::matrix::Matrix;
    use crate::retrieval::exact::normals;

    /// A CPU in the place of a GPU, whose tensors have at most so many bytes.
    fn pretended(tensor: u64) -> Chosen {
        let memory = Some(Memory { tensor, budget: None });
        Chosen { memory, ..device::choose(Some(device::compiled()[0])).unwrap() }
    }

    fn searches(beta: Matrix, chosen: &Chosen) -> (Exact, OnDevice) {
        let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
        (Exact::new(Arc::clone(&actions)), OnDevice::new(&actions, chosen).unwrap())
    }

    #[test]
    fn the_device_answers_as_the_host_does() {
        // A number of blocks, and a last one that is not whole.
        let (host, device) = searches(normals(1, 1500, 12), &pretended(1 << 16));
        assert!(device.blocks.count() > 5 && device.blocks.queries() < 200);
        let mut latent = normals(2, 200, 12);
        latent.row_mut(7).fill(0.0);
        latent.row_mut(8).fill(1e-30);
        latent.row_mut(9)[3] = 1e35;
        let excluded: Vec<Vec<u32>> =
            (0..200).map(|i| (0..1500).step_by(2 + i % 9).collect()).collect();
        let rows: Vec<&[u32]> = excluded.iter().map(Vec::as_slice).collect();
        for slate_size in [1, 5, 100, 400] {
            for excluded in [None, Some(rows.as_slice())] {
                let queries = Queries { latent: &latent, slate_size, excluded };
                assert_eq!(device.search(queries).unwrap(), host.search(queries).unwrap());
            }
        }
    }

    #[test]
    fn what_does_not_fit_into_the_budget_is_uploaded_and_gives_the_same() {
        let mut chosen = pretended(1 << 16);
        chosen.memory = Some(Memory { tensor: 1 << 16, budget: Some(1 << 18) });
        let (host, device) = searches(normals(1, 4000, 20), &chosen);
        let latent = normals(2, 30, 20);
        let queries = Queries { latent: &latent, slate_size: 10, excluded: None };
        assert_eq!(device.search(queries).unwrap(), host.search(queries).unwrap());

        chosen.memory = Some(Memory { tensor: 1 << 16, budget: Some(100) });
        let error = OnDevice::new(host.actions(), &chosen).unwrap_err().to_string();
        assert!(error.contains("--device-memory"), "{error}");
        chosen.memory = None;
        assert!(OnDevice::new(host.actions(), &chosen).unwrap_err().to_string().contains("no GPU"));
    }

    #[test]
    fn what_cannot_be_answered_is_refused_as_on_the_host() {
        let (_, device) = searches(normals(1, 10, 4), &pretended(1 << 16));
        let search = |latent: &Matrix, slate_size, excluded| {
            device.search(Queries { latent, slate_size, excluded }).map(|found| found.len())
        };
        let latent = normals(2, 2, 4);
        let excluded: [&[u32]; 2] = [&[], &[1, 5]];
        let error = search(&latent, 9, Some(&excluded)).unwrap_err();
        assert!(matches!(error, Error::SlateTooLarge { available: 8, .. }), "{error}");
        assert_eq!(search(&latent, 8, Some(&excluded)).unwrap(), 2);
        assert!(matches!(search(&normals(2, 2, 5), 2, None), Err(Error::Shape { .. })));
        let mut wrong = latent.clone();
        wrong.row_mut(1)[2] = f32::NAN;
        assert!(matches!(search(&wrong, 2, None), Err(Error::NotFinite { row: 1, .. })));
        assert_eq!(search(&Matrix::new(Vec::new(), 4).unwrap(), 2, None).unwrap(), 0);
    }
}
