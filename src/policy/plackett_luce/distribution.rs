//! The Plackett–Luce distribution of one context (equation 5) takes scores and draws slates: one action
//! after the other, each with probability `e^{f_a} / Z_k` among the remaining ones. The best few
//! actions, the *head*, are handled one by one. For all others, the *tail*, it keeps the running sums
//! of weights relative to the tail's maximum. The head has at least K actions, so at every rank an
//! unplaced one outweighs each tail action: `Z_k` is a sum of positive terms that neither cancel nor
//! overflow, whatever the scores.

use std::sync::Arc;

use super::scores::Scores;
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::retrieval::check_slate_size;
use crate::seed::Stream;

/// Length of the head where K is less.
const HEAD: usize = 16;
/// T, the length of the head for slates of at most K.
pub(super) fn head_size(slate_size: usize) -> usize {
    slate_size.max(HEAD)
}

/// Below this share of the tail's mass, the remaining tail is no longer drawn by rejection.
const SPARSE: f64 = 0.1;
/// Below this weight of the best unplaced action, weights get a new reference.
const SMALL: f64 = 1e-200;

/// The Plackett–Luce distribution of one context over P actions, for slates of at most K.
#[derive(Clone, Debug)]
pub struct Distribution {
    scores: Scores,
    /// The best actions, best first; equal scores go to the lower action.
    head: Vec<u32>,
    /// The score and number of the best tail action; `u32::MAX` without a tail.
    tail_first: (f64, u32),
    /// Running sums of the tail's weights, one for each panel of scores.
    tail_sums: Vec<f64>,
}

