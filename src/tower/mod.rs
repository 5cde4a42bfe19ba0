//! A tower h_θ takes the vector M(X) `[D]` of a context and returns the query h `[L]`, as a Burn module
//! without bias.

mod correction;
mod layers;
mod linear;
mod mlp;
mod residual;

pub use correction::{Correction, Radius};
pub use layers::TowerForm;
pub use linear::LinearTower;
pub use mlp::SigmoidMlp;
pub use residual::{Activation, ResidualMlp};

pub use crate::device::{to_device, to_host};

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::seed::{Purpose, Seed};

/// The kinds of towers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TowerKind {
    /// `h = M θ` (equation 10, "param").
    Linear,
    /// `h = sigmoid(M θ₁) θ₂`, the paper's deep policy, with L hidden units.
    SigmoidMlp,
    /// `h = M + MLP(M)`, whose MLP starts at 0.
    ResidualMlp,
}

/// The start of θ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initial {
    /// `0.005 · randn`, as the authors do.
    Paper,
    /// The decision of θ = I, the recommendation of the embeddings alone.
    Identity,
}

/// A run's choice of tower.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TowerSettings {
    /// The kind of tower.
    pub kind: TowerKind,
    /// The start of θ.
    pub initial: Initial,
    /// The sizes of the residual MLP's hidden layers; with none it is `h = M_L + M Δ`.
    pub hidden: Vec<usize>,
    /// The activation after each of them.
    pub activation: Activation,
    /// True if the residual MLP learns how much a context balances the user's tastes, where the context is
    /// a mean of vectors and the reward is not linear.
    #[serde(default)]
    pub balance: bool,
    /// The first numbers of a query that the residual MLP leaves as the context has them, and does not look at: those of
    /// neighbours.
    #[serde(default)]
    pub fixed: usize,
}

impl Default for TowerSettings {
    /// The linear tower at θ = I; a residual MLP has no hidden layer unless told.
    fn default() -> Self {
        Self {
            kind: TowerKind::Linear,
            initial: Initial::Identity,
            hidden: Vec::new(),
            activation: Activation::Relu,
            balance: false,
            fixed: 0,
        }
    }
}

/// The most units of a hidden layer: the matrix between two such layers takes a quarter of a gigabyte,
/// and Adam three times that.
const MOST_UNITS: usize = 8192;

/// Standard deviation of the paper's initialisation.
const PAPER_SCALE: f32 = 0.005;

/// Rows that the products of all backends handle alike: fewer take other kernels, which add in another
/// order.
const TILE: usize = 16;

/// A tower of any kind.
// A module's variants are moved only when it is built and optimised, never in a loop over rows.
#[allow(clippy::large_enum_variant, reason = "all hold a handful of parameter handles")]
#[derive(Module, Debug)]
pub enum Tower {
    /// `h = M θ`.
    Linear(LinearTower),
    /// `h = sigmoid(M θ₁) θ₂`.
    SigmoidMlp(SigmoidMlp),
    /// `h = M + MLP(M)`.
    ResidualMlp(ResidualMlp),
}

