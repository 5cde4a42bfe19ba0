//! A candidate in, the reward of every judge out: training users whose hidden items had no part in the
//! fit.

use std::sync::Arc;

use rayon::prelude::*;

use super::asked::{hidden_of, hide, hide_others, who_may_judge};
use super::candidate::{Candidate, NORMALIZATIONS, SHORT, plain, start};
use crate::dataset::{Folds, Sessions, Split, Times};
use crate::embedding::{
    FoldIn, FoldInOptions, Form, SessionPart, StoredEmbeddings, Vectors, blend, interactions_of,
};
use crate::encoder::{Known, Mean, encode_all};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::prepared::{HeldOut, Judge};
use crate::retrieval::{Exact, Queries, Retriever as _};
use crate::reward::SlateReward;
use crate::seed::{Purpose, Seed};

/// The folds, as many as the default preset trains with.
pub(super) const FOLDS: u16 = 5;
/// The users who judge, unless they hide so little that it takes more of them, or more cost little.
const JUDGES: usize = 1000;
/// The inner products for which a candidate is judged by more users, or more often by the same.
const PRODUCTS: usize = 20_000_000;
/// The most users who judge for that reason.
const MOST_JUDGES: usize = 5000;
/// The most halves of a judge. Two leave three quarters of the standard error of a difference, four five
/// eighths, more hardly less: users differ.
const DRAWS: u64 = 4;
/// The hidden items that it takes to tell candidates apart by some percent, where those who hide them are
/// missed in the fit.
const HIDDEN: usize = 10_000;
/// The same, where they are not in the fit anyway.
const HIDDEN_BY_STRANGERS: usize = 20_000;

/// The candidate whose source was fitted, and what was fitted without each fold that judges.
pub(super) type Fits = (Option<Candidate>, Vec<StoredEmbeddings>);

/// What was fitted without a fold, ready to be searched.
struct Searched {
    /// V n^κ, as input and as action vectors.
    vectors: Vectors,
    exact: Exact,
}

/// The halves of the judges' items, and the reward on them.
struct Halves {
    sessions: Arc<Sessions>,
    reward: Arc<dyn SlateReward>,
}

/// The judging users, and what was fitted without what they hide.
pub(super) struct Jury<'a> {
    /// The training sessions.
    sessions: &'a Sessions,
    /// True if judges hide some of the items that everything else is fitted on; otherwise they are left
    /// out of a fit as a whole.
    hiding: bool,
    /// What judges are asked; several halves of them where they are few.
    asked: Vec<Halves>,
    /// What orders the items of judges, if anything does.
    times: Option<Times>,
    judge: &'a Judge,
    seed: Seed,
    folds: Folds,
    /// The parts of the judges that judge until the last round, the first ones.
    asking: usize,
    /// The judging users of each part, ascending. A part has a fit of its own, unless something is
    /// hidden: then one fit serves all.
    judges: Vec<Vec<u32>>,
    /// The parts that judge now.
    called: usize,
    /// Users of each action in each fit.
    popularity: Vec<Vec<u32>>,
    /// The candidate whose source is fitted.
    fitted: Option<Candidate>,
    fits: Vec<StoredEmbeddings>,
    /// The fits with κ in place.
    searched: Option<(f32, Vec<Searched>)>,
    /// The SVD of which blends are made, and its fits.
    base: Option<(Candidate, Vec<StoredEmbeddings>)>,
}

pub(super) fn nobody() -> Error {
    let problem = "needs training users with observed and hidden items to choose by; name the \
                   embeddings instead, as in --embeddings svd --latent-dim 10";
    Error::setting("embeddings", problem)
}

/// How many of the users who may judge do, if together they hide so many items and it takes so many.
fn wanted(users: usize, items: usize, hidden: usize) -> usize {
    JUDGES.max(hidden * users / items.max(1))
}

