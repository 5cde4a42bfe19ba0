//! Exact search on a GPU takes queries up and brings down what may be on their slates. One share of the
//! catalogue after another is swept over for the products above the K-th best of the shares before; what
//! passes waits in a list of each query, which is pruned after each share. Shares grow by a constant factor, so
//! little passes; the host waits once, at the end, and nothing ever holds `[queries, P]`.
//!
//! What lies within rounding of the K-th best comes down, too, and is ranked by
//! [`dot`](crate::matrix::dot) on the host, so the answer is that of [`Exact`], bit for bit, also where β lies
//! there in f16.
//!
//! A share lies all over the catalogue, so that more passes than a list has room for only where much is alike.
//! The queries of such lists are searched for again: the host waits after each share and halves
//! those of which too much passes. Where that does not help, for so many are equal, it searches itself.

mod probe;

use std::mem::swap;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use rayon::prelude::*;

pub use self::probe::Trials;
use super::best::rank;
use super::{Exact, Queries, Retriever, Slates, check, nth_included};
use crate::device::{Asked, Chosen, Lists, Manner, Part, failed, integers, pack, prune, sweep};
use crate::embedding::{ActionEmbeddings, Blocks};
use crate::error::{Error, Result};
use crate::matrix::{Matrix, norm};

/// The products of a query and its actions that neither overflow nor lose digits lie between these, in
/// absolute value.
const ORDINARY: Range<f32> = 1e-20..1e30;

/// Numbers of shorter vectors than this vanish when they are squared.
const SHORTEST: f32 = 1e-18;

/// The actions of the smallest tile; a share of fewer cannot be halved.
const TILE: f64 = 64.0;

/// The most queries that are searched for at once.
const QUERIES: usize = 4096;

/// The actions that a list has room for: so many, and so many times K.
const ROOM: (usize, usize) = (1024, 16);

/// The actions of a query that come down, in the mean: so many, and so many times K. And the least of all.
const DOWN: (usize, usize) = (27, 2);
const LEAST_DOWN: usize = 1 << 14;

/// A manner is chosen among more actions than these.
const FEW: usize = 4096;

/// Scores every action for every query on a GPU.
#[derive(Clone, Debug)]
pub struct OnDevice {
    host: Exact,
    blocks: Arc<Blocks>,
    manner: Manner,
    /// None if the manner was given.
    trials: Option<Trials>,
}

/// A search that is under way.
struct Search<'a> {
    blocks: &'a Blocks,
    asked: Asked,
    lists: Lists,
    /// Room for what pruning leaves.
    spare: Lists,
    /// Whether the host waits after each share for what has passed.
    careful: bool,
}

/// Lists on the host, as [`pack`] makes them.
struct Found {
    rows: usize,
    packed: Vec<i32>,
}

impl Found {
    /// The actions of a query, in no order; none if there were too many.
    #[allow(clippy::cast_sign_loss, reason = "no number of a place or an action is negative")]
    fn of(&self, row: usize) -> Option<impl Iterator<Item = u32>> {
        let count = usize::try_from(self.packed[row]).ok()?;
        let start = 2 * self.rows + self.packed[self.rows + row] as usize;
        Some(self.packed[start..start + count].iter().map(|action| *action as u32))
    }
}

