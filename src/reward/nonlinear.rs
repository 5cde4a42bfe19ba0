//! Rewards in which the part of an action depends on the rest of its slate. Under a linear reward
//! `Σ_k w_k ρ(a_k)` two slates may exchange their actions at one rank without a change in total,
//! `r(a, b) + r(c, d) = r(a, d) + r(c, b)`; under these the total changes.

use std::sync::Arc;

use super::SlateReward;
use crate::dataset::Sessions;
use crate::embedding::ActionEmbeddings;
use crate::matrix::{dot, norm};

/// `1[some a_k ∈ Y]`: one hit is as good as many. Not linear.
#[derive(Clone, Debug)]
pub struct AnyHit {
    sessions: Arc<Sessions>,
}

impl AnyHit {
    /// The reward of hitting at least one hidden action.
    #[must_use]
    pub fn new(sessions: Arc<Sessions>) -> Self {
        Self { sessions }
    }
}

impl SlateReward for AnyHit {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        let hit = slate.iter().any(|&action| self.sessions.hidden.contains(context, action));
        f32::from(u8::from(hit))
    }

    fn on(&self, sessions: &Arc<Sessions>) -> Option<Arc<dyn SlateReward>> {
        Some(Arc::new(Self::new(Arc::clone(sessions))))
    }
}

/// `1/k` for the first `a_k ∈ Y`, 0 without one. Not linear: a hit below another adds nothing. The mean
/// over contexts is the mean reciprocal rank.
#[derive(Clone, Debug)]
pub struct ReciprocalRank {
    sessions: Arc<Sessions>,
}

impl ReciprocalRank {
    /// The reciprocal rank of the first hidden action.
    #[must_use]
    pub fn new(sessions: Arc<Sessions>) -> Self {
        Self { sessions }
    }
}

impl SlateReward for ReciprocalRank {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        let first = slate.iter().position(|&action| self.sessions.hidden.contains(context, action));
        first.map_or(0.0, |above| 1.0 / (above as f32 + 1.0))
    }

    fn on(&self, sessions: &Arc<Sessions>) -> Option<Arc<dyn SlateReward>> {
        Some(Arc::new(Self::new(Arc::clone(sessions))))
    }
}

/// `Σ_k γ^(k−1) u_{a_k} p_{a_k} Π_{j<k} (1 − p_{a_j})`: the expected utility of a user who walks
/// down the slate, clicks on action a with probability p_a and leaves, or goes on with patience γ.
/// p is [`CLICK`](Self::CLICK) for a ∈ Y, whose click has utility u = 1, and
/// [`MISTAKE`](Self::MISTAKE) for any other, whose click is worth nothing.
///
/// Not linear: an action takes attention from those below it. This is the cascade model (Craswell,
/// Zoeter, Taylor, Ramsey; WSDM 2008) with a patience.
#[derive(Clone, Debug)]
pub struct Cascade {
    sessions: Arc<Sessions>,
}

impl Cascade {
    /// p of a relevant action, as in expected reciprocal rank for the upper of two grades.
    pub const CLICK: f32 = 0.5;
    /// p of any other action.
    pub const MISTAKE: f32 = 0.05;
    /// γ, the probability to look at one more action.
    pub const PATIENCE: f32 = 0.9;

    /// The utility of clicks on hidden actions.
    #[must_use]
    pub fn new(sessions: Arc<Sessions>) -> Self {
        Self { sessions }
    }
}

impl SlateReward for Cascade {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        let (mut utility, mut looking) = (0.0, 1.0);
        for &action in slate {
            let click = if self.sessions.hidden.contains(context, action) {
                utility += looking * Self::CLICK;
                Self::CLICK
            } else {
                Self::MISTAKE
            };
            looking *= (1.0 - click) * Self::PATIENCE;
        }
        utility
    }

    fn on(&self, sessions: &Arc<Sessions>) -> Option<Arc<dyn SlateReward>> {
        Some(Arc::new(Self::new(Arc::clone(sessions))))
    }
}

