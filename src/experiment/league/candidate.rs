//! The candidates of the league and their places on its axes.

use serde::Serialize;

use crate::embedding::{BlendOptions, Form, Power, SessionPart, SvdOptions};
use crate::encoder::EncoderKind;
use crate::prepared::{ChosenSettings, EmbeddingSource};

const LENGTHS: [usize; 6] = [50, 100, 200, 512, 1024, 2048];
/// The length at which normalisations are compared; always fitted.
pub(super) const SHORT: usize = 100;
pub(super) const NORMALIZATIONS: [f32; 3] = [0.25, 0.0, 0.5];
/// p of the power forms, then λ of the ridge forms.
const POWERS: [Power; 4] = [Power::Zero, Power::Quarter, Power::Half, Power::ThreeQuarters];
const RIDGES: [f32; 7] = [0.1, 0.5, 2.0, 8.0, 30.0, 100.0, 300.0];
/// κ.
const OF_ACTIONS: [f32; 3] = [0.0, 0.25, 0.5];
/// γ − κ: an action that κ makes longer weighs as much more in a context, unless γ takes it back.
const OF_CONTEXTS: [f32; 3] = [0.0, 0.25, 0.5];
/// ρ, where a split hid the latest items; elsewhere the order says nothing about what is hidden.
const RECENCIES: [f32; 5] = [0.0, 0.5, 1.0, 1.5, 2.0];
const CONFIDENCES: [f64; 6] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0];
const REGULARIZATIONS: [f64; 7] = [0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];
/// Columns that the SVD adds to L.
const ADDED: f64 = 64.0;
/// ω.
const SHARES: [f64; 3] = [0.3, 0.5, 0.7];
/// The longest ALS in a blend: the SVD has the rest.
const OF_BLEND: usize = 512;
/// The first blends, which are judged before any other: one that is good on Gowalla and Amazon CDs, and one
/// that is on smaller sets (Last.fm, Amazon Office).
pub(super) const FIRST_BLENDS: u32 = 2;
/// α and λ of the first ALS.
const FIRST_ALS: (f64, f64) = (10.0, 1.0);

/// A candidate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Candidate {
    /// The SVD, and the weighted mean as the encoder.
    Svd {
        /// L and η; it ends softly.
        #[serde(flatten)]
        svd: SvdOptions,
        /// f and κ.
        form: Form,
        /// γ.
        popularity_power: f32,
        /// ρ.
        recency: f32,
    },
    /// ALS that starts at the SVD of its length, a blend of which it is all, and the weighted mean as the
    /// encoder. At 100 dimensions its fold-in earned 4 % less on Amazon CDs and Grocery and 2 % more on
    /// CiteULike, and it takes O(L³) for a user.
    Als {
        /// L and all that is fitted.
        blend: BlendOptions,
        /// f and κ.
        form: Form,
        /// γ.
        popularity_power: f32,
        /// ρ.
        recency: f32,
    },
    /// The SVD and ALS together, and the weighted mean as the encoder.
    Blend {
        /// L and all that is fitted.
        blend: BlendOptions,
        /// f and κ.
        form: Form,
        /// γ.
        popularity_power: f32,
        /// ρ.
        recency: f32,
    },
}

impl Candidate {
    /// L.
    #[must_use]
    pub fn latent_dim(&self) -> usize {
        match *self {
            Self::Svd { svd, .. } => svd.latent_dim,
            Self::Als { blend, .. } | Self::Blend { blend, .. } => blend.latent_dim,
        }
    }

    /// The columns of its fit; of ALS and a blend, those of both parts.
    pub(super) fn columns(self) -> f64 {
        match self {
            Self::Svd { svd, .. } => svd_columns(svd.latent_dim),
            Self::Als { blend, .. } | Self::Blend { blend, .. } => {
                (blend.svd.latent_dim + blend.als_dim) as f64
            }
        }
    }

    /// The SVD that it is, that it starts at or that it is made of.
    pub(super) fn svd(self) -> SvdOptions {
        match self {
            Self::Svd { svd, .. } => svd,
            Self::Als { blend, .. } | Self::Blend { blend, .. } => blend.svd,
        }
    }