/// Blocks of β whose shares are swept over together: each with the number of its first action.
type Group = Vec<(usize, Tensor<2>)>;

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
    /// The errors of [`by`](Self::by) in f32.
    pub fn new(actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        if let Some(manner) = chosen.manner {
            return Self::by(manner, actions, chosen);
        }
        if actions.num_actions() <= FEW {
            return Self::by(Manner::Sweep, actions, chosen);
        }
        // By itself, so that β does not lie there twice.
        let half = Self::by(Manner::Half, actions, chosen).and_then(|half| half.trial());
        chosen.device.memory_cleanup();
        let single = Self::by(Manner::Sweep, actions, chosen)?;
        let (seconds, expected) = single.trial()?;
        let half = match half {
            Ok((seconds, found)) if found == expected => Some(seconds),
            Ok(_) => {
                tracing::warn!("{} finds something else in f16: not used", chosen.name);
                None
            }
            Err(error) => {
                tracing::debug!("{} does not search in f16: {error}", chosen.name);
                None
            }
        };
        let trials = Trials { queries: expected.len(), sweep: seconds, half };
        tracing::debug!("{} searches for so many queries in so many s: {trials:?}", chosen.name);
        let fastest = match trials.fastest() {
            Manner::Sweep => single,
            Manner::Half => {
                drop(single);
                chosen.device.memory_cleanup();
                Self::by(Manner::Half, actions, chosen)?
            }
        };
        Ok(Self { trials: Some(trials), ..fastest })
    }

    /// The numbers that are multiplied.
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
    /// [`Error::Device`](crate::Error::Device) if the device has too little memory, runs no kernels, finds
    /// something else than the host, or has no f16 where it is asked for.
    pub fn by(manner: Manner, actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        let blocks = Arc::new(match manner {
            Manner::Half => Blocks::in_half(actions, chosen)?,
            Manner::Sweep => Blocks::shuffled(actions, chosen)?,
        });
        let host = Exact::new(Arc::clone(actions));
        Self { host, blocks, manner, trials: None }.compared()
    }

    /// The actions that a list has room for.
    fn room(&self, slate_size: usize) -> usize {
        ROOM.0.max(ROOM.1 * slate_size).min(self.blocks.actions().num_actions())
    }

    /// The blocks that are swept over together: those that stay on the device, then each of the others.
    fn groups(&self) -> impl Iterator<Item = Group> {
        let blocks = &*self.blocks;
        let resident = (0..blocks.count()).take_while(|at| blocks.is_resident(*at)).count();
        let first = (resident > 0).then_some(0..resident);
        let others = (resident..blocks.count()).map(|at| at..at + 1);
        let group = |blocks: &Blocks, at: Range<usize>| {
            at.map(|at| (blocks.range(at).start, blocks.block(at))).collect()
        };
        first.into_iter().chain(others).map(move |at| group(blocks, at))
    }

    /// What may be on the slates of `queries`.
    fn found(&self, queries: Queries<'_>, careful: bool) -> Result<Found> {
        let (device, rows) = (self.blocks.device(), queries.latent.rows());
        let num_actions = self.blocks.actions().num_actions();
        let room = self.room(queries.slate_size);
        let (spans, excluded) = excluded_lists(queries, num_actions);
        let norms: Vec<f32> = queries.latent.par_rows().map(norm).collect();
        let (there, factors) = self.blocks.queries_there(queries.latent, &norms);
        // Four times the precision: of two products, and the host's own rounding is among it.
        let bound = 4.0 * self.blocks.precision() * self.host.largest_norm();
        let rounding = norms.iter().zip(factors).map(|(norm, factor)| bound * norm * factor);
        let asked = Asked {
            queries: there,
            rounding: Tensor::from_data(rounding.collect::<Vec<f32>>().as_slice(), device),
            spans: integers(&spans, device),
            excluded: integers(&excluded, device),
            slate_size: queries.slate_size,
            // Every product exceeds the least number.
            thresholds: Tensor::full([rows], f32::MIN, device),
        };
        let lists = || Lists::with_room(room, rows, device);
        let (blocks, spare) = (&*self.blocks, lists());
        let lists = Lists { counts: Tensor::zeros([rows], device), ..lists() };
        let mut search = Search { blocks, asked, lists, spare, careful };
        let mut merged = 0;
        for (sent, group) in self.groups().enumerate() {
            let all: usize = group.iter().map(|(_, beta)| beta.dims()[0]).sum();
            let mut done = 0;
            while done < all {
                let next = if room < num_actions {
                    // More is within rounding in f16.
                    let digits = if self.manner == Manner::Half { 0.5 } else { 1.0 };
                    next_actions(merged, room, queries.slate_size, digits)
                } else {
                    all
                };
                let end = all.min(done + next);
                // Little that is left comes along.
                let end = if all - end < (end - done) / 4 { all } else { end };
                let at = |action: usize| action as f64 / all as f64;
                search.merge(&group, at(done)..at(end))?;
                merged += end - done;
                done = end;
            }
            if merged < num_actions && sent % 2 == 1 {
                // A block is uploaded while the one before is swept over; copies of all of them would lie in the
                // host's memory.
                device.sync().map_err(|error| failed(&error))?;
            }
        }
        search.end()
    }

    /// Puts the slates of some of the queries where they belong; returns the rows of those for which there was
    /// too little room.
    fn search_for(
        &self,
        queries: Queries<'_>,
        rows: &[u32],
        careful: bool,
        slates: &mut Slates,
    ) -> Result<Vec<u32>> {
        let (actions, slate_size) = (self.blocks.actions(), queries.slate_size);
        // Four lists of the queries of one search, and what is packed of them, fit into the two tensors that
        // blocks leave for work; the queries and what they exclude, into one each.
        let excluded = rows.iter().map(|row| queries.excluded_of(*row as usize).len()).max();
        let numbers = [3 * self.room(slate_size), self.blocks.width(), excluded.unwrap_or(0)];
        let most = numbers.map(|numbers| self.blocks.products() / numbers.max(1));
        let together = most.into_iter().fold(QUERIES, usize::min).max(1);
        let mut crowded = Vec::new();
        for rows in rows.chunks(together) {
            let picked = Picked::new(queries, rows);
            let found = self.blocks.attempt(|| self.found(picked.queries(slate_size), careful))?;
            let mut ranked = Slates::unscored(slate_size, vec![0; rows.len() * slate_size]);
            let of_rows = ranked.actions.par_chunks_mut(slate_size);
            let of_rows = of_rows.zip(ranked.scores.par_chunks_mut(slate_size));
            of_rows.enumerate().for_each(|(at, (best, scores))| {
                if let Some(found) = found.of(at) {
                    rank(picked.latent.row(at), actions, found, best, scores);
                }
            });
            picked.put(&ranked, slates);
            let without = rows.iter().enumerate().filter(|(at, _)| found.of(*at).is_none());
            crowded.extend(without.map(|(_, row)| *row));
        }
        Ok(crowded)
    }

    /// Searches for the ordinary queries on the device and for the others here. A query of zeros gets
    /// the lowest actions without a search.
    fn search_apart(
        &self,
        queries: Queries<'_>,
        is_ordinary: impl Fn(&[f32]) -> bool,
    ) -> Result<Slates> {
        let (latent, slate_size) = (queries.latent, queries.slate_size);
        let mut slates = Slates::unscored(slate_size, vec![0; latent.rows() * slate_size]);
        let (mut ordinary, mut others) = (Vec::new(), Vec::new());
        for (row, query) in (0_u32..).zip(latent.iter_rows()) {
            if is_ordinary(query) {
                ordinary.push(row);
            } else if query.iter().any(|number| *number != 0.0) {
                others.push(row);
            } else {
                let at = row as usize * slate_size;
                for (place, action) in (0_u32..).zip(&mut slates.actions[at..at + slate_size]) {
                    *action = nth_included(queries.excluded_of(row as usize), place);
                }
            }
        }
        for (retriever, rows) in [(self as &dyn Retriever, ordinary), (&self.host, others)] {
            let picked = Picked::new(queries, &rows);
            let found = retriever.search(picked.queries(slate_size))?;
            picked.put(&found, &mut slates);
        }
        Ok(slates)
    }
}

