//! A candidate in, what is tried next out: the axes of the league and the places on them.

use super::candidate::{Candidate, Kind, plain};
use crate::dataset::ActionSets;
use crate::embedding::{BlendOptions, Form, NeighbourOptions, Power, Slim, SvdOptions};
use crate::error::Result;

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
/// ω.
const SHARES: [f64; 3] = [0.3, 0.5, 0.7];
/// The longest ALS in a blend: the SVD has the rest.
const OF_BLEND: usize = 512;
/// The first blends, which are judged before any other: one that is good on Gowalla and Amazon CDs, and one
/// that is on smaller sets (Last.fm, Amazon Office).
pub(super) const FIRST_BLENDS: u32 = 2;
/// m, the dimensions of neighbours, and others, which are tried for their best weights alone, the fewer first.
const OF_NEIGHBOURS: usize = 1024;
const OTHERS_OF_NEIGHBOURS: [usize; 2] = [512, 2048];
/// The number of neighbours, their ω and their λ.
const COUNTS: [usize; 4] = [5, 10, 20, 50];
const WEIGHTS: [f32; 5] = [0.1, 0.3, 1.0, 3.0, 10.0];
const OF_REGRESSIONS: [f32; 5] = [1.0, 5.0, 20.0, 60.0, 200.0];
/// The first of them, of little weight: where that earns no more, more earns less.
const FIRST_NEIGHBOURS: (usize, f32, f32) = (20, 0.3, 20.0);
/// α, λ and ω of the first ALS.
const FIRST_ALS: [f64; 3] = [10.0, 1.0, 1.0];
/// The same of a later, longer one.
const LATE_ALS: [f64; 3] = [10.0, 10.0, 1.0];

impl Candidate {
    /// The blend of this SVD with ALS of these α, λ and ω; none of what is no SVD.
    fn blend(self, [confidence, regularization, share]: [f64; 3]) -> Option<BlendOptions> {
        let Kind::Svd(svd) = self.kind else { return None };
        let (latent_dim, form) = (svd.latent_dim, Form { popularity: 0.0, ..self.form });
        let als_dim = latent_dim.min(OF_BLEND);
        Some(BlendOptions { latent_dim, svd, form, als_dim, regularization, confidence, share })
    }

    /// ALS or a blend made of this SVD, with its weights but for f: its vectors are what scores at p = ½.
    fn made_into(self, kind: Kind) -> Self {
        Self { kind, form: Form { power: Power::Half, ridge: 0.0, ..self.form }, ..self }
    }

    /// Blends of this SVD with ALS, in all their shares and weights, [`FIRST_BLENDS`] of them before the others.
    /// None of what is no SVD.
    pub(super) fn blends(self) -> Vec<Self> {
        let mut all = vec![[10.0, 1.0, SHARES[0]], [3.0, 10.0, SHARES[0]]];
        for share in SHARES {
            for confidence in CONFIDENCES {
                all.extend(
                    REGULARIZATIONS.map(|regularization| [confidence, regularization, share]),
                );
            }
        }
        let blend = |of| Some(self.made_into(Kind::Blend { blend: self.blend(of)? }));
        all.into_iter().filter_map(blend).collect()
    }

    /// The first ALS that starts at this SVD; this one, if it is ALS. None of a blend.
    pub(super) fn first_als(self) -> Option<Self> {
        if let Kind::Als { .. } = self.kind {
            return Some(self);
        }
        Some(self.made_into(self.als(FIRST_ALS)?))
    }

    /// A later ALS that starts at this SVD, with weights that do not depend on it. None of what is no SVD.
    pub(super) fn late_als(self) -> Option<Self> {
        let form = Form { power: Power::Half, ..plain() };
        Some(Self { kind: self.als(LATE_ALS)?, form, popularity_power: 0.25, ..self })
    }

    /// ALS of these α, λ and ω that starts at this SVD.
    fn als(self, of: [f64; 3]) -> Option<Kind> {
        let blend = self.blend(of)?;
        Some(Kind::Als { blend: BlendOptions { als_dim: blend.latent_dim, ..blend } })
    }