impl<'a> Jury<'a> {
    pub(super) fn new(
        sessions: &'a Sessions,
        held_out: HeldOut<'_>,
        judge: &'a Judge,
        seed: Seed,
    ) -> Result<Self> {
        let folds = Folds::new(sessions, FOLDS, seed);
        let mut jury = Self {
            sessions,
            hiding: !matches!(held_out, HeldOut::Users),
            asked: Vec::new(),
            times: None,
            judge,
            seed,
            asking: 1,
            judges: Vec::new(),
            called: 1,
            popularity: Vec::new(),
            folds,
            fitted: None,
            fits: Vec::new(),
            searched: None,
            base: None,
        };
        let asked = match held_out {
            HeldOut::Users => jury.call_strangers(),
            HeldOut::Items | HeldOut::Latest(_) => jury.call_anybody(held_out),
        };
        if jury.judges.iter().all(Vec::is_empty) {
            return Err(nobody());
        }
        jury.ask_for(asked)?;
        Ok(jury)
    }

    /// Gives each of the halves its reward. One that compares items compares them by the same vectors for
    /// every candidate.
    fn ask_for(&mut self, asked: Vec<Sessions>) -> Result<()> {
        let Judge { reward, slate_size, .. } = *self.judge;
        let users = self.sessions.contexts(Split::Train);
        let source = start(NORMALIZATIONS[0], SHORT.min(self.longest()?), 0.0).source();
        let stored = source.fit(self.sessions, &users, self.seed)?;
        let vectors = stored.into_vectors(&plain(), &self.sessions.popularity(&users))?;
        let with_reward = asked.into_iter().map(Arc::new).map(|sessions| {
            let reward = reward.init(slate_size, Arc::clone(&sessions), &vectors.actions);
            Halves { sessions, reward }
        });
        self.asked = with_reward.collect();
        Ok(())
    }

    /// Users who are left out of a fit judge it.
    fn call_strangers(&mut self) -> Vec<Sessions> {
        let Self { sessions, folds, seed, .. } = self;
        let mut judges: Vec<Vec<u32>> = (0..FOLDS)
            .map(|fold| {
                let mut users = folds.within(fold);
                users.retain(|user| !sessions.hidden.of(*user).is_empty());
                seed.stream(Purpose::Judges, 0, fold.into()).shuffle(&mut users);
                users
            })
            .collect();
        let hidden = |user: &u32| sessions.hidden.of(*user).len();
        let users: usize = judges.iter().map(Vec::len).sum();
        let items: usize = judges.iter().flatten().map(hidden).sum();
        let affordable = (PRODUCTS / sessions.num_actions.max(1)).min(MOST_JUDGES);
        let wanted = wanted(users, items, HIDDEN_BY_STRANGERS).max(affordable);
        let draws = (wanted.div_ceil(users.max(1)) as u64).min(DRAWS);
        let smallest = judges.iter().map(Vec::len).min().unwrap_or(0);
        let asking = wanted.div_ceil(smallest.max(1)).min(judges.len());
        let of_each = wanted.div_ceil(asking);
        for users in &mut judges {
            users.truncate(of_each);
            users.sort_unstable();
        }
        let popularity = (0..FOLDS).map(|fold| sessions.popularity(&folds.without(fold)));
        self.popularity = popularity.collect();
        (self.judges, self.asking, self.called) = (judges, asking, asking);
        let others = (1..draws).map(|draw| hide_others(self.sessions, draw, self.seed));
        std::iter::once(self.sessions.clone()).chain(others).collect()
    }