    /// Its source and the reason why it was left out.
    pub(super) fn named(self, reason: &str) -> String {
        let length = self.latent_dim();
        match self {
            Self::Svd { svd, .. } => format!("svd with {} and L = {length}: {reason}", svd.kind()),
            Self::Als { .. } => format!("als with L = {length}: {reason}"),
            Self::Blend { .. } => format!("blend with L = {length}: {reason}"),
        }
    }

    /// ρ.
    pub(super) fn recency(self) -> f32 {
        match self {
            Self::Svd { recency, .. } | Self::Als { recency, .. } | Self::Blend { recency, .. } => {
                recency
            }
        }
    }

    /// True for a candidate of the same kind and length, and of an SVD of the same η.
    pub(super) fn is_like(self, other: Self) -> bool {
        let any_length = |svd: SvdOptions| SvdOptions { latent_dim: 0, ..svd };
        any_length(self.svd()) == any_length(other.svd()) && self.is_as_long(other)
    }

    /// True for a candidate of the same kind and length.
    pub(super) fn is_as_long(self, other: Self) -> bool {
        let same_kind = std::mem::discriminant(&self) == std::mem::discriminant(&other);
        same_kind && self.latent_dim() == other.latent_dim()
    }

    pub(super) fn with_length(self, length: usize) -> Self {
        match self {
            Self::Svd { svd, form, popularity_power, recency } => {
                let svd = SvdOptions { latent_dim: length, ..svd };
                Self::Svd { svd, form, popularity_power, recency }
            }
            Self::Als { blend, form, popularity_power, recency } => {
                let svd = SvdOptions { latent_dim: length, ..blend.svd };
                let blend = BlendOptions { latent_dim: length, svd, als_dim: length, ..blend };
                Self::Als { blend, form, popularity_power, recency }
            }
            Self::Blend { blend, form, popularity_power, recency } => {
                let blend = BlendOptions { latent_dim: length, ..blend };
                Self::Blend { blend, form, popularity_power, recency }
            }
        }
    }

    /// This decomposition with other weights.
    fn with_weights(self, form: Form, popularity_power: f32, recency: f32) -> Self {
        match self {
            Self::Svd { svd, .. } => Self::Svd { svd, form, popularity_power, recency },
            Self::Als { blend, .. } => Self::Als { blend, form, popularity_power, recency },
            Self::Blend { blend, .. } => Self::Blend { blend, form, popularity_power, recency },
        }
    }

    /// The blend of this SVD with ALS of these α, λ and ω; none of what is no SVD.
    fn blend(self, confidence: f64, regularization: f64, share: f64) -> Option<Self> {
        let Self::Svd { svd, form, popularity_power, recency } = self else { return None };
        let blend = BlendOptions {
            latent_dim: svd.latent_dim,
            svd,
            form: Form { popularity: 0.0, ..form },
            als_dim: svd.latent_dim.min(OF_BLEND),
            regularization,
            confidence,
            share,
        };
        // The blend is what scores at p = ½.
        let form = Form { power: Power::Half, ridge: 0.0, ..form };
        Some(Self::Blend { blend, form, popularity_power, recency })
    }

    /// Blends of this SVD with ALS, in all their shares and weights, [`FIRST_BLENDS`] of them before the others.
    /// None of what is no SVD.
    pub(super) fn blends(self) -> Vec<Self> {
        let mut all = vec![(10.0, 1.0, SHARES[0]), (3.0, 10.0, SHARES[0])];
        for share in SHARES {
            for confidence in CONFIDENCES {
                all.extend(
                    REGULARIZATIONS.map(|regularization| (confidence, regularization, share)),
                );
            }
        }
        let blend =
            |(confidence, regularization, share)| self.blend(confidence, regularization, share);
        all.into_iter().filter_map(blend).collect()
    }

    /// The first ALS that starts at this SVD; this one, if it is ALS. None of a blend.
    pub(super) fn first_als(self) -> Option<Self> {
        if let Self::Als { .. } = self {
            return Some(self);
        }
        let (confidence, regularization) = FIRST_ALS;
        let Self::Blend { blend, form, popularity_power, recency } =
            self.blend(confidence, regularization, 1.0)?
        else {
            return None;
        };
        let blend = BlendOptions { als_dim: blend.latent_dim, ..blend };
        Some(Self::Als { blend, form, popularity_power, recency })
    }

