//! Fold-in takes the items of any user and returns the user vector of implicit-feedback ALS (Hu, Koren &
//! Volinsky, *Collaborative Filtering for Implicit Feedback Datasets*, 2008). It minimises, over x and
//! with β fixed,
//!
//! ```text
//! Σ_{a ∈ X} (1 + α) (1 − xᵀβ_a)² + Σ_{a ∉ X} (xᵀβ_a)² + λ‖x‖²
//! ```
//!
//! by solving `(βᵀβ + α Σ_{a ∈ X} β_a β_aᵀ + λI) x = (1 + α) Σ_{a ∈ X} β_a`. With a stored βᵀβ that
//! takes O(n L² + L³) for n items, whatever P.

use std::sync::Arc;

use faer::linalg::matmul::triangular::{BlockStructure, matmul};
use faer::{Accum, Mat, MatMut, MatRef, Par};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::{Matrix, solve};

/// λ and α.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoldInOptions {
    /// λ, the weight of `‖x‖²`; more than 0, in units of βᵀβ.
    pub regularization: f64,
    /// α: an item of the user weighs 1 + α, any other 1.
    pub confidence: f64,
}

impl FoldInOptions {
    /// # Errors
    /// [`Error::Setting`], named under `prefix`, unless λ > 0 and α ≥ 0.
    pub(super) fn validate(self, prefix: &str) -> Result<()> {
        let Self { regularization, confidence } = self;
        let refused = |name: &str, expected: &str, value: f64| {
            let problem = format!("is {value}, but must be {expected} (--{name})");
            Err(Error::setting(format!("{prefix}.{name}"), problem))
        };
        if !(regularization > 0.0 && regularization.is_finite()) {
            return refused("regularization", "more than 0", regularization);
        }
        if !(confidence >= 0.0 && confidence.is_finite()) {
            return refused("confidence", "at least 0", confidence);
        }
        Ok(())
    }
}

/// Computes the vectors of users from their items.
#[derive(Clone, Debug)]
pub struct FoldIn {
    actions: Arc<ActionEmbeddings>,
    /// βᵀβ `[L, L]`, its lower triangle.
    gram: Mat<f64>,
    options: FoldInOptions,
}

impl FoldIn {
    /// The fold-in over the embeddings of `actions`.
    ///
    /// # Errors
    /// [`Error::Setting`] unless λ > 0 and α ≥ 0.
    pub fn new(actions: Arc<ActionEmbeddings>, options: FoldInOptions) -> Result<Self> {
        options.validate("fold_in")?;
        let gram = gram(actions.beta());
        Ok(Self { actions, gram, options })
    }

    /// L.
    #[must_use]
    pub fn latent_dim(&self) -> usize {
        self.actions.latent_dim()
    }

    /// Writes the vector of a user with the distinct `items` below P into `out` `[L]`; 0 for no items.
    ///
    /// # Panics
    /// When `out` is not L numbers long or an item is not below P.
    pub fn encode(&self, items: &[u32], out: &mut [f32]) {
        assert_eq!(out.len(), self.actions.latent_dim(), "a user's vector has L numbers");
        out.fill(0.0);
        if items.is_empty() {
            return;
        }
        let FoldInOptions { regularization, confidence } = self.options;
        let dim = out.len();
        let own: Vec<f64> = items
            .iter()
            .flat_map(|&at| self.actions.row(at).iter().map(|value| f64::from(*value)))
            .collect();
        let mut normal = self.gram.clone();
        let own = MatRef::from_row_major_slice(&own, items.len(), dim);
        add_products(normal.as_mut(), own, own, confidence);
        let trace: f64 = (0..dim).map(|i| normal[(i, i)]).sum();
        // A λ below the rounding of the other terms would leave a singular matrix singular.
        let ridge = regularization.max(1e-13 * trace);
        let mut x = Mat::zeros(dim, 1);
        for i in 0..dim {
            normal[(i, i)] += ridge;
            x[(i, 0)] = (1.0 + confidence) * own.col(i).iter().sum::<f64>();
        }
        let solved = solve(normal, x.as_mut());
        debug_assert!(solved.is_ok(), "a ridge above rounding makes a matrix positive definite");
        if solved.is_ok() {
            #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of contexts")]
            out.iter_mut().enumerate().for_each(|(i, out)| *out = x[(i, 0)] as f32);
        }
    }
}

/// The most parts of the sum: enough for the threads to share, few enough to fit in memory.
const PARTS: usize = 16;
/// Rows that fit into a core's second-level cache as f64.
const PIECE: usize = 512;

/// The lower triangle of `FᵀF` `[L, L]`; its parts and the order of their sum do not depend on the
/// number of threads.
pub(super) fn gram(factors: &Matrix) -> Mat<f64> {
    products(factors, factors)
}

