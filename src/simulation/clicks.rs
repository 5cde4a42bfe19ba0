//! The attractions of the actions on a slate → clicks, and the expected number of clicks.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::seed::Stream;

/// How a user goes through a slate. Position k is 0 at the top; `p_k` is the attraction of its action.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ClickModel {
    /// The user examines position k with the chance `(k + 1)^(−power)`, whatever happens at the others,
    /// and clicks on what is examined with the chance `p_k`. The expectation is
    /// `Σ_k (k + 1)^(−power) p_k` (the position-based model: Craswell, Zoeter, Taylor, Ramsey; WSDM
    /// 2008).
    PositionBased {
        /// How fast attention falls; 0 for a user who examines everything.
        power: f64,
    },
    /// The user walks down, clicks with the chance `p_k` and leaves, or goes on with the chance
    /// `patience`. The expectation is `Σ_k patience^k p_k Π_{j<k} (1 − p_j)` (the cascade model of the
    /// same authors, with a patience).
    Cascade {
        /// The chance to look at one more action, in `[0, 1]`.
        patience: f64,
    },
}

impl Default for ClickModel {
    fn default() -> Self {
        Self::PositionBased { power: 0.5 }
    }
}

impl ClickModel {
    pub(super) fn validate(self) -> Result<()> {
        let refuse = |key, expected: &str, found: f64| {
            Err(Error::setting(key, format!("expected {expected}, found {found}")))
        };
        match self {
            Self::PositionBased { power } if !(power.is_finite() && power >= 0.0) => {
                refuse("click.power", "a number of at least 0", power)
            }
            Self::Cascade { patience } if !(0.0..=1.0).contains(&patience) => {
                refuse("click.patience", "a chance from 0 to 1", patience)
            }
            _ => Ok(()),
        }
    }

    /// The most clicks on a slate of this size.
    pub(super) fn most(self, slate_size: usize) -> f64 {
        match self {
            Self::PositionBased { .. } => slate_size as f64,
            Self::Cascade { .. } => 1.0,
        }
    }

    /// The expected number of clicks on actions of these attractions.
    pub(super) fn expected(self, attractions: impl Iterator<Item = f64>) -> f64 {
        match self {
            Self::PositionBased { power } => {
                (0..).zip(attractions).fold(0.0, |sum, (k, p)| sum + examined(power, k) * p)
            }
            Self::Cascade { patience } => {
                let step = |(sum, looking): (f64, f64), p| {
                    (sum + looking * p, looking * (1.0 - p) * patience)
                };
                attractions.fold((0.0, 1.0), step).0
            }
        }
    }

    /// Draws the clicks on actions of these attractions.
    pub(super) fn draw(
        self,
        attractions: impl Iterator<Item = f64>,
        stream: &mut Stream,
    ) -> Vec<bool> {
        match self {
            Self::PositionBased { power } => {
                let click = |(k, p)| stream.uniform() < examined(power, k) * p;
                (0..).zip(attractions).map(click).collect()
            }
            Self::Cascade { patience } => {
                let mut looking = true;
                let click = |p| {
                    let clicked = looking && stream.uniform() < p;
                    looking = looking && !clicked && stream.uniform() < patience;
                    clicked
                };
                attractions.map(click).collect()
            }
        }
    }
}

/// The chance that position k is examined.
fn examined(power: f64, k: u32) -> f64 {
    (f64::from(k) + 1.0).powf(-power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_by_hand() {
        let expected = |model: ClickModel| model.expected([0.5, 0.2].into_iter());
        assert_eq!(expected(ClickModel::PositionBased { power: 1.0 }), 0.5 + 0.1);
        assert_eq!(expected(ClickModel::Cascade { patience: 0.8 }), 0.5 + 0.8 * 0.5 * 0.2);
    }

    #[test]
    fn settings_read_as_they_are_written() {
        for (model, text) in [
            (ClickModel::default(), r#"{"kind":"position-based","power":0.5}"#),
            (ClickModel::Cascade { patience: 0.9 }, r#"{"kind":"cascade","patience":0.9}"#),
        ] {
            assert_eq!(serde_json::to_string(&model).unwrap(), text);
            assert_eq!(serde_json::from_str::<ClickModel>(text).unwrap(), model);
        }
        let error = serde_json::from_str::<ClickModel>(r#"{"kind":"cascade","power":1}"#);
        assert!(error.unwrap_err().to_string().contains("power"));
    }
}
