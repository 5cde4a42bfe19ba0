//! Takes the training interactions and returns action embeddings β, by a truncated SVD ([`svd`]) or
//! alternating least squares ([`als`]), or reads them from a file ([`mod@import`]). β stays fixed while
//! the policy learns (section 3). [`fold_in`] computes the ALS vector of a user.

pub mod als;
mod descent;
pub mod fold_in;
pub mod import;
mod npy;
mod orthonormal;
mod subspace;
pub mod svd;
pub(crate) mod tensors;

use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::embedding::tensors::TensorFile;
use crate::error::{Error, Result};
use crate::matrix::{Matrix, norm};

pub use als::{AlsOptions, implicit_als};
pub use fold_in::{FoldIn, FoldInOptions};
pub use import::{Import, Missing, import};
pub use svd::{Decomposition, SessionPart, SvdOptions, training_matrix, truncated_svd};

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
    /// β = V·s^¼.
    Quarter,
    /// β = V·s^½.
    #[default]
    Half,
    /// β = V·s.
    One,
}

impl TryFrom<f64> for Power {
    type Error = String;

    fn try_from(power: f64) -> Result<Self, String> {
        let mut all = [Self::Zero, Self::Quarter, Self::Half, Self::One].into_iter();
        all.find(|known| (f64::from(*known) - power).abs() < f64::EPSILON).ok_or_else(|| {
            format!("{power} is no power of the singular values: use 0, 0.25, 0.5 or 1")
        })
    }
}

impl From<Power> for f64 {
    fn from(power: Power) -> Self {
        match power {
            Power::Zero => 0.0,
            Power::Quarter => 0.25,
            Power::Half => 0.5,
            Power::One => 1.0,
        }
    }
}

/// The embeddings on disk ([`EmbeddingFile`]): V and s apart, so that one decomposition serves every
/// power.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEmbeddings {
    /// V `[P, L]`; its columns are orthonormal if it comes from the SVD.
    pub v: Matrix,
    /// s `[L]`, descending; none unless V comes from the SVD.
    pub singular_values: Option<Vec<f32>>,
}

const BETA: &str = "beta";
const SINGULAR_VALUES: &str = "singular_values";

impl StoredEmbeddings {
    /// β = V·sᵖ, in the memory of V.
    ///
    /// # Errors
    /// [`Error::Setting`] when there is no s and p is not 0, [`Error::NotFinite`].
    pub fn into_actions(self, power: Power) -> Result<ActionEmbeddings> {
        let Self { v: mut beta, singular_values } = self;
        match (singular_values, power) {
            (_, Power::Zero) => {}
            (None, _) => {
                let problem = format!(
                    "is {}, but these embeddings have no singular values; set it to 0",
                    f64::from(power)
                );
                return Err(Error::setting("embedding.power", problem));
            }
            (Some(values), _) => {
                let weights: Vec<f32> = match power {
                    Power::Quarter => values.iter().map(|s| s.sqrt().sqrt()).collect(),
                    Power::Half => values.iter().map(|s| s.sqrt()).collect(),
                    _ => values,
                };
                beta.par_rows_mut().for_each(|row| {
                    row.iter_mut().zip(&weights).for_each(|(value, weight)| *value *= weight);
                });
            }
        }
        ActionEmbeddings::new(beta)
    }

    /// Writes `path` as safetensors: `beta` `[P, L]` and, if present, `singular_values` `[L]`.
    ///
    /// # Errors
    /// An I/O error naming the file; it leaves no file behind.
    pub fn save(&self, path: &Path) -> Result<()> {
        let shape = vec![self.v.rows(), self.v.cols()];
        let mut tensors = vec![(BETA, shape, self.v.as_slice())];
        if let Some(values) = &self.singular_values {
            tensors.push((SINGULAR_VALUES, vec![values.len()], values));
        }
        tensors::write(path, &tensors)
    }
}

/// A file of stored embeddings whose header has been read; the numbers are read on request.
#[derive(Clone, Debug)]
pub struct EmbeddingFile {
    tensors: TensorFile,
    shape: [usize; 2],
}

impl EmbeddingFile {
    /// Reads the header of a file of [`StoredEmbeddings::save`].
    ///
    /// # Errors
    /// An I/O error, [`Error::File`] for a file of another format, [`Error::Shape`].
    pub fn open(path: &Path) -> Result<Self> {
        let tensors = TensorFile::open(path)?;
        let shape = tensors.matrix_shape(BETA)?;
        match tensors.shape(SINGULAR_VALUES) {
            Some(values) if values != [shape[1]] => Err(Error::Shape {
                what: format!("{}: `{SINGULAR_VALUES}`", path.display()),
                expected: format!("[{}]", shape[1]),
                found: format!("{values:?}"),
            }),
            _ => Ok(Self { tensors, shape }),
        }
    }

    /// P.
    #[must_use]
    pub fn num_actions(&self) -> usize {
        self.shape[0]
    }

    /// L.
    #[must_use]
    pub fn latent_dim(&self) -> usize {
        self.shape[1]
    }

    /// True if the file has an s, as the SVD writes it.
    #[must_use]
    pub fn has_singular_values(&self) -> bool {
        self.tensors.shape(SINGULAR_VALUES).is_some()
    }

    /// Reads V and s.
    ///
    /// # Errors
    /// An I/O error, [`Error::File`] for numbers of another type, [`Error::NotFinite`].
    pub fn load(&self) -> Result<StoredEmbeddings> {
        let values = self.has_singular_values().then(|| self.tensors.numbers(SINGULAR_VALUES));
        Ok(StoredEmbeddings { v: self.tensors.matrix(BETA)?, singular_values: values.transpose()? })
    }

    /// Reads β = V·sᵖ.
    ///
    /// # Errors
    /// Fails as [`load`](Self::load) and [`StoredEmbeddings::into_actions`] do.
    pub fn actions(&self, power: Power) -> Result<ActionEmbeddings> {
        self.load()?.into_actions(power)
    }
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
            assert_eq!(EmbeddingFile::open(&path).unwrap().load().unwrap(), stored);
        }
    }

    #[test]
    fn the_power_weighs_the_columns() {
        let row = |power| stored().into_actions(power).unwrap().row(0).to_vec();
        assert_eq!(row(Power::Zero), [3.0, 4.0]);
        assert_eq!(row(Power::Half), [9.0, 8.0]);
        assert!((row(Power::Quarter)[0] - 3.0 * 9.0_f32.powf(0.25)).abs() < 1e-6);
        assert_eq!(row(Power::One), [27.0, 16.0]);
        let zero = stored().into_actions(Power::Zero).unwrap();
        assert!((zero.mean_norm() - (5.0 + 1.0 + 0.559_017) / 3.0).abs() < 1e-5);
        assert_ne!(zero.digest(), stored().into_actions(Power::One).unwrap().digest());
    }

    #[test]
    fn without_singular_values_there_is_no_power_but_zero() {
        let imported = StoredEmbeddings { singular_values: None, ..stored() };
        assert!(imported.clone().into_actions(Power::Zero).is_ok());
        let error = imported.into_actions(Power::Half).unwrap_err().to_string();
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
        assert!(error.contains("use 0, 0.25, 0.5 or 1"), "{error}");
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beta.safetensors");
        fs_err::write(&path, "not tensors").unwrap();
        assert!(matches!(EmbeddingFile::open(&path), Err(Error::File { .. })));
    }
}
