//! A ridge regression from observed actions to the latent space: `M(X) = Σ_{a∈X} w_a`, where W `[P, L]`
//! is the least squares solution `min ‖X W − T‖² + λ ‖W‖²` for given latent vectors T of the training
//! contexts.
//!
//! P and U may be millions, so the normal equations `(XᵀX + λ) W = Xᵀ T` are never formed: conjugate
//! gradients use X in products only, `O(nnz · L)` each, all L columns at once.

use faer::linalg::matmul::matmul;
use faer::linalg::solvers::Solve as _;
use faer::{Accum, Mat, MatMut, Par, Side};
use rayon::prelude::*;

use super::{ContextEncoder, Known};
use crate::dataset::ActionSets;
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// The most steps of conjugate gradients.
const STEPS: usize = 50;
/// They end when every column's residual is at most this share of its right side.
const TOLERANCE: f64 = 1e-4;

/// The sum of the rows of W over X.
#[derive(Clone, Debug)]
pub struct Ridge {
    weights: Matrix, // [P, L]
}

impl Ridge {
    /// The encoder with these W `[P, L]`.
    #[must_use]
    pub fn new(weights: Matrix) -> Self {
        Self { weights }
    }

    /// W.
    #[must_use]
    pub fn into_weights(self) -> Matrix {
        self.weights
    }

    /// Fits W to `targets` T `[U, L]`, the latent vectors of the contexts in `observed`, whose actions
    /// are below `num_actions`. The result does not depend on the number of threads.
    ///
    /// # Errors
    /// [`Error::Setting`] unless λ is positive.
    pub fn fit(
        observed: &ActionSets,
        num_actions: usize,
        targets: &Matrix,
        lambda: f32,
    ) -> Result<Self> {
        if !(lambda > 0.0 && lambda.is_finite()) {
            let problem = format!("expected more than 0, found {lambda}");
            return Err(Error::setting("context.ridge", problem));
        }
        let width = targets.cols();
        let transposed = observed.transposed(num_actions);
        let right = transposed.times(targets.as_slice(), width); // XᵀT
        let image = |block: &[f32]| {
            let mut image = transposed.times(&observed.times(block, width), width);
            image.par_iter_mut().zip(block).for_each(|(sum, value)| *sum += lambda * value);
            image
        };
        // The diagonal of XᵀX + λ: popular actions have much larger rows than the others.
        let diagonal: Vec<f32> = transposed
            .contexts()
            .map(|action| transposed.of(action).len() as f32 + lambda)
            .collect();
        Ok(Self {
            weights: Matrix::new(conjugate_gradients(image, &diagonal, right, width), width)?,
        })
    }
}

impl ContextEncoder for Ridge {
    fn dim(&self) -> usize {
        self.weights.cols()
    }

    fn encode(&self, known: Known<'_>, context: &mut [f32]) {
        context.fill(0.0);
        for &action in known.actions {
            let row = self.weights.row(action as usize);
            context.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
    }
}

/// The latent vectors T `[U, L]` whose scores are nearest to `sets`, `min ‖T βᵀ − Y‖²`:
/// `Y β (βᵀβ + ε)⁻¹`, with an ε so small that it matters only where β has fewer than L dimensions.
///
/// # Errors
/// [`Error::Library`] when βᵀβ cannot be factored.
pub fn least_squares(sets: &ActionSets, actions: &ActionEmbeddings) -> Result<Matrix> {
    let (beta, dim) = (actions.beta(), actions.latent_dim());
    let view = beta.view(0, beta.rows());
    let mut gram = Mat::<f32>::zeros(dim, dim);
    matmul(&mut gram, Accum::Replace, view.transpose(), view, 1.0, Par::Seq);
    let trace: f32 = (0..dim).map(|i| gram[(i, i)]).sum();
    (0..dim).for_each(|i| gram[(i, i)] += 1e-6 * trace.max(f32::MIN_POSITIVE));
    let factor = gram
        .llt(Side::Lower)
        .map_err(|error| Error::library("the least squares of embeddings", format!("{error:?}")))?;
    let mut targets = sets.times(beta.as_slice(), dim);
    let columns = MatMut::from_column_major_slice_mut(&mut targets, dim, sets.len());
    factor.solve_in_place(columns);
    Matrix::new(targets, dim)
}

/// Solves `A x = right` for each of `width` columns, A symmetric and positive, preconditioned by its
/// `diagonal`, one number a row.
fn conjugate_gradients(
    image: impl Fn(&[f32]) -> Vec<f32>,
    diagonal: &[f32],
    right: Vec<f32>,
    width: usize,
) -> Vec<f32> {
    let scaled = |residual: &[f32]| -> Vec<f32> {
        let mut scaled = residual.to_vec();
        let rows = scaled.par_chunks_exact_mut(width).zip(diagonal);
        rows.for_each(|(row, diagonal)| row.iter_mut().for_each(|value| *value /= diagonal));
        scaled
    };
    let ends: Vec<f64> =
        dots(&right, &right, width).iter().map(|square| TOLERANCE.powi(2) * square).collect();
    let mut solution = vec![0.0; right.len()];
    let mut residual = right;
    let mut preconditioned = scaled(&residual);
    let mut direction = preconditioned.clone();
    let mut energy = dots(&residual, &preconditioned, width);
    for _ in 0..STEPS {
        let moved = image(&direction);
        // A solved column stays: its direction is 0, and 0 / 0 is taken as no step.
        let steps = ratios(&energy, &dots(&direction, &moved, width));
        add(&mut solution, &steps, &direction);
        let back: Vec<f32> = steps.iter().map(|step| -step).collect();
        add(&mut residual, &back, &moved);
        let left = dots(&residual, &residual, width);
        if left.iter().zip(&ends).all(|(left, end)| left <= end) {
            break;
        }
        preconditioned = scaled(&residual);
        let next = dots(&residual, &preconditioned, width);
        let keep = ratios(&next, &energy);
        direction.par_chunks_exact_mut(width).zip(preconditioned.par_chunks_exact(width)).for_each(
            |(direction, new)| {
                for ((value, new), keep) in direction.iter_mut().zip(new).zip(&keep) {
                    *value = new + keep * *value;
                }
            },
        );
        energy = next;
    }
    solution
}

#[allow(clippy::cast_possible_truncation, reason = "steps of an f32 solution")]
fn ratios(over: &[f64], under: &[f64]) -> Vec<f32> {
    let ratio =
        |(over, under): (&f64, &f64)| if *under > 0.0 { (over / under) as f32 } else { 0.0 };
    over.iter().zip(under).map(ratio).collect()
}

/// Adds `weights` times the columns of `from`.
fn add(to: &mut [f32], weights: &[f32], from: &[f32]) {
    let width = weights.len();
    let rows = to.par_chunks_exact_mut(width).zip(from.par_chunks_exact(width));
    rows.for_each(|(to, from)| {
        for ((to, from), weight) in to.iter_mut().zip(from).zip(weights) {
            *to += weight * from;
        }
    });
}

/// Rows whose products one thread sums; it fixes the order of the sum.
const ROWS: usize = 4096;

/// `xᵀy` of each column.
fn dots(x: &[f32], y: &[f32], width: usize) -> Vec<f64> {
    let parts: Vec<Vec<f64>> = x
        .par_chunks(ROWS * width)
        .zip(y.par_chunks(ROWS * width))
        .map(|(x, y)| {
            let mut sums = vec![0.0; width];
            for (x, y) in x.chunks_exact(width).zip(y.chunks_exact(width)) {
                for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
                    *sum += f64::from(*x) * f64::from(*y);
                }
            }
            sums
        })
        .collect();
    let mut sums = vec![0.0; width];
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    sums
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::matrix::dot;
    use crate::seed::{Purpose, Seed};

