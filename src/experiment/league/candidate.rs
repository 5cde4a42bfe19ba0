//! The candidates of the league: what is fitted, and its weights.

use std::mem::discriminant;

use serde::Serialize;

use crate::embedding::svd::OVERSAMPLING;
use crate::embedding::{
    Beside, BlendOptions, Form, NeighbourOptions, Power, SessionPart, SvdOptions,
};
use crate::encoder::EncoderKind;
use crate::prepared::{ChosenSettings, EmbeddingSource};

/// A candidate: what is fitted, and its weights; the weighted mean is the encoder.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// What is fitted.
    #[serde(flatten)]
    pub kind: Kind,
    /// f and κ.
    pub form: Form,
    /// γ.
    pub popularity_power: f32,
    /// ρ.
    pub recency: f32,
}

/// What a candidate fits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Kind {
    /// The SVD of L and η; it ends softly.
    Svd(SvdOptions),
    /// ALS that starts at the SVD of its length, a blend of which it is all. With its fold-in as the encoder
    /// it earned 4 % less at 100 dimensions on Amazon CDs and Grocery and 2 % more on CiteULike, and it takes
    /// O(L³) for a user.
    Als {
        /// L and all that is fitted.
        blend: BlendOptions,
    },
    /// The SVD and ALS together.
    Blend {
        /// L and all that is fitted.
        blend: BlendOptions,
    },
    /// One of these with neighbours beside it.
    Neighbours {
        /// L and all that is fitted; the weights of the decomposition are in it.
        neighbours: NeighbourOptions,
    },
}

impl Candidate {
    /// L.
    #[must_use]
    pub fn latent_dim(&self) -> usize {
        match self.kind {
            Kind::Svd(svd) => svd.latent_dim,
            Kind::Als { blend } | Kind::Blend { blend } => blend.latent_dim,
            Kind::Neighbours { neighbours } => neighbours.latent_dim(),
        }
    }

    /// The columns of its fit; of ALS and a blend, those of both parts, of neighbours, of input vectors too.
    pub(super) fn columns(self) -> f64 {
        match self.kind {
            Kind::Svd(svd) => svd_columns(svd.latent_dim),
            Kind::Als { blend } | Kind::Blend { blend } => {
                (blend.svd.latent_dim + blend.als_dim) as f64
            }
            Kind::Neighbours { neighbours } => 2.0 * neighbours.latent_dim() as f64,
        }
    }

    /// The SVD that it is, that it starts at or that it is made of.
    pub(super) fn svd(self) -> SvdOptions {
        match self.kind {
            Kind::Svd(svd) => svd,
            Kind::Als { blend } | Kind::Blend { blend } => blend.svd,
            Kind::Neighbours { neighbours } => match neighbours.beside {
                Beside::Svd(svd) => svd,
                Beside::Blend(blend) => blend.svd,
            },
        }
    }

    /// Its source in words.
    pub(super) fn name(self) -> String {
        let length = self.latent_dim();
        match self.kind {
            Kind::Svd(svd) => format!("svd with {} and L = {length}", svd.kind()),
            Kind::Als { .. } => format!("als with L = {length}"),
            Kind::Blend { .. } => format!("blend with L = {length}"),
            Kind::Neighbours { .. } => format!("neighbours with L = {length}"),
        }
    }

    /// True for a candidate of the same kind and length, and of an SVD of the same η.
    pub(super) fn is_like(self, other: Self) -> bool {
        let any_length = |svd: SvdOptions| SvdOptions { latent_dim: 0, ..svd };
        any_length(self.svd()) == any_length(other.svd()) && self.is_as_long(other)
    }

    /// True for a candidate of the same kind and length.
    pub(super) fn is_as_long(self, other: Self) -> bool {
        let same_kind = discriminant(&self.kind) == discriminant(&other.kind);
        same_kind && self.latent_dim() == other.latent_dim()
    }

    pub(super) fn with_length(mut self, length: usize) -> Self {
        match &mut self.kind {
            Kind::Svd(svd) => svd.latent_dim = length,
            Kind::Als { blend } => {
                let svd = SvdOptions { latent_dim: length, ..blend.svd };
                *blend = BlendOptions { latent_dim: length, svd, als_dim: length, ..*blend };
            }
            Kind::Blend { blend } => blend.latent_dim = length,
            // It is as long as what stands beside.
            Kind::Neighbours { .. } => {}
        }
        self
    }

