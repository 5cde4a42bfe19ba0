//! Judged candidates in, the winner and the table out.

use super::candidate::{Candidate, Kind};
use super::nobody;
use super::report::{Settled, Standing};
use crate::error::Result;
use crate::estimate::Estimate;

/// The most that a shorter candidate may earn less than the best, as a share.
const LOSS: f64 = 0.01;
/// Standard errors below the best, and the share of it, from which on a candidate's neighbours are not
/// worth a look: they earn some percent more where the weights fit the data badly.
const DOUBT: (f64, f64) = (2.0, 0.06);

/// A judged candidate with the reward of every judge.
pub(super) struct Tried {
    pub(super) candidate: Candidate,
    pub(super) rewards: Vec<f64>,
    /// The mean of `rewards`, by which all candidates are compared again and again.
    pub(super) mean: f64,
}

impl Tried {
    pub(super) fn new(candidate: Candidate, rewards: Vec<f64>) -> Self {
        let mean = Estimate::of(rewards.iter().copied()).mean;
        Self { candidate, rewards, mean }
    }

    /// The paired difference to another candidate.
    fn minus(&self, other: &Self) -> Estimate {
        Estimate::of(self.rewards.iter().zip(&other.rewards).map(|(a, b)| a - b))
    }

    /// True if this one earns less beyond doubt.
    fn is_hopeless(&self, other: &Self) -> bool {
        let Estimate { mean, standard_error } = self.minus(other);
        let (errors, share) = DOUBT;
        -mean > (errors * standard_error).max(share * other.mean.abs())
    }

    /// True if this one earns less by more than a standard error.
    fn is_below(&self, other: &Self) -> bool {
        let Estimate { mean, standard_error } = self.minus(other);
        -mean > standard_error
    }
}

/// The one that earned the most; of several the last.
fn highest<'a>(of: impl Iterator<Item = &'a Tried>) -> Option<&'a Tried> {
    of.max_by(|a, b| a.mean.total_cmp(&b.mean))
}

/// Everything that was judged.
#[derive(Default)]
pub(super) struct Standings(pub(super) Vec<Tried>);

impl Standings {
    fn highest(&self) -> Result<&Tried> {
        highest(self.0.iter()).ok_or_else(nobody)
    }

    /// True if the candidate has been judged.
    pub(super) fn has(&self, candidate: Candidate) -> bool {
        self.tried(candidate).is_some()
    }

    /// The best of those like this one with its length.
    pub(super) fn best_like(&self, like: Candidate) -> Option<Candidate> {
        self.highest_like(like).map(|tried| tried.candidate)
    }

    /// What a candidate earned, if it was judged.
    pub(super) fn mean_of(&self, candidate: Candidate) -> Option<f64> {
        self.tried(candidate).map(|tried| tried.mean)
    }

    fn tried(&self, candidate: Candidate) -> Option<&Tried> {
        self.0.iter().find(|tried| tried.candidate == candidate)
    }

    /// What the best of those like this one with its length earned.
    pub(super) fn mean_like(&self, like: Candidate) -> Option<f64> {
        self.highest_like(like).map(|tried| tried.mean)
    }

    /// What the best of all earned.
    pub(super) fn highest_mean(&self) -> Option<f64> {
        self.highest().ok().map(|tried| tried.mean)
    }

    /// The best of those like this one, at any length.
    pub(super) fn best_at_any_length(&self, like: Candidate) -> Option<Candidate> {
        self.highest_at_any_length(like).map(|tried| tried.candidate)
    }

    /// True if the best of this length earns less than the best of any by more than a standard error; of
    /// one kind and normalisation.
    pub(super) fn falls(&self, like: Candidate) -> bool {
        let highest = self.highest_at_any_length(like);
        highest.zip(self.highest_like(like)).is_some_and(|(highest, like)| like.is_below(highest))
    }

    /// True if the best of this length, kind and normalisation earns what the best of all does, but for a
    /// standard error.
    pub(super) fn is_level(&self, like: Candidate) -> bool {
        let highest = self.highest().ok();
        highest.zip(self.highest_like(like)).is_some_and(|(highest, like)| !like.is_below(highest))
    }

    /// True if one of this one's kind and length, of another normalisation, earns more, beyond doubt.
    pub(super) fn is_beaten(&self, like: Candidate) -> bool {
        let alike = |tried: &&Tried| tried.candidate.is_as_long(like);
        highest(self.0.iter().filter(alike))
            .zip(self.highest_like(like))
            .is_some_and(|(highest, best)| best.is_hopeless(highest))
    }

