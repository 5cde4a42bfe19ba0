//! Implicit-feedback alternating least squares (Hu, Koren & Volinsky, *Collaborative Filtering for
//! Implicit Feedback Datasets*, 2008) takes the binary training matrix A and returns item vectors β
//! that minimise, together with user vectors x,
//!
//! ```text
//! Σ_{u,a} c_{ua} (A_ua − x_uᵀβ_a)² + λ (Σ_u ‖x_u‖² + Σ_a ‖β_a‖²),   c_ua = 1 + α A_ua
//! ```
//!
//! A sweep solves for all users with the items fixed, then the other way around, by three steps of
//! conjugate gradients from where the last sweep ended (Takács, Pilászy & Tikk, *Applications of the
//! Conjugate Gradient Method for Implicit Feedback Collaborative Filtering*, 2011): O(nnz L + (U + P)
//! L²). Every step lowers the objective. One thread solves a block of rows, and blocks do not depend on
//! the number of threads, so neither does the result.
//!
//! In the Python library `implicit`, `alpha` is our 1 + α; `factors`, `regularization` and
//! `iterations` mean the same.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dataset::ActionSets;
use crate::embedding::StoredEmbeddings;
use crate::embedding::descent::{LANES, Penalty, improve};
use crate::embedding::fold_in::FoldInOptions;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::matrix::Matrix;
use crate::seed::{Purpose, Seed};

/// Options of the factorisation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlsOptions {
    /// L.
    pub latent_dim: usize,
    /// Sweeps over users and items.
    pub iterations: usize,
    /// λ, more than 0.
    pub regularization: f64,
    /// α: an interaction weighs 1 + α, a missing one 1.
    pub confidence: f64,
}

impl Default for AlsOptions {
    fn default() -> Self {
        Self { latent_dim: 100, iterations: 15, regularization: 1.0, confidence: 10.0 }
    }
}

impl AlsOptions {
    /// The options of the fold-in that gives a user the vector of this factorisation.
    #[must_use]
    pub fn fold_in(self) -> FoldInOptions {
        FoldInOptions { regularization: self.regularization, confidence: self.confidence }
    }

    /// # Errors
    /// The errors of [`implicit_als`].
    pub(super) fn validate(self) -> Result<()> {
        for (name, flag, value) in [
            ("latent_dim", "--latent-dim", self.latent_dim),
            ("iterations", "--iterations", self.iterations),
        ] {
            if value == 0 {
                let problem = format!("is 0, but must be at least 1 ({flag})");
                return Err(Error::setting(format!("embedding.{name}"), problem));
            }
        }
        self.fold_in().validate("embedding")
    }
}

/// The item vectors β `[P, L]` of `matrix`, whose actions are below `num_actions`; 0 for an action
/// without interactions.
///
/// # Errors
/// [`Error::Setting`] unless L and the number of sweeps are at least 1, λ > 0 and α ≥ 0.
pub fn implicit_als(
    matrix: &ActionSets,
    num_actions: usize,
    options: AlsOptions,
    seed: Seed,
) -> Result<StoredEmbeddings> {
    options.validate()?;
    let start = small(num_actions, options.latent_dim, seed);
    Ok(swept(matrix, start, options, Penalty::Same)?.into())
}

/// The item vectors `[P, L]` after the sweeps of `options`, which begin at `items`, whose rows are
/// [`padded`].
pub(super) fn swept(
    matrix: &ActionSets,
    items: Matrix,
    options: AlsOptions,
    penalty: Penalty,
) -> Result<Matrix> {
    let mut factors = Factors::new(matrix, items, options, penalty);
    for _ in 0..options.iterations {
        interrupt::check()?;
        factors.sweep();
    }
    narrow(factors.items, options.latent_dim)
}

/// Small random numbers for the items, in whole registers.
fn small(num_actions: usize, latent_dim: usize, seed: Seed) -> Matrix {
    let mut items = Matrix::zeros(num_actions, padded(latent_dim));
    let scale = 0.1 / (latent_dim as f32).sqrt();
    items.par_rows_mut().enumerate().for_each(|(position, row)| {
        let row = &mut row[..latent_dim];
        seed.stream(Purpose::Factors, 0, position as u64).fill_normals(row);
        for value in row {
            *value *= scale;
        }
    });
    items
}