impl TowerSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`Error::Setting`] for impossible sizes, and for settings that the chosen tower does not use.
    pub fn validate(&self) -> Result<()> {
        let refuse = |key: &str, problem: String| Err(Error::setting(key, problem));
        if let Some(units) = self.hidden.iter().find(|units| !(1..=MOST_UNITS).contains(*units)) {
            let problem = format!("expected sizes from 1 to {MOST_UNITS}, found {units}");
            return refuse("tower.hidden", problem);
        }
        if self.kind == TowerKind::ResidualMlp {
            return match self.initial {
                Initial::Identity => Ok(()),
                Initial::Paper => refuse(
                    "tower.initial",
                    "the residual MLP starts at the identity: use \"identity\"".into(),
                ),
            };
        }
        let default = Self::default();
        for (key, unused) in [
            ("tower.hidden", self.hidden != default.hidden),
            ("tower.activation", self.activation != default.activation),
        ] {
            if unused {
                let problem = "belongs to tower.kind = \"residual-mlp\"; no other tower has it";
                return refuse(key, problem.into());
            }
        }
        Ok(())
    }

    /// True if what the tower decides depends on the contexts that it is made for. Without hidden layers
    /// the residual MLP's scale cancels, but for rounding.
    pub(crate) fn depends_on_contexts(&self) -> bool {
        match self.kind {
            TowerKind::Linear => false,
            TowerKind::SigmoidMlp => self.initial == Initial::Identity,
            TowerKind::ResidualMlp => !self.hidden.is_empty(),
        }
    }

    /// The initial tower for contexts `[U, D]` (the training ones: the MLPs look at their spread)
    /// and queries `[L]`. With `balance` the second L numbers of a context are the balanced mean.
    ///
    /// # Errors
    /// [`Error::Setting`] when `initial = "identity"` and D < L, and when nothing is left to learn; fails as
    /// [`validate`](Self::validate) does.
    pub fn init(
        &self,
        contexts: &Matrix,
        latent_dim: usize,
        seed: Seed,
        device: &Device,
    ) -> Result<Tower> {
        self.validate()?;
        let context_dim = contexts.cols();
        let balances = self.balance && self.kind == TowerKind::ResidualMlp;
        if balances && context_dim < 2 * latent_dim {
            return Err(Error::setting(
                "tower.balance",
                format!(
                    "needs contexts of two means, D = {} at least, found D = {context_dim}; set it to \
                     false",
                    2 * latent_dim
                ),
            ));
        }
        if self.kind == TowerKind::ResidualMlp && self.fixed >= latent_dim {
            let fixed = self.fixed;
            let problem =
                format!("is {fixed}, which leaves none of L = {latent_dim} numbers to learn");
            return Err(Error::setting("tower.fixed", problem));
        }
        if self.initial == Initial::Identity && context_dim < latent_dim {
            return Err(Error::setting(
                "tower.initial",
                format!(
                    "an identity start needs contexts at least as wide as the actions, but \
                     D = {context_dim} < L = {latent_dim}; use \"paper\""
                ),
            ));
        }
        let randn = |parameter: u64, rows: usize| {
            let mut matrix = Matrix::zeros(rows, latent_dim);
            seed.stream(Purpose::Initial, 0, parameter).fill_normals(matrix.as_mut_slice());
            matrix.as_mut_slice().iter_mut().for_each(|value| *value *= PAPER_SCALE);
            matrix
        };
        Ok(match (self.kind, self.initial) {
            (TowerKind::Linear, Initial::Paper) => {
                Tower::Linear(LinearTower::new(&randn(0, context_dim), device))
            }
            (TowerKind::Linear, Initial::Identity) => {
                Tower::Linear(LinearTower::new(&linear::identity(context_dim, latent_dim), device))
            }
            (TowerKind::SigmoidMlp, Initial::Paper) => Tower::SigmoidMlp(SigmoidMlp::new(
                &randn(0, context_dim),
                &randn(1, latent_dim),
                device,
            )),
            (TowerKind::SigmoidMlp, Initial::Identity) => {
                let (theta_1, theta_2) = mlp::identity(contexts, latent_dim)?;
                Tower::SigmoidMlp(SigmoidMlp::new(&theta_1, &theta_2, device))
            }
            (TowerKind::ResidualMlp, _) => {
                Tower::ResidualMlp(ResidualMlp::init(self, contexts, latent_dim, seed, device))
            }
        })
    }
}

impl Tower {
    /// `[B, D]` contexts → `[B, L]` queries.
    #[must_use]
    pub fn forward(&self, contexts: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Linear(tower) => tower.forward(contexts),
            Self::SigmoidMlp(tower) => tower.forward(contexts),
            Self::ResidualMlp(tower) => tower.forward(contexts),
        }
    }

    /// The queries of host contexts `[B, D]`, back on the host `[B, L]`.
    ///
    /// # Errors
    /// [`Error::Library`] when the device fails.
    pub fn latent(&self, contexts: &Matrix) -> Result<Matrix> {
        latent(contexts, &self.devices().swap_remove(0), |contexts| self.forward(contexts))
    }
}

/// The queries that `forward` makes of host contexts `[B, D]`, back on the host `[B, L]`. The device gets
/// whole tiles of 16 rows, so that a query does not depend on the number of its neighbours.
///
/// # Errors
/// [`Error::Library`] when the device fails.
pub(crate) fn latent(
    contexts: &Matrix,
    device: &Device,
    forward: impl FnOnce(Tensor<2>) -> Tensor<2>,
) -> Result<Matrix> {
    let rows = contexts.rows();
    let mut tiles = Matrix::zeros(rows.next_multiple_of(TILE), contexts.cols());
    tiles.as_mut_slice()[..contexts.as_slice().len()].copy_from_slice(contexts.as_slice());
    let latent = to_host(forward(to_device(&tiles, device)))?;
    let cols = latent.cols();
    let mut latent = latent.into_vec();
    latent.truncate(rows * cols);
    Matrix::new(latent, cols)
}
