//! Actions of equal vectors share one node of the graph, that of the lowest: items that only one and
//! the same user took have the same embedding. With a node each, they would be each other's neighbours
//! and nobody else's, and walks would not pass them (recall@5 of 0.48 where sharing finds 0.89, on
//! 2.23 M made-up items of which three in four are twins).

use rayon::prelude::*;

use crate::matrix::Matrix;

/// The actions without a node of their own.
#[derive(Debug, Default)]
pub(super) struct Twins {
    /// Node and action, ascending.
    pairs: Vec<(u32, u32)>,
}

impl Twins {
    /// The twins among the rows of β.
    pub(super) fn of(beta: &Matrix) -> Self {
        let mut hashed: Vec<(u64, u32)> = (0..u32::try_from(beta.rows()).unwrap_or(u32::MAX))
            .into_par_iter()
            .map(|action| (hash(beta.row(action as usize)), action))
            .collect();
        hashed.par_sort_unstable();
        let of_one_hash: Vec<_> = hashed.chunk_by(|(one, _), (other, _)| one == other).collect();
        let mut pairs: Vec<(u32, u32)> = of_one_hash
            .into_par_iter()
            .flat_map_iter(|actions| {
                let node = actions[0].1;
                let others = actions[1..].iter().map(|&(_, action)| action);
                let equal =
                    move |&action: &u32| beta.row(action as usize) == beta.row(node as usize);
                others.filter(equal).map(move |action| (node, action))
            })
            .collect();
        pairs.par_sort_unstable();
        Self { pairs }
    }

    /// Those that have no node, where a graph says which have: numbers that were rounded since it was
    /// built make more vectors equal.
    pub(super) fn without(mut self, has_node: impl Fn(u32) -> bool) -> Self {
        self.pairs.retain(|&(_, action)| !has_node(action));
        self
    }

    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// The actions that have a node, ascending.
    pub(super) fn nodes(&self, num_actions: usize) -> Vec<u32> {
        let mut without: Vec<u32> = self.pairs.iter().map(|&(_, action)| action).collect();
        without.sort_unstable();
        let mut without = without.into_iter().peekable();
        (0..u32::try_from(num_actions).unwrap_or(u32::MAX))
            .filter(|action| without.next_if_eq(action).is_none())
            .collect()
    }

    /// The actions for which `node` stands, ascending.
    pub(super) fn of_node(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let from = self.pairs.partition_point(|&(other, _)| other < node);
        let twins = self.pairs[from..].iter().take_while(move |&&(other, _)| other == node);
        std::iter::once(node).chain(twins.map(|&(_, action)| action))
    }
}

/// A number that equal vectors share, and others hardly ever.
fn hash(row: &[f32]) -> u64 {
    // The multiplier of Knuth's MMIX generator.
    let mix = |hash: u64, value: &f32| {
        (hash.rotate_left(5) ^ u64::from(value.to_bits())).wrapping_mul(6_364_136_223_846_793_005)
    };
    row.iter().fold(0, mix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retrieval::exact::normals;

    #[test]
    fn the_lowest_of_equal_vectors_stands_for_all() {
        let mut beta = normals(1, 6, 3);
        for (action, of) in [(3, 1), (5, 1), (4, 2)] {
            let row = beta.row(of).to_vec();
            beta.row_mut(action).copy_from_slice(&row);
        }
        let twins = Twins::of(&beta);
        assert_eq!(twins.nodes(6), [0, 1, 2]);
        let of = |twins: &Twins, node| twins.of_node(node).collect::<Vec<_>>();
        assert_eq!(
            [of(&twins, 0), of(&twins, 1), of(&twins, 2)],
            [vec![0], vec![1, 3, 5], vec![2, 4]]
        );
        let some = twins.without(|action| action == 3);
        assert_eq!((some.len(), of(&some, 1)), (2, vec![1, 5]));
    }
}