impl Distribution {
    /// The distribution with scores f `[P]`, where `excluded` actions have probability 0.
    ///
    /// # Errors
    /// [`Error::SlateTooLarge`] when fewer than K actions can be drawn, [`Error::NotFinite`] for a
    /// score that is NaN or +∞; one that is −∞ excludes its action.
    pub fn new(mut scores: Vec<f64>, excluded: &[u32], slate_size: usize) -> Result<Self> {
        for &action in excluded {
            if let Some(score) = scores.get_mut(action as usize) {
                *score = f64::NEG_INFINITY;
            }
        }
        if let Some(column) = scores.iter().position(|f| f.is_nan() || *f == f64::INFINITY) {
            #[allow(
                clippy::cast_possible_truncation,
                reason = "NaN and infinity stay what they are"
            )]
            let value = scores[column] as f32;
            return Err(Error::NotFinite { what: "scores".into(), row: 0, column, value });
        }
        let num_actions = scores.len();
        let available = scores.iter().filter(|f| f.is_finite()).count();
        check_slate_size(slate_size, num_actions, num_actions - available)?;

        let head_size = head_size(slate_size);
        let mut best = TopActions::new(head_size + 1);
        for (action, &score) in (0..).zip(&scores) {
            if score > f64::NEG_INFINITY {
                best.offer(score, action);
            }
        }
        let mut best = best.entries;
        let tail_first = match best.get(head_size) {
            Some(&first) => first,
            // Without a tail any finite reference will do.
            None => (best[best.len() - 1].0, u32::MAX),
        };
        best.truncate(head_size);

        let mut this = Self {
            scores: Scores::Given(scores),
            head: best.into_iter().map(|(_, action)| action).collect(),
            tail_first,
            tail_sums: Vec::new(),
        };
        let mut sum = 0.0;
        let sums = (0..).zip(this.scores.iter()).map(|(action, score)| {
            sum += this.weight_in_tail(score, action);
            sum
        });
        this.tail_sums = sums.collect();
        Ok(this)
    }

    /// The distribution whose scores are the products of `query` `[L]` and β, of which others have found
    /// the `best`, all of the head and the best of the tail, best first, and the `masses` of the tail in
    /// panels of `width` actions, relative to the latter.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for a mass that is not.
    pub(super) fn of_panels(
        (query, actions): (&[f32], &Arc<ActionEmbeddings>),
        excluded: &[u32],
        best: &[u32],
        (masses, width): (&[f32], usize),
    ) -> Result<Self> {
        if let Some(column) = masses.iter().position(|mass| !mass.is_finite()) {
            let value = masses[column];
            return Err(Error::NotFinite { what: "scores".into(), row: 0, column, value });
        }
        let scores = Scores::of(query, actions, excluded, width);
        let (first, head) = best.split_last().expect("a head and an action more");
        let mut sum = 0.0;
        let sums = masses.iter().map(|mass| {
            sum += f64::from(*mass);
            sum
        });
        Ok(Self {
            tail_first: (scores.get(*first), *first),
            head: head.to_vec(),
            tail_sums: sums.collect(),
            scores,
        })
    }

    /// P.
    #[must_use]
    pub fn num_actions(&self) -> usize {
        self.scores.len()
    }

    /// f of an action; −∞ when it is excluded.
    #[must_use]
    pub fn score(&self, action: u32) -> f64 {
        self.scores.get(action)
    }

    /// The best actions, at least K, best first.
    #[must_use]
    pub fn head(&self) -> &[u32] {
        &self.head
    }

    /// m, the largest score of the tail, the reference of its weights; finite.
    #[must_use]
    pub fn tail_reference(&self) -> f64 {
        self.tail_first.0
    }

    /// `e^{f_a − m}`, in [0, 1]; 0 for the head and for excluded actions.
    #[must_use]
    pub fn tail_weight(&self, action: u32) -> f64 {
        self.weight_in_tail(self.score(action), action)
    }

    /// `e^{f_a − m}` of every action `[P]`, where all scores were given; 0 for the head and for excluded
    /// actions.
    pub(super) fn tail_weights(&self, out: &mut [f32]) {
        let mut before = 0.0;
        for (out, &sum) in out.iter_mut().zip(&self.tail_sums) {
            #[allow(clippy::cast_possible_truncation, reason = "they weigh f32 embeddings")]
            let weight = (sum - before) as f32;
            (*out, before) = (weight, sum);
        }
    }

    /// `log π(A)` of a slate of distinct actions, or of its beginning; −∞ with an excluded action.
    #[must_use]
    pub fn log_prob(&self, slate: &[u32]) -> f64 {
        let mut walk = Walk::new(self);
        let log_prob = |&action: &u32| {
            let log_prob = walk.log_prob(action);
            walk.place(action);
            log_prob
        };
        slate.iter().map(log_prob).sum()
    }

    /// Extends `slate` to `slate_size` ≤ K actions, given the ones it has: O(K (T + log P)) for a
    /// head of T actions.
    ///
    /// # Panics
    /// On a `slate_size` above K, which is a programming error.
    pub fn complete(&self, slate: &mut Vec<u32>, slate_size: usize, stream: &mut Stream) {
        assert!(slate_size <= self.head.len(), "a slate longer than the distribution is made for");
        let mut walk = Walk::new(self);
        for &action in &*slate {
            walk.place(action);
        }
        while slate.len() < slate_size {
            if walk.tail_left < SPARSE * self.tail_mass() {
                // Continuing from the placed actions keeps the distribution; starting over would not.
                return self.complete_gumbel(slate, slate_size, stream);
            }
            let action = walk.draw(slate, stream);
            walk.place(action);
            slate.push(action);
        }
    }

    /// Extends `slate` like [`complete`](Self::complete) by the Gumbel trick, the best of
    /// `f_a + γ_a` over the unplaced actions (section 2): O(P log K).
    ///
    /// # Panics
    /// On a `slate_size` above K, which is a programming error.
    pub fn complete_gumbel(&self, slate: &mut Vec<u32>, slate_size: usize, stream: &mut Stream) {
        assert!(slate_size <= self.head.len(), "a slate longer than the distribution is made for");
        if slate.len() >= slate_size {
            return;
        }
        let mut best = TopActions::new(slate_size - slate.len());
        for (action, score) in (0..).zip(self.scores.iter()) {
            let perturbed = score - (-stream.open_uniform().ln()).ln();
            if score > f64::NEG_INFINITY && best.admits(perturbed) && !slate.contains(&action) {
                best.offer(perturbed, action);
            }
        }
        slate.extend(best.entries.into_iter().map(|(_, action)| action));
    }

    /// The sum of the tail's weights.
    fn tail_mass(&self) -> f64 {
        self.tail_sums.last().copied().unwrap_or(0.0)
    }

    /// `e^{f_a − m}` for an action of the tail, 0 for the head, which comes first by score and number.
    fn weight_in_tail(&self, score: f64, action: u32) -> f64 {
        let (reference, first) = self.tail_first;
        if score > reference || (score >= reference && action < first) {
            0.0
        } else {
            (score - reference).exp()
        }
    }

    /// Draws an action of the tail by its weight; the tail must not be empty.
    fn draw_tail(&self, stream: &mut Stream) -> u32 {
        // The target is below the last sum, so the panel is valid and has an action of weight above 0.
        let target = stream.uniform() * self.tail_mass();
        let panel = self.tail_sums.partition_point(|sum| *sum <= target);
        let mut left = target - panel.checked_sub(1).map_or(0.0, |before| self.tail_sums[before]);
        let (first, scores) = self.scores.panel(panel);
        let mut drawn = first;
        for (action, &score) in (first..).zip(scores) {
            let weight = self.weight_in_tail(score, action);
            if weight > 0.0 {
                drawn = action;
                if left < weight {
                    break;
                }
                left -= weight;
            }
        }
        drawn
    }
}

