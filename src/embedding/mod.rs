//! Sessions → action embeddings β and contexts M(X). β comes from a truncated SVD of the training
//! interactions ([`svd`]) or from a file ([`mod@import`]), and stays fixed while the policy learns
//! (section 3); the context of a user is the mean embedding of what was observed ([`mod@mean`]).

pub mod import;
pub mod mean;
pub mod svd;
mod tall;

use std::path::Path;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::matrix::{Matrix, norm};

pub use import::import;
pub use mean::{mean, mean_contexts};
pub use svd::{Interactions, SvdOptions, training_matrix, truncated_svd};

/// β `[P, L]`: one row per action, fixed. Its digest ties indexes and checkpoints to it.
#[derive(Clone, Debug)]
pub struct ActionEmbeddings {
    beta: Matrix,
    digest: String,
    mean_norm: f32,
}

impl ActionEmbeddings {
    /// Takes β, `[P, L]`.
    ///
    /// # Errors
    /// [`Error::NotFinite`] at the first NaN or infinity.
    pub fn new(beta: Matrix) -> Result<Self> {
        beta.require_finite("action embeddings")?;
        let digest = beta.digest();
        let sum: f64 = beta.iter_rows().map(|row| f64::from(norm(row))).sum();
        #[allow(clippy::cast_possible_truncation, reason = "a mean of f32s")]
        let mean_norm = (sum / beta.rows().max(1) as f64) as f32;
        Ok(Self { beta, digest, mean_norm })
    }

    /// β itself, `[P, L]`.
    #[must_use]
    pub fn beta(&self) -> &Matrix {
        &self.beta
    }

    /// β of one action, `[L]`.
    #[must_use]
    pub fn row(&self, action: u32) -> &[f32] {
        self.beta.row(action as usize)
    }

    /// P.
    #[must_use]
    pub fn num_actions(&self) -> usize {
        self.beta.rows()
    }

    /// L.
    #[must_use]
    pub fn latent_dim(&self) -> usize {
        self.beta.cols()
    }

    /// SHA-256 of β's shape and numbers, in hex.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// B, the mean norm of β's rows: the scale of the rule σ = 1/B.
    #[must_use]
    pub fn mean_norm(&self) -> f32 {
        self.mean_norm
    }
}

/// The power p of the singular values in β = V·sᵖ. The paper's predecessor keeps V alone (p = 0);
/// p = ½ weighs the dimensions as a factorisation does, p = 1 as the data does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub enum Power {
    /// β = V.
    Zero,
    /// β = V·s^½.
    #[default]
    Half,
    /// β = V·s.
    One,
}

impl TryFrom<f64> for Power {
    type Error = String;

    fn try_from(power: f64) -> Result<Self, String> {
        [Self::Zero, Self::Half, Self::One]
            .into_iter()
            .find(|known| (f64::from(*known) - power).abs() < f64::EPSILON)
            .ok_or_else(|| format!("{power} is no power of the singular values: use 0, 0.5 or 1"))
    }
}

impl From<Power> for f64 {
    fn from(power: Power) -> Self {
        match power {
            Power::Zero => 0.0,
            Power::Half => 0.5,
            Power::One => 1.0,
        }
    }
}

/// What is kept on disk: V and s apart, so that one decomposition serves every power.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEmbeddings {
    /// V `[P, L]`; orthonormal columns when it comes from the SVD, anything when imported.
    pub v: Matrix,
    /// s `[L]`, descending; none for imported embeddings.
    pub singular_values: Option<Vec<f32>>,
}

const BETA: &str = "beta";
const SINGULAR_VALUES: &str = "singular_values";

impl StoredEmbeddings {
    /// β = V·sᵖ.
    ///
    /// # Errors
    /// [`Error::Setting`] for imported embeddings when p is not 0, [`Error::NotFinite`].
    pub fn actions(&self, power: Power) -> Result<ActionEmbeddings> {
        let mut beta = self.v.clone();
        match (&self.singular_values, power) {
            (_, Power::Zero) => {}
            (None, _) => {
                let problem = format!(
                    "is {}, but imported embeddings have no singular values; set it to 0",
                    f64::from(power)
                );
                return Err(Error::setting("embedding.power", problem));
            }
            (Some(values), _) => {
                let weights: Vec<f32> = match power {
                    Power::Half => values.iter().map(|s| s.sqrt()).collect(),
                    _ => values.clone(),
                };
                for row in beta.as_mut_slice().chunks_exact_mut(weights.len()) {
                    for (value, weight) in row.iter_mut().zip(&weights) {
                        *value *= weight;
                    }
                }
            }
        }
        ActionEmbeddings::new(beta)
    }