/// The columns of a matrix whose rows are whole registers.
pub(super) fn padded(latent_dim: usize) -> usize {
    latent_dim.next_multiple_of(LANES)
}

struct Factors<'a> {
    by_user: &'a ActionSets,
    by_item: ActionSets,
    users: Matrix,
    items: Matrix,
    options: FoldInOptions,
    penalty: Penalty,
}

impl<'a> Factors<'a> {
    /// Starts at these items, in whole registers; the first sweep begins with the users.
    fn new(matrix: &'a ActionSets, items: Matrix, options: AlsOptions, penalty: Penalty) -> Self {
        Self {
            by_user: matrix,
            by_item: matrix.transposed(items.rows()),
            users: Matrix::zeros(matrix.len(), items.cols()),
            items,
            options: options.fold_in(),
            penalty,
        }
    }

    fn sweep(&mut self) {
        self.improve_users();
        self.improve_items();
    }

    fn improve_users(&mut self) {
        improve(self.by_user, &mut self.users, &self.items, self.options, self.penalty);
    }

    fn improve_items(&mut self) {
        improve(&self.by_item, &mut self.items, &self.users, self.options, self.penalty);
    }
}

/// The first `width` columns of `matrix`, without a second copy.
fn narrow(matrix: Matrix, width: usize) -> Result<Matrix> {
    let (rows, padded) = (matrix.rows(), matrix.cols());
    let mut numbers = matrix.into_vec();
    for row in 1..rows {
        numbers.copy_within(row * padded..row * padded + width, row * width);
    }
    numbers.truncate(rows * width);
    Matrix::new(numbers, width)
}

#[cfg(test)]
mod tests {
    use faer::Mat;
    use faer::linalg::solvers::{FullPivLu, Solve as _};

    use super::*;
    use crate::embedding::descent::STEPS;
    use crate::embedding::tastes::{assert_same_on_any_threads, users_of, wide};

    const USERS: usize = 70;
    const ITEMS: usize = 50;

    /// Users of five tastes; one did nothing, and nobody wants the last items.
    fn tastes() -> ActionSets {
        users_of(5, 69, 9, 9)
    }

    fn options(latent_dim: usize) -> AlsOptions {
        AlsOptions { latent_dim, iterations: 4, regularization: 0.7, confidence: 6.0 }
    }

    fn weight(matrix: &ActionSets, user: usize, item: usize) -> (f64, f64) {
        let did = matrix.contains(user.try_into().unwrap(), item.try_into().unwrap());
        if did { (7.0, 1.0) } else { (1.0, 0.0) }
    }

    /// What λ is multiplied with for each of these sets.
    fn scales(sets: &ActionSets, rows: usize, penalty: Penalty) -> Vec<f64> {
        let sizes: Vec<f64> =
            (0..rows).map(|row| sets.of(row.try_into().unwrap()).len() as f64).collect();
        let used = sizes.iter().filter(|size| **size > 0.0).count() as f64;
        let mean = sizes.iter().sum::<f64>() / used;
        let scale = |size: &f64| if penalty == Penalty::Same { 1.0 } else { size / mean };
        sizes.iter().map(scale).collect()
    }

    /// Every user's and item's normal equations, written out.
    fn dense_sweep(matrix: &ActionSets, items: &mut Mat<f64>, penalty: Penalty) -> Mat<f64> {
        let of_users = scales(matrix, USERS, penalty);
        let of_items = scales(&matrix.transposed(ITEMS), ITEMS, penalty);
        let solve = |far: &Mat<f64>, scale: f64, weight: &dyn Fn(usize) -> (f64, f64)| {
            // Where the set is empty, 0 is the solution for any λ.
            let scale = if scale > 0.0 { scale } else { 1.0 };
            let identity = Mat::<f64>::identity(far.ncols(), far.ncols());
            let mut normal = identity * faer::Scale(0.7 * scale);
            let mut right = Mat::zeros(far.ncols(), 1);
            for i in 0..far.nrows() {
                let (confidence, preference) = weight(i);
                normal += far.row(i).transpose() * far.row(i) * faer::Scale(confidence);
                right += far.row(i).transpose().as_mat() * faer::Scale(confidence * preference);
            }
            FullPivLu::new(normal.as_ref()).solve(right)
        };
        let dim = items.ncols();
        let mut users = Mat::zeros(USERS, dim);
        for user in 0..USERS {
            let x = solve(items, of_users[user], &|item| weight(matrix, user, item));
            (0..dim).for_each(|j| users[(user, j)] = x[(j, 0)]);
        }
        for item in 0..ITEMS {
            let x = solve(&users, of_items[item], &|user| weight(matrix, user, item));
            (0..dim).for_each(|j| items[(item, j)] = x[(j, 0)]);
        }
        users
    }

