//! Training users in, the embeddings whose decision at θ = I earns the most out.
//!
//! A start value decides more of the final reward than training does, and which one is best depends
//! on the data. Candidates are the truncated SVD at several normalisations η, lengths L, spectral
//! weights, and popularity powers in β (κ) and in contexts (γ), and ALS where time is left. Each is
//! judged by the run's own reward on training users that it was not fitted on: everything is fitted
//! again without each of five folds. Validation and test users are not looked at.
//!
//! One decomposition serves all lengths up to its own, all weights and all powers. First, a short
//! one for every η; then a long one, as long as the time allows, for the best η; its settings are
//! searched from the best so far. The shortest candidate wins whose paired difference to the best is
//! within one standard error, and within one percent: every dimension is paid for in serving.
//!
//! EASE itself is not fitted: at the same lengths its factorisation earned no more than the closed
//! form of [`Form::ridge`](crate::embedding::Form), which costs nothing once the SVD is there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use serde::Serialize;

use super::search::{Deadline, Judged, nearest, search};
use crate::dataset::{Folds, Sessions, Split};
use crate::embedding::{
    AlsOptions, FoldIn, FoldInOptions, Form, Power, SessionPart, StoredEmbeddings, SvdOptions,
    Vectors,
};
use crate::encoder::{EncoderKind, Known, Mean, encode_all};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::matrix::Matrix;
use crate::prepared::{Choice, Chosen, ChosenSettings, EmbeddingSource, Judge};
use crate::retrieval::{Exact, Queries, Retriever as _};
use crate::reward::SlateReward;
use crate::seed::{Purpose, Seed};

/// The folds, as many as the default preset trains with.
const FOLDS: u16 = 5;
/// The most users who judge.
const JUDGES: usize = 1000;
/// The lengths to choose from.
const LENGTHS: [usize; 6] = [50, 100, 200, 400, 512, 1024];
/// The length at which normalisations are compared; always fitted.
const SHORT: usize = 100;
const NORMALIZATIONS: [f32; 3] = [0.25, 0.0, 0.5];
/// p of the power forms, then λ of the ridge forms.
const POWERS: [Power; 4] = [Power::Zero, Power::Quarter, Power::Half, Power::ThreeQuarters];
const RIDGES: [f32; 5] = [0.1, 0.5, 2.0, 8.0, 30.0];
/// κ.
const OF_ACTIONS: [f32; 3] = [0.0, 0.25, 0.5];
/// γ.
const OF_CONTEXTS: [f32; 4] = [0.0, 0.25, 0.5, 0.75];
const CONFIDENCES: [f64; 4] = [1.0, 3.0, 10.0, 30.0];
const REGULARIZATIONS: [f64; 4] = [0.3, 1.0, 10.0, 100.0];
/// A search ends where nothing within so many steps earns more.
const STEP: usize = 1;
/// Share of the time left that the long decompositions may take.
const FITTING: f64 = 0.7;
/// The time of a fit grows as this power of its columns, between the sparse products' 1 and the dense
/// ones' 2, on the safe side of what was measured on logs of 10⁵ to 10⁶ interactions.
const GROWTH: f64 = 1.4;
/// Columns that the SVD adds to L.
const ADDED: f64 = 64.0;
/// The most that a shorter candidate may earn less than the best, as a share.
const LOSS: f64 = 0.01;

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

/// A candidate and what it earned.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// The candidate.
    pub candidate: Candidate,
    /// Mean reward at θ = I on the users of the folds.
    pub reward: f64,
    /// Standard error of `reward`.
    pub reward_se: f64,
    /// `reward` minus that of the best candidate.
    pub difference: f64,
    /// Paired standard error of `difference`.
    pub difference_se: f64,
    /// Bytes of an action's vector in f32.
    pub bytes: usize,
    /// True for the winner.
    pub chosen: bool,
}

/// The result of a league.
#[derive(Clone, Debug, Serialize)]
pub struct League {
    /// The best candidate of each kind, η and L.
    pub table: Vec<Standing>,
    /// The number of users who judged.
    pub judges: usize,
    /// The number of candidates tried.
    pub tried: usize,
    /// What was left out for lack of time.
    pub left_out: Vec<String>,
    /// Wall-clock seconds.
    pub seconds: f64,
}

impl Candidate {
    /// L.
    #[must_use]
    pub fn latent_dim(&self) -> usize {
        match *self {
            Self::Svd { latent_dim, .. } | Self::Als { latent_dim, .. } => latent_dim,
        }
    }