    /// True if ALS wins, and the best SVD, of `svd`'s normalisation, earns less by more than a standard error: more
    /// of them are not worth the time of the last round.
    pub(super) fn is_for_als(&self, svd: Candidate) -> Result<bool> {
        let als_wins = matches!(self.winner()?.kind, Kind::Als { .. });
        let best = self.highest_at_any_length(svd).zip(self.highest().ok());
        Ok(als_wins && best.is_some_and(|(svd, highest)| svd.is_below(highest)))
    }

    /// The SVD to make blends of: the winner, or the best where it is an SVD and ALS wins as the shorter one. Not
    /// the best of any: longer blends on MovieLens earned no more on users who did not judge, in twice the time.
    /// None where ALS or a blend earns more.
    pub(super) fn to_blend(&self) -> Result<Option<Candidate>> {
        let winner = self.winner()?;
        let of = match winner.kind {
            Kind::Als { .. } => self.highest()?.candidate,
            Kind::Svd(_) | Kind::Blend { .. } | Kind::Neighbours { .. } => winner,
        };
        Ok(matches!(of.kind, Kind::Svd(_)).then_some(of))
    }

    /// True if the best of this one's kind, normalisation and length earns more than the best of `other`'s.
    pub(super) fn is_above(&self, like: Candidate, other: Candidate) -> bool {
        self.mean_like(like) > self.mean_like(other)
    }

    /// The same, beyond doubt.
    pub(super) fn is_far_above(&self, like: Candidate, other: Candidate) -> bool {
        let both = self.highest_like(like).zip(self.highest_like(other));
        both.is_some_and(|(like, other)| other.is_hopeless(like))
    }

    /// True if a candidate earns more than another one by more than a standard error and one percent.
    pub(super) fn is_worth_more(&self, candidate: Candidate, other: Candidate) -> bool {
        self.tried(candidate).zip(self.tried(other)).is_some_and(|(tried, other)| {
            let Estimate { mean, standard_error } = tried.minus(other);
            mean > standard_error.max(LOSS * other.mean.abs())
        })
    }

    /// The best of those like this one with its length, unless it is beyond doubt not the winner; of ALS, not that of
    /// what is as long or shorter: a longer SVD says nothing of a longer ALS.
    pub(super) fn centre(&self, like: Candidate) -> Option<Candidate> {
        let best = self.highest_like(like)?;
        let is_als = matches!(like.kind, Kind::Als { .. });
        let longest = if is_als { like.latent_dim() } else { usize::MAX };
        let highest = highest(self.0.iter().filter(|of| of.candidate.latent_dim() <= longest))?;
        (!best.is_hopeless(highest)).then_some(best.candidate)
    }

    fn highest_like(&self, like: Candidate) -> Option<&Tried> {
        let alike = self.0.iter().filter(|tried| tried.candidate.is_like(like));
        highest(alike)
    }

    fn highest_at_any_length(&self, like: Candidate) -> Option<&Tried> {
        let alike = |tried: &&Tried| tried.candidate.with_length(like.latent_dim()).is_like(like);
        highest(self.0.iter().filter(alike))
    }

    /// The best SVD of each normalisation so far, the highest reward first.
    pub(super) fn best_of_each(&self) -> Vec<Candidate> {
        let is_svd = |tried: &&Tried| matches!(tried.candidate.kind, Kind::Svd(_));
        let mut order: Vec<&Tried> = self.0.iter().filter(is_svd).collect();
        order.sort_by(|a, b| b.mean.total_cmp(&a.mean));
        let mut best: Vec<Candidate> = Vec::new();
        for Tried { candidate, .. } in order {
            let length = candidate.latent_dim();
            if !best.iter().any(|known| known.with_length(length).is_like(*candidate)) {
                best.push(*candidate);
            }
        }
        best
    }

    /// The best of those that are like this one and longer, if it earned more.
    pub(super) fn longer_and_better(&self, of: Candidate) -> Option<Candidate> {
        let (length, source) = (of.latent_dim(), of.source());
        let is_longer = |tried: &&Tried| {
            let candidate = tried.candidate;
            candidate.latent_dim() > length && candidate.with_length(length).source() == source
        };
        let longer = self.0.iter().filter(is_longer);
        let best = highest(longer)?;
        let own = self.tried(of)?;
        (best.mean > own.mean).then_some(best.candidate)
    }