impl Search<'_> {
    /// Adds a share of the actions of a group to what has been found.
    fn merge(&mut self, group: &Group, share: Range<f64>) -> Result<()> {
        let kept = if self.careful { Some(read(self.lists.counts.clone())?) } else { None };
        for (at, (offset, beta)) in group.iter().enumerate() {
            let turn = at as f64 / group.len() as f64;
            let (offset, stride) = (*offset, self.blocks.stride(beta.dims()[0]));
            let part = Part { beta, offset, stride, share: share.clone(), turn };
            if sweep(&self.asked, &part, &self.lists).is_none() {
                let problem = "runs no kernels; use another device".to_owned();
                return Err(Error::Device { device: self.blocks.name().to_owned(), problem });
            }
        }
        if let Some(kept) = kept {
            let counts = read(self.lists.counts.clone())?;
            let room = i32::try_from(self.lists.room).unwrap_or(i32::MAX);
            // A list that equals fill cannot be helped: the host searches for its query.
            let too_many =
                counts.iter().zip(&kept).any(|(count, kept)| *count > room && *kept <= room / 2);
            let size = share.end - share.start;
            let largest = group.iter().map(|(_, beta)| beta.dims()[0]).max().unwrap_or(1);
            if too_many && size * largest as f64 > TILE {
                self.lists.counts = integers(&kept, self.blocks.device());
                let middle = share.start + size / 2.0;
                self.merge(group, share.start..middle)?;
                return self.merge(group, middle..share.end);
            }
        }
        self.prune()
    }

    fn prune(&mut self) -> Result<()> {
        prune(&self.asked, &self.lists, &self.spare).ok_or_else(elsewhere)?;
        swap(&mut self.lists, &mut self.spare);
        Ok(())
    }

    /// Brings down what has been found. Waits for the device.
    fn end(self) -> Result<Found> {
        let slate_size = self.asked.slate_size;
        let rows = self.asked.thresholds.dims()[0];
        let all = rows * self.lists.room;
        let down = rows * (DOWN.0 + DOWN.1 * slate_size);
        let down = if self.careful { all } else { down.max(LEAST_DOWN).min(all) };
        let packed = Tensor::empty([2 * rows + down], self.blocks.device());
        pack(&self.lists, &packed).ok_or_else(elsewhere)?;
        Ok(Found { rows, packed: read(packed)? })
    }
}

