//! Where β lies on a GPU, queries go up and the distributions of their contexts come down. A search finds
//! the head of each and the best of its tail, m. One pass over the blocks of β then makes the products of
//! the tail and sums up `e^{f − m}`: for panels of actions, which slates are drawn from, and with β, which
//! leads back to the query. Scores and weights stay on the device.
//!
//! Slates are drawn on the host, from the streams that a CPU draws them from: a panel by its mass, then an
//! action of the panel, whose few scores the host computes. Draws by the Gumbel trick, which need all
//! scores and as much noise, compute all of them there, once for all slates of a context.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};

use super::Distribution;
use super::distribution::head_size;
use crate::device::{rows_to_device, to_host};
use crate::embedding::Blocks;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::policy::{BatchRows, Sampling};
use crate::retrieval::{Heads, Retriever, most_excluded};

/// Actions in a panel, where blocks are not smaller.
const PANEL: usize = 256;

/// The most actions whose weighted embeddings are one sum in f32.
const TERMS: usize = 4096;

/// Makes the distributions of contexts on a GPU.
#[derive(Clone, Debug)]
pub(super) struct OnDevice {
    blocks: Arc<Blocks>,
    heads: Heads,
    sampling: Sampling,
}

impl OnDevice {
    /// None where `retriever` does not search on a GPU, and where a context has no tail.
    ///
    /// # Errors
    /// The errors of [`Blocks::in_order`].
    pub(super) fn new(retriever: &Arc<dyn Retriever>, sampling: &Sampling) -> Result<Option<Self>> {
        let Some(blocks) = retriever.blocks() else { return Ok(None) };
        let num_actions = blocks.actions().num_actions();
        let size = head_size(sampling.slate_size) + 1;
        if size + most_excluded(sampling.excluded.as_deref()) > num_actions {
            return Ok(None);
        }
        // A search does without the digits that weights need, and without the order of panels.
        let blocks = blocks.in_order()?;
        let excluded = sampling.excluded.clone();
        let heads =
            Heads::new(Arc::clone(retriever), size, sampling.slate_size, excluded, num_actions);
        Ok(Some(Self { blocks, heads, sampling: sampling.clone() }))
    }

    /// True if this is the β that lies on the device.
    pub(super) fn has(&self, beta: &Matrix) -> bool {
        std::ptr::eq(self.blocks.actions().beta(), beta)
    }

    /// The most contexts that it takes: two blocks of their weights, each with a copy, have room beside two
    /// blocks of β.
    pub(super) fn group(&self) -> usize {
        self.blocks.queries().div_ceil(2)
    }

    /// The distributions of the rows `group`. If asked for, `Σ_tail e^{f_d − m} β_d` `[group, L]`.
    ///
    /// # Errors
    /// [`Error::NotFinite`](crate::Error::NotFinite) for a score that is not finite; fails if the device
    /// fails.
    pub(super) fn distributions(
        &self,
        rows: BatchRows<'_>,
        group: Range<usize>,
        with_sums: bool,
    ) -> Result<(Vec<Distribution>, Vec<f64>)> {
        let (actions, dim) = (self.blocks.actions(), rows.h.cols());
        let contexts = &rows.contexts[group.clone()];
        let h = rows.h.as_slice()[group.start * dim..group.end * dim].to_vec();
        let h = Matrix::new(h, dim)?;
        let heads = self.heads.search(contexts, &h)?; // [group, T + 1]
        let last = heads.slate_size() - 1;
        let references: Vec<f32> = (0..heads.len()).map(|row| heads.scores(row)[last]).collect();
        let beyond = contexts.iter().enumerate().map(|(row, context)| {
            let excluded = self.sampling.excluded_of(*context);
            let mut beyond = [&heads.slate(row)[..last], excluded].concat();
            beyond.sort_unstable();
            beyond
        });
        let beyond: Vec<Vec<u32>> = beyond.collect();

        let (mut masses, mut sums) = (vec![Vec::new(); contexts.len()], Vec::new());
        if with_sums {
            sums.resize(contexts.len() * dim, 0.0);
        }
        self.sum_up(&h, &references, &beyond, with_sums, |summed| {
            let panels = summed.cols() - if with_sums { dim } else { 0 };
            for (row, summed) in summed.iter_rows().enumerate() {
                let (panels, weighted) = summed.split_at(panels);
                masses[row].extend_from_slice(panels);
                let of_row = sums.iter_mut().skip(row * dim).zip(weighted);
                of_row.for_each(|(sum, weighted)| *sum += f64::from(*weighted));
            }
        })?;
        let distribution = |(row, context): (usize, &u32)| {
            let (scored, excluded) = ((h.row(row), actions), self.sampling.excluded_of(*context));
            let masses = (masses[row].as_slice(), self.panel());
            Distribution::of_panels(scored, excluded, heads.slate(row), masses)
        };
        let distributions = contexts.iter().enumerate().map(distribution);
        Ok((distributions.collect::<Result<_>>()?, sums))
    }