    /// Any users judge one fit, which everything is part of but what they hide. As many again for each
    /// other fold wait for the last round; not where they would hide the latest items, which say most of
    /// what comes next and would be missed in the fit.
    fn call_anybody(&mut self, held_out: HeldOut<'_>) -> Vec<Sessions> {
        let (share, mut users) = who_may_judge(self.sessions);
        self.seed.stream(Purpose::Judges, 0, 0).shuffle(&mut users);
        let items = users.iter().map(|(_, items)| hidden_of(*items, share)).sum();
        let of_each = wanted(users.len(), items, HIDDEN);
        let parts = if matches!(held_out, HeldOut::Latest(_)) { 1 } else { FOLDS };
        users.truncate(of_each * usize::from(parts));
        let users: Vec<u32> = users.into_iter().map(|(user, _)| user).collect();
        let (asked, times) = hide(self.sessions, held_out, &users, self.seed);
        let trained_on = asked.contexts(Split::Train);
        self.popularity = vec![asked.observed.popularity(trained_on, asked.num_actions)];
        self.judges = users.chunks(of_each).map(<[u32]>::to_vec).collect();
        self.judges.iter_mut().for_each(|judges| judges.sort_unstable());
        self.times = times;
        vec![asked]
    }

    /// The longest SVD that every fold allows.
    pub(super) fn longest(&self) -> Result<usize> {
        let fewest = (0..FOLDS).map(|fold| self.folds.without(fold).len()).min().unwrap_or(0);
        match fewest.min(self.sessions.num_actions) {
            0..2 => Err(nobody()),
            rank => Ok(rank - 1),
        }
    }

    /// True if what the judges hide came after what they observe.
    pub(super) fn ordered(&self) -> bool {
        self.times.is_some()
    }

    /// P.
    pub(super) fn num_actions(&self) -> usize {
        self.sessions.num_actions
    }

    /// The number of fits that judge a source until the last round.
    pub(super) fn fits(&self) -> u32 {
        if self.hiding { 1 } else { self.judges.iter().take(self.asking).map(|_| 1).sum() }
    }

    /// True if there are parts of whose users nobody has judged yet.
    pub(super) fn has_others(&self) -> bool {
        self.asking < self.judges.len()
    }

    /// The number of them that are of use when the winner is fitted.
    pub(super) fn kept(&self) -> u32 {
        if self.hiding { 0 } else { self.fits() }
    }

    /// Fits the source of a candidate without what the judges of each fit hide.
    pub(super) fn fit(&mut self, candidate: Candidate) -> Result<()> {
        // Two of them at once may be more than the memory holds.
        (self.fitted, self.searched, self.fits) = (None, None, Vec::new());
        for fold in (0..FOLDS).take(if self.hiding { 1 } else { self.asking }) {
            self.fits.push(self.fit_without(fold, candidate)?);
        }
        self.fitted = Some(candidate);
        Ok(())
    }

    /// The source of a candidate without what the judges of a fold hide.
    fn fit_without(&self, fold: u16, candidate: Candidate) -> Result<StoredEmbeddings> {
        let (sessions, users, part) = if self.hiding {
            let asked = &*self.asked[0].sessions;
            (asked, asked.contexts(Split::Train), SessionPart::Observed)
        } else {
            (self.sessions, self.folds.without(fold), SessionPart::All)
        };
        if let Candidate::Blend { blend: options, .. } = candidate
            && let Some(svd) = self.base_of(candidate, fold)
        {
            return blend(svd, &interactions_of(sessions, &users, part), options);
        }
        candidate.source_of(part).fit(sessions, &users, self.seed)
    }

    /// The fit of a blend's SVD without a fold, if it is there.
    fn base_of(&self, candidate: Candidate, fold: u16) -> Option<&StoredEmbeddings> {
        let (base, fits) = self.base.as_ref()?;
        fits.get(usize::from(fold)).filter(|_| candidate.is_blend_of(*base))
    }

    /// Keeps the fits of an SVD, which is fitted first unless it is there, for blends of it.
    pub(super) fn keep_base(&mut self, svd: Candidate) -> Result<()> {
        if !self.is_fitted(svd) {
            self.fit(svd)?;
        }
        let (_, mut fits) = self.take_fits();
        for stored in &mut fits {
            if stored.v.cols() > svd.latent_dim() {
                *stored = stored.resized(svd.latent_dim());
            }
        }
        self.base = Some((svd, fits));
        Ok(())
    }