    fn with_length(self, length: usize) -> Self {
        match self {
            Self::Svd { normalization, form, popularity_power, .. } => {
                Self::Svd { normalization, latent_dim: length, form, popularity_power }
            }
            Self::Als { confidence, regularization, .. } => {
                Self::Als { latent_dim: length, confidence, regularization }
            }
        }
    }

    /// ALS of one length with all its weights, the default ones first.
    fn als(latent_dim: usize) -> Vec<Self> {
        let AlsOptions { confidence, regularization, .. } = AlsOptions::default();
        let mut all = vec![Self::Als { latent_dim, confidence, regularization }];
        for confidence in CONFIDENCES {
            for regularization in REGULARIZATIONS {
                all.push(Self::Als { latent_dim, confidence, regularization });
            }
        }
        all
    }

    fn source(&self) -> EmbeddingSource {
        let interactions = SessionPart::All;
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

    fn settings(&self) -> ChosenSettings {
        match *self {
            Self::Svd { form, popularity_power, .. } => ChosenSettings {
                embedding: form,
                encoder: EncoderKind::WeightedMean,
                popularity_power,
            },
            Self::Als { .. } => ChosenSettings {
                embedding: plain(),
                encoder: EncoderKind::FoldIn,
                popularity_power: 0.0,
            },
        }
    }
}

/// β = V.
fn plain() -> Form {
    Form { power: Power::Zero, ridge: 0.0, popularity: 0.0 }
}

/// A judged candidate with the reward of every judge.
struct Tried {
    candidate: Candidate,
    rewards: Vec<f64>,
}

impl Tried {
    fn mean(&self) -> f64 {
        Estimate::of(self.rewards.iter().copied()).mean
    }

    /// The paired difference to another candidate.
    fn minus(&self, other: &Self) -> Estimate {
        Estimate::of(self.rewards.iter().zip(&other.rewards).map(|(a, b)| a - b))
    }
}

/// What was fitted without a fold, ready to be searched.
struct Searched {
    /// V n^κ, as input and as action vectors.
    vectors: Vectors,
    exact: Exact,
}

struct Play<'a> {
    sessions: &'a Sessions,
    judge: &'a Judge,
    seed: Seed,
    folds: Folds,
    /// The judging users of each fold, ascending.
    judges: Vec<Vec<u32>>,
    /// Training users of each action, without each fold.
    popularity: Vec<Vec<u32>>,
    /// The candidate whose source is fitted without each fold.
    fitted: Option<Candidate>,
    fits: Vec<StoredEmbeddings>,
    /// The fits with κ in place.
    searched: Option<(f32, Vec<Searched>)>,
    tried: Vec<Tried>,
}

/// Plays the league on the training users of `sessions`.
///
/// # Errors
/// [`Error::Setting`] if there are too few users to fit anything; fails if a fit fails.
pub fn league(sessions: &Sessions, judge: &Judge, seed: Seed) -> Result<(Chosen, League)> {
    let started = Instant::now();
    let limit = Duration::from_secs(judge.within);
    let deadline = Deadline::new(started, Some(limit));
    let mut play = Play::new(sessions, judge, seed)?;
    let reward = play.reward()?;
    let longest = play.longest()?;
    let short = SHORT.min(longest);
    let mut left_out = Vec::new();

    // Every normalisation, at a length that takes next to no time.
    let mut fitting = Duration::ZERO;
    for normalization in NORMALIZATIONS {
        if !play.tried.is_empty() && deadline.left().is_some_and(|left| left < 4 * fitting) {
            left_out.push(format!("svd with η = {normalization}"));
            continue;
        }
        let began = Instant::now();
        play.fit(start(normalization, short))?;
        fitting = fitting.max(began.elapsed());
        for probe in probes(normalization, short) {
            play.judge(probe, reward.as_ref())?;
        }
    }

    // The best of them, as long as the time allows; the winner is fitted once more, on everybody.
    let best = play.best()?;
    let time = |length: usize| {
        fitting.mul_f64(((length as f64 + ADDED) / (short as f64 + ADDED)).powf(GROWTH))
    };
    let lengths = || LENGTHS.into_iter().filter(|length| *length <= longest);
    let left = deadline.left().unwrap_or_default().mul_f64(FITTING);
    let affordable = lengths().filter(|length| time(*length) * 6 / 5 <= left);
    let long = affordable.fold(short, usize::max);
    let beyond = lengths().filter(|length| *length > long);
    left_out.extend(beyond.map(|length| format!("svd with L = {length}")));
    let until = deadline.until(Some(limit.saturating_sub(time(long) / 5)));
    let first = best.with_length(long);
    if play.fitted.is_none_or(|fitted| fitted.source() != first.source()) {
        play.fit(first)?;
    }
    if long > short {
        play.search(until, reward.as_ref(), first, weights(first))?;
    }
    let best = play.best()?;
    for length in lengths().filter(|length| *length < long) {
        if until.left().is_some_and(|left| left.is_zero()) {
            break;
        }
        play.judge(best.with_length(length), reward.as_ref())?;
    }
    let of_als = Candidate::als(short);
    let of_svd = (play.fitted.take(), std::mem::take(&mut play.fits));
    play.searched = None;
    // A fit without each fold takes about as long as the slowest of the short SVDs.
    if until.left().is_some_and(|left| left > 4 * fitting) {
        play.search(until, reward.as_ref(), of_als[0], of_als)?;
    } else {
        left_out.push(format!("als with L = {short}"));
    }

    let winner = play.winner()?;
    if matches!(winner, Candidate::Svd { .. }) {
        (play.fitted, play.fits) = of_svd;
    }
    let source = winner.source();
    let embeddings = source.fit(sessions, &sessions.contexts(Split::Train), seed)?;
    let report = League {
        table: play.table(winner),
        judges: play.judges.iter().map(Vec::len).sum(),
        tried: play.tried.len(),
        left_out,
        seconds: started.elapsed().as_secs_f64(),
    };
    let folds = play.into_folds(winner)?;
    let choice = Choice { source, settings: Some(winner.settings()) };
    Ok((Chosen { choice, embeddings, folds }, report))
}

