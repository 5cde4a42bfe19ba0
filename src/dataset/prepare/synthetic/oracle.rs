//! A synthetic log → the most that a policy can earn on it, and what popularity earns.
//!
//! A session is a set of n different actions, drawn one by one from q(· | taste), of which a random
//! ⌊n/2⌋ are observed, X, and the rest is hidden, Y. The reward `Σ_k 1[a_k ∈ Y] / 2^(k−1)` is
//! linear, so the best slate lists actions by P(a ∈ Y | what is known).
//!
//! For somebody who knows the taste and X, this is the order of q outside X, so the oracle shows
//! the first K of q outside X. Proof: let q(a) > q(b), and replace b by a in a session that holds b
//! alone, wherever it was drawn. The chance of drawing these actions in this order is
//! `Π_i q(s_i) / (1 − Σ_{j<i} q(s_j))`: one factor of the numerator grows and no denominator does,
//! so the session with a is the more probable. As all halves of a session are equally probable,
//! this holds given X, for a and b that are not in it. The actions that are dealt first do not
//! matter: they are as likely to be a as b. Only where a session is so long that drawing stops and
//! popular actions fill it up, is the argument an approximation.
//!
//! A policy knows X and not the taste, and an action of X earns nothing. So the oracle's reward is
//! a bound for every policy that judges by a user's own X, whether or not it may show actions of
//! X. Without X it would be none: the first K of q alone earn less than a policy that learns from X
//! what not to show.
//!
//! The first D of q are among the first D of each liked topic and of everything: below one of
//! these stand D actions with a lower rank in the same topic, and so with a larger q.

use rayon::prelude::*;
use serde::Serialize;

use super::log::Log;
use super::model::{Model, Taken, Taste};
use crate::seed::Purpose;

/// K.
const SLATE_SIZE: usize = 5;

/// A mean and its standard error over users.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its standard error.
    pub standard_error: f64,
}

/// The mean rewards of the oracle and of popularity on the first `num_users` users, observed actions
/// excluded. These users are as random as any.
pub(super) fn rewards(log: &Log, num_users: u32) -> [Estimate; 2] {
    let model = log.model;
    let of_user = |taken: &mut Taken, user: u32| {
        let mut session = vec![0; log.length(user)];
        let taste = log.fill(user, &mut session, taken);
        session.sort_unstable();
        log.seed.stream(Purpose::Hide, 0, user.into()).shuffle(&mut session);
        let half = session.len() / 2;
        let (observed, hidden) = session.split_at_mut(half);
        observed.sort_unstable();
        hidden.sort_unstable();
        // By expected popularity actions stand in the order of their numbers.
        let popular = first(0..model.actions, observed);
        [best(model, &taste, observed), popular].map(|slate| reward(&slate, hidden))
    };
    let rewards: Vec<[f64; 2]> =
        (0..num_users).into_par_iter().map_init(|| Taken::none(model.actions), of_user).collect();
    [0, 1].map(|at| Estimate::of(rewards.iter().map(|rewards| rewards[at])))
}

/// The first K of q that are not in `observed`, which is ascending.
fn best(model: Model, taste: &Taste, observed: &[u32]) -> Vec<u32> {
    #[allow(clippy::cast_possible_truncation, reason = "at most `actions`")]
    let depth = (SLATE_SIZE + observed.len()) as u32;
    let liked = taste.liked().iter().flat_map(|&topic| {
        (0..depth.min(model.topic_size(topic))).map(move |rank| topic + model.topics * rank)
    });
    let candidates = liked.chain(0..depth.min(model.actions));
    let mut ranked: Vec<(f64, u32)> =
        candidates.map(|action| (model.probability(taste, action), action)).collect();
    ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    ranked.dedup();
    first(ranked.into_iter().map(|(_, action)| action), observed)
}

/// The first K of `ranked` that are not in `observed`.
fn first(ranked: impl Iterator<Item = u32>, observed: &[u32]) -> Vec<u32> {
    ranked.filter(|action| observed.binary_search(action).is_err()).take(SLATE_SIZE).collect()
}

/// `Σ_k 1[a_k ∈ Y] / 2^(k−1)`, section 4.1.
fn reward(slate: &[u32], hidden: &[u32]) -> f64 {
    let weights = std::iter::successors(Some(1.0), |weight| Some(weight / 2.0));
    let placed = slate.iter().zip(weights);
    placed
        .filter(|(action, _)| hidden.binary_search(action).is_ok())
        .map(|(_, weight)| weight)
        .sum()
}

impl Estimate {
    fn of(values: impl ExactSizeIterator<Item = f64> + Clone) -> Self {
        let count = values.len() as f64;
        let mean = values.clone().sum::<f64>() / count;
        let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
        let standard_error = (squares / (count - 1.0).max(1.0) / count).sqrt();
        Self { mean, standard_error }
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.4} ± {:.4}", self.mean, self.standard_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    #[test]
    fn the_slate_is_that_of_ranking_every_action() {
        let model = Model { actions: 230, topics: 23 };
        let mut stream = Seed(0).stream(Purpose::Synthetic, 0, 0);
        for _ in 0..200 {
            let taste = model.taste(&mut stream);
            let mut session = [0; 40];
            model.complete(&taste, &mut session, 0, &mut Taken::none(230), &mut stream);
            session.sort_unstable();
            for observed in [&session[..], &[]] {
                let mut all: Vec<u32> = (0..230).collect();
                let chance = |action: &u32| model.probability(&taste, *action);
                all.sort_by(|a, b| chance(b).total_cmp(&chance(a)));
                all.retain(|action| !observed.contains(action));
                assert_eq!(best(model, &taste, observed), all[..SLATE_SIZE]);
            }
        }
    }

    /// The order of q is that of the chance to be hidden given what is observed: among sessions
    /// with the same X, enumerated by drawing, the action of larger q is hidden more often.
    #[test]
    fn what_is_more_probable_is_hidden_more_often() {
        let model = Model { actions: 6, topics: 3 };
        let mut stream = Seed(2).stream(Purpose::Synthetic, 0, 0);
        let taste = model.taste(&mut stream);
        let mut hidden = [0_u32; 6];
        let mut taken = Taken::none(6);
        for _ in 0..100_000 {
            let mut session = [0; 4];
            model.complete(&taste, &mut session, 0, &mut taken, &mut stream);
            stream.shuffle(&mut session);
            let (observed, rest) = session.split_at_mut(2);
            observed.sort_unstable();
            if observed == [0, 3] {
                for &action in &*rest {
                    hidden[action as usize] += 1;
                }
            }
        }
        let mut by_q: Vec<u32> = vec![1, 2, 4, 5];
        let chance = |action: &u32| model.probability(&taste, *action);
        by_q.sort_by(|a, b| chance(b).total_cmp(&chance(a)));
        let counts: Vec<u32> = by_q.iter().map(|&action| hidden[action as usize]).collect();
        assert!(counts.is_sorted_by(|a, b| a > b), "{counts:?}");
        assert_eq!(first(by_q.into_iter(), &[0, 3])[0], best(model, &taste, &[0, 3])[0]);
    }
}
