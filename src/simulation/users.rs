//! A model of topics and a seed → what each user likes, and how much each action attracts them.

use rayon::prelude::*;

use crate::dataset::{Model, Newcomer, Taste};
use crate::seed::Seed;

/// The attraction of the first action of a topic that the user likes.
const MOST: f64 = 0.6;
/// What the attraction of a liked topic's actions falls to.
const LEAST: f64 = 0.05;
/// The attraction of all other actions.
const ELSEWHERE: f64 = 0.01;

/// The tastes of all users.
#[derive(Clone, Debug)]
pub(super) struct Users {
    model: Model,
    tastes: Vec<Taste>,
}

impl Users {
    pub(super) fn new(model: Model, seed: Seed, count: u32) -> Self {
        let taste = |user| Newcomer::new(model, seed, user).taste;
        Self { model, tastes: (0..count).into_par_iter().map(taste).collect() }
    }

    pub(super) fn liked(&self, user: u32) -> &[u32] {
        self.tastes[user as usize].liked()
    }

    pub(super) fn topic(&self, action: u32) -> u32 {
        action % self.model.topics
    }

    /// The first `count` actions of each topic.
    pub(super) fn first(&self, count: u32) -> impl Iterator<Item = u32> {
        let Model { actions, topics } = self.model;
        0..actions.min(topics.saturating_mul(count))
    }

    /// The chance in `[0, 1]` that the user clicks on the action when they examine it alone. It falls
    /// with the logarithm of the rank, so that large topics differ in their depths too.
    pub(super) fn attraction(&self, user: u32, action: u32) -> f64 {
        if !self.liked(user).contains(&self.topic(action)) {
            return ELSEWHERE;
        }
        let rank = f64::from(action / self.model.topics);
        LEAST + (MOST - LEAST) / (1.0 + rank.ln_1p())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attraction_falls_with_the_rank_and_is_small_elsewhere() {
        let model = Model::new(4000, 40).unwrap();
        let users = Users::new(model, Seed(0), 20);
        for user in 0..20 {
            let topic = users.liked(user)[0];
            let falling: Vec<f64> =
                (0..100).map(|rank| users.attraction(user, topic + 40 * rank)).collect();
            assert_eq!(falling[0], MOST);
            assert!(falling.is_sorted_by(|a, b| a > b) && falling[99] > LEAST);
            let other = (topic + 20) % 40;
            assert_eq!(users.attraction(user, other), ELSEWHERE);
        }
    }
}
