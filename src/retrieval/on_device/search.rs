//! Queries in, what may be on their slates out: the shares of a catalogue are swept over one after the other,
//! each with the thresholds that those before it have left.

use std::mem::swap;
use std::ops::Range;

use burn::tensor::{Tensor, TensorData};

use super::OnDevice;
use crate::device::{
    Asked, Lists, Manner, Part, data, failed, integers, list_to_device, pack, prune, sweep,
};
use crate::embedding::Blocks;
use crate::error::{Error, Result};
use crate::retrieval::Queries;

/// The actions of the smallest tile; a share of fewer cannot be halved.
const TILE: f64 = 64.0;

/// The actions of a query that come down, in the mean: so many, and so many times K. And the least of all.
const DOWN: (usize, usize) = (27, 2);
const LEAST_DOWN: usize = 1 << 14;

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

/// Lists on the host, as [`pack`] makes them, where they came down.
pub(super) struct Found {
    rows: usize,
    packed: TensorData,
}

impl Found {
    /// The actions of a query, in no order; none if there were too many.
    #[allow(clippy::cast_sign_loss, reason = "no number of a place or an action is negative")]
    pub(super) fn of(&self, row: usize) -> Option<impl Iterator<Item = u32>> {
        let packed = self.packed.as_slice::<i32>().ok()?;
        let count = usize::try_from(packed[row]).ok()?;
        let start = 2 * self.rows + packed[self.rows + row] as usize;
        Some(packed[start..start + count].iter().map(|action| *action as u32))
    }
}

/// Blocks of β whose shares are swept over together: each with the number of its first action.
type Group = Vec<(usize, Tensor<2>)>;

impl OnDevice {
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
    pub(super) fn found(&self, queries: Queries<'_>, careful: bool) -> Result<Found> {
        let (device, format) = (self.blocks.device(), self.blocks.format());
        let rows = queries.latent.rows();
        let num_actions = self.blocks.actions().num_actions();
        let room = self.room(queries.slate_size);
        let (spans, excluded) = excluded_lists(queries, num_actions);
        let norms = queries.latent.norms();
        let (there, factors) = format.queries(queries.latent, &norms, device);
        // Four times the precision: of two products, and the host's own rounding is among it.
        let bound = 4.0 * format.precision() * self.host.largest_norm();
        let rounding = norms.iter().zip(factors).map(|(norm, factor)| bound * norm * factor);
        let asked = Asked {
            queries: there,
            rounding: Tensor::from_data(rounding.collect::<Vec<f32>>().as_slice(), device),
            spans: list_to_device(&spans, device),
            excluded: list_to_device(&excluded, device),
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
}

impl Search<'_> {
    /// Adds a share of the actions of a group to what has been found.
    fn merge(&mut self, group: &Group, share: Range<f64>) -> Result<()> {
        let kept = if self.careful { Some(integers(self.lists.counts.clone())?) } else { None };
        for (at, (offset, beta)) in group.iter().enumerate() {
            let turn = at as f64 / group.len() as f64;
            let (offset, stride) = (*offset, self.blocks.format().stride(beta.dims()[0]));
            let part = Part { beta, offset, stride, share: share.clone(), turn };
            if sweep(&self.asked, &part, &self.lists).is_none() {
                let problem = "runs no kernels; use another device".to_owned();
                return Err(Error::Device { device: self.blocks.name().to_owned(), problem });
            }
        }
        if let Some(kept) = kept {
            let counts = integers(self.lists.counts.clone())?;
            let room = i32::try_from(self.lists.room).unwrap_or(i32::MAX);
            // A list that equals fill cannot be helped: the host searches for its query.
            let too_many =
                counts.iter().zip(&kept).any(|(count, kept)| *count > room && *kept <= room / 2);
            let size = share.end - share.start;
            let largest = group.iter().map(|(_, beta)| beta.dims()[0]).max().unwrap_or(1);
            if too_many && size * largest as f64 > TILE {
                self.lists.counts = list_to_device(&kept, self.blocks.device());
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
        Ok(Found { rows, packed: data(packed)?.convert::<i32>() })
    }
}

/// The error of lists that are not where the kernels are.
fn elsewhere() -> Error {
    failed(&"the lists of a search are not on its device")
}

/// The actions that are swept over next, where the K best of so many are known: of as many again there are K
/// that pass. Three quarters of the room are for those expected and six times the root of their number; `digits`
/// is the part of it that rounding leaves.
pub(super) fn next_actions(merged: usize, room: usize, slate_size: usize, digits: f64) -> usize {
    if merged == 0 {
        return room / 2;
    }
    let (free, slate_size) = ((room - room / 4).saturating_sub(slate_size), slate_size as f64);
    let times = digits * free as f64 / (slate_size + 6.0 * slate_size.sqrt());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let next = (merged as f64 * times) as usize;
    next.max(1)
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