    /// Actions in a panel.
    fn panel(&self) -> usize {
        PANEL.min(self.blocks.range(0).len())
    }

    /// Makes the weights `e^{f − m}` of the queries `h` `[N, L]` block by block, 0 for the actions `beyond`
    /// the tail. `take` gets the sums of a block's panels and, if asked for, `weights β`, side by side.
    fn sum_up(
        &self,
        h: &Matrix,
        references: &[f32],
        beyond: &[Vec<u32>],
        with_sums: bool,
        mut take: impl FnMut(&Matrix),
    ) -> Result<()> {
        let (blocks, device) = (&*self.blocks, self.blocks.device());
        blocks.attempt(|| {
            let queries = rows_to_device(h.as_slice(), h.cols(), device);
            let references = rows_to_device(references, 1, device);
            let send = |at: usize| {
                let beta = blocks.block(at);
                let filled = blocks.format().width() > h.cols();
                let beta = if filled { beta.narrow(1, 0, h.cols()) } else { beta };
                let products = queries.clone().matmul(beta.clone().transpose());
                let weights = (products - references.clone()).exp();
                let weights = without(weights, beyond, blocks.range(at));
                let mut sums = vec![panel_sums(weights.clone(), self.panel())];
                if with_sums {
                    sums.push(weighted_sums(weights, beta));
                }
                Tensor::cat(sums, 1)
            };
            // The device works at a block while the one before is taken.
            let mut coming = None;
            for at in 0..=blocks.count() {
                let next = (at < blocks.count()).then(|| send(at));
                if let Some(summed) = std::mem::replace(&mut coming, next) {
                    take(&to_host(summed)?);
                }
            }
            Ok(())
        })
    }
}

/// `weights` `[N, block]` of the actions `block`, 0 for those of `beyond` `[N]`, which are ascending.
fn without(weights: Tensor<2>, beyond: &[Vec<u32>], block: Range<usize>) -> Tensor<2> {
    let mut places = Vec::new();
    for (row, beyond) in (0_i32..).zip(beyond) {
        let first = beyond.partition_point(|action| (*action as usize) < block.start);
        let inside = beyond[first..].iter().take_while(|action| (**action as usize) < block.end);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "columns of a block fit 31 bits"
        )]
        places.extend(inside.flat_map(|action| [row, (*action as usize - block.start) as i32]));
    }
    if places.is_empty() {
        return weights;
    }
    let (count, device) = (places.len() / 2, weights.device());
    let places = Tensor::<2, Int>::from_data(TensorData::new(places, [count, 2]), &device);
    weights.scatter_nd(places, Tensor::<1>::zeros([count], &device), IndexingUpdateOp::Assign)
}

/// The sums of `width` columns at a time, `[N, ⌈columns / width⌉]`.
fn panel_sums(weights: Tensor<2>, width: usize) -> Tensor<2> {
    let [rows, columns] = weights.dims();
    let panels = columns / width;
    let mut sums = Vec::new();
    if panels > 0 {
        let whole = weights.clone().narrow(1, 0, panels * width);
        sums.push(whole.reshape([rows, panels, width]).sum_dim(2).reshape([rows, panels]));
    }
    if columns > panels * width {
        sums.push(weights.narrow(1, panels * width, columns - panels * width).sum_dim(1));
    }
    Tensor::cat(sums, 1)
}

/// `weights β` `[N, L]`, no more than [`TERMS`] of which are added up one after another.
fn weighted_sums(weights: Tensor<2>, beta: Tensor<2>) -> Tensor<2> {
    let ([rows, columns], [_, dim]) = (weights.dims(), beta.dims());
    let pieces = columns / TERMS;
    let (end, rest) = (pieces * TERMS, columns % TERMS);
    let last = (rest > 0)
        .then(|| weights.clone().narrow(1, end, rest).matmul(beta.clone().narrow(0, end, rest)));
    let whole = (pieces > 0).then(|| {
        let weights = weights.narrow(1, 0, end).reshape([rows, pieces, TERMS]).swap_dims(0, 1);
        let beta = beta.narrow(0, 0, end).reshape([pieces, TERMS, dim]);
        weights.matmul(beta).sum_dim(0).reshape([rows, dim])
    });
    match (whole, last) {
        (Some(whole), Some(last)) => whole + last,
        (whole, last) => whole.or(last).expect("a block has actions"),
    }
}
