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
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::embedding::tensors::TensorFile;
use crate::error::{Error, Result};
use crate::matrix::{Matrix, norm};

pub use als::{AlsOptions, implicit_als};
pub use fold_in::{FoldIn, FoldInOptions};
pub use import::{Import, Missing, import};
pub use svd::{
    Decomposition, SessionPart, SvdOptions, interactions_of, training_matrix, truncated_svd,
};

/// β `[P, L]`: one row per action, fixed. Its digest ties indexes and checkpoints to it.
#[derive(Clone, Debug)]
pub struct ActionEmbeddings {
    beta: Arc<Matrix>,
    digest: Arc<OnceLock<String>>,
    mean_norm: f32,
}

/// The two vectors of every item: what it says about a user who has it, and what a query is
/// multiplied with. They are one and the same unless an import brings both.
#[derive(Clone, Debug)]
pub struct Vectors {
    /// The input vectors `[P, L]`, from which contexts are made.
    pub inputs: Arc<Matrix>,
    /// The action vectors β, which are retrieved.
    pub actions: Arc<ActionEmbeddings>,
}

impl From<ActionEmbeddings> for Vectors {
    fn from(actions: ActionEmbeddings) -> Self {
        Self { inputs: Arc::clone(&actions.beta), actions: Arc::new(actions) }
    }
}

impl ActionEmbeddings {
    /// Takes β, `[P, L]`.
    ///
    /// # Errors
    /// [`Error::NotFinite`] at the first NaN or infinity.
    pub fn new(beta: Matrix) -> Result<Self> {
        beta.require_finite("action embeddings")?;
        let sum: f64 = beta.iter_rows().map(|row| f64::from(norm(row))).sum();
        #[allow(clippy::cast_possible_truncation, reason = "a mean of f32s")]
        let mean_norm = (sum / beta.rows().max(1) as f64) as f32;
        Ok(Self { beta: Arc::new(beta), digest: Arc::default(), mean_norm })
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
        self.digest.get_or_init(|| self.beta.digest())
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
    /// β = V·s^¾.
    ThreeQuarters,
    /// β = V·s.
    One,
}

impl Power {
    /// p.
    #[must_use]
    pub fn exponent(self) -> f32 {
        match self {
            Self::Zero => 0.0,
            Self::Quarter => 0.25,
            Self::Half => 0.5,
            Self::ThreeQuarters => 0.75,
            Self::One => 1.0,
        }
    }
}

impl TryFrom<f64> for Power {
    type Error = String;

    fn try_from(power: f64) -> Result<Self, String> {
        let mut all =
            [Self::Zero, Self::Quarter, Self::Half, Self::ThreeQuarters, Self::One].into_iter();
        all.find(|known| (f64::from(*known) - power).abs() < f64::EPSILON).ok_or_else(|| {
            format!("{power} is no power of the singular values: use 0, 0.25, 0.5, 0.75 or 1")
        })
    }
}

impl From<Power> for f64 {
    fn from(power: Power) -> Self {
        power.exponent().into()
    }
}

/// How β is made of a decomposition V, s: `β_a = n_a^κ f(s) V_a`, n_a being the number of training
/// users of action a.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// p in f(s) = s^p: 0, 0.25, 0.5, 0.75 or 1. Without effect where there is a ridge.
    pub power: Power,
    /// λ in the weights of EASE, `f(s)² = 1 − (τ + λ) / (s² + λ)`, as a multiple of the mean of all
    /// squared singular values; 0 for a power instead.
    ///
    /// With `P = (AᵀA + λI)⁻¹`, EASE (Steck, WWW 2019) scores by `B = I − P diag(P)⁻¹`. If all
    /// singular values beyond the first L are τ^½, then `P = V (s² + λ)⁻¹ Vᵀ + (I − V Vᵀ)/(τ + λ)`,
    /// and off its diagonal `B = V f(s)² Vᵀ diag(P)⁻¹ / (τ + λ)`: an inner product of length L. The
    /// diagonal is left to κ, which may also be smaller than EASE has it.
    #[serde(default)]
    pub ridge: f32,
    /// κ: 0 leaves β as it is, more lengthens the vectors of popular actions.
    #[serde(default)]
    pub popularity: f32,
}

