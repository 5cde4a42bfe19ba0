//! Takes the SVD of the training interactions and returns a decomposition of what it and ALS say together.
//! The two err in different ways: on Last.fm both together earn more than either, at the same length or a
//! shorter one (`artifacts/quality`). With ω = 1 there is ALS alone.
//!
//! The SVD scores by `F Fᵀ`, `F = V f(s)` ([`Form`]). ALS ([`als`](super::als)) starts at the items
//! `V s^½`, from where two sweeps do for many from random numbers, with λ in proportion to what each
//! user and item did (`Penalty::BySize`: at 100 dimensions that is worth 3 % on Amazon CDs and 2 % on
//! Gowalla), and ends at items Z. The vector that it folds in for a user is linear in the user's items if the
//! matrix of the normal equations is the mean one of the U users; then it scores by `Z H⁻¹ Zᵀ`, up to a factor,
//!
//! ```text
//! H = ZᵀZ + α/U Σ_a n_a z_a z_aᵀ + λI
//! ```
//!
//! n_a being the users of action a. The blend is the leading part of both, each in units of its
//! Frobenius norm:
//!
//! ```text
//! (1 − ω) F Fᵀ/‖F Fᵀ‖ + ω Z H⁻¹ Zᵀ/‖Z H⁻¹ Zᵀ‖ ≈ V′ s′ V′ᵀ
//! ```
//!
//! so V′ s′^½, at p = ½, scores by it, and other powers weigh its dimensions otherwise. V′ is
//! nested: a shorter blend of the same parts is the first part of a longer one.

use faer::Mat;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dataset::ActionSets;
use crate::embedding::als::{padded, swept};
use crate::embedding::descent::Penalty;
use crate::embedding::fold_in::{gram, products};
use crate::embedding::orthonormal::{divide, times};
use crate::embedding::svd::{eigen, fix_signs};
use crate::embedding::{AlsOptions, Decomposition, Form, StoredEmbeddings, SvdOptions};
use crate::error::{Error, Result};
use crate::matrix::{Matrix, cholesky};

/// Sweeps of ALS that follow the SVD.
const SWEEPS: usize = 2;
/// The least eigenvalue that is not rounding, as a share of the largest.
const NEGLIGIBLE: f64 = 1e-7;

/// Options of the blend.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlendOptions {
    /// L of the blend, at most those of the SVD and of ALS together; of ALS alone, at most that of ALS.
    pub latent_dim: usize,
    /// The SVD.
    pub svd: SvdOptions,
    /// f(s); its κ has no effect.
    pub form: Form,
    /// L of ALS, at most that of the SVD.
    pub als_dim: usize,
    /// λ of ALS, more than 0.
    pub regularization: f64,
    /// α of ALS.
    pub confidence: f64,
    /// ω, the share of ALS, from 0 to 1. At 1 there is ALS alone, and the SVD is where it starts.
    pub share: f64,
}

impl BlendOptions {
    /// What is fitted of ALS.
    #[must_use]
    pub fn als(self) -> AlsOptions {
        let Self { als_dim: latent_dim, regularization, confidence, .. } = self;
        AlsOptions { latent_dim, iterations: SWEEPS, regularization, confidence }
    }

    /// With no more dimensions than `most` in any part.
    #[must_use]
    pub fn at_most(mut self, most: usize) -> Self {
        for dim in [&mut self.latent_dim, &mut self.svd.latent_dim, &mut self.als_dim] {
            *dim = (*dim).min(most);
        }
        self
    }
}

/// The blend of `svd`, which was made of `matrix` by the options' SVD, with ALS on `matrix`.
///
/// # Errors
/// [`Error::Setting`] for a length, a weight, a form or a share that cannot be, or without singular values;
/// [`Error::Library`] when a dense decomposition fails.
pub fn blend(
    svd: &StoredEmbeddings,
    matrix: &ActionSets,
    options: BlendOptions,
) -> Result<StoredEmbeddings> {
    let BlendOptions { latent_dim, form, als_dim, share, .. } = options;
    let refused =
        |key: &str, problem: String| Err(Error::setting(format!("embedding.{key}"), problem));
    let Some(spectrum) = &svd.spectrum else {
        return refused("svd", "has no singular values".into());
    };
    let length = svd.v.cols();
    if als_dim == 0 || als_dim > length {
        return refused("als_dim", format!("is {als_dim}, but must be from 1 to {length}"));
    }
    if !(0.0..=1.0).contains(&share) {
        return refused("share", format!("is {share}, but must be from 0 to 1"));
    }
    // ALS alone only starts at the SVD.
    let width = if share < 1.0 { length + als_dim } else { als_dim };
    if latent_dim == 0 || latent_dim > width {
        return refused("latent_dim", format!("is {latent_dim}, but must be from 1 to {width}"));
    }
    options.als().validate()?;
    form.validate()?;
    let roots: Vec<f32> = spectrum.values.iter().map(|s| s.sqrt()).collect();
    let items = scaled(&svd.v, &roots[..als_dim], padded(als_dim));
    let swept = swept(matrix, items, options.als(), Penalty::BySize)?;
    let other = linear(swept, matrix, options)?;

    if share >= 1.0 {
        return joined(&other, 0, options);
    }
    let weights = spectrum.weights(&form, length)?;
    let mut both = scaled(&svd.v, &weights, width);
    both.par_rows_mut().zip(other.par_rows()).for_each(|(row, other)| {
        row[length..].copy_from_slice(other);
    });
    joined(&both, length, options)
}