    /// Frees the fits of [`Self::keep_base`].
    pub(super) fn drop_base(&mut self) {
        self.base = None;
    }

    /// What a candidate earns from every judge. Its source is fitted, with at least its length.
    pub(super) fn judge(&mut self, candidate: Candidate) -> Result<Vec<f64>> {
        debug_assert!(self.is_fitted(candidate), "{candidate:?} is judged by other vectors");
        let kappa = candidate.settings().embedding.popularity;
        // All of them at once, in the last round, may be more than the memory holds.
        let keep = self.hiding || self.fits.len() <= self.asking;
        #[allow(clippy::float_cmp, reason = "one of a few constants")]
        if keep && self.searched.as_ref().is_none_or(|(known, _)| *known != kappa) {
            self.searched = None;
            let all = (0..self.fits.len()).map(|fit| self.searched(fit, kappa));
            self.searched = Some((kappa, all.collect::<Result<_>>()?));
        }
        let mut rewards = Vec::new();
        for part in 0..self.called {
            let (fit, made) = (self.fit_of(part), &mut None);
            let searched = match &self.searched {
                Some((_, kept)) if keep => &kept[fit],
                _ => made.insert(self.searched(fit, kappa)?),
            };
            rewards.extend(self.ask(candidate, part, searched)?);
        }
        Ok(rewards)
    }

    /// The fit that a part of the judges judges.
    fn fit_of(&self, part: usize) -> usize {
        if self.hiding { 0 } else { part }
    }

    /// What was fitted without a fold, with κ in place.
    fn searched(&self, fit: usize, kappa: f32) -> Result<Searched> {
        let form = Form { popularity: kappa, ..plain() };
        let vectors = self.fits[fit].clone().into_vectors(&form, &self.popularity[fit])?;
        Ok(Searched { exact: Exact::new(Arc::clone(&vectors.actions)), vectors })
    }

    /// What a candidate earns from each judge of a part, over all their halves.
    fn ask(&self, candidate: Candidate, part: usize, searched: &Searched) -> Result<Vec<f64>> {
        let users = &self.judges[part];
        let mut mean = vec![0.0; users.len()];
        for Halves { sessions, reward } in &self.asked {
            let latent = self.latent(candidate, part, searched, sessions)?;
            let observed = users.iter().map(|user| sessions.observed.of(*user));
            let excluded: Vec<&[u32]> = observed.collect();
            let slates = searched.exact.search(Queries {
                latent: &latent,
                slate_size: self.judge.slate_size,
                excluded: self.judge.exclude_observed.then_some(&excluded),
            })?;
            for (at, (user, mean)) in users.iter().zip(&mut mean).enumerate() {
                *mean += f64::from(reward.reward(*user, slates.slate(at))) / self.draws() as f64;
            }
        }
        Ok(mean)
    }

