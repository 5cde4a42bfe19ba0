//! The Plackett–Luce distribution of one context (equation 5): actions are drawn one after the
//! other, each with probability `e^{f_a} / Z_k` among those that are left. The best few actions,
//! the *head*, are handled one by one; of all others, the *tail*, the running sums of their weights
//! are kept, relative to the tail's own maximum. The head is at least K long, so some of it is
//! unplaced at every rank and outweighs each tail action: `Z_k` is a sum of positive terms of which
//! none cancels, overflows or, if it matters, underflows, whatever the scores.

use crate::error::{Error, Result};
use crate::seed::Stream;

/// Length of the head where K is less.
const HEAD: usize = 16;
/// The share of the tail's mass below which what is left of it is no longer drawn by rejection.
const SPARSE: f64 = 0.1;
/// The weight of the best unplaced action below which weights get a new reference.
const SMALL: f64 = 1e-200;

/// The Plackett–Luce distribution of one context over P actions, for slates of at most K.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// f, −∞ for excluded actions, `[P]`.
    scores: Vec<f64>,
    /// The best actions, best first; equal scores go to the lower action.
    head: Vec<u32>,
    /// The score of the best action beyond the head, and its number: no action's when there is none.
    tail_first: (f64, u32),
    /// Running sums of the tail's weights, `[P]`.
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
        if slate_size == 0 || slate_size > available {
            let excluded = num_actions - available;
            let why = match excluded {
                0 => String::new(),
                _ => format!(" ({excluded} of {num_actions} are excluded)"),
            };
            return Err(Error::SlateTooLarge { slate_size, available, why });
        }

        let head_size = slate_size.max(HEAD);
        let mut best = Best::new(head_size + 1);
        for (action, &score) in (0..).zip(&scores) {
            if score > f64::NEG_INFINITY {
                best.offer(score, action);
            }
        }
        let mut best = best.entries;
        let tail_first = match best.get(head_size) {
            Some(&first) => first,
            // A finite reference all the same: what is relative to it is multiplied with nothing.
            None => (best[best.len() - 1].0, u32::MAX),
        };
        best.truncate(head_size);

        let mut this = Self {
            scores,
            head: best.into_iter().map(|(_, action)| action).collect(),
            tail_first,
            tail_sums: Vec::new(),
        };
        let mut sum = 0.0;
        let sums = (0..).zip(&this.scores).map(|(action, &score)| {
            sum += this.weight_in_tail(score, action);
            sum
        });
        this.tail_sums = sums.collect();
        Ok(this)
    }

    /// P.
    #[must_use]
    pub fn num_actions(&self) -> usize {
        self.scores.len()
    }

    /// f of an action; −∞ when it is excluded.
    #[must_use]
    pub fn score(&self, action: u32) -> f64 {
        self.scores[action as usize]
    }

    /// The actions that are handled one by one, best first: at least K, and none of lower score
    /// than any other that can be drawn.
    #[must_use]
    pub fn head(&self) -> &[u32] {
        &self.head
    }

    /// m, the largest score beyond the head, which weights of the tail are relative to; finite.
    #[must_use]
    pub fn tail_reference(&self) -> f64 {
        self.tail_first.0
    }

    /// `e^{f_a − m}`, in [0, 1]; 0 for the head and for excluded actions.
    #[must_use]
    pub fn tail_weight(&self, action: u32) -> f64 {
        self.weight_in_tail(self.score(action), action)
    }

    /// `e^{f_a − m}` of every action `[P]`; 0 for the head and for excluded actions.
    pub fn tail_weights(&self, out: &mut [f32]) {
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

    /// Draws the actions that `slate` lacks to be `slate_size` ≤ K long, given those it begins
    /// with: O(K (T + log P)), T being the length of the head.
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
                // Given what is placed, this draws the same distribution; to start over would not.
                return self.complete_gumbel(slate, slate_size, stream);
            }
            let action = walk.draw(slate, stream);
            walk.place(action);
            slate.push(action);
        }
    }

    /// The same by the Gumbel trick, the best of `f_a + γ_a` over what is unplaced (section 2):
    /// O(P log K).
    ///
    /// # Panics
    /// On a `slate_size` above K, which is a programming error.
    pub fn complete_gumbel(&self, slate: &mut Vec<u32>, slate_size: usize, stream: &mut Stream) {
        assert!(slate_size <= self.head.len(), "a slate longer than the distribution is made for");
        if slate.len() >= slate_size {
            return;
        }
        let mut best = Best::new(slate_size - slate.len());
        for (action, &score) in (0..).zip(&self.scores) {
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

    /// The tail is what comes after the head, by score and then by number.
    fn weight_in_tail(&self, score: f64, action: u32) -> f64 {
        let (reference, first) = self.tail_first;
        if score > reference || (score >= reference && action < first) {
            0.0
        } else {
            (score - reference).exp()
        }
    }

    /// An action of the tail, by its weight; the tail must not be empty.
    fn draw_tail(&self, stream: &mut Stream) -> u32 {
        // Below the last sum, which every action from there on has: an index, and a weight above 0.
        let target = stream.uniform() * self.tail_mass();
        let action = self.tail_sums.partition_point(|sum| *sum <= target);
        #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
        let action = action as u32;
        action
    }
}

/// What is left to be drawn from while a slate is placed action by action.
pub(super) struct Walk<'a> {
    distribution: &'a Distribution,
    /// Places in the head of what is unplaced there, best first.
    pub(super) unplaced: Vec<usize>,
    /// `e^{f − reference}` of the head; what has been placed there may hold anything.
    pub(super) weights: Vec<f64>,
    reference: f64,
    /// The mass of what is unplaced in the tail, in the tail's weights,
    tail_left: f64,
    /// and what those are multiplied with to be relative to `reference`.
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

    /// `log π(a_k = action | what is placed)`. Scores may be large and close to each other: what is
    /// subtracted first is exact.
    fn log_prob(&self, action: u32) -> f64 {
        (self.distribution.score(action) - self.reference) - self.mass().ln()
    }

    fn head_mass(&self) -> f64 {
        self.unplaced.iter().map(|&at| self.weights[at]).sum()
    }

    /// An unplaced action, by its weight; `placed` are all that are not.
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

/// The best of what is offered in ascending order of actions, best first.
struct Best {
    entries: Vec<(f64, u32)>,
    size: usize,
}

impl Best {
    /// Keeps up to `size` > 0.
    fn new(size: usize) -> Self {
        Self { entries: Vec::with_capacity(size), size }
    }

    /// Whether a score would be kept. An equal one belongs to a lower action and stays.
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