    /// Up to `count` candidates of this one's source that earned the most, the highest reward first.
    pub(super) fn best_of_source(&self, like: Candidate, count: usize) -> Vec<Candidate> {
        let alike = self.0.iter().filter(|tried| tried.candidate.source() == like.source());
        let mut alike: Vec<&Tried> = alike.collect();
        alike.sort_by(|a, b| b.mean.total_cmp(&a.mean));
        alike.into_iter().take(count).map(|tried| tried.candidate).collect()
    }

    /// The shortest candidate that is as good as the best; of that length the best, and a blend, which takes
    /// more time to fit, only where nothing else is as good.
    pub(super) fn winner(&self) -> Result<Candidate> {
        self.winner_of(|_| true).ok_or_else(nobody)
    }

    /// The same of those that are `among` the candidates; none if none is.
    pub(super) fn winner_of(&self, among: impl Fn(Candidate) -> bool) -> Option<Candidate> {
        let judged = || self.0.iter().filter(|tried| among(tried.candidate));
        let best = highest(judged())?;
        let as_good = judged().filter(|tried| {
            let Estimate { mean, standard_error } = tried.minus(best);
            -mean <= standard_error && -mean <= LOSS * best.mean.abs()
        });
        let shortest = as_good.min_by(|a, b| {
            let by_length = a.candidate.latent_dim().cmp(&b.candidate.latent_dim());
            let is_blend = |of: &Tried| matches!(of.candidate.kind, Kind::Blend { .. });
            let by_kind = is_blend(a).cmp(&is_blend(b));
            by_length.then(by_kind).then(b.mean.total_cmp(&a.mean))
        });
        shortest.map(|tried| tried.candidate)
    }

    /// The best candidate of each length below that of `than`, the highest reward first.
    pub(super) fn best_of_shorter(&self, than: Candidate) -> Vec<Candidate> {
        let is_shorter = |tried: &&Tried| tried.candidate.latent_dim() < than.latent_dim();
        let mut order: Vec<&Tried> = self.0.iter().filter(is_shorter).collect();
        order.sort_by(|a, b| b.mean.total_cmp(&a.mean));
        let mut best: Vec<Candidate> = Vec::new();
        for Tried { candidate, .. } in order {
            if best.iter().all(|known| known.latent_dim() != candidate.latent_dim()) {
                best.push(*candidate);
            }
        }
        best
    }

    /// What those who judged say of the winner, if these are the standings of a last round.
    pub(super) fn settled(&self, winner: Candidate) -> Option<Settled> {
        let Tried { rewards, .. } = self.tried(winner)?;
        let Estimate { mean: reward, standard_error: reward_se } =
            Estimate::of(rewards.iter().copied());
        Some(Settled { tried: self.0.len(), judges: rewards.len(), reward, reward_se })
    }

