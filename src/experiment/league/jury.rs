//! Fits in, the reward of every judge out: training users whose hidden items had no part in them.

use std::sync::Arc;

use rayon::prelude::*;

use super::called::{Called, anybody, strangers};
use super::candidate::{Candidate, NORMALIZATIONS, SHORT, plain, start};
use super::fits::{FOLDS, Fits, Searched};
use super::nobody;
use crate::dataset::{Folds, Sessions, Split, Times};
use crate::embedding::SvdOptions;
use crate::encoder::{Known, Mean, encode_all};
use crate::error::Result;
use crate::prepared::{ChosenSettings, HeldOut, Judge};
use crate::retrieval::{Queries, Retriever as _};
use crate::reward::SlateReward;
use crate::seed::Seed;

/// The halves of the judges' items, and the reward on them.
struct Halves {
    sessions: Arc<Sessions>,
    reward: Arc<dyn SlateReward>,
}

/// An encoder, and what the dimensions of its contexts are multiplied with.
type Encoding = (Mean, Option<Vec<f32>>);

/// The judging users, and what is fitted for them.
pub(super) struct Jury<'a> {
    pub(super) fits: Fits<'a>,
    /// What judges are asked; several halves of them where they are few.
    asked: Vec<Halves>,
    /// What orders the items of judges, if anything does.
    times: Option<Times>,
    judge: &'a Judge,
    /// The judging users of each part, ascending.
    parts: Vec<Vec<u32>>,
    /// The parts that judge until the last round, the first ones.
    asking: usize,
    /// The parts that judge now.
    called: usize,
}

impl<'a> Jury<'a> {
    pub(super) fn new(
        sessions: &'a Sessions,
        held_out: HeldOut<'_>,
        judge: &'a Judge,
        seed: Seed,
    ) -> Result<Self> {
        let folds = Folds::new(sessions, FOLDS, seed);
        let Called { parts, asking, asked, times, without } = match held_out {
            HeldOut::Users => strangers(sessions, &folds, seed),
            HeldOut::Items | HeldOut::Latest(_) => anybody(sessions, held_out, seed),
        };
        if parts.iter().all(Vec::is_empty) {
            return Err(nobody());
        }
        let fits = Fits::new(sessions, folds, without, asking, seed);
        // A reward that compares items compares them by the same vectors for every candidate.
        let mut compared = None;
        let mut vectors = || {
            if let Some(actions) = &compared {
                return Ok(Arc::clone(actions));
            }
            let users = sessions.contexts(Split::Train);
            let options = SvdOptions::soft(SHORT.min(fits.longest()?), NORMALIZATIONS[0]);
            let source = start(options, 0.0).source();
            let stored = source.fit(sessions, &users, seed)?;
            let fitted = stored.into_vectors(&plain(), &sessions.popularity(&users))?;
            Ok(Arc::clone(compared.insert(fitted.actions)))
        };
        let halves = asked.into_iter().map(|sessions| {
            let reward =
                judge.reward.init(judge.slate_size, Arc::clone(&sessions), &mut vectors)?;
            Ok(Halves { sessions, reward })
        });
        let asked = halves.collect::<Result<_>>()?;
        Ok(Self { fits, asked, times, judge, parts, asking, called: asking })
    }

    /// True if what the judges hide came after what they observe.
    pub(super) fn ordered(&self) -> bool {
        self.times.is_some()
    }

    /// True if there are parts of whose users nobody has judged yet.
    pub(super) fn has_others(&self) -> bool {
        self.asking < self.parts.len()
    }

    /// How many times as many users judge in the last round; 0 without one.
    pub(super) fn others(&self) -> f64 {
        if !self.has_others() {
            return 0.0;
        }
        self.judges_of(self.parts.len()) as f64 / self.count().max(1) as f64
    }

    fn judges_of(&self, parts: usize) -> usize {
        self.parts.iter().take(parts).map(Vec::len).sum()
    }

    /// What a candidate earns from every judge. Its source is fitted; of a blend, a longer one serves.
    pub(super) fn judge(&mut self, candidate: Candidate) -> Result<Vec<f64>> {
        debug_assert!(self.fits.is_fitted(candidate), "{candidate:?} is judged by other vectors");
        let mut rewards = Vec::new();
        for part in 0..self.called {
            let searched = self.fits.searched(self.fits.of_part(part), candidate)?;
            rewards.extend(self.ask(candidate, part, &searched)?);
        }
        Ok(rewards)
    }

    /// What a candidate earns from each judge of a part, over all their halves.
    fn ask(&self, candidate: Candidate, part: usize, searched: &Searched) -> Result<Vec<f64>> {
        let users = &self.parts[part];
        let (encoder, squares) = self.encoder(candidate, part, searched)?;
        let mut mean = vec![0.0; users.len()];
        for Halves { sessions, reward } in &self.asked {
            let observed = &sessions.observed;
            let known = |user| Known {
                actions: observed.of(user),
                times: self.times.as_ref().map(|times| observed.values_of(user, &times.observed)),
                features: None,
            };
            let mut latent = encode_all(&encoder, users, known);
            if let Some(squares) = &squares {
                latent.par_rows_mut().for_each(|row| {
                    row.iter_mut().zip(squares).for_each(|(value, square)| *value *= square);
                });
            }
            let excluded: Vec<&[u32]> = users.iter().map(|user| observed.of(*user)).collect();
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

    /// The encoder of a candidate for a part of the judges, and what its dimensions are multiplied with: the
    /// weights f of both vectors are in the queries, so that one search serves all of them.
    fn encoder(&self, candidate: Candidate, part: usize, searched: &Searched) -> Result<Encoding> {
        let ChosenSettings { embedding, popularity_power, recency, .. } = candidate.settings();
        let (inputs, fit) = (&searched.vectors.inputs, self.fits.of_part(part));
        let popularity = self.fits.popularity(fit);
        let mean = Mean::inverse_popularity(Arc::clone(inputs), popularity, popularity_power);
        let weights =
            self.fits.spectrum(fit).map(|it| it.weights(&embedding, candidate.latent_dim()));
        let squares = weights
            .transpose()?
            .map(|weights| weights.iter().map(|weight| weight * weight).collect());
        Ok((mean.with_recency(recency), squares))
    }

    /// The number of judges until the last round.
    pub(super) fn count(&self) -> usize {
        self.judges_of(self.asking)
    }

    /// The number of halves of each of them.
    pub(super) fn draws(&self) -> usize {
        self.asked.len()
    }

    /// Lets all parts judge `candidate` and its source from now on: of strangers, what training needs is
    /// fitted, the source without each fold. Returns the number of judges; the first of them are those who
    /// judged before.
    pub(super) fn call_others(&mut self, candidate: Candidate) -> Result<usize> {
        self.fits.fit_all(candidate)?;
        self.called = self.parts.len();
        Ok(self.judges_of(self.called))
    }
}

#[cfg(test)]
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
