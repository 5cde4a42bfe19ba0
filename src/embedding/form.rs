//! Singular values in, the weights of the dimensions of β out.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

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
    #[serde(default, serialize_with = "crate::decimal::shortest")]
    pub ridge: f32,
    /// κ: 0 leaves β as it is, more lengthens the vectors of popular actions.
    #[serde(default, serialize_with = "crate::decimal::shortest")]
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