/// The first columns of `matrix`, as many as factors and multiplied with them, then zeros up to `width`.
fn scaled(matrix: &Matrix, factors: &[f32], width: usize) -> Matrix {
    let mut out = Matrix::zeros(matrix.rows(), width);
    out.par_rows_mut().zip(matrix.par_rows()).for_each(|(out, row)| {
        for ((out, value), factor) in out.iter_mut().zip(row).zip(factors) {
            *out = value * factor;
        }
    });
    out
}

/// `Z K⁻ᵀ`, where `K Kᵀ = H`: its products with itself are `Z H⁻¹ Zᵀ`.
fn linear(mut items: Matrix, matrix: &ActionSets, options: BlendOptions) -> Result<Matrix> {
    let popularity = matrix.popularity(matrix.contexts(), items.rows());
    #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of the factors")]
    let alpha = options.confidence as f32 / matrix.len().max(1) as f32;
    let mut weighted = items.clone();
    weighted.par_rows_mut().zip(&popularity).for_each(|(row, &count)| {
        let weight = 1.0 + alpha * count as f32;
        for value in row {
            *value *= weight;
        }
    });
    let mut normal = products(&items, &weighted);
    drop(weighted);
    (0..normal.nrows()).for_each(|at| normal[(at, at)] += options.regularization);
    let lower = cholesky(normal)?;
    #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of the factors")]
    let lower = Mat::from_fn(lower.nrows(), lower.ncols(), |i, j| lower[(i, j)] as f32);
    divide(&mut items, lower.as_ref());
    Ok(items)
}

/// V′ and s′ of the two parts that lie side by side in `both`, the first one `length` columns wide, which may
/// be 0.
#[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
fn joined(both: &Matrix, length: usize, options: BlendOptions) -> Result<StoredEmbeddings> {
    let BlendOptions { latent_dim, share, .. } = options;
    let width = both.cols();
    let mut gram = gram(both);
    let norm = |from: usize, to: usize| {
        let square = |i: usize, j: usize| if i == j { 1.0 } else { 2.0 } * gram[(i, j)].powi(2);
        (from..to)
            .flat_map(|i| (from..=i).map(move |j| (i, j)))
            .map(|(i, j)| square(i, j))
            .sum::<f64>()
    };
    let factor =
        |share: f64, norm: f64| if norm > 0.0 { (share / norm.sqrt()).sqrt() } else { 0.0 };
    let factors = [factor(1.0 - share, norm(0, length)), factor(share, norm(length, width))];
    let factor = |at: usize| factors[usize::from(at >= length)];
    for j in 0..width {
        (j..width).for_each(|i| gram[(i, j)] *= factor(i) * factor(j));
    }
    // The eigenvalues ascend.
    let (values, vectors) = eigen(gram.as_ref())?;
    let energy = values.iter().map(|value| value * value).sum();
    let largest = values.last().copied().unwrap_or(0.0);
    let values: Vec<f64> = values.into_iter().rev().take(latent_dim).collect();
    let own = |at: usize| largest > 0.0 && values[at] > NEGLIGIBLE * largest;
    let rotation = Mat::from_fn(width, latent_dim, |i, j| {
        let unit = if own(j) { values[j].sqrt().recip() } else { 0.0 };
        (factor(i) * vectors[(i, width - 1 - j)] * unit) as f32
    });
    let mut v = times(both, rotation.as_ref());
    fix_signs(&mut v);
    let value = |at: usize| if own(at) { values[at] as f32 } else { 0.0 };
    let singular_values = (0..values.len()).map(value).collect();
    Ok(Decomposition { v, singular_values, energy, rank: width }.into_stored())
}

#[cfg(test)]
mod tests {
    use faer::linalg::solvers::{FullPivLu, Solve as _};

    use super::*;
    use crate::embedding::tastes::{users_of, wide};
    use crate::embedding::{Power, truncated_svd};
    use crate::seed::Seed;