    /// This ALS in every α and λ, the most regularised first: the longer it is, the more of that earns the most.
    /// None of what is no ALS.
    pub(super) fn every_als(self) -> Vec<Self> {
        let Self::Als { blend, form, popularity_power, recency } = self else { return Vec::new() };
        let every = |regularization| CONFIDENCES.map(|confidence| (confidence, regularization));
        let mut all: Vec<(f64, f64)> = REGULARIZATIONS.into_iter().rev().flat_map(every).collect();
        all.sort_by(|a, b| (b.1 / b.0).total_cmp(&(a.1 / a.0)));
        let with = |(confidence, regularization)| {
            let blend = BlendOptions { regularization, confidence, ..blend };
            Self::Als { blend, form, popularity_power, recency }
        };
        all.into_iter().map(with).collect()
    }

    /// What it fits beside an SVD, and of which; none for an SVD alone.
    pub(super) fn beside_svd(self) -> Option<BlendOptions> {
        match self {
            Self::Svd { .. } => None,
            Self::Als { blend, .. } | Self::Blend { blend, .. } => Some(blend),
        }
    }

    pub(super) fn source(&self) -> EmbeddingSource {
        self.source_of(SessionPart::All)
    }

    /// Its source, fitted on these interactions.
    pub(super) fn source_of(&self, interactions: SessionPart) -> EmbeddingSource {
        match *self {
            Self::Svd { svd: options, .. } => EmbeddingSource::Svd { interactions, options },
            Self::Als { blend, .. } | Self::Blend { blend, .. } => {
                EmbeddingSource::Blend { interactions, options: blend }
            }
        }
    }

    pub(super) fn settings(&self) -> ChosenSettings {
        let (Self::Svd { form, popularity_power, recency, .. }
        | Self::Als { form, popularity_power, recency, .. }
        | Self::Blend { form, popularity_power, recency, .. }) = *self;
        ChosenSettings {
            embedding: form,
            encoder: EncoderKind::WeightedMean,
            popularity_power,
            recency,
        }
    }
}

/// The lengths to choose from, ascending, where the data allow up to `longest`; that one is the last, if it
/// is worth a fit: few users of many items want all that there is.
pub(super) fn lengths(longest: usize) -> Vec<usize> {
    let mut lengths: Vec<usize> = LENGTHS.into_iter().filter(|length| *length <= longest).collect();
    let last = lengths.last().copied().unwrap_or(0);
    if lengths.len() < LENGTHS.len() && 4 * longest > 5 * last {
        lengths.push(longest);
    }
    lengths
}

/// The columns of an SVD of so many dimensions.
pub(super) fn svd_columns(latent_dim: usize) -> f64 {
    latent_dim as f64 + ADDED
}

/// β = V.
pub(super) fn plain() -> Form {
    Form { power: Power::Zero, ridge: 0.0, popularity: 0.0 }
}

/// The candidate from which the search of an SVD's weights starts: those that earned the most on sets of
/// several kinds.
pub(super) fn start(svd: SvdOptions, recency: f32) -> Candidate {
    let form = Form { power: Power::Quarter, ..plain() };
    Candidate::Svd { svd, form, popularity_power: 0.25, recency }
}

/// [`start`] of an SVD that ends softly, of items without an order.
#[cfg(test)]
pub(super) fn soft(normalization: f32, latent_dim: usize) -> Candidate {
    start(SvdOptions::soft(latent_dim, normalization), 0.0)
}