    /// The best candidate of each kind, η and L, the highest reward first.
    pub(super) fn table(&self, winner: Candidate) -> Vec<Standing> {
        let Ok(best) = self.highest() else { return Vec::new() };
        let mut order: Vec<&Tried> = self.0.iter().collect();
        order.sort_by(|a, b| b.mean.total_cmp(&a.mean));
        let mut alike: Vec<Candidate> = Vec::new();
        order.retain(|tried| {
            let known = alike.iter().any(|other| tried.candidate.is_like(*other));
            alike.push(tried.candidate);
            tried.candidate == winner || !known
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
}

#[cfg(test)]
mod tests {
    use super::super::axes::soft;
    use super::*;

    /// What candidates earned from judges.
    fn standings<const C: usize, const J: usize>(
        candidates: [Candidate; C],
        rewards: [[f64; J]; C],
    ) -> Standings {
        let tried = candidates.into_iter().zip(rewards);
        Standings(tried.map(|(of, rewards)| Tried::new(of, rewards.into())).collect())
    }

    #[test]
    fn a_blend_wins_only_where_nothing_as_long_is_as_good() {
        let (svd, longer) = (soft(0.25, 100), soft(0.25, 200));
        let blend = svd.blends()[0];
        let winner =
            |rewards: [[f64; 4]; 3]| standings([svd, longer, blend], rewards).winner().unwrap();
        let (low, high) = ([1.0, 2.0, 1.0, 2.0], [2.0, 3.0, 2.0, 3.0]);
        // The SVD is as good; a longer one is; none is.
        assert_eq!(winner([[1.99, 3.02, 2.0, 2.98], high, high]), svd);
        assert_eq!(winner([low, high, high]), blend);
        assert_eq!(winner([low, low, high]), blend);
    }

    #[test]
    fn als_wins_where_no_svd_is_level() {
        let svd = soft(0.25, 100);
        let als = svd.first_als().unwrap();
        let is_for_als =
            |rewards: [[f64; 4]; 2]| standings([svd, als], rewards).is_for_als(svd).unwrap();
        let (low, high) = ([1.0, 2.0, 1.0, 2.0], [2.0, 3.0, 2.0, 3.0]);
        assert!(is_for_als([low, high]));
        assert!(!is_for_als([high, low]));
        // A mean difference within its standard error.
        assert!(!is_for_als([[2.1, 2.8, 2.2, 2.8], high]));
    }

    #[test]
    fn a_normalization_is_beaten_by_one_of_its_length_beyond_doubt() {
        let is_beaten = |rewards: [[f64; 4]; 3], of: Candidate| {
            let candidates = [soft(0.25, 100), soft(0.5, 100), soft(0.25, 200)];
            standings(candidates, rewards).is_beaten(of)
        };
        let (low, high) = ([1.0, 2.0, 1.0, 2.0], [2.0, 3.0, 2.0, 3.0]);
        assert!(is_beaten([high, low, high], soft(0.5, 100)));
        assert!(!is_beaten([high, low, high], soft(0.25, 100)));
        // By less than six percent, by chance, by one of another length.
        assert!(!is_beaten([high, [1.9, 2.9, 1.9, 2.9], high], soft(0.5, 100)));
        assert!(!is_beaten([high, [3.0, 1.0, 3.0, 1.0], high], soft(0.5, 100)));
        assert!(!is_beaten([low, low, high], soft(0.5, 100)));
    }

    #[test]
    fn a_longer_svd_ends_the_search_of_a_shorter_one_but_not_that_of_als() {
        let (svd, longer) = (soft(0.25, 100), soft(0.25, 200));
        let is_searched = |of: Candidate, other: Candidate| {
            let rewards = [[1.0, 2.0, 1.0, 2.0], [2.0, 3.0, 2.0, 3.0]];
            standings([of, other], rewards).centre(of) == Some(of)
        };
        let als = svd.first_als().unwrap();
        assert!(!is_searched(svd, longer));
        assert!(is_searched(als, longer));
        assert!(!is_searched(als, svd));
    }

    #[test]
    fn blends_are_of_the_svd_that_wins_or_that_leads_a_shorter_als() {
        let (svd, longer) = (soft(0.25, 100), soft(0.25, 200));
        let to_blend = |other: Candidate, rewards: [[f64; 4]; 2]| {
            standings([other, longer], rewards).to_blend().unwrap()
        };
        let (low, high) = ([1.0, 2.0, 1.0, 2.0], [2.0, 3.0, 2.0, 3.0]);
        let level = [1.99, 3.01, 2.0, 2.98];
        assert_eq!(to_blend(svd, [low, high]), Some(longer));
        assert_eq!(to_blend(svd, [level, high]), Some(svd));
        let als = svd.first_als().unwrap();
        assert_eq!(to_blend(als, [level, high]), Some(longer));
        assert_eq!(to_blend(als, [high, low]), None);
        assert_eq!(to_blend(svd.blends()[0], [level, high]), None);
    }

    #[test]
    fn a_longer_one_like_the_winner_is_judged_again_only_where_it_earned_more() {
        let (short, long) = (soft(0.25, 100), soft(0.25, 200));
        let longer = |rewards: [f64; 3], other: Candidate| {
            let candidates = [short, other, soft(0.25, 50)];
            standings(candidates, rewards.map(|reward| [reward])).longer_and_better(short)
        };
        assert_eq!(longer([1.0, 1.01, 1.02], long), Some(long));
        assert_eq!(longer([1.0, 0.99, 1.02], long), None);
        // That is another decomposition.
        assert_eq!(longer([1.0, 1.01, 1.02], soft(0.5, 200)), None);
        assert_eq!(longer([1.0, 1.01, 1.02], long.blends()[0]), None);
    }
}