    /// Writes `path` as safetensors: `beta` `[P, L]` and, where there are, `singular_values` `[L]`.
    ///
    /// # Errors
    /// An I/O error naming the file, a full disk among them; nothing is left behind then.
    pub fn save(&self, path: &Path) -> Result<()> {
        let library = |error| Error::library(format!("writing {}", path.display()), error);
        let beta = to_bytes(self.v.as_slice());
        let shape = vec![self.v.rows(), self.v.cols()];
        let mut tensors = vec![(BETA, TensorView::new(Dtype::F32, shape, &beta).map_err(library)?)];
        let values = self.singular_values.as_deref().map(to_bytes);
        if let Some(values) = &values {
            let view = TensorView::new(Dtype::F32, vec![values.len() / 4], values);
            tensors.push((SINGULAR_VALUES, view.map_err(library)?));
        }
        let bytes = safetensors::serialize(tensors, None).map_err(library)?;
        write_atomic(path, |writer| Ok(std::io::Write::write_all(writer, &bytes)?))
    }

    /// Reads what [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// An I/O error, [`Error::File`] when it is no such file, [`Error::NotFinite`].
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = fs_err::read(path)?;
        let tensors = SafeTensors::deserialize(&bytes)
            .map_err(|error| Error::file(path, format!("is no safetensors file: {error}")))?;
        let v = import::matrix(path, &tensors, BETA)?;
        let singular_values = match tensors.tensor(SINGULAR_VALUES) {
            Ok(view) => Some(import::numbers(path, SINGULAR_VALUES, &view)?),
            Err(_) => None,
        };
        if let Some(values) = &singular_values
            && values.len() != v.cols()
        {
            return Err(Error::Shape {
                what: format!("{}: `{SINGULAR_VALUES}`", path.display()),
                expected: format!("[{}]", v.cols()),
                found: format!("[{}]", values.len()),
            });
        }
        Ok(Self { v, singular_values })
    }
}

fn to_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn stored() -> StoredEmbeddings {
        let v = Matrix::new(vec![3.0, 4.0, 0.0, -1.0, 0.5, 0.25], 2).unwrap();
        StoredEmbeddings { v, singular_values: Some(vec![9.0, 4.0]) }
    }

    #[test]
    fn saved_embeddings_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beta.safetensors");
        for stored in [stored(), StoredEmbeddings { singular_values: None, ..stored() }] {
            stored.save(&path).unwrap();
            assert_eq!(StoredEmbeddings::load(&path).unwrap(), stored);
        }
    }

    #[test]
    fn the_power_weighs_the_columns() {
        let row = |power| stored().actions(power).unwrap().row(0).to_vec();
        assert_eq!(row(Power::Zero), [3.0, 4.0]);
        assert_eq!(row(Power::Half), [9.0, 8.0]);
        assert_eq!(row(Power::One), [27.0, 16.0]);
        let zero = stored().actions(Power::Zero).unwrap();
        assert!((zero.mean_norm() - (5.0 + 1.0 + 0.559_017) / 3.0).abs() < 1e-5);
        assert_ne!(zero.digest(), stored().actions(Power::One).unwrap().digest());
    }

    #[test]
    fn imported_embeddings_have_no_power_but_zero() {
        let imported = StoredEmbeddings { singular_values: None, ..stored() };
        assert!(imported.actions(Power::Zero).is_ok());
        let error = imported.actions(Power::Half).unwrap_err().to_string();
        assert!(error.contains("embedding.power") && error.contains("set it to 0"), "{error}");
    }

    #[test]
    fn powers_read_as_numbers() {
        #[derive(Deserialize)]
        struct Settings {
            power: Power,
        }
        let read = |text: &str| toml::from_str::<Settings>(text).map(|settings| settings.power);
        assert_eq!(read("power = 0").unwrap(), Power::Zero);
        assert_eq!(read("power = 0.5").unwrap(), Power::Half);
        assert_eq!(read("power = 1.0").unwrap(), Power::One);
        let error = read("power = 0.3").unwrap_err().to_string();
        assert!(error.contains("use 0, 0.5 or 1"), "{error}");
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beta.safetensors");
        fs_err::write(&path, "not tensors").unwrap();
        assert!(matches!(StoredEmbeddings::load(&path), Err(Error::File { .. })));
    }
}