    /// What it fits beside an SVD, and of which; none for an SVD alone.
    pub(super) fn beside_svd(self) -> Option<BlendOptions> {
        match self.kind {
            Kind::Svd(_) | Kind::Neighbours { .. } => None,
            Kind::Als { blend } | Kind::Blend { blend } => Some(blend),
        }
    }

    pub(super) fn source(&self) -> EmbeddingSource {
        self.source_of(SessionPart::All)
    }

    /// Its source, fitted on these interactions.
    pub(super) fn source_of(&self, interactions: SessionPart) -> EmbeddingSource {
        match self.kind {
            Kind::Svd(options) => EmbeddingSource::Svd { interactions, options },
            Kind::Als { blend: options } | Kind::Blend { blend: options } => {
                EmbeddingSource::Blend { interactions, options }
            }
            Kind::Neighbours { neighbours: options } => {
                EmbeddingSource::Neighbours { interactions, options }
            }
        }
    }

    /// This decomposition with neighbours beside it, of these m, number, ω and λ. None of what has neighbours.
    pub(super) fn with_neighbours(
        self,
        dims: usize,
        (count, weight, ridge): (usize, f32, f32),
    ) -> Option<Self> {
        let beside = match self.kind {
            Kind::Svd(svd) => Beside::Svd(svd),
            Kind::Als { blend } | Kind::Blend { blend } => Beside::Blend(blend),
            Kind::Neighbours { .. } => return None,
        };
        let Self { form, popularity_power, .. } = self;
        let neighbours =
            NeighbourOptions { dims, count, weight, ridge, popularity_power, form, beside };
        Some(Self { kind: Kind::Neighbours { neighbours }, form: plain(), ..self })
    }

    /// The same neighbours beside another decomposition. None where there are no neighbours, or there are already.
    pub(super) fn beside(self, other: Self) -> Option<Self> {
        let Kind::Neighbours { neighbours } = self.kind else { return None };
        let NeighbourOptions { dims, count, weight, ridge, .. } = neighbours;
        other.with_neighbours(dims, (count, weight, ridge))
    }

    /// What stands beside its neighbours, if it has any.
    #[must_use]
    pub fn beside_neighbours(self) -> Option<Self> {
        let Kind::Neighbours { neighbours } = self.kind else { return None };
        let kind = match neighbours.beside {
            Beside::Svd(svd) => Kind::Svd(svd),
            Beside::Blend(blend) if blend.share < 1.0 => Kind::Blend { blend },
            Beside::Blend(blend) => Kind::Als { blend },
        };
        Some(Self { kind, form: neighbours.form, ..self })
    }

    pub(super) fn settings(&self) -> ChosenSettings {
        let Self { form: embedding, popularity_power, recency, .. } = *self;
        let encoder = EncoderKind::WeightedMean;
        ChosenSettings { embedding, encoder, popularity_power, recency }
    }
}

/// The columns of an SVD of so many dimensions.
pub(super) fn svd_columns(latent_dim: usize) -> f64 {
    (latent_dim + OVERSAMPLING) as f64
}

/// β = V.
pub(super) fn plain() -> Form {
    Form { power: Power::Zero, ridge: 0.0, popularity: 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::axes::soft;
    use super::*;

    #[test]
    fn json_has_the_kind_beside_the_weights() {
        let json = |of: Candidate| serde_json::to_string(&of).unwrap();
        let (svd, ridge) = (soft(0.25, 100), r#""ridge":0.0,"popularity":0.0}"#);
        let weights = |power| {
            format!(r#""form":{{"power":{power},{ridge},"popularity_power":0.25,"recency":0.0}}"#)
        };
        let options = r#""latent_dim":100,"passes":0,"normalization":0.25"#;
        assert_eq!(json(svd), format!(r#"{{"kind":"svd",{options},{}"#, weights("0.25")));
        for (kind, of) in [("als", svd.first_als().unwrap()), ("blend", svd.blends()[0])] {
            let blend = serde_json::to_string(&of.beside_svd()).unwrap();
            let expected = format!(r#"{{"kind":"{kind}","blend":{blend},{}"#, weights("0.5"));
            assert_eq!(json(of), expected);
        }
    }
}