    /// This ALS in every α and λ, the most regularised first: the longer it is, the more of that earns the most.
    /// None of what is no ALS.
    pub(super) fn every_als(self) -> Vec<Self> {
        let Kind::Als { blend } = self.kind else { return Vec::new() };
        let every = |regularization| CONFIDENCES.map(|confidence| (confidence, regularization));
        let mut all: Vec<(f64, f64)> = REGULARIZATIONS.into_iter().rev().flat_map(every).collect();
        all.sort_by(|a, b| (b.1 / b.0).total_cmp(&(a.1 / a.0)));
        let with = |(confidence, regularization)| {
            let blend = BlendOptions { regularization, confidence, ..blend };
            Self { kind: Kind::Als { blend }, ..self }
        };
        all.into_iter().map(with).collect()
    }

    /// This decomposition with neighbours beside it, of `num_actions` actions, in all their weights; the first is to be
    /// judged before any other. None of what has neighbours.
    pub(super) fn neighbours(self, num_actions: usize) -> Vec<Self> {
        let mut all = vec![FIRST_NEIGHBOURS];
        // Next to the first, more weight comes before all else.
        for weight in WEIGHTS.into_iter().rev() {
            for count in COUNTS {
                all.extend(OF_REGRESSIONS.map(|ridge| (count, weight, ridge)));
            }
        }
        let dims = OF_NEIGHBOURS.min(num_actions);
        all.into_iter().filter_map(|of| self.with_neighbours(dims, of)).collect()
    }

    /// The same neighbours in other dimensions, of `num_actions` actions, ascending. None of what has no neighbours.
    pub(super) fn in_other_dims(self, num_actions: usize) -> Vec<Self> {
        let Kind::Neighbours { neighbours } = self.kind else { return Vec::new() };
        let others = OTHERS_OF_NEIGHBOURS.map(|dims| dims.min(num_actions));
        let others = others.into_iter().filter(|dims| *dims != neighbours.dims);
        let with = |dims| NeighbourOptions { dims, ..neighbours };
        others
            .map(|dims| Self { kind: Kind::Neighbours { neighbours: with(dims) }, ..self })
            .collect()
    }
}

/// The most similar actions of each, for all neighbours that are tried.
pub(super) fn nearest_actions(matrix: &ActionSets, num_actions: usize) -> Result<Slim> {
    Slim::new(matrix, num_actions, COUNTS.into_iter().max().unwrap_or(0))
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

/// The candidate from which the search of an SVD's weights starts: those that earned the most on sets of
/// several kinds.
pub(super) fn start(svd: SvdOptions, recency: f32) -> Candidate {
    let form = Form { power: Power::Quarter, ..plain() };
    Candidate { kind: Kind::Svd(svd), form, popularity_power: 0.25, recency }
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
        let form = Form { power, ridge, popularity };
        Candidate { form, popularity_power, ..first }
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
                let with = |&recency| Candidate { form, popularity_power, recency, ..of };
                all.extend(recencies.iter().map(with));
            }
        }
    }
    all
}

/// The places of a candidate on its axes: of a decomposition power or ridge, how strong, κ, γ − κ, ρ; of
/// ALS and a blend also α, λ and ω, of neighbours their number, ω and λ.
pub(super) fn places(candidate: &Candidate) -> Vec<usize> {
    let Candidate { form, popularity_power, recency, .. } = *candidate;
    let below = |values: &[f32], value: f32| values.partition_point(|other| *other < value);
    let (is_ridge, strength) = if form.ridge > 0.0 {
        (1, below(&RIDGES, form.ridge))
    } else {
        (0, below(&POWERS.map(Power::exponent), form.power.exponent()))
    };
    let more = below(&OF_CONTEXTS, popularity_power - form.popularity);
    let of_actions = below(&OF_ACTIONS, form.popularity);
    let mut all = vec![is_ridge, strength, of_actions, more, below(&RECENCIES, recency)];
    if let Some(BlendOptions { confidence, regularization, share, .. }) = candidate.beside_svd() {
        let below = |values: &[f64], value: f64| values.partition_point(|other| *other < value);
        all.extend([
            below(&CONFIDENCES, confidence),
            below(&REGULARIZATIONS, regularization),
            below(&SHARES, share),
        ]);
    }
    if let Kind::Neighbours { neighbours } = candidate.kind {
        let NeighbourOptions { count, weight, ridge, .. } = neighbours;
        all.push(COUNTS.partition_point(|other| *other < count));
        all.extend([below(&WEIGHTS, weight), below(&OF_REGRESSIONS, ridge)]);
    }
    all
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