/// The unplaced actions while a slate is placed action by action.
pub(super) struct Walk<'a> {
    distribution: &'a Distribution,
    /// Indices into the head of its unplaced actions, best first.
    pub(super) unplaced: Vec<usize>,
    /// `e^{f − reference}` of the head; the values of placed actions are not used.
    pub(super) weights: Vec<f64>,
    reference: f64,
    /// The mass of the unplaced tail, in the tail's own weights.
    tail_left: f64,
    /// The factor from the tail's own weights to weights relative to `reference`.
    pub(super) tail_scale: f64,
}

impl<'a> Walk<'a> {
    /// Nothing is placed.
    pub(super) fn new(distribution: &'a Distribution) -> Self {
        let head_size = distribution.head.len();
        let mut walk = Self {
            distribution,
            unplaced: (0..head_size).collect(),
            weights: vec![0.0; head_size],
            reference: 0.0,
            tail_left: distribution.tail_mass(),
            tail_scale: 0.0,
        };
        walk.refer_to_the_best();
        walk
    }

    /// Places an action.
    pub(super) fn place(&mut self, action: u32) {
        let head = &self.distribution.head;
        let Some(at) = self.unplaced.iter().position(|&at| head[at] == action) else {
            let weight = self.distribution.tail_weight(action);
            self.tail_left = (self.tail_left - weight).max(0.0);
            return;
        };
        self.unplaced.remove(at);
        if self.unplaced.first().is_some_and(|&best| self.weights[best] < SMALL) {
            self.refer_to_the_best();
        }
    }

    /// `Z_k e^{−reference}`.
    pub(super) fn mass(&self) -> f64 {
        self.head_mass() + self.tail_left * self.tail_scale
    }

    /// `log π(a_k = action | placed actions)`. The difference of scores comes first: for large scores
    /// that are close to each other it is exact.
    fn log_prob(&self, action: u32) -> f64 {
        (self.distribution.score(action) - self.reference) - self.mass().ln()
    }

    fn head_mass(&self) -> f64 {
        self.unplaced.iter().map(|&at| self.weights[at]).sum()
    }

    /// Draws an unplaced action by its weight; `placed` are all others.
    fn draw(&self, placed: &[u32], stream: &mut Stream) -> u32 {
        let target = stream.uniform() * self.mass();
        let mut sum = 0.0;
        for &at in &self.unplaced {
            sum += self.weights[at];
            if target < sum {
                return self.distribution.head[at];
            }
        }
        loop {
            let action = self.distribution.draw_tail(stream);
            if !placed.contains(&action) {
                return action;
            }
        }
    }

    fn refer_to_the_best(&mut self) {
        let scores = |&action: &u32| self.distribution.score(action);
        let head = &self.distribution.head;
        if let Some(&best) = self.unplaced.first() {
            self.reference = scores(&head[best]);
            self.weights.clear();
            self.weights.extend(head.iter().map(|action| (scores(action) - self.reference).exp()));
            self.tail_scale = (self.distribution.tail_reference() - self.reference).exp();
        }
    }
}

/// Takes actions in ascending order and keeps the best, best first.
struct TopActions {
    entries: Vec<(f64, u32)>,
    size: usize,
}

impl TopActions {
    /// Keeps up to `size` > 0.
    fn new(size: usize) -> Self {
        Self { entries: Vec::with_capacity(size), size }
    }

    /// True if `score` would be kept. Among equal scores the earlier, lower action stays.
    fn admits(&self, score: f64) -> bool {
        self.entries.len() < self.size || score > self.entries[self.size - 1].0
    }

    fn offer(&mut self, score: f64, action: u32) {
        if self.admits(score) {
            self.entries.truncate(self.size - 1);
            let at = self.entries.partition_point(|&(other, _)| other >= score);
            self.entries.insert(at, (score, action));
        }
    }
}