fn nobody() -> Error {
    let problem = "needs training users with observed and hidden items to choose by; name the \
                   embeddings instead, as in --embeddings svd --latent-dim 10";
    Error::setting("embeddings", problem)
}

/// The candidate from which the search of a normalisation starts: the weights that earned the most on
/// sets of several kinds.
fn start(normalization: f32, latent_dim: usize) -> Candidate {
    let form = Form { power: Power::Quarter, ..plain() };
    Candidate::Svd { normalization, latent_dim, form, popularity_power: 0.25 }
}

/// Weights that are far apart, by which normalisations are compared.
fn probes(normalization: f32, latent_dim: usize) -> [Candidate; 4] {
    let with = |power, ridge, popularity, popularity_power| {
        let form = Form { power, ridge, popularity };
        Candidate::Svd { normalization, latent_dim, form, popularity_power }
    };
    [
        start(normalization, latent_dim),
        with(Power::Half, 0.0, 0.0, 0.5),
        with(Power::Zero, 0.0, 0.25, 0.5),
        with(Power::Zero, 8.0, 0.25, 0.5),
    ]
}

/// All weights and powers at the η and the L of a candidate.
fn weights(of: Candidate) -> Vec<Candidate> {
    let Candidate::Svd { normalization, latent_dim, .. } = of else { return Vec::new() };
    let powers = POWERS.iter().map(|&power| Form { power, ..plain() });
    let ridges = RIDGES.iter().map(|&ridge| Form { ridge, ..plain() });
    let mut all = Vec::new();
    for form in powers.chain(ridges) {
        for popularity in OF_ACTIONS {
            for popularity_power in OF_CONTEXTS {
                let form = Form { popularity, ..form };
                all.push(Candidate::Svd { normalization, latent_dim, form, popularity_power });
            }
        }
    }
    all
}

/// The places of a candidate on its axes: power or ridge, how strong, κ, γ.
fn places(candidate: &Candidate) -> Vec<usize> {
    let below = |values: &[f32], value: f32| values.partition_point(|other| *other < value);
    match candidate {
        Candidate::Svd { form, popularity_power, .. } => {
            let powers = POWERS.map(Power::exponent);
            let (is_ridge, strength) = if form.ridge > 0.0 {
                (1, below(&RIDGES, form.ridge))
            } else {
                (0, below(&powers, form.power.exponent()))
            };
            let kappa = below(&OF_ACTIONS, form.popularity);
            vec![is_ridge, strength, kappa, below(&OF_CONTEXTS, *popularity_power)]
        }
        Candidate::Als { confidence, regularization, .. } => vec![
            CONFIDENCES.partition_point(|other| other < confidence),
            REGULARIZATIONS.partition_point(|other| other < regularization),
        ],
    }
}

