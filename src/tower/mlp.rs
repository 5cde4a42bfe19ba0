//! The paper's deep policy takes M and returns `h = sigmoid(M θ₁) θ₂` (appendix "deep policies").

use burn::module::{Module, Param};
use burn::tensor::activation::sigmoid;
use burn::tensor::{Device, Tensor};
use faer::{Mat, Side};

use super::to_device;
use crate::error::{Error, Result};
use crate::matrix::{Matrix, dot};

/// `h = sigmoid(M θ₁) θ₂`, θ₁ `[D, H]`, θ₂ `[H, L]`.
#[derive(Module, Debug)]
pub struct SigmoidMlp {
    /// θ₁ `[D, H]`.
    pub theta_1: Param<Tensor<2>>,
    /// θ₂ `[H, L]`.
    pub theta_2: Param<Tensor<2>>,
}

impl SigmoidMlp {
    /// A tower that starts at `theta_1` `[D, H]`, `theta_2` `[H, L]`.
    #[must_use]
    pub fn new(theta_1: &Matrix, theta_2: &Matrix, device: &Device) -> Self {
        Self {
            theta_1: Param::from_tensor(to_device(theta_1, device)),
            theta_2: Param::from_tensor(to_device(theta_2, device)),
        }
    }

    /// `[B, D]` → `[B, L]`.
    #[must_use]
    pub fn forward(&self, contexts: Tensor<2>) -> Tensor<2> {
        sigmoid(contexts.matmul(self.theta_1.val())).matmul(self.theta_2.val())
    }
}

/// The largest pre-activation (99th percentile of |M θ₁|) of the identity start: there the
/// sigmoid departs from `½ + z/4` by under 2 %.
const LINEAR_RANGE: f32 = 0.5;

/// A start with the decision of θ = I.
///
/// Near zero `sigmoid(z) ≈ ½ + z/4`, so `θ₁ = εQ`, Q orthogonal, and `θ₂ = (4/ε)(I − 11ᵀ/L)Qᵀ` project
/// the constant ½ away and give `h ≈ M (I − uuᵀ)` for `u = Q1/√L`. Q makes u the direction in which
/// the contexts have the least energy, and ε keeps the pre-activations in the linear range.
pub(super) fn identity(contexts: &Matrix, latent_dim: usize) -> Result<(Matrix, Matrix)> {
    let l = latent_dim;
    let q = reflection(&least_energy_direction(contexts, l)?);
    let mut spread: Vec<f32> = contexts
        .iter_rows()
        .flat_map(|context| q.iter_rows().map(|column| dot(&context[..l], column).abs()))
        .collect();
    let at = spread.len().saturating_sub(1) * 99 / 100;
    let percentile =
        if spread.is_empty() { 0.0 } else { *spread.select_nth_unstable_by(at, f32::total_cmp).1 };
    let epsilon = if percentile > 0.0 { LINEAR_RANGE / percentile } else { 1.0 };

    let mut theta_1 = Matrix::zeros(contexts.cols(), l);
    let mut theta_2 = Matrix::zeros(l, l);
    for i in 0..l {
        // Q is symmetric, so rows serve as columns; the mean over the hidden units goes.
        let mean: f32 = q.row(i).iter().sum::<f32>() / l as f32;
        for j in 0..l {
            theta_1.row_mut(i)[j] = epsilon * q.row(i)[j];
            theta_2.row_mut(j)[i] = 4.0 / epsilon * (q.row(i)[j] - mean);
        }
    }
    Ok((theta_1, theta_2))
}

/// The unit vector `[L]` along which the contexts have the least energy.
fn least_energy_direction(contexts: &Matrix, l: usize) -> Result<Vec<f32>> {
    let mut energy = Mat::<f64>::zeros(l, l);
    for context in contexts.iter_rows() {
        for i in 0..l {
            for j in 0..=i {
                energy[(i, j)] += f64::from(context[i]) * f64::from(context[j]);
            }
        }
    }
    let eigen = energy.self_adjoint_eigen(Side::Lower).map_err(|error| {
        Error::library("the contexts' least-energy direction", format!("{error:?}"))
    })?;
    // Eigenvalues come in ascending order.
    #[allow(clippy::cast_possible_truncation, reason = "parameters are f32")]
    Ok((0..l).map(|i| eigen.U()[(i, 0)] as f32).collect())
}

/// The symmetric orthogonal Q `[L, L]` (a Householder reflection) with `Q 1/√L = u`.
fn reflection(u: &[f32]) -> Matrix {
    let l = u.len();
    let uniform = 1.0 / (l as f32).sqrt();
    let w: Vec<f32> = u.iter().map(|value| uniform - value).collect();
    let squared = dot(&w, &w);
    let mut q = Matrix::zeros(l, l);
    for i in 0..l {
        for j in 0..l {
            let reflected = if squared > 1e-12 { 2.0 * w[i] * w[j] / squared } else { 0.0 };
            q.row_mut(i)[j] = f32::from(u8::from(i == j)) - reflected;
        }
    }
    q
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    #[test]
    fn the_reflection_is_orthogonal_and_sends_the_uniform_direction_to_u() {
        let mut u = vec![0.0; 7];
        Seed(3).stream(Purpose::Initial, 0, 0).fill_normals(&mut u);
        let length = dot(&u, &u).sqrt();
        for value in &mut u {
            *value /= length;
        }
        let q = reflection(&u);
        for (i, u) in u.iter().enumerate() {
            for j in 0..7 {
                let expected = f32::from(u8::from(i == j));
                assert!((dot(q.row(i), q.row(j)) - expected).abs() < 1e-5);
            }
            let image = q.row(i).iter().sum::<f32>() / 7.0_f32.sqrt();
            assert!((image - u).abs() < 1e-5);
        }
    }

    #[test]
    fn the_identity_start_returns_the_context_but_for_its_least_energy_direction() {
        // Little energy in the last coordinate: h should be M with that coordinate near zero.
        let mut contexts = Matrix::zeros(400, 6);
        Seed(1).stream(Purpose::Initial, 0, 0).fill_normals(contexts.as_mut_slice());
        for row in 0..400 {
            contexts.row_mut(row)[5] *= 1e-3;
        }
        let (theta_1, theta_2) = identity(&contexts, 6).unwrap();
        let mut worst = 0.0_f32;
        for context in contexts.iter_rows() {
            let hidden: Vec<f32> = (0..6)
                .map(|j| (0..6).map(|i| context[i] * theta_1.row(i)[j]).sum::<f32>())
                .map(|z| 1.0 / (1.0 + (-z).exp()))
                .collect();
            let h: Vec<f32> = (0..6)
                .map(|j| (0..6).map(|i| hidden[i] * theta_2.row(i)[j]).sum::<f32>())
                .collect();
            let cosine = dot(context, &h) / (dot(context, context) * dot(&h, &h)).sqrt();
            worst = worst.max(1.0 - cosine);
        }
        assert!(worst < 0.02, "direction off by {worst}");
    }
}
