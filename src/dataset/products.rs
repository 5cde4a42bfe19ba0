//! Takes action sets, read as a sparse binary matrix (contexts × actions), and returns the transpose
//! or the product with a dense block.

use rayon::prelude::*;

use super::ActionSets;

/// Columns whose sums stay in registers.
const TILE: usize = 32;

impl ActionSets {
    /// The contexts of each action. `num_actions` is above every action.
    pub(crate) fn transposed(&self, num_actions: usize) -> Self {
        let pairs = self
            .contexts()
            .flat_map(|context| self.of(context).iter().map(move |&action| (action, context)));
        Self::from_pairs(num_actions, pairs)
    }

    /// `A · dense` for row-major `dense` `[actions, width]`: row i is the sum of the rows of `dense`
    /// that set i names, `[contexts, width]`. One thread sums a row, in one order, so the result does
    /// not depend on the number of threads.
    pub(crate) fn times(&self, dense: &[f32], width: usize) -> Vec<f32> {
        let mut out = vec![0.0; self.len() * width];
        let arch = pulp::Arch::new();
        // Few rows at a time: the popular actions, side by side, have most of the entries.
        let rows = out.par_chunks_exact_mut(width).zip(0_u32..u32::MAX).chunks(16);
        rows.for_each(|rows| {
            arch.dispatch(|| {
                for (row, set) in rows {
                    sum_rows(self.of(set), dense, row);
                }
            });
        });
        out
    }
}

#[allow(clippy::inline_always, reason = "what is inlined has the dispatch's instructions")]
#[inline(always)]
fn sum_rows(set: &[u32], dense: &[f32], sum: &mut [f32]) {
    let width = sum.len();
    let (tiles, rest) = sum.as_chunks_mut::<TILE>();
    for (tile, sum) in (0..).step_by(TILE).zip(&mut *tiles) {
        let mut total = [0.0; TILE];
        for &at in set {
            if let Some(row) = dense[at as usize * width + tile..].first_chunk::<TILE>() {
                total.iter_mut().zip(row).for_each(|(total, value)| *total += value);
            }
        }
        *sum = total;
    }
    let start = TILE * tiles.len();
    rest.fill(0.0);
    for &at in set {
        let row = &dense[at as usize * width + start..][..rest.len()];
        rest.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
}
