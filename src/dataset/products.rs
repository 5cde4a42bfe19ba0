//! Takes action sets, read as a sparse binary matrix (contexts × actions), and returns the transpose
//! or the scaled product with a dense block.

use rayon::prelude::*;

use super::ActionSets;

/// Columns whose sums stay in registers.
const TILE: usize = 64;
/// Rows that one thread sums at a time.
const ROWS: u32 = 16;

impl ActionSets {
    /// The contexts of each action. `num_actions` is above every action.
    pub(crate) fn transposed(&self, num_actions: usize) -> Self {
        let pairs = self
            .contexts()
            .flat_map(|context| self.of(context).iter().map(move |&action| (action, context)));
        Self::from_pairs(num_actions, pairs)
    }

    /// Writes `R A C · dense` over `out` `[contexts, width]`, for row-major `dense`
    /// `[actions, width]`; `scales` are the entries of the diagonal R and C. One thread sums a row, in
    /// one order, so the result does not depend on the number of threads.
    pub(crate) fn scaled_times(
        &self,
        scales: [&[f32]; 2],
        dense: &[f32],
        width: usize,
        out: &mut [f32],
    ) {
        let arch = pulp::Arch::new();
        // A few columns of all rows, side by side, are nearer to a core than whole rows.
        let mut tiles = vec![[0.0; TILE]; dense.len() / width];
        for start in (0..width).step_by(TILE) {
            let columns = start..width.min(start + TILE);
            let rows = dense.par_chunks_exact(width).with_min_len(256);
            tiles.par_iter_mut().zip(rows).enumerate().for_each(|(at, (tile, row))| {
                tile[..columns.len()].copy_from_slice(&row[columns.clone()]);
                *tile = tile.map(|value| value * scales[1][at]);
            });
            // Few rows at a time: the popular actions, side by side, have most of the entries.
            let blocks = out.par_chunks_mut(ROWS as usize * width).zip(0_u32..u32::MAX);
            blocks.for_each(|(block, number)| {
                arch.dispatch(|| {
                    for (sum, row) in block.chunks_exact_mut(width).zip(ROWS * number..) {
                        let total = sum_tiles(self.of(row), &tiles);
                        let total = total.map(|value| value * scales[0][row as usize]);
                        sum[columns.clone()].copy_from_slice(&total[..columns.len()]);
                    }
                });
            });
        }
    }
}

#[allow(clippy::inline_always, reason = "what is inlined has the dispatch's instructions")]
#[inline(always)]
fn sum_tiles(set: &[u32], tiles: &[[f32; TILE]]) -> [f32; TILE] {
    let mut total = [0.0; TILE];
    for &at in set {
        total.iter_mut().zip(&tiles[at as usize]).for_each(|(total, value)| *total += value);
    }
    total
}