    fn objective(matrix: &ActionSets, users: &Mat<f64>, items: &Mat<f64>) -> f64 {
        let scores = users * items.transpose();
        let mut sum = 0.7 * (users.squared_norm_l2() + items.squared_norm_l2());
        for user in 0..USERS {
            for item in 0..ITEMS {
                let (confidence, preference) = weight(matrix, user, item);
                sum += confidence * (preference - scores[(user, item)]).powi(2);
            }
        }
        sum
    }

    #[test]
    fn in_as_many_dimensions_as_steps_it_is_the_dense_solution() {
        let (matrix, start) = (tastes(), || small(ITEMS, STEPS, Seed(1)));
        let swept_as = |penalty| {
            let mut factors = Factors::new(&matrix, start(), options(STEPS), penalty);
            let mut items = wide(&factors.items).subcols(0, STEPS).to_owned();
            for _ in 0..4 {
                factors.sweep();
                let users = dense_sweep(&matrix, &mut items, penalty);
                for (found, expected) in [(&factors.users, &users), (&factors.items, &items)] {
                    let error = wide(found).subcols(0, STEPS) - expected;
                    assert!(error.norm_max() < 1e-4 * expected.norm_max());
                }
            }
            factors
        };
        swept_as(Penalty::BySize);
        let factors = swept_as(Penalty::Same);
        let found = implicit_als(&matrix, ITEMS, options(STEPS), Seed(1)).unwrap();
        assert_eq!(found.v.as_slice(), narrow(factors.items, STEPS).unwrap().as_slice());
        assert_eq!(found.v.row(ITEMS - 1), [0.0; STEPS]);
    }

    #[test]
    fn every_half_sweep_lowers_the_objective_towards_that_of_exact_solutions() {
        let matrix = tastes();
        let start = small(ITEMS, 12, Seed(1));
        let mut factors = Factors::new(&matrix, start, options(12), Penalty::Same);
        let mut items = wide(&factors.items);
        let mut last = f64::INFINITY;
        let mut lowers = |factors: &Factors<'_>| {
            let now = objective(&matrix, &wide(&factors.users), &wide(&factors.items));
            assert!(now <= last * (1.0 + 1e-6), "{now} after {last}");
            last = now;
        };
        let mut users = Mat::zeros(USERS, items.ncols());
        for _ in 0..20 {
            factors.improve_users();
            lowers(&factors);
            factors.improve_items();
            lowers(&factors);
            users = dense_sweep(&matrix, &mut items, Penalty::Same);
        }
        let exact = objective(&matrix, &users, &items);
        assert!((last / exact - 1.0).abs() < 0.01, "{last}, and exactly {exact}");
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers_on_any_number_of_threads() {
        let matrix = users_of(10, 3000, 250, 20);
        assert_same_on_any_threads(|| implicit_als(&matrix, 2500, options(12), Seed(5)).unwrap());
    }

    #[test]
    fn impossible_options_name_the_flag() {
        for (options, flag) in [
            (AlsOptions { latent_dim: 0, ..options(3) }, "--latent-dim"),
            (AlsOptions { iterations: 0, ..options(3) }, "--iterations"),
            (AlsOptions { regularization: 0.0, ..options(3) }, "--regularization"),
            (AlsOptions { confidence: -1.0, ..options(3) }, "--confidence"),
        ] {
            let error = implicit_als(&tastes(), ITEMS, options, Seed(1)).unwrap_err().to_string();
            assert!(error.contains("`embedding.") && error.contains(flag), "{error}");
        }
    }
}