impl<'a> Play<'a> {
    fn new(sessions: &'a Sessions, judge: &'a Judge, seed: Seed) -> Result<Self> {
        let folds = Folds::new(sessions, FOLDS, seed);
        let judges: Vec<Vec<u32>> = (0..FOLDS)
            .map(|fold| {
                let mut users = folds.within(fold);
                users.retain(|user| !sessions.hidden.of(*user).is_empty());
                seed.stream(Purpose::Judges, 0, fold.into()).shuffle(&mut users);
                users.truncate(JUDGES / usize::from(FOLDS));
                users.sort_unstable();
                users
            })
            .collect();
        if judges.iter().all(Vec::is_empty) {
            return Err(nobody());
        }
        let popularity = (0..FOLDS).map(|fold| sessions.popularity(&folds.without(fold)));
        Ok(Self {
            sessions,
            judge,
            seed,
            judges,
            popularity: popularity.collect(),
            folds,
            fitted: None,
            fits: Vec::new(),
            searched: None,
            tried: Vec::new(),
        })
    }

    /// The longest SVD that every fold allows.
    fn longest(&self) -> Result<usize> {
        let fewest = (0..FOLDS).map(|fold| self.folds.without(fold).len()).min().unwrap_or(0);
        match fewest.min(self.sessions.num_actions) {
            0..2 => Err(nobody()),
            rank => Ok(rank - 1),
        }
    }

    /// The reward of the judge. One that compares items compares them by the same vectors for every
    /// candidate.
    fn reward(&self) -> Result<Arc<dyn SlateReward>> {
        let Judge { reward, slate_size, .. } = *self.judge;
        let users = self.sessions.contexts(Split::Train);
        let source = start(NORMALIZATIONS[0], SHORT.min(self.longest()?)).source();
        let stored = source.fit(self.sessions, &users, self.seed)?;
        let vectors = stored.into_vectors(&plain(), &self.sessions.popularity(&users))?;
        Ok(reward.init(slate_size, Arc::new(self.sessions.clone()), &vectors.actions))
    }

    /// Fits the source of a candidate without each fold.
    fn fit(&mut self, candidate: Candidate) -> Result<()> {
        let source = candidate.source();
        let fit = |fold| source.fit(self.sessions, &self.folds.without(fold), self.seed);
        self.fits = (0..FOLDS).map(fit).collect::<Result<_>>()?;
        (self.fitted, self.searched) = (Some(candidate), None);
        Ok(())
    }

    /// Judges `first`, then what is nearest to the best so far in `grid`, until the deadline.
    fn search(
        &mut self,
        deadline: Deadline,
        reward: &dyn SlateReward,
        first: Candidate,
        mut grid: Vec<Candidate>,
    ) -> Result<()> {
        grid.retain(|other| *other != first);
        let mut given = Some(first);
        let next = |best: Option<&Candidate>| {
            given.take().or_else(|| nearest(&mut grid, places, best.unwrap_or(&first), STEP))
        };
        search(deadline, next, |candidate| {
            if matches!(candidate, Candidate::Als { .. }) {
                self.fit(*candidate)?;
            }
            self.judge(*candidate, reward).map(Judged::Reward)
        })?;
        Ok(())
    }

    /// The mean reward of a candidate whose source is fitted, with at least its length.
    fn judge(&mut self, candidate: Candidate, reward: &dyn SlateReward) -> Result<f64> {
        let kappa = candidate.settings().embedding.popularity;
        #[allow(clippy::float_cmp, reason = "one of a few constants")]
        let other = self.searched.as_ref().is_none_or(|(known, _)| *known != kappa);
        if other {
            self.searched = None;
            let form = Form { popularity: kappa, ..plain() };
            let searched = self.fits.iter().zip(&self.popularity).map(|(stored, popularity)| {
                let vectors = stored.clone().into_vectors(&form, popularity)?;
                Ok(Searched { exact: Exact::new(Arc::clone(&vectors.actions)), vectors })
            });
            self.searched = Some((kappa, searched.collect::<Result<_>>()?));
        }
        let mut rewards = Vec::new();
        let searched = self.searched.iter().flat_map(|(_, searched)| searched);
        for ((fold, users), searched) in self.judges.iter().enumerate().zip(searched) {
            let latent = self.latent(candidate, fold, searched)?;
            let observed = users.iter().map(|user| self.sessions.observed.of(*user));
            let excluded: Vec<&[u32]> = observed.collect();
            let slates = searched.exact.search(Queries {
                latent: &latent,
                slate_size: self.judge.slate_size,
                excluded: self.judge.exclude_observed.then_some(&excluded),
            })?;
            let shown = users.iter().enumerate().map(|(at, user)| (*user, slates.slate(at)));
            rewards.extend(shown.map(|(user, slate)| f64::from(reward.reward(user, slate))));
        }
        let tried = Tried { candidate, rewards };
        let mean = tried.mean();
        tracing::debug!("{mean:.4} {candidate:?}");
        self.tried.push(tried);
        Ok(mean)
    }

