//! Takes the training interactions and returns action embeddings β, by a truncated SVD ([`svd`]),
//! alternating least squares ([`als`]) or both together ([`mod@blend`]), with neighbours beside them ([`neighbours`]) or
//! without, or reads them from a file ([`mod@import`]). β stays fixed while the policy learns (section 3). [`fold_in`] computes the ALS vector
//! of a user.

pub mod als;
pub mod blend;
mod blocks;
mod descent;
pub mod fold_in;
mod form;
mod frame;
pub mod import;
pub mod neighbours;
mod npy;
mod orthonormal;
mod similar;
mod slice;
pub mod slim;
mod stored;
mod subspace;
pub mod svd;
#[cfg(test)]
mod tastes;
pub(crate) mod tensors;

use std::sync::{Arc, OnceLock};

use crate::error::Result;
use crate::matrix::Matrix;

pub use als::{AlsOptions, implicit_als};
pub use blend::{BlendOptions, blend};
pub use blocks::{Blocks, RowFormat};
pub use fold_in::{FoldIn, FoldInOptions};
pub use form::{Form, Power, Spectrum};
pub use import::{Import, Missing, import};
pub use neighbours::{Beside, NeighbourOptions, with_neighbours};
pub(crate) use similar::{count_shared, most_similar};
pub use slice::Slice;
pub use slim::Slim;
pub use stored::{EmbeddingFile, StoredEmbeddings};
pub use subspace::Gram;
pub use svd::{
    Decomposition, SessionPart, SvdOptions, interactions_of, svd_of_products, training_matrix,
    truncated_svd,
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
    /// [`Error::NotFinite`](crate::Error::NotFinite) at the first NaN or infinity.
    pub fn new(beta: Matrix) -> Result<Self> {
        beta.require_finite("action embeddings")?;
        let sum: f64 = beta.norms().into_iter().map(f64::from).sum();
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