    const USERS: usize = 61;
    const ITEMS: usize = 40;

    /// Users of five tastes; one did nothing, and nobody wants the last items.
    fn tastes() -> ActionSets {
        users_of(5, 60, 7, 9)
    }

    fn options(share: f64) -> BlendOptions {
        BlendOptions {
            latent_dim: 14,
            svd: SvdOptions { latent_dim: 8, ..SvdOptions::default() },
            form: Form { power: Power::Zero, ridge: 0.5, popularity: 0.0 },
            als_dim: 6,
            regularization: 0.7,
            confidence: 3.0,
            share,
        }
    }

    fn svd(options: BlendOptions) -> StoredEmbeddings {
        truncated_svd(&tastes(), ITEMS, options.svd, Seed(1)).unwrap().into_stored()
    }

    /// The scores of all pairs of items, in units of their norm.
    fn scores(left: &Mat<f64>, right: &Mat<f64>) -> Mat<f64> {
        let scores = left * right.transpose();
        let norm = scores.norm_l2();
        scores * faer::Scale(norm.recip())
    }

    fn formed(stored: StoredEmbeddings, form: &Form) -> Mat<f64> {
        wide(stored.into_vectors(form, &[1; ITEMS]).unwrap().actions.beta())
    }

    #[test]
    fn a_blend_scores_by_both_parts_in_their_shares() {
        let (matrix, options) = (tastes(), options(0.3));
        let stored = svd(options);
        let roots: Vec<f32> = stored.spectrum.as_ref().unwrap().values[..6].to_vec();
        let mut start = Matrix::zeros(ITEMS, padded(6));
        for item in 0..ITEMS {
            for (at, root) in roots.iter().enumerate() {
                start.row_mut(item)[at] = stored.v.row(item)[at] * root.sqrt();
            }
        }
        let z = wide(&swept(&matrix, start, options.als(), Penalty::BySize).unwrap());
        let mut normal = Mat::<f64>::identity(6, 6) * faer::Scale(0.7);
        for item in 0..ITEMS {
            let users = (0..61).filter(|user| matrix.contains(*user, item.try_into().unwrap()));
            let weight = 1.0 + 3.0 * users.count() as f64 / USERS as f64;
            normal += z.row(item).transpose() * z.row(item) * faer::Scale(weight);
        }
        let of_als = FullPivLu::new(normal.as_ref()).solve(z.transpose()).transpose().to_owned();
        let f = formed(stored.clone(), &options.form);
        let both = [scores(&f, &f), scores(&z, &of_als)];
        // ALS alone has fewer dimensions, and only starts at the SVD.
        for (share, latent_dim) in [(0.3, 14), (1.0, 6)] {
            let options = BlendOptions { latent_dim, share, ..options };
            let expected = &both[0] * faer::Scale(1.0 - share) + &both[1] * faer::Scale(share);
            let half = formed(blend(&stored, &matrix, options).unwrap(), &Form::default());
            let error = &half * half.transpose() - &expected;
            assert!(error.norm_l2() < 1e-4 * expected.norm_l2());
        }
    }

    #[test]
    fn without_als_a_blend_scores_as_its_svd() {
        let options = BlendOptions { latent_dim: 8, ..options(0.0) };
        let found = formed(blend(&svd(options), &tastes(), options).unwrap(), &Form::default());
        let own = formed(svd(options), &options.form);
        let (found, own) = (scores(&found, &found), scores(&own, &own));
        assert!((found - own).norm_l2() < 1e-5);
    }

    #[test]
    fn a_shorter_blend_is_the_first_part_of_a_longer_one() {
        let longer = blend(&svd(options(0.5)), &tastes(), options(0.5)).unwrap();
        let options = BlendOptions { latent_dim: 5, ..options(0.5) };
        let shorter = blend(&svd(options), &tastes(), options).unwrap();
        assert_eq!(longer.resized(5).v, shorter.v);
        assert_eq!(longer.spectrum.unwrap().values[..5], shorter.spectrum.unwrap().values);
    }

    #[test]
    fn what_cannot_be_blended_is_refused() {
        let of = options(0.5);
        for (options, key) in [
            (BlendOptions { als_dim: 9, ..of }, "als_dim"),
            (BlendOptions { latent_dim: 15, ..of }, "latent_dim"),
            (BlendOptions { latent_dim: 7, share: 1.0, ..of }, "latent_dim"),
            (BlendOptions { share: 1.5, ..of }, "share"),
            (BlendOptions { regularization: 0.0, ..of }, "regularization"),
        ] {
            let error = blend(&svd(of), &tastes(), options).unwrap_err().to_string();
            assert!(error.contains(&format!("`embedding.{key}`")), "{error}");
        }
    }
}
