//! Some rows of A → their share of what an SVD of the whole needs, for a matrix that is spread over
//! processes: `AᵀA X = Σ_p A_pᵀ(A_p X)`.

use crate::dataset::ActionSets;
use crate::embedding::subspace::{Gram as _, Side, Sides};
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// Some users' rows of the normalised matrix ([`SvdOptions`](crate::embedding::SvdOptions)).
#[derive(Clone, Debug)]
pub struct Slice {
    rows: ActionSets,
    columns: ActionSets,
    /// `n_u^−η` and `n_a^−η`.
    scales: [Vec<f32>; 2],
}

impl Slice {
    /// `rows` of a matrix in which action a has `counts[a]` entries, `[P]`; η is `normalization`.
    ///
    /// # Errors
    /// [`Error::Shape`] for an action beyond P.
    pub fn new(rows: ActionSets, counts: &[u32], normalization: f32) -> Result<Self> {
        let of_rows = rows.contexts().filter_map(|row| rows.of(row).last());
        if let Some(most) = of_rows.max().filter(|most| **most as usize >= counts.len()) {
            return Err(Error::Shape {
                what: "counts of actions".into(),
                expected: format!("one for each action, at least [{}]", most + 1),
                found: format!("[{}]", counts.len()),
            });
        }
        let scale = |count: usize| (count.max(1) as f32).powf(-normalization);
        let of_rows = rows.contexts().map(|row| scale(rows.of(row).len())).collect();
        let of_actions = counts.iter().map(|count| scale(*count as usize)).collect();
        let columns = rows.transposed(counts.len());
        Ok(Self { rows, columns, scales: [of_rows, of_actions] })
    }

    fn sides(&self) -> [Side<'_>; 2] {
        let [rows, actions] = &self.scales;
        [Side::scaled(&self.columns, actions.clone()), Side::scaled(&self.rows, rows.clone())]
    }

    /// `A_pᵀ(A_p X)` for X `[P, width]`.
    ///
    /// # Errors
    /// [`Error::Shape`] for an X of other rows.
    pub fn times(&self, block: &Matrix) -> Result<Matrix> {
        if block.rows() != self.columns.len() {
            return Err(Error::Shape {
                what: "the block".into(),
                expected: format!("[{}, width]", self.columns.len()),
                found: format!("[{}, {}]", block.rows(), block.cols()),
            });
        }
        let [near, far] = self.sides();
        let mut product = Matrix::zeros(block.rows(), block.cols());
        Sides::new(&near, &far, block.cols()).times(block, &mut product)?;
        Ok(product)
    }

    /// The sum of the squared entries of these rows.
    #[must_use]
    pub fn energy(&self) -> f64 {
        let [near, far] = self.sides();
        far.energy(&near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedding::{Decomposition, Gram, SvdOptions, svd_of_products, truncated_svd};
    use crate::seed::{Purpose, Seed};

    /// The sum of the slices' products, in their order.
    struct Sum(Vec<Slice>);

    impl Gram for Sum {
        fn times(&mut self, block: &Matrix, out: &mut Matrix) -> Result<()> {
            out.as_mut_slice().fill(0.0);
            for slice in &self.0 {
                let product = slice.times(block)?;
                let sums = out.as_mut_slice().iter_mut().zip(product.as_slice());
                sums.for_each(|(sum, value)| *sum += value);
            }
            Ok(())
        }
    }

    #[test]
    fn slices_together_have_the_decomposition_of_the_whole() {
        // Four groups of users who like four groups of items, of unequal sizes.
        let (users, items) = (400_u32, 60_u32);
        let shape = [users as usize, items as usize];
        let mut stream = Seed(3).stream(Purpose::Synthetic, 0, 0);
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for user in 0..users {
            for item in 0..items {
                let same = user * user / 40_001 == item * item / 901;
                if stream.uniform() < if same { 0.5 } else { 0.02 } {
                    pairs.push((user, item));
                }
            }
        }
        let whole = ActionSets::from_pairs(shape[0], pairs.iter().copied());
        let counts: Vec<u32> = {
            let columns = whole.transposed(shape[1]);
            columns.contexts().map(|a| u32::try_from(columns.of(a).len()).unwrap()).collect()
        };
        let options = SvdOptions { latent_dim: 4, ..SvdOptions::default() };
        let expected = truncated_svd(&whole, shape[1], options, Seed(1)).unwrap();
        for count in [1, 3] {
            let of = |part| {
                let rows = users * part / count..users * (part + 1) / count;
                let own = pairs.iter().filter(|(user, _)| rows.contains(user));
                let own = own.map(|(user, item)| (user - rows.start, *item));
                let rows = ActionSets::from_pairs(rows.len(), own);
                Slice::new(rows, &counts, options.normalization).unwrap()
            };
            let slices: Vec<Slice> = (0..count).map(of).collect();
            let energy = slices.iter().map(Slice::energy).sum::<f64>();
            assert!((energy / expected.energy - 1.0).abs() < 1e-9);
            let Decomposition { v, singular_values, .. } =
                svd_of_products(&mut Sum(slices), shape, energy, options, Seed(1)).unwrap();
            for (found, expected) in singular_values.iter().zip(&expected.singular_values) {
                assert!((found / expected - 1.0).abs() < 1e-4, "{found} {expected}");
            }
            let off = v.as_slice().iter().zip(expected.v.as_slice()).map(|(a, b)| (a - b).abs());
            assert!(off.fold(0.0, f32::max) < 1e-2);
        }
    }
}