/// The lower triangle of `XᵀY` `[L, L]`, of matrices of one shape, summed as [`gram`] is.
pub(super) fn products(x: &Matrix, y: &Matrix) -> Mat<f64> {
    let dim = x.cols();
    let rows = x.rows().div_ceil(PARTS).max(PIECE);
    let parts = x.as_slice().par_chunks(rows * dim).zip(y.as_slice().par_chunks(rows * dim));
    let parts = parts.map(|(x, y)| {
        let mut sum = Mat::zeros(dim, dim);
        let mut wide = [(); 2].map(|()| Vec::with_capacity(PIECE * dim));
        for (x, y) in x.chunks(PIECE * dim).zip(y.chunks(PIECE * dim)) {
            for (wide, numbers) in wide.iter_mut().zip([x, y]) {
                wide.clear();
                wide.extend(numbers.iter().map(|value| f64::from(*value)));
            }
            let [x, y] =
                [0, 1].map(|at| MatRef::from_row_major_slice(&wide[at], x.len() / dim, dim));
            add_products(sum.as_mut(), x, y, 1.0);
        }
        sum
    });
    let parts: Vec<Mat<f64>> = parts.collect();
    let sum = |mut sum: Mat<f64>, part: Mat<f64>| {
        sum += part;
        sum
    };
    parts.into_iter().reduce(sum).unwrap_or_else(|| Mat::zeros(dim, dim))
}

/// Adds `scale · XᵀY` to the lower triangle of `sum`.
fn add_products(sum: MatMut<'_, f64>, x: MatRef<'_, f64>, y: MatRef<'_, f64>, scale: f64) {
    let (lower, whole) = (BlockStructure::TriangularLower, BlockStructure::Rectangular);
    matmul(sum, lower, Accum::Add, x.transpose(), whole, y, whole, scale, Par::Seq);
}

#[cfg(test)]
mod tests {
    use faer::linalg::solvers::{FullPivLu, Solve as _};

    use super::*;
    use crate::seed::{Purpose, Seed};

    const L: usize = 12;

    fn actions(rows: usize) -> Arc<ActionEmbeddings> {
        let mut beta = Matrix::zeros(rows, L);
        Seed(1).stream(Purpose::Synthetic, 0, 0).fill_normals(beta.as_mut_slice());
        Arc::new(ActionEmbeddings::new(beta).unwrap())
    }

    fn options(regularization: f64, confidence: f64) -> FoldInOptions {
        FoldInOptions { regularization, confidence }
    }

    /// The definition written out: every action has its own weight and target.
    fn dense(actions: &ActionEmbeddings, items: &[u32], options: FoldInOptions) -> Mat<f64> {
        let rows = actions.num_actions();
        let mine = |i: usize| items.contains(&u32::try_from(i).unwrap());
        let beta = Mat::from_fn(rows, L, |i, j| f64::from(actions.beta().row(i)[j]));
        let weight = |i| if mine(i) { 1.0 + options.confidence } else { 1.0 };
        let weighted = Mat::from_fn(rows, L, |i, j| weight(i) * beta[(i, j)]);
        let target = Mat::from_fn(rows, 1, |i, _| f64::from(u8::from(mine(i))));
        let ridge = Mat::<f64>::identity(L, L) * faer::Scale(options.regularization);
        let normal = weighted.transpose() * &beta + ridge;
        FullPivLu::new(normal.as_ref()).solve(weighted.transpose() * target)
    }

    #[test]
    fn a_user_is_the_dense_weighted_ridge_regression() {
        // A Gram matrix of one part, of several pieces, of several parts.
        for rows in [40, 600, 40_000] {
            let actions = actions(rows);
            for options in [options(0.1, 0.0), options(5.0, 40.0), options(1e-6, 1.0)] {
                let fold_in = FoldIn::new(Arc::clone(&actions), options).unwrap();
                for items in [&[3][..], &[0, 7, 39], &(0..30).collect::<Vec<u32>>()] {
                    let mut user = [f32::NAN; L];
                    fold_in.encode(items, &mut user);
                    let expected = dense(&actions, items, options);
                    let scale = expected.norm_l2();
                    for (j, value) in user.iter().enumerate() {
                        let error = (f64::from(*value) - expected[(j, 0)]).abs();
                        assert!(error < 1e-6 * scale, "{rows} rows, {options:?}, {items:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn who_did_nothing_is_zero_and_what_says_nothing_moves_nobody() {
        let fold_in = FoldIn::new(actions(40), options(0.1, 1.0)).unwrap();
        let mut user = [f32::NAN; L];
        fold_in.encode(&[], &mut user);
        assert_eq!(user, [0.0; L]);
        // λ far below the rounding of a singular βᵀβ.
        let beta = Matrix::new([1e10, 0.0, 0.0, 0.0].repeat(6), 4).unwrap();
        let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
        let fold_in = FoldIn::new(actions, options(1e-300, 1.0)).unwrap();
        let mut user = [f32::NAN; 4];
        fold_in.encode(&[2], &mut user);
        assert!((user[0] / (2.0 / 7.0 * 1e-10) - 1.0).abs() < 1e-5, "{user:?}");
        assert_eq!(user[1..], [0.0; 3]);
    }

    #[test]
    fn impossible_weights_are_refused() {
        for (options, said) in [
            (options(0.0, 1.0), "regularization"),
            (options(f64::NAN, 1.0), "regularization"),
            (options(1.0, -0.5), "confidence"),
            (options(1.0, f64::INFINITY), "confidence"),
        ] {
            let error = FoldIn::new(actions(5), options).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
