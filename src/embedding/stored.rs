//! The file of a decomposition or of imported vectors, and the vectors that a [`Form`] makes of it.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::{ActionEmbeddings, Form, Spectrum, Vectors, tensors};
use crate::embedding::tensors::TensorFile;
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// The embeddings on disk ([`EmbeddingFile`]): V and s apart, so that one decomposition serves every
/// [`Form`].
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEmbeddings {
    /// V `[P, L]`; its columns are orthonormal if it comes from the SVD or a blend.
    pub v: Matrix,
    /// s; none unless V comes from the SVD or a blend, whose s are eigenvalues of a similarity.
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
    /// The first `latent_dim` dimensions, with zeros for those that there are not. An SVD is nested, unless it ends
    /// softly: they are the decomposition at that L.
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
    /// An I/O error, [`Error::File`] for numbers of another type, or an s that is below 0 or not finite,
    /// [`Error::NotFinite`].
    pub fn load(&self) -> Result<StoredEmbeddings> {
        let has = |name: &&str| self.tensors.shape(name).is_some();
        let numbers = |name| Some(name).filter(has).map(|name| self.tensors.amounts(name));
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
mod tests {
    use super::super::Power;
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
    fn a_file_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beta.safetensors");
        for value in [f32::NAN, -1.0] {
            let spectrum = Some(Spectrum { values: vec![9.0, value], total: None });
            StoredEmbeddings { spectrum, ..stored() }.save(&path).unwrap();
            let error = EmbeddingFile::open(&path).unwrap().load().unwrap_err().to_string();
            assert!(error.contains("number 2 of tensor `singular_values`"), "{error}");
        }
        fs_err::write(&path, "not tensors").unwrap();
        assert!(matches!(EmbeddingFile::open(&path), Err(Error::File { .. })));
    }
}