    const ACTIONS: usize = 40;

    fn problem() -> (ActionSets, Matrix) {
        let mut stream = Seed(2).stream(Purpose::Synthetic, 0, 0);
        let pairs: Vec<(u32, u32)> = (0..900)
            .map(|_| (stream.below(120), stream.below(40) * stream.below(40) / 40))
            .collect();
        let mut targets = Matrix::zeros(120, 3);
        stream.fill_normals(targets.as_mut_slice());
        (ActionSets::from_pairs(120, pairs.iter().copied()), targets)
    }

    #[test]
    fn the_weights_solve_the_normal_equations() {
        let (observed, targets) = problem();
        let found = Ridge::fit(&observed, ACTIONS, &targets, 0.7).unwrap();
        let x = Mat::<f64>::from_fn(120, ACTIONS, |context, action| {
            let (context, action) =
                (u32::try_from(context).unwrap(), u32::try_from(action).unwrap());
            f64::from(u8::from(observed.contains(context, action)))
        });
        let t = Mat::<f64>::from_fn(120, 3, |i, j| f64::from(targets.row(i)[j]));
        let mut normal = x.transpose() * &x;
        for i in 0..ACTIONS {
            normal[(i, i)] += f64::from(0.7_f32);
        }
        let expected = normal.partial_piv_lu().solve(x.transpose() * t);
        for action in 0..ACTIONS {
            for (column, value) in found.weights.row(action).iter().enumerate() {
                let expected = expected[(action, column)];
                assert!((f64::from(*value) - expected).abs() < 2e-3, "{value} {expected}");
            }
        }
    }

    #[test]
    fn targets_have_the_scores_nearest_to_the_sets() {
        let (observed, _) = problem();
        let mut beta = Matrix::zeros(ACTIONS, 3);
        Seed(4).stream(Purpose::Synthetic, 0, 0).fill_normals(beta.as_mut_slice());
        let actions = ActionEmbeddings::new(beta).unwrap();
        let targets = least_squares(&observed, &actions).unwrap();
        for context in [0, 7, 119] {
            // The residual of a least squares solution is orthogonal to β.
            for column in 0..3 {
                let along: f32 = (0_u32..40)
                    .map(|action| {
                        let score = dot(targets.row(context as usize), actions.row(action));
                        let wanted = f32::from(u8::from(observed.contains(context, action)));
                        (wanted - score) * actions.row(action)[column]
                    })
                    .sum();
                assert!(along.abs() < 1e-3, "{along}");
            }
        }
    }

    #[test]
    fn a_context_is_the_sum_of_its_weights() {
        let weights = Matrix::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 9.0], 2).unwrap();
        let mut context = vec![f32::NAN; 2];
        Ridge::new(weights).encode(Known { actions: &[0, 2], ..Known::default() }, &mut context);
        assert_eq!(context, [6.0, 11.0]);
    }

    #[test]
    fn the_fit_is_the_same_on_any_number_of_threads() {
        let (observed, targets) = problem();
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Ridge::fit(&observed, ACTIONS, &targets, 0.1).unwrap().weights)
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn a_ridge_is_positive() {
        let (observed, targets) = problem();
        let error = Ridge::fit(&observed, ACTIONS, &targets, 0.0).unwrap_err().to_string();
        assert!(error.contains("context.ridge"), "{error}");
    }
}
