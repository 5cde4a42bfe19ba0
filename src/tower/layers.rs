//! A tower ↔ its layers on the host and the few facts beside them, as a bundle keeps it.

use burn::module::Param;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use super::{Activation, LinearTower, ResidualMlp, SigmoidMlp, Tower, to_device, to_host};
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// How the layers W₁ … W_n of a tower make h of M; every tower is without bias.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TowerForm {
    /// `h = M W₁`.
    Linear,
    /// `h = sigmoid(M W₁) W₂`.
    SigmoidMlp,
    /// `h = M_L + s · a(… a(M/s W₁) …) W_n`, M_L being the first L numbers of M.
    ResidualMlp {
        /// a.
        activation: Activation,
        /// s.
        scale: f32,
        /// c, where `M₁ + c (M₂ − M₁)` takes the place of the first 2L numbers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        balance: Option<f32>,
    },
}

impl Tower {
    /// The form.
    ///
    /// # Errors
    /// [`Error::Library`] when the device fails.
    pub fn form(&self) -> Result<TowerForm> {
        Ok(match self {
            Self::Linear(_) => TowerForm::Linear,
            Self::SigmoidMlp(_) => TowerForm::SigmoidMlp,
            Self::ResidualMlp(tower) => TowerForm::ResidualMlp {
                activation: tower.activation,
                scale: tower.scale,
                balance: tower.share()?,
            },
        })
    }

    /// W₁ … W_n, `[inputs, outputs]` each.
    ///
    /// # Errors
    /// [`Error::Library`] when the device fails.
    pub fn layers(&self) -> Result<Vec<Matrix>> {
        let params = match self {
            Self::Linear(tower) => vec![&tower.theta],
            Self::SigmoidMlp(tower) => vec![&tower.theta_1, &tower.theta_2],
            Self::ResidualMlp(tower) => return tower.whole_layers(),
        };
        params.into_iter().map(|param| to_host(param.val())).collect()
    }
}

impl TowerForm {
    /// The tower of this form with `layers`, for contexts `[D]` and queries `[L]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the layers do not lead from D to L.
    pub fn tower(
        self,
        layers: &[Matrix],
        [context_dim, latent_dim]: [usize; 2],
        device: &Device,
    ) -> Result<Tower> {
        let wrong = |expected: String| Error::Shape {
            what: "layers of the tower".into(),
            expected,
            found: format!("{:?}", layers.iter().map(|w| [w.rows(), w.cols()]).collect::<Vec<_>>()),
        };
        let balanced = matches!(self, Self::ResidualMlp { balance: Some(_), .. });
        let dropped = if balanced { latent_dim } else { 0 };
        let mut width = context_dim.saturating_sub(dropped);
        for layer in layers {
            if layer.rows() != width {
                return Err(wrong(format!("a layer of {width} inputs")));
            }
            width = layer.cols();
        }
        let residual = matches!(self, Self::ResidualMlp { .. });
        if width != latent_dim || residual && context_dim < latent_dim + dropped {
            return Err(wrong(format!("layers from {context_dim} to {latent_dim} numbers")));
        }
        let on_device = |matrix: &Matrix| Param::from_tensor(to_device(matrix, device));
        match (self, layers) {
            (Self::Linear, [theta]) => Ok(Tower::Linear(LinearTower::new(theta, device))),
            (Self::SigmoidMlp, [theta_1, theta_2]) => {
                Ok(Tower::SigmoidMlp(SigmoidMlp::new(theta_1, theta_2, device)))
            }
            (Self::ResidualMlp { activation, scale, balance }, [hidden @ .., output]) => {
                let share = |share| Matrix::new(vec![share], 1).map(|share| on_device(&share));
                Ok(Tower::ResidualMlp(ResidualMlp {
                    hidden: hidden.iter().map(on_device).collect(),
                    output: on_device(output),
                    balance: balance.map(share).transpose()?,
                    activation,
                    scale,
                    pace: 1.0,
                    fixed: 0,
                }))
            }
            _ => Err(wrong(format!("as many layers as {self:?} has"))),
        }
    }
}