/// The error of lists that are not where the kernels are.
fn elsewhere() -> Error {
    failed(&"the lists of a search are not on its device")
}

/// The actions that are swept over next, where the K best of so many are known: of as many again there are K
/// that pass. Three quarters of the room are for those expected and six times the root of their number; `digits`
/// is the part of it that rounding leaves.
fn next_actions(merged: usize, room: usize, slate_size: usize, digits: f64) -> usize {
    if merged == 0 {
        return room / 2;
    }
    let (free, slate_size) = ((room - room / 4).saturating_sub(slate_size), slate_size as f64);
    let times = digits * free as f64 / (slate_size + 6.0 * slate_size.sqrt());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let next = (merged as f64 * times) as usize;
    next.max(1)
}

/// Some of the queries, by their rows.
struct Picked<'a> {
    rows: &'a [u32],
    latent: Matrix,
    excluded: Vec<&'a [u32]>,
}

impl<'a> Picked<'a> {
    fn new(queries: Queries<'a>, rows: &'a [u32]) -> Self {
        let excluded = rows.iter().map(|row| queries.excluded_of(*row as usize)).collect();
        Self { rows, latent: queries.latent.select(rows), excluded }
    }

    fn queries(&self, slate_size: usize) -> Queries<'_> {
        Queries { latent: &self.latent, slate_size, excluded: Some(&self.excluded) }
    }

    /// Puts what was `found` for these where it belongs.
    fn put(&self, found: &Slates, slates: &mut Slates) {
        for (at, row) in self.rows.iter().enumerate() {
            let size = slates.slate_size;
            let place = *row as usize * size..(*row as usize + 1) * size;
            slates.actions[place.clone()].copy_from_slice(found.slate(at));
            slates.scores[place].copy_from_slice(found.scores(at));
        }
    }
}

/// Device → host; waits for the device.
fn read(list: Tensor<1, Int>) -> Result<Vec<i32>> {
    let data = list.try_into_data().map_err(|error| failed(&error))?;
    data.convert::<i32>().try_into_vec().map_err(|error| failed(&error))
}

/// Where the excluded actions of each query begin and end, and all of them, at least one number. Queries that
/// have theirs from one place, as samples around one context do, share them.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "actions fit 31 bits"
)]
fn excluded_lists(queries: Queries<'_>, num_actions: usize) -> (Vec<i32>, Vec<i32>) {
    let (mut spans, mut all, mut last) = (Vec::new(), Vec::new(), &[][..]);
    let (mut start, mut end) = (0, 0);
    for row in 0..queries.latent.rows() {
        let excluded = queries.excluded_of(row);
        if !std::ptr::eq(excluded, last) {
            start = all.len();
            let there = excluded.partition_point(|action| (*action as usize) < num_actions);
            all.extend(excluded[..there].iter().map(|action| *action as i32));
            (last, end) = (excluded, all.len());
        }
        spans.extend([start as i32, end as i32]);
    }
    if all.is_empty() {
        all.push(0);
    }
    (spans, all)
}

impl Retriever for OnDevice {
    fn on_device(&self) -> Option<&OnDevice> {
        Some(self)
    }

    fn search(&self, queries: Queries<'_>) -> Result<Slates> {
        let (actions, latent) = (self.blocks.actions(), queries.latent);
        check(queries, actions.num_actions(), actions.latent_dim())?;
        let is_ordinary = |query: &[f32]| {
            let (length, longest) = (norm(query), self.host.largest_norm());
            length.min(longest) > SHORTEST && ORDINARY.contains(&(length * longest))
        };
        if !latent.par_rows().all(is_ordinary) {
            return self.search_apart(queries, is_ordinary);
        }
        let mut slates =
            Slates::unscored(queries.slate_size, vec![0; latent.rows() * queries.slate_size]);
        let mut rows: Vec<u32> = (0_u32..).take(latent.rows()).collect();
        for careful in [false, true] {
            rows = self.search_for(queries, &rows, careful, &mut slates)?;
        }
        if !rows.is_empty() {
            let picked = Picked::new(queries, &rows);
            picked.put(&self.host.search(picked.queries(queries.slate_size))?, &mut slates);
        }
        Ok(slates)
    }
}

#[cfg(test)]
mod tests;
