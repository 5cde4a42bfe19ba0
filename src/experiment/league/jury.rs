//! Fits in, the reward of every judge out: training users whose hidden items had no part in them.

use std::sync::Arc;

use rayon::prelude::*;

use super::axes::{NORMALIZATIONS, SHORT, start};
use super::called::{Called, anybody, strangers};
use super::candidate::{Candidate, plain};
use super::fits::{Fits, PARTS, Searched};
use super::nobody;
use super::shortlist::{LONG, Shortlist};
use crate::dataset::{Folds, Sessions, Split, Times};
use crate::embedding::SvdOptions;
use crate::encoder::{Known, Mean, encode_all};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::prepared::{ChosenSettings, HeldOut, Judge};
use crate::retrieval::{Queries, Retriever as _, Slates};
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
    /// The best actions by the best candidate of a source.
    shortlist: Option<Shortlist>,
    /// The multiplications of a judgement from which on such lists are kept.
    pub(super) long: usize,
}

impl<'a> Jury<'a> {
    pub(super) fn new(
        sessions: &'a Sessions,
        held_out: HeldOut<'_>,
        judge: &'a Judge,
        seed: Seed,
    ) -> Result<Self> {
        let folds = Folds::new(sessions, PARTS, seed);
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
        let asking = asking.into();
        Ok(Self {
            fits,
            asked,
            times,
            judge,
            parts,
            asking,
            called: asking,
            shortlist: None,
            long: LONG,
        })
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

    /// What a candidate earns from every judge. Its source is fitted; of a blend, a longer one serves. Where
    /// that takes long, the candidate's best actions come out too.
    pub(super) fn judge(&mut self, candidate: Candidate) -> Result<(Vec<f64>, Option<Shortlist>)> {
        debug_assert!(self.fits.is_fitted(candidate), "{candidate:?} is judged by other vectors");
        let shown = self.judge.slate_size;
        let listed = self.listed(candidate.latent_dim());
        let (mut rewards, mut best) = (Vec::new(), Vec::new());
        for part in 0..self.called {
            let searched = self.fits.searched(self.fits.of_part(part), candidate)?;
            let mut of_part = Vec::new();
            rewards.extend(self.ask(candidate, part, &searched, |_, latent, excluded| {
                let slate_size = listed.unwrap_or(shown);
                let found = searched.exact.search(Queries { latent, slate_size, excluded })?;
                if listed.is_none() {
                    return Ok(found);
                }
                of_part.push(found.actions().to_vec());
                Ok(found.first(shown).into_owned())
            })?);
            best.push(of_part);
        }
        Ok((rewards, listed.map(|_| Shortlist::new(candidate, best))))
    }

    /// What a candidate earns from every judge who chooses among the best actions by one near it; none if
    /// nobody keeps such.
    pub(super) fn judge_near(&mut self, candidate: Candidate) -> Result<Option<Vec<f64>>> {
        let kept = self.shortlist.as_ref();
        let Some(near) = kept.filter(|kept| kept.serves(candidate, self.called)) else {
            return Ok(None);
        };
        let kappa = |of: Candidate| of.settings().embedding.popularity;
        // Vectors that are there already, but for κ.
        let of = if near.is_of_source(candidate) { near.of() } else { candidate };
        let more = kappa(candidate) - kappa(of);
        let mut rewards = Vec::new();
        for part in 0..self.called {
            let fit = self.fits.of_part(part);
            let searched = self.fits.searched(fit, of)?;
            let popularity = self.fits.popularity(fit);
            let factor = |action: u32| (popularity[action as usize].max(1) as f32).powf(more);
            rewards.extend(self.ask(candidate, part, &searched, |half, latent, _| {
                Ok(near.slates([part, half], latent, &searched, factor, self.judge.slate_size))
            })?);
        }
        Ok(Some(rewards))
    }

    /// Keeps the lists of a candidate that earned so much, unless those of one like it are there already that `earned`
    /// no less.
    pub(super) fn keep(
        &mut self,
        list: Option<Shortlist>,
        mean: f64,
        earned: impl Fn(Candidate) -> Option<f64>,
    ) {
        let Some(list) = list else { return };
        let stays = self.shortlist.as_ref().is_some_and(|kept| {
            kept.is_alike(list.of(), self.called) && earned(kept.of()) >= Some(mean)
        });
        if !stays {
            self.shortlist = Some(list);
        }
    }

    /// The length of the lists of the best actions by a candidate of so many dimensions, if they are worth keeping
    /// and everybody has so many left.
    fn listed(&self, latent_dim: usize) -> Option<usize> {
        let judges = self.judges_of(self.called) * self.draws();
        let products = judges.saturating_mul(self.fits.num_actions()).saturating_mul(latent_dim);
        if products < self.long {
            return None;
        }
        let users = || self.parts.iter().take(self.called).flatten();
        let observed =
            |half: &Halves| users().map(|user| half.sessions.observed.of(*user).len()).max();
        let most = self.asked.iter().filter_map(observed).max().unwrap_or(0);
        let excluded = if self.judge.exclude_observed { most } else { 0 };
        let size = Shortlist::size(self.judge.slate_size);
        (size + excluded <= self.fits.num_actions()).then_some(size)
    }

    /// What a candidate earns from each judge of a part, over all their halves: `decide` has the number of the
    /// half, queries and what is excluded, and gives slates.
    fn ask(
        &self,
        candidate: Candidate,
        part: usize,
        searched: &Searched,
        mut decide: impl FnMut(usize, &Matrix, Option<&[&[u32]]>) -> Result<Slates>,
    ) -> Result<Vec<f64>> {
        let users = &self.parts[part];
        let (encoder, squares) = self.encoder(candidate, part, searched)?;
        let mut mean = vec![0.0; users.len()];
        for (half, Halves { sessions, reward }) in self.asked.iter().enumerate() {
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
            let excluded = self.judge.exclude_observed.then_some(&excluded[..]);
            let slates = decide(half, &latent, excluded)?;
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
        // What κ would make of the inputs beyond what it has.
        let popularity_power = popularity_power - (embedding.popularity - searched.kappa);
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

    /// True in the last round.
    pub(super) fn calls_others(&self) -> bool {
        self.called > self.asking
    }

    /// Lets those judge who did until the last round.
    pub(super) fn dismiss_others(&mut self) {
        self.fits.dismiss_others();
        self.called = self.asking;
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
    use super::super::axes::{soft, weights};
    use super::super::made_up;
    use super::*;
    use crate::dataset::{SplitSettings, SyntheticSettings, assemble, synthetic};

    #[test]
    fn weights_near_a_candidate_are_judged_among_its_best_actions() {
        let (sessions, judge) = (made_up(700, 500), Judge::default());
        let mut jury = Jury::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
        jury.long = 0;
        let centre = soft(0.25, 50);
        jury.fits.fit(centre).unwrap();
        let (of_centre, list) = jury.judge(centre).unwrap();
        assert!(jury.judge_near(centre).unwrap().is_none());
        jury.keep(list, 1.0, |_| None);
        let (mut judged, mut alike, mut like_centre) = (0, 0, 0);
        for candidate in weights(centre, false) {
            let Some(found) = jury.judge_near(candidate).unwrap() else { continue };
            let (expected, _) = jury.judge(candidate).unwrap();
            let same = |of: &[f64]| of.iter().zip(&expected).filter(|(a, b)| a == b).count();
            judged += expected.len();
            (alike, like_centre) = (alike + same(&found), like_centre + same(&of_centre));
        }
        assert!(judged > 10 * of_centre.len(), "{judged}");
        assert!(1000 * alike >= 999 * judged && 10 * like_centre < 9 * judged);
        jury.fits.fit(soft(0.5, 50)).unwrap();
        assert!(jury.judge_near(soft(0.5, 50)).unwrap().is_none(), "of another decomposition");
    }

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