    /// The queries of a part of the judges. The weights f of both vectors are in the queries, so that
    /// one search serves all of them.
    fn latent(
        &self,
        candidate: Candidate,
        part: usize,
        searched: &Searched,
        sessions: &Sessions,
    ) -> Result<Matrix> {
        let observed = &sessions.observed;
        let known = |user| Known {
            actions: observed.of(user),
            times: self.times.as_ref().map(|times| observed.values_of(user, &times.observed)),
            features: None,
        };
        let (users, fit) = (&self.judges[part], self.fit_of(part));
        match candidate {
            Candidate::Als { confidence, regularization, .. } => {
                let options = FoldInOptions { regularization, confidence };
                let fold_in = FoldIn::new(Arc::clone(&searched.vectors.actions), options)?;
                Ok(encode_all(&fold_in, users, known))
            }
            Candidate::Svd { form, popularity_power, recency, .. }
            | Candidate::Blend { form, popularity_power, recency, .. } => {
                let latent_dim = candidate.latent_dim();
                let inputs = Arc::clone(&searched.vectors.inputs);
                let popularity = &self.popularity[fit];
                let mean = Mean::inverse_popularity(inputs, popularity, popularity_power);
                let mut latent = encode_all(&mean.with_recency(recency), users, known);
                let spectrum = self.fits[fit].spectrum.as_ref();
                let weights =
                    spectrum.map(|spectrum| spectrum.weights(&form, latent_dim)).transpose()?;
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

    /// Takes the fits out, to put them back when another source has had its turn.
    pub(super) fn take_fits(&mut self) -> Fits {
        self.searched = None;
        (self.fitted.take(), std::mem::take(&mut self.fits))
    }

    pub(super) fn put_fits(&mut self, fits: Fits) {
        (self.fitted, self.fits) = fits;
        self.searched = None;
    }

    /// The number of judges until the last round.
    pub(super) fn count(&self) -> usize {
        self.judges.iter().take(self.asking).map(Vec::len).sum()
    }

    /// The number of halves of each of them.
    pub(super) fn draws(&self) -> usize {
        self.asked.len()
    }

    /// Lets all parts judge `candidate` and its source from now on: of strangers, what training needs is
    /// fitted, the source without each fold. Returns the number of judges; the first of them are those who
    /// judged before.
    pub(super) fn call_others(&mut self, candidate: Candidate) -> Result<usize> {
        if !self.hiding {
            self.fits = self.folds_of(candidate)?;
            self.fitted = Some(candidate);
        } else if !self.is_fitted(candidate) {
            self.fit(candidate)?;
        }
        self.called = self.judges.len();
        Ok(self.judges.iter().map(Vec::len).sum())
    }

    /// True if what is fitted serves `candidate`: it is the source, and of an SVD or a blend at least as long.
    pub(super) fn is_fitted(&self, candidate: Candidate) -> bool {
        let length = candidate.latent_dim();
        self.fitted.is_some_and(|fitted| match fitted {
            Candidate::Als { .. } => fitted.source() == candidate.source(),
            Candidate::Svd { .. } | Candidate::Blend { .. } => {
                let source = fitted.with_length(length).source();
                fitted.latent_dim() >= length && source == candidate.source()
            }
        })
    }

    /// The embeddings of the winner without each fold; those of the last fit are among them, if they
    /// serve.
    pub(super) fn into_folds(mut self, winner: Candidate) -> Result<Vec<StoredEmbeddings>> {
        self.folds_of(winner)
    }

    fn folds_of(&mut self, winner: Candidate) -> Result<Vec<StoredEmbeddings>> {
        let length = winner.latent_dim();
        let serve = !self.hiding && self.is_fitted(winner);
        self.searched = None;
        let mut folds = if serve { std::mem::take(&mut self.fits) } else { Vec::new() };
        for stored in &mut folds {
            *stored = stored.resized(length);
        }
        for fold in (0..FOLDS).skip(folds.len()) {
            let users = self.folds.without(fold);
            folds.push(winner.source().fit(self.sessions, &users, self.seed)?);
        }
        Ok(folds)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::dataset::{SplitSettings, SyntheticSettings, assemble, synthetic};

    #[test]
    fn few_judges_judge_by_several_halves_of_their_items() {
        let halves_of = |users, actions| {
            let settings = SyntheticSettings { users, actions, ..Default::default() };
            let interactions = synthetic(&settings).unwrap();
            let sessions = assemble(interactions, &SplitSettings::default()).unwrap().sessions;
            let judge = Judge::default();
            let jury = Jury::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
            (jury.draws(), jury.count())
        };
        assert_eq!(halves_of(200, 300), (4, 160));
        assert_eq!(halves_of(3000, 300).0, 3, "5 000 judgements");
    }
}
