//! The candidates of the league and their places on its axes.

use serde::Serialize;

use crate::embedding::{AlsOptions, Form, Power, SessionPart, SvdOptions};
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
const CONFIDENCES: [f64; 5] = [1.0, 3.0, 10.0, 30.0, 100.0];
const REGULARIZATIONS: [f64; 5] = [0.3, 1.0, 10.0, 100.0, 300.0];

/// A candidate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Candidate {
    /// The truncated SVD, and the weighted mean as the encoder.
    Svd {
        /// η.
        normalization: f32,
        /// L.
        latent_dim: usize,
        /// f and κ.
        form: Form,
        /// γ.
        popularity_power: f32,
        /// ρ.
        recency: f32,
    },
    /// ALS, and its fold-in as the encoder.
    Als {
        /// L.
        latent_dim: usize,
        /// α.
        confidence: f64,
        /// λ.
        regularization: f64,
    },
}

impl Candidate {
    /// L.
    #[must_use]
    pub fn latent_dim(&self) -> usize {
        match *self {
            Self::Svd { latent_dim, .. } | Self::Als { latent_dim, .. } => latent_dim,
        }
    }

    /// η; 0 for ALS.
    pub(super) fn normalization(self) -> f32 {
        match self {
            Self::Svd { normalization, .. } => normalization,
            Self::Als { .. } => 0.0,
        }
    }

    /// Its source and the reason why it was left out.
    pub(super) fn named(self, reason: &str) -> String {
        let length = self.latent_dim();
        match self {
            Self::Svd { normalization, .. } => {
                format!("svd with η = {normalization} and L = {length}: {reason}")
            }
            Self::Als { .. } => format!("als with L = {length}: {reason}"),
        }
    }

    /// ρ; 0 for ALS.
    pub(super) fn recency(self) -> f32 {
        match self {
            Self::Svd { recency, .. } => recency,
            Self::Als { .. } => 0.0,
        }
    }

    /// True for a candidate of the same kind, normalisation and length.
    pub(super) fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Svd { .. }, Self::Svd { .. }) => self.source() == other.source(),
            (Self::Als { latent_dim, .. }, Self::Als { .. }) => latent_dim == other.latent_dim(),
            _ => false,
        }
    }

    pub(super) fn with_length(self, length: usize) -> Self {
        match self {
            Self::Svd { normalization, form, popularity_power, recency, .. } => {
                Self::Svd { normalization, latent_dim: length, form, popularity_power, recency }
            }
            Self::Als { confidence, regularization, .. } => {
                Self::Als { latent_dim: length, confidence, regularization }
            }
        }
    }

    /// ALS of one length with all its weights, the default ones first.
    pub(super) fn als(latent_dim: usize) -> Vec<Self> {
        let AlsOptions { confidence, regularization, .. } = AlsOptions::default();
        let mut all = vec![Self::Als { latent_dim, confidence, regularization }];
        for confidence in CONFIDENCES {
            for regularization in REGULARIZATIONS {
                all.push(Self::Als { latent_dim, confidence, regularization });
            }
        }
        all
    }

    pub(super) fn source(&self) -> EmbeddingSource {
        self.source_of(SessionPart::All)
    }

    /// Its source, fitted on these interactions.
    pub(super) fn source_of(&self, interactions: SessionPart) -> EmbeddingSource {
        match *self {
            Self::Svd { normalization, latent_dim, .. } => {
                let options = SvdOptions { latent_dim, normalization, ..SvdOptions::default() };
                EmbeddingSource::Svd { interactions, options }
            }
            Self::Als { latent_dim, confidence, regularization } => {
                let default = AlsOptions::default();
                let options = AlsOptions { latent_dim, regularization, confidence, ..default };
                EmbeddingSource::Als { interactions, options }
            }
        }
    }

    pub(super) fn settings(&self) -> ChosenSettings {
        match *self {
            Self::Svd { form, popularity_power, recency, .. } => ChosenSettings {
                embedding: form,
                encoder: EncoderKind::WeightedMean,
                popularity_power,
                recency,
            },
            Self::Als { .. } => ChosenSettings {
                embedding: plain(),
                encoder: EncoderKind::FoldIn,
                popularity_power: 0.0,
                recency: 0.0,
            },
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

/// β = V.
pub(super) fn plain() -> Form {
    Form { power: Power::Zero, ridge: 0.0, popularity: 0.0 }
}

/// The candidate from which the search of a normalisation starts: the weights that earned the most on
/// sets of several kinds.
pub(super) fn start(normalization: f32, latent_dim: usize, recency: f32) -> Candidate {
    let form = Form { power: Power::Quarter, ..plain() };
    Candidate::Svd { normalization, latent_dim, form, popularity_power: 0.25, recency }
}

/// Weights that are far apart, by which normalisations are compared. With κ = η an action gets back what
/// the normalisation took from it.
pub(super) fn probes(normalization: f32, latent_dim: usize, recency: f32) -> Vec<Candidate> {
    let with = |power, ridge, popularity, popularity_power| {
        let form = Form { power, ridge, popularity };
        Candidate::Svd { normalization, latent_dim, form, popularity_power, recency }
    };
    let mut all = vec![
        start(normalization, latent_dim, recency),
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

/// All weights and powers at the η and the L of a candidate; `ordered` where a split hid the latest
/// items.
pub(super) fn weights(of: Candidate, ordered: bool) -> Vec<Candidate> {
    let Candidate::Svd { normalization, latent_dim, .. } = of else { return Vec::new() };
    let powers = POWERS.iter().map(|&power| Form { power, ..plain() });
    let recencies = if ordered { &RECENCIES[..] } else { &RECENCIES[..1] };
    let ridges = RIDGES.iter().map(|&ridge| Form { ridge, ..plain() });
    let mut all = Vec::new();
    for form in powers.chain(ridges) {
        for popularity in OF_ACTIONS {
            for more in OF_CONTEXTS {
                let (form, popularity_power) = (Form { popularity, ..form }, popularity + more);
                all.extend(recencies.iter().map(|&recency| Candidate::Svd {
                    normalization,
                    latent_dim,
                    form,
                    popularity_power,
                    recency,
                }));
            }
        }
    }
    all
}

/// The places of a candidate on its axes: power or ridge, how strong, κ, γ − κ, ρ.
pub(super) fn places(candidate: &Candidate) -> Vec<usize> {
    let below = |values: &[f32], value: f32| values.partition_point(|other| *other < value);
    match candidate {
        Candidate::Svd { form, popularity_power, recency, .. } => {
            let powers = POWERS.map(Power::exponent);
            let (is_ridge, strength) = if form.ridge > 0.0 {
                (1, below(&RIDGES, form.ridge))
            } else {
                (0, below(&powers, form.power.exponent()))
            };
            let kappa = below(&OF_ACTIONS, form.popularity);
            let more = popularity_power - form.popularity;
            let (more, recency) = (below(&OF_CONTEXTS, more), below(&RECENCIES, *recency));
            vec![is_ridge, strength, kappa, more, recency]
        }
        Candidate::Als { confidence, regularization, .. } => vec![
            CONFIDENCES.partition_point(|other| other < confidence),
            REGULARIZATIONS.partition_point(|other| other < regularization),
        ],
    }
}