impl Form {
    /// # Errors
    /// [`Error::Setting`] naming the key.
    pub(crate) fn validate(&self) -> Result<()> {
        for (key, value, least) in
            [("ridge", self.ridge, 0.0), ("popularity", self.popularity, f32::MIN)]
        {
            if !(value >= least && value.is_finite()) {
                let problem = format!("expected a number of at least {least}, found {value}");
                return Err(Error::setting(format!("embedding.{key}"), problem));
            }
        }
        Ok(())
    }
}

/// The singular values of a decomposition that keeps the largest L, and how much the others hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrum {
    /// s `[L]`, descending.
    pub values: Vec<f32>,
    /// The sum of all squared singular values, and their number; none in a file of an earlier
    /// version.
    pub total: Option<[f32; 2]>,
}

impl Spectrum {
    /// f(s) of a decomposition that keeps `length` dimensions, `[length]`.
    pub(crate) fn weights(&self, form: &Form, length: usize) -> Result<Vec<f32>> {
        let values = &self.values[..length.min(self.values.len())];
        if form.ridge == 0.0 {
            let power = form.power.exponent();
            return Ok(values.iter().map(|s| s.powf(power)).collect());
        }
        let Some([energy, count]) = self.total else {
            let problem = "needs the energy of the whole spectrum, which a folder of an earlier \
                           version does not have; prepare the data again, or set it to 0";
            return Err(Error::setting("embedding.ridge", problem));
        };
        let lambda = form.ridge * energy / count.max(1.0);
        let kept: f32 = values.iter().map(|s| s * s).sum();
        let left = (count - values.len() as f32).max(1.0);
        let tail = ((energy - kept) / left).max(0.0);
        let weight = |s: &f32| (1.0 - (tail + lambda) / (s * s + lambda)).max(0.0).sqrt();
        Ok(values.iter().map(weight).collect())
    }
}

/// The embeddings on disk ([`EmbeddingFile`]): V and s apart, so that one decomposition serves every
/// [`Form`].
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEmbeddings {
    /// V `[P, L]`; its columns are orthonormal if it comes from the SVD.
    pub v: Matrix,
    /// s; none unless V comes from the SVD.
    pub spectrum: Option<Spectrum>,
    /// The input vectors `[P, L]`, where they are others than the action vectors.
    pub inputs: Option<Matrix>,
}

const BETA: &str = "beta";
const SINGULAR_VALUES: &str = "singular_values";
const ENERGY: &str = "energy";
const INPUTS: &str = "inputs";

impl From<Matrix> for StoredEmbeddings {
    /// Embeddings that are taken as they are.
    fn from(v: Matrix) -> Self {
        Self { v, spectrum: None, inputs: None }
    }
}

impl StoredEmbeddings {
    /// The first `latent_dim` dimensions, with zeros for those that there are not. The SVD is nested:
    /// they are the decomposition at that L.
    #[must_use]
    pub fn resized(&self, latent_dim: usize) -> Self {
        let first = |matrix: &Matrix| matrix.resized(latent_dim);
        let spectrum = self.spectrum.as_ref().map(|spectrum| {
            let mut values = spectrum.values.clone();
            values.resize(latent_dim, 0.0);
            Spectrum { values, total: spectrum.total }
        });
        Self { v: first(&self.v), spectrum, inputs: self.inputs.as_ref().map(first) }
    }