/// The reward of hits less λ times the mean of `max(0, cos(β_a, β_b))` over the pairs of the slate, a
/// penalty on near-duplicates. Not linear: the penalty is on pairs. λ is [`PENALTY`](Self::PENALTY);
/// an action whose β is zero or unknown resembles none.
#[derive(Clone, Debug)]
pub struct Diverse {
    hits: Arc<dyn SlateReward>,
    actions: Arc<ActionEmbeddings>,
}

impl Diverse {
    /// λ: a slate of copies loses half a hit at the top.
    pub const PENALTY: f32 = 0.5;

    /// The reward `hits` less the penalty for pairs of alike `actions`.
    #[must_use]
    pub fn new(hits: Arc<dyn SlateReward>, actions: Arc<ActionEmbeddings>) -> Self {
        Self { hits, actions }
    }

    /// `max(0, cos(β_a, β_b))`.
    fn likeness(&self, a: u32, b: u32) -> f32 {
        if a.max(b) as usize >= self.actions.num_actions() {
            return 0.0;
        }
        let (a, b) = (self.actions.row(a), self.actions.row(b));
        let cosine = dot(a, b) / norm(a) / norm(b);
        // A NaN, from an embedding without direction, counts as 0 too.
        if cosine > 0.0 { cosine.min(1.0) } else { 0.0 }
    }
}