/// Weights that are far apart, by which SVDs are compared. With κ = η an action gets back what the
/// normalisation took from it.
pub(super) fn probes(svd: SvdOptions, recency: f32) -> Vec<Candidate> {
    let (first, normalization) = (start(svd, recency), svd.normalization);
    let with = |power, ridge, popularity, popularity_power| {
        first.with_weights(Form { power, ridge, popularity }, popularity_power, recency)
    };
    let mut all = vec![
        first,
        with(Power::Half, 0.0, 0.0, 0.5),
        with(Power::Zero, 0.0, 0.25, 0.5),
        with(Power::Zero, 8.0, 0.25, 0.5),
    ];
    // With λ, what EASE does to these data; half of what the normalisation took is given back on either side.
    let half = if normalization > 0.0 { 0.25 } else { 0.0 };
    let others = [
        with(Power::Half, 0.0, normalization, normalization + 0.5),
        with(Power::Zero, 8.0, half, half),
    ];
    for other in others {
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

/// All weights and powers of what a candidate fits; `ordered` where a split hid the latest items.
pub(super) fn weights(of: Candidate, ordered: bool) -> Vec<Candidate> {
    // A blend has its ridge within.
    let ridges = if of.beside_svd().is_none() { &RIDGES[..] } else { &[] };
    let powers = POWERS.iter().map(|&power| Form { power, ..plain() });
    let recencies = if ordered { &RECENCIES[..] } else { &RECENCIES[..1] };
    let ridges = ridges.iter().map(|&ridge| Form { ridge, ..plain() });
    let mut all = Vec::new();
    for form in powers.chain(ridges) {
        for popularity in OF_ACTIONS {
            for more in OF_CONTEXTS {
                let (form, popularity_power) = (Form { popularity, ..form }, popularity + more);
                let with = |&recency| of.with_weights(form, popularity_power, recency);
                all.extend(recencies.iter().map(with));
            }
        }
    }
    all
}

/// The places of a candidate on its axes: of a decomposition power or ridge, how strong, κ, γ − κ, ρ; of
/// ALS and a blend also α, λ and ω.
pub(super) fn places(candidate: &Candidate) -> Vec<usize> {
    match candidate {
        Candidate::Svd { form, popularity_power, recency, .. } => {
            of_weights(form, *popularity_power, *recency).into()
        }
        Candidate::Als { blend, form, popularity_power, recency }
        | Candidate::Blend { blend, form, popularity_power, recency } => {
            let share = SHARES.partition_point(|other| *other < blend.share);
            let mut all = of_weights(form, *popularity_power, *recency).to_vec();
            all.extend(of_als(blend.confidence, blend.regularization));
            all.push(share);
            all
        }
    }
}

fn of_weights(form: &Form, popularity_power: f32, recency: f32) -> [usize; 5] {
    let below = |values: &[f32], value: f32| values.partition_point(|other| *other < value);
    let (is_ridge, strength) = if form.ridge > 0.0 {
        (1, below(&RIDGES, form.ridge))
    } else {
        (0, below(&POWERS.map(Power::exponent), form.power.exponent()))
    };
    let more = below(&OF_CONTEXTS, popularity_power - form.popularity);
    [is_ridge, strength, below(&OF_ACTIONS, form.popularity), more, below(&RECENCIES, recency)]
}

fn of_als(confidence: f64, regularization: f64) -> [usize; 2] {
    [
        CONFIDENCES.partition_point(|other| *other < confidence),
        REGULARIZATIONS.partition_point(|other| *other < regularization),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::search::nearest;

    #[test]
    fn the_longest_that_the_data_allow_is_among_the_lengths() {
        assert_eq!(lengths(30), [30]);
        assert_eq!(lengths(240), [50, 100, 200]);
        assert_eq!(lengths(389), [50, 100, 200, 389]);
        assert_eq!(lengths(1011), [50, 100, 200, 512, 1011]);
        assert_eq!(lengths(5000), [50, 100, 200, 512, 1024, 2048]);
    }

    #[test]
    fn of_the_next_als_the_more_regularised_come_first() {
        let first = soft(0.25, 100).first_als().unwrap();
        let mut all = first.every_als();
        let mut next = || nearest(&mut all, places, &first, 1);
        assert_eq!(next(), Some(first));
        let strength = |als: Candidate| {
            let blend = als.beside_svd().unwrap();
            blend.regularization / blend.confidence
        };
        let next: Vec<f64> = std::iter::from_fn(next).map(strength).collect();
        let own = strength(first);
        let stronger: Vec<bool> = next.into_iter().map(|next| next > own).collect();
        assert_eq!(stronger, [true, true, false, false]);
    }
}