    /// The vectors in the given form, in the memory of V; `popularity` is the number n of training
    /// users of each action, `[P]`.
    ///
    /// # Errors
    /// [`Error::Setting`] when the form needs an s that there is not, [`Error::NotFinite`].
    pub fn into_vectors(self, form: &Form, popularity: &[u32]) -> Result<Vectors> {
        let Self { v: mut beta, spectrum, inputs } = self;
        let weights = if let Some(spectrum) = &spectrum {
            spectrum.weights(form, beta.cols())?
        } else {
            for (key, value) in [("power", form.power.exponent()), ("ridge", form.ridge)] {
                if value != 0.0 {
                    let problem = format!(
                        "is {value}, but these embeddings have no singular values; set it to 0"
                    );
                    return Err(Error::setting(format!("embedding.{key}"), problem));
                }
            }
            vec![1.0; beta.cols()]
        };
        beta.par_rows_mut().zip(popularity).for_each(|(row, &count)| {
            let scale = match form.popularity {
                0.0 => 1.0,
                kappa => (count.max(1) as f32).powf(kappa),
            };
            row.iter_mut().zip(&weights).for_each(|(value, weight)| *value *= weight * scale);
        });
        let vectors = Vectors::from(ActionEmbeddings::new(beta)?);
        let Some(inputs) = inputs else { return Ok(vectors) };
        inputs.require_finite("input vectors")?;
        Ok(Vectors { inputs: Arc::new(inputs), ..vectors })
    }