impl SlateReward for Diverse {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        let (mut sum, mut pairs) = (0.0, 0.0_f32);
        for (at, &a) in slate.iter().enumerate() {
            for &b in &slate[..at] {
                sum += self.likeness(a, b);
                pairs += 1.0;
            }
        }
        self.hits.reward(context, slate) - Self::PENALTY * sum / pairs.max(1.0)
    }

    fn on(&self, sessions: &Arc<Sessions>) -> Option<Arc<dyn SlateReward>> {
        Some(Arc::new(Self::new(self.hits.on(sessions)?, Arc::clone(&self.actions))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::RewardKind;
    use super::super::tests::sessions;
    use super::*;
    use crate::matrix::Matrix;

    /// Actions 0 to 9; the hidden ones are 1, 2 and 4. 1 and 2 point the same way, 4 and 3 are
    /// orthogonal to them, 5 is opposite to 1 and 6 has no direction.
    fn actions() -> Arc<ActionEmbeddings> {
        let mut beta = vec![0.0; 20];
        for (action, row) in
            [(1, [2.0, 0.0]), (2, [1.0, 0.0]), (4, [0.0, 1.0]), (3, [0.0, 5.0]), (5, [-1.0, 0.0])]
        {
            beta[2 * action..2 * action + 2].copy_from_slice(&row);
        }
        Arc::new(ActionEmbeddings::new(Matrix::new(beta, 2).unwrap()).unwrap())
    }

    fn reward(kind: RewardKind, slate_size: usize) -> Arc<dyn SlateReward> {
        kind.init(slate_size, sessions(), || Ok(actions())).unwrap()
    }

    #[test]
    fn any_hit_counts_one_hit_as_much_as_three() {
        let reward = reward(RewardKind::AnyHit, 3);
        assert_eq!(reward.reward(0, &[0, 3, 1]), 1.0);
        assert_eq!(reward.reward(0, &[1, 2, 4]), 1.0);
        assert_eq!(reward.reward(0, &[0, 3, 5]), 0.0);
    }

    #[test]
    fn reciprocal_rank_looks_for_the_first_hit() {
        let reward = reward(RewardKind::ReciprocalRank, 3);
        assert_eq!(reward.reward(0, &[1, 2, 4]), 1.0);
        assert_eq!(reward.reward(0, &[0, 2, 4]), 0.5);
        assert_eq!(reward.reward(0, &[0, 3, 4]), 1.0 / 3.0);
        assert_eq!(reward.reward(0, &[0, 3, 5]), 0.0);
    }

    /// Every way a walk down three actions can go.
    #[test]
    fn cascade_is_the_mean_over_walks() {
        let reward = reward(RewardKind::Cascade, 3);
        for slate in [[0, 1, 2], [1, 0, 2], [1, 2, 4], [0, 3, 5]] {
            let relevant = slate.map(|action| [1, 2, 4].contains(&action));
            let mut expected = 0.0;
            // Bits: whether each action would be clicked, and whether patience lasts beyond it.
            for walk in 0..64_u32 {
                let bit = |at: usize| walk >> at & 1 == 1;
                let mut probability = 1.0;
                for (k, relevant) in relevant.into_iter().enumerate() {
                    let click = if relevant { Cascade::CLICK } else { Cascade::MISTAKE };
                    probability *= if bit(k) { click } else { 1.0 - click };
                    let stay = Cascade::PATIENCE;
                    probability *= if bit(3 + k) { stay } else { 1.0 - stay };
                }
                let clicked = (0..3).find(|&k| bit(k));
                let arrives = clicked.is_some_and(|k| (0..k).all(|above| bit(3 + above)));
                if arrives && clicked.is_some_and(|k| relevant[k]) {
                    expected += probability;
                }
            }
            assert!((reward.reward(0, &slate) - expected).abs() < 1e-6, "{slate:?}: {expected}");
        }
    }

    #[test]
    fn diverse_takes_half_a_hit_from_copies_and_nothing_from_strangers() {
        let reward = reward(RewardKind::Diverse, 2);
        assert_eq!(reward.reward(0, &[1, 2]), 1.5 - 0.5);
        assert_eq!(reward.reward(0, &[1, 4]), 1.5);
        // Opposites, and actions without direction, are no duplicates either.
        assert_eq!(reward.reward(0, &[1, 5]), 1.0);
        assert_eq!(reward.reward(0, &[1, 6]), 1.0);
        assert_eq!(reward.reward(0, &[6, 7]), 0.0);
        // One of three pairs.
        let three = self::reward(RewardKind::Diverse, 3);
        assert!((three.reward(0, &[1, 4, 2]) - (1.75 - 0.5 / 3.0)).abs() < 1e-6);
        assert_eq!(self::reward(RewardKind::Diverse, 1).reward(0, &[1]), 1.0);
    }

    #[test]
    fn a_second_hit_is_worth_nothing_beside_any_hit_but_its_likeness_costs() {
        let reward = reward(RewardKind::DiverseAnyHit, 2);
        assert_eq!(reward.reward(0, &[1, 2]), 1.0 - 0.5);
        assert_eq!(reward.reward(0, &[1, 4]), 1.0);
        assert_eq!(reward.reward(0, &[0, 3]), 0.0);
    }

    #[test]
    fn embeddings_beyond_the_range_of_their_squares_leave_the_reward_finite() {
        let beta = Matrix::new(vec![1e30, 1e30, 1e30, -1e30, 1e-30, 1e-30, 0.0, 1.0], 2).unwrap();
        let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
        let reward = RewardKind::Diverse.init(5, sessions(), || Ok(Arc::clone(&actions))).unwrap();
        assert!(reward.reward(0, &[0, 1, 2, 3, 99]).is_finite());
    }

    /// Two slates exchange their actions at rank 2: no linear reward changes in total.
    #[test]
    fn no_linear_form_expresses_these() {
        let exchange = |kind: RewardKind| {
            let reward = reward(kind, 2);
            let [a, b, c, d] = [1, 2, 3, 0];
            let kept = reward.reward(0, &[a, b]) + reward.reward(0, &[c, d]);
            kept - reward.reward(0, &[a, d]) - reward.reward(0, &[c, b])
        };
        for linear in [RewardKind::Discounted, RewardKind::Dcg, RewardKind::Hits] {
            assert!(exchange(linear).abs() < 1e-6, "{linear:?}");
        }
        for kind in [
            RewardKind::AnyHit,
            RewardKind::ReciprocalRank,
            RewardKind::Cascade,
            RewardKind::Diverse,
            RewardKind::DiverseAnyHit,
        ] {
            assert!(exchange(kind).abs() > 0.1, "{kind:?}: {}", exchange(kind));
        }
    }
}
