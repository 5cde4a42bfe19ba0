//! The kernels of exact search. A cube, which is a group of units, multiplies a tile of queries and actions
//! and keeps nothing of it but what passes; another prunes the list of a query.

mod matrices;
mod prune;
mod sweep;
#[cfg(test)]
mod tests;
mod tile;

use std::ops::Range;

use burn::tensor::{DType, Int, Tensor};
use cubecl::client::Client;
use cubecl::prelude::{CubeCount, CubeDim, TensorArg};

use super::Cube;
use super::lists::{Asked, Lists, Part};

/// Numbers that are read together. The rows of both factors are whole groups of so many.
const GROUP: usize = 4;

/// The most tiles of actions that are visited in one launch; a driver has 65 535.
const VISITS: usize = 1 << 15;

/// Adds the products of a part above the thresholds to the lists; none on a device that runs no kernels.
pub(crate) fn sweep(asked: &Asked, part: &Part<'_>, lists: &Lists) -> Option<()> {
    let [rows, _] = asked.queries.dims();
    let client = client(&lists.counts)?;
    let half = part.beta.dtype() == DType::F16;
    let matrices = if half { matrices::Shape::on(&client, rows) } else { None };
    let [height, width] = matrices.as_ref().map_or(sweep::TILE, matrices::Shape::tile);
    let actions = part.beta.dims()[0];
    let tiles = actions.div_ceil(width);
    let (shift, visits) = visits(part, tiles);
    for start in visits.clone().step_by(VISITS) {
        let end = visits.end.min(start + VISITS);
        let size = |count: usize| u32::try_from(count).ok();
        let cubes = CubeCount::Static(size(rows.div_ceil(height))?, size(end - start)?, 1);
        let order = Order { first: start, shift, tiles };
        match matrices {
            Some(shape) => matrices::launch(shape, cubes, asked, part, lists, &order)?,
            None => sweep::launch(cubes, asked, part, lists, &order)?,
        }
    }
    Some(())
}

/// The tiles of a launch: the number of a visit, its bits turned round, is that of a tile, so that the tiles of
/// a part lie all over the block, and what they hold is like the rest of it.
#[derive(Debug)]
struct Order {
    /// The first visit.
    first: usize,
    /// How far bits that are turned round are to be moved.
    shift: u32,
    /// Tiles of the block; visits to others find nothing.
    tiles: usize,
}

/// The shift of [`Order`], and the visits of a part of so many tiles.
fn visits(part: &Part<'_>, tiles: usize) -> (u32, Range<usize>) {
    let all = tiles.next_power_of_two().max(2);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most all")]
    let visit = |share: f64| ((share * all as f64 + part.turn) as usize).min(all);
    (32 - all.ilog2(), visit(part.share.start)..visit(part.share.end))
}

/// Takes what may be among the K best, and the ones within rounding of them, from the lists `from` to the lists
/// `to`, and raises the thresholds; none on a device that runs no kernels.
pub(crate) fn prune(asked: &Asked, from: &Lists, to: &Lists) -> Option<()> {
    let rows = u32::try_from(asked.thresholds.dims()[0]).ok()?;
    prune::prune::launch(
        &client(&from.counts)?,
        CubeCount::Static(rows, 1, 1),
        CubeDim::new_1d(u32::try_from(prune::UNITS).ok()?),
        whole(&from.counts)?,
        whole(&from.actions)?,
        real(&from.products)?,
        real(&asked.rounding)?,
        real(&asked.thresholds)?,
        whole(&to.counts)?,
        whole(&to.actions)?,
        real(&to.products)?,
        asked.slate_size,
        from.room,
        to.room,
    );
    Some(())
}

/// Packs lists into one: their counts, then where among what follows each begins, `[N]` both, then their actions
/// one list after the other in any order. The count of a list that does not fit is below 0. None on a device that
/// runs no kernels.
pub(crate) fn pack(lists: &Lists, packed: &Tensor<1, Int>) -> Option<()> {
    let rows = lists.counts.dims()[0];
    let cursor = Tensor::<1, Int>::zeros([1], &packed.device());
    prune::pack::launch(
        &client(&lists.counts)?,
        CubeCount::Static(u32::try_from(rows).ok()?, 1, 1),
        CubeDim::new_1d(u32::try_from(prune::UNITS).ok()?),
        whole(&lists.counts)?,
        whole(&lists.actions)?,
        whole(&cursor)?,
        whole(packed)?,
        rows,
        lists.room,
        packed.dims()[0].checked_sub(2 * rows)?,
    );
    Some(())
}

/// What a kernel is given for a tensor of real numbers; none if it does not lie where kernels run.
fn real<const D: usize>(tensor: &Tensor<D>) -> Option<TensorArg> {
    Some(tensor.clone().try_into_primitive::<Cube>().ok()?.into_tensor_arg())
}

/// What a kernel is given for whole numbers; none if they do not lie where kernels run.
fn whole(list: &Tensor<1, Int>) -> Option<TensorArg> {
    Some(list.clone().try_into_primitive::<Cube>().ok()?.into_tensor_arg())
}

/// What runs kernels where a list lies.
fn client(list: &Tensor<1, Int>) -> Option<Client> {
    Some(list.clone().try_into_primitive::<Cube>().ok()?.client)
}