    /// Writes `path` as safetensors: `beta` `[P, L]` and, if present, `singular_values` `[L]`,
    /// `energy` (Σ s² and the number of singular values) and `inputs` `[P, L]`.
    ///
    /// # Errors
    /// An I/O error naming the file; it leaves no file behind.
    pub fn save(&self, path: &Path) -> Result<()> {
        let shape = vec![self.v.rows(), self.v.cols()];
        let mut tensors = vec![(BETA, shape, self.v.as_slice())];
        if let Some(Spectrum { values, total }) = &self.spectrum {
            tensors.push((SINGULAR_VALUES, vec![values.len()], values));
            tensors.extend(total.as_ref().map(|total| (ENERGY, vec![2], total.as_slice())));
        }
        if let Some(inputs) = &self.inputs {
            tensors.push((INPUTS, vec![inputs.rows(), inputs.cols()], inputs.as_slice()));
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
        for (name, expected) in
            [(SINGULAR_VALUES, vec![shape[1]]), (ENERGY, vec![2]), (INPUTS, shape.to_vec())]
        {
            if let Some(found) = tensors.shape(name).filter(|found| **found != expected) {
                return Err(Error::Shape {
                    what: format!("{}: `{name}`", path.display()),
                    expected: format!("{expected:?}"),
                    found: format!("{found:?}"),
                });
            }
        }
        Ok(Self { tensors, shape })
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

    /// Reads V, s and the input vectors.
    ///
    /// # Errors
    /// An I/O error, [`Error::File`] for numbers of another type, [`Error::NotFinite`].
    pub fn load(&self) -> Result<StoredEmbeddings> {
        let has = |name: &&str| self.tensors.shape(name).is_some();
        let numbers = |name| Some(name).filter(has).map(|name| self.tensors.numbers(name));
        let total = numbers(ENERGY).transpose()?;
        let total = total.and_then(|total| total.try_into().ok());
        let values = numbers(SINGULAR_VALUES).transpose()?;
        let inputs = Some(INPUTS).filter(has).map(|name| self.tensors.matrix(name));
        Ok(StoredEmbeddings {
            v: self.tensors.matrix(BETA)?,
            spectrum: values.map(|values| Spectrum { values, total }),
            inputs: inputs.transpose()?,
        })
    }

    /// Reads the vectors in the given form.
    ///
    /// # Errors
    /// Fails as [`load`](Self::load) and [`StoredEmbeddings::into_vectors`] do.
    pub fn vectors(&self, form: &Form, popularity: &[u32]) -> Result<Vectors> {
        self.load()?.into_vectors(form, popularity)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn stored() -> StoredEmbeddings {
        let v = Matrix::new(vec![3.0, 4.0, 0.0, -1.0, 0.5, 0.25], 2).unwrap();
        let spectrum = Spectrum { values: vec![9.0, 4.0], total: Some([106.0, 3.0]) };
        StoredEmbeddings { v, spectrum: Some(spectrum), inputs: None }
    }

    fn formed(stored: StoredEmbeddings, form: &Form) -> Result<Vectors> {
        stored.into_vectors(form, &[1, 16, 0])
    }

    fn power(power: Power) -> Form {
        Form { power, ..Form::default() }
    }

    #[test]
    fn saved_embeddings_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beta.safetensors");
        let both = StoredEmbeddings { inputs: Some(Matrix::zeros(3, 2)), ..stored() };
        for stored in [stored(), StoredEmbeddings { spectrum: None, ..stored() }, both] {
            stored.save(&path).unwrap();
            assert_eq!(EmbeddingFile::open(&path).unwrap().load().unwrap(), stored);
        }
    }

    #[test]
    fn the_power_weighs_the_columns() {
        let actions = |of| formed(stored(), &power(of)).unwrap().actions;
        let row = |power| actions(power).row(0).to_vec();
        assert_eq!(row(Power::Zero), [3.0, 4.0]);
        assert_eq!(row(Power::Half), [9.0, 8.0]);
        assert!((row(Power::Quarter)[0] - 3.0 * 9.0_f32.powf(0.25)).abs() < 1e-6);
        assert_eq!(row(Power::One), [27.0, 16.0]);
        let zero = actions(Power::Zero);
        assert!((zero.mean_norm() - (5.0 + 1.0 + 0.559_017) / 3.0).abs() < 1e-5);
        assert_ne!(zero.digest(), actions(Power::One).digest());
    }

    #[test]
    fn a_ridge_weighs_the_columns_as_ease_does() {
        // Σ s² = 106 over three values, so τ = 106 − 81 − 16 = 9 and λ = 0.3 · 106 / 3 = 10.6.
        let form = Form { ridge: 0.3, popularity: 0.5, ..Form::default() };
        let row = |action| formed(stored(), &form).unwrap().actions.row(action).to_vec();
        let weight = |square: f32| (1.0 - (9.0 + 10.6) / (square + 10.6)).sqrt();
        assert!((row(0)[0] - 3.0 * weight(81.0)).abs() < 1e-5);
        assert!((row(0)[1] - 4.0 * weight(16.0)).abs() < 1e-5);
        // Sixteen users: four times as long.
        assert!((row(1)[1] + 4.0 * weight(16.0)).abs() < 1e-5);
        let early = Spectrum { total: None, ..stored().spectrum.unwrap() };
        let early = StoredEmbeddings { spectrum: Some(early), ..stored() };
        let error = formed(early, &form).unwrap_err().to_string();
        assert!(error.contains("embedding.ridge") && error.contains("prepare the data again"));
    }

    #[test]
    fn a_decomposition_is_nested() {
        let first = stored().resized(1);
        assert_eq!(first.v.as_slice(), [3.0, 0.0, 0.5]);
        assert_eq!(first.spectrum.unwrap().values, [9.0]);
        let more = stored().resized(3);
        assert_eq!(more.v.row(1), [0.0, -1.0, 0.0]);
        assert_eq!(more.spectrum.unwrap().values, [9.0, 4.0, 0.0]);
    }

    #[test]
    fn without_singular_values_there_is_no_power_but_zero() {
        let imported = StoredEmbeddings { spectrum: None, ..stored() };
        assert!(formed(imported.clone(), &power(Power::Zero)).is_ok());
        let error = formed(imported, &power(Power::Half)).unwrap_err().to_string();
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
        assert!(error.contains("use 0, 0.25, 0.5, 0.75 or 1"), "{error}");
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beta.safetensors");
        fs_err::write(&path, "not tensors").unwrap();
        assert!(matches!(EmbeddingFile::open(&path), Err(Error::File { .. })));
    }
}