    /// The queries of the judges of a fold. The weights f of both vectors are in the queries, so that
    /// one search serves all of them.
    fn latent(&self, candidate: Candidate, fold: usize, searched: &Searched) -> Result<Matrix> {
        let known = |user| {
            let actions = self.sessions.observed.of(user);
            Known { actions, ..Known::default() }
        };
        let users = &self.judges[fold];
        match candidate {
            Candidate::Als { confidence, regularization, .. } => {
                let options = FoldInOptions { regularization, confidence };
                let fold_in = FoldIn::new(Arc::clone(&searched.vectors.actions), options)?;
                Ok(encode_all(&fold_in, users, known))
            }
            Candidate::Svd { latent_dim, form, popularity_power, .. } => {
                let inputs = Arc::clone(&searched.vectors.inputs);
                let popularity = &self.popularity[fold];
                let mean = Mean::inverse_popularity(inputs, popularity, popularity_power);
                let mut latent = encode_all(&mean, users, known);
                let fit = self.fits[fold].spectrum.as_ref();
                let weights =
                    fit.map(|spectrum| spectrum.weights(&form, latent_dim)).transpose()?;
                let mut squares: Vec<f32> =
                    weights.unwrap_or_default().iter().map(|weight| weight * weight).collect();
                squares.resize(latent.cols(), 0.0);
                latent.par_rows_mut().for_each(|row| {
                    row.iter_mut().zip(&squares).for_each(|(value, square)| *value *= square);
                });
                Ok(latent)
            }
        }
    }

    fn highest(&self) -> Result<&Tried> {
        let by_mean = |a: &&Tried, b: &&Tried| a.mean().total_cmp(&b.mean());
        self.tried.iter().max_by(by_mean).ok_or_else(nobody)
    }

    fn best(&self) -> Result<Candidate> {
        Ok(self.highest()?.candidate)
    }

    /// The shortest candidate that is as good as the best, and the best of that length.
    fn winner(&self) -> Result<Candidate> {
        let best = self.highest()?;
        let as_good = self.tried.iter().filter(|tried| {
            let Estimate { mean, standard_error } = tried.minus(best);
            -mean <= standard_error && -mean <= LOSS * best.mean().abs()
        });
        let shortest = as_good.min_by(|a, b| {
            let by_length = a.candidate.latent_dim().cmp(&b.candidate.latent_dim());
            by_length.then(b.mean().total_cmp(&a.mean()))
        });
        shortest.map(|tried| tried.candidate).ok_or_else(nobody)
    }

    /// The best candidate of each source, the highest reward first.
    fn table(&self, winner: Candidate) -> Vec<Standing> {
        let Ok(best) = self.highest() else { return Vec::new() };
        let mut order: Vec<&Tried> = self.tried.iter().collect();
        order.sort_by(|a, b| b.mean().total_cmp(&a.mean()));
        let mut sources = Vec::new();
        order.retain(|tried| {
            let source = tried.candidate.source();
            let keep = tried.candidate == winner || !sources.contains(&source);
            sources.push(source);
            keep
        });
        let standing = |tried: &Tried| {
            let Estimate { mean: reward, standard_error: reward_se } =
                Estimate::of(tried.rewards.iter().copied());
            let Estimate { mean: difference, standard_error: difference_se } = tried.minus(best);
            let candidate = tried.candidate;
            Standing {
                candidate,
                reward,
                reward_se,
                difference,
                difference_se,
                bytes: candidate.latent_dim() * size_of::<f32>(),
                chosen: candidate == winner,
            }
        };
        order.into_iter().map(standing).collect()
    }

    /// The embeddings of the winner without each fold; those of the last fit, if they serve.
    fn into_folds(mut self, winner: Candidate) -> Result<Vec<StoredEmbeddings>> {
        let length = winner.latent_dim();
        let serve = self.fitted.is_some_and(|fitted| {
            fitted.latent_dim() >= length && fitted.with_length(length).source() == winner.source()
        });
        if !serve {
            self.fit(winner)?;
        }
        Ok(self.fits.iter().map(|stored| stored.resized(length)).collect())
    }
}
