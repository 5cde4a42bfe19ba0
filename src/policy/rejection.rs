//! Takes queries and returns Plackett–Luce slates without computing the normalising constant: rejection
//! from a head found by MIPS and a uniform tail (Algorithm 2 of the appendix "Accelerating
//! Plackett-Luce training", corrected).
//!
//! Let s_1 ≥ … ≥ s_M be the scores of the head, the M retrieved actions (the algorithm's K). The
//! envelope puts `e^{s_i} − e^{s_M}` on each of them, and `e^{s_M}` on every one of the P actions. A
//! draw from the first part is always accepted, a draw q from the uniform part with probability
//! `min(1, e^{s_q − s_M})`. So an action of the head has weight
//! `(e^{s_i} − e^{s_M}) + e^{s_M} = e^{s_i}`, and any other `e^{s_M} e^{s_q − s_M} = e^{s_q}` provided
//! that `s_q ≤ s_M`: exact when the head is the true top M. The printed algorithm gives the head
//! `e^{s_i}` although the tail accepts head actions too.
//!
//! An action that an approximate search misses has `s_q > s_M` outside the head; it is drawn with
//! weight `e^{s_M}` instead of `e^{s_q}`, too rarely. [`Rejections::above_head`] counts such actions.
//!
//! A slate is drawn action after action. Refusing the placed actions leaves the softmax of the rest, as
//! Plackett–Luce asks. One retrieval serves all slates of a query, since M ≥ K leaves an action of
//! the head for every position.

use std::iter::Sum;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{BatchRows, Sampling};
use crate::embedding::ActionEmbeddings;
use crate::error::Result;
use crate::matrix::dot;
use crate::retrieval::{Heads, Retriever, Slates, is_excluded};
use crate::seed::{Purpose, Stream};

/// Draws Plackett–Luce slates by rejection from a retrieved head and a uniform tail.
#[derive(Clone, Debug)]
pub struct RejectionSampler {
    actions: Arc<ActionEmbeddings>,
    heads: Heads,
    sampling: Sampling,
    as_printed: bool,
}

impl RejectionSampler {
    /// A sampler over `actions`. `retriever` finds the `head` best of them, fewer where exclusion
    /// leaves fewer.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) when S or K is 0, or the head does not hold a slate.
    pub fn new(
        actions: Arc<ActionEmbeddings>,
        retriever: Arc<dyn Retriever>,
        head: usize,
        sampling: Sampling,
    ) -> Result<Self> {
        sampling.validate()?;
        let heads = sampling.heads(retriever, head, actions.num_actions())?;
        Ok(Self { actions, heads, sampling, as_printed: false })
    }

    /// Uses the head weights of the algorithm as printed, `e^{s_i}`, for comparison: they draw the
    /// actions of the head too often.
    #[must_use]
    pub fn as_printed(self) -> Self {
        Self { as_printed: true, ..self }
    }

    /// β.
    #[must_use]
    pub fn actions(&self) -> &Arc<ActionEmbeddings> {
        &self.actions
    }

    /// S, K and the exclusions.
    #[must_use]
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Retrieves all heads at once, then calls `visit` for each row with its number and envelope, in
    /// parallel. Returns the results in the order of the rows, and the counts of the rejection.
    ///
    /// # Errors
    /// Fails if retrieval or `visit` fails; [`NotFinite`](crate::Error::NotFinite) for a score that
    /// f32 cannot hold.
    pub fn visit<T: Send>(
        &self,
        rows: BatchRows<'_>,
        visit: impl Fn(usize, &mut Envelope<'_>) -> Result<T> + Sync,
    ) -> Result<(Vec<T>, Rejections)> {
        let heads = self.heads.search(rows.contexts, rows.h)?; // [rows, M]
        let visited = (0..rows.h.rows()).into_par_iter().map(|row| {
            let mut envelope = self.envelope(rows, row, &heads);
            Ok((visit(row, &mut envelope)?, envelope.rejections))
        });
        let (results, rejections): (Vec<T>, Vec<Rejections>) =
            visited.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok((results, rejections.into_iter().sum()))
    }

    /// Draws S slates for each row, `[B · S, K]`, and counts the rejections.
    ///
    /// # Errors
    /// Fails as [`visit`](Self::visit) does.
    pub fn sample(&self, rows: BatchRows<'_>) -> Result<(Slates, Rejections)> {
        let Sampling { num_samples, slate_size, seed, .. } = self.sampling;
        let (drawn, rejections) = self.visit(rows, |row, envelope| {
            let mut stream = rows.stream(seed, Purpose::Slates, row);
            let mut actions = Vec::with_capacity(num_samples * slate_size);
            for _ in 0..num_samples {
                let mut slate = Vec::with_capacity(slate_size);
                envelope.complete(&mut slate, slate_size, &mut stream);
                actions.extend(slate);
            }
            let of = |&action| dot(rows.h.row(row), self.actions.row(action));
            let scores: Vec<f32> = actions.iter().map(of).collect();
            Ok((actions, scores))
        })?;
        let (actions, scores): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        Ok((Slates::new(slate_size, actions.concat(), scores.concat()), rejections))
    }

    fn envelope<'a>(&'a self, rows: BatchRows<'a>, row: usize, heads: &Slates) -> Envelope<'a> {
        let scores = heads.scores(row);
        let least = scores.last().copied().map_or(f64::NEG_INFINITY, f64::from);
        let (mut mass, mut below) = (0.0, least);
        let ascending = heads.slate(row).iter().zip(scores).rev().map(|(&action, &score)| {
            let score = f64::from(score);
            let weight = if self.as_printed { 1.0 } else { -(least - score).exp_m1() };
            mass = weight + mass * (below - score).exp();
            below = score;
            HeadAction { action, score, mass }
        });
        let mut head: Vec<HeadAction> = ascending.collect();
        head.reverse();
        Envelope {
            actions: &self.actions,
            h: rows.h.row(row),
            excluded: self.sampling.excluded_of(rows.contexts[row]),
            head,
            least,
            rejections: Rejections::default(),
        }
    }
}

/// One action of a head.
#[derive(Clone, Copy, Debug)]
struct HeadAction {
    action: u32,
    /// s_i.
    score: f64,
    /// `Σ_{j ≥ i} (e^{s_j} − e^{s_M})` in units of `e^{s_i}`, which neither overflows nor vanishes.
    mass: f64,
}

/// The envelope of the softmax of one query: its head and the uniform tail.
#[derive(Debug)]
pub struct Envelope<'a> {
    actions: &'a ActionEmbeddings,
    h: &'a [f32],
    excluded: &'a [u32],
    /// Best first.
    head: Vec<HeadAction>,
    /// s_M.
    least: f64,
    rejections: Rejections,
}

impl Envelope<'_> {
    /// Extends `slate` to `slate_size` actions, given the ones it has; stops early only when no
    /// action is left.
    pub fn complete(&mut self, slate: &mut Vec<u32>, slate_size: usize, stream: &mut Stream) {
        while slate.len() < slate_size
            && let Some(action) = self.draw(slate, stream)
        {
            slate.push(action);
        }
    }

    /// Draws from the softmax of the unplaced actions.
    fn draw(&mut self, placed: &[u32], stream: &mut Stream) -> Option<u32> {
        // In units of the largest score that is left: in units of a placed one that is far above,
        // all other masses could round to 0.
        if let Some(first) = self.head.iter().position(|head| !placed.contains(&head.action)) {
            let HeadAction { score: unit, mass: head_mass, .. } = self.head[first];
            let tail_mass = self.actions.num_actions() as f64 * (self.least - unit).exp();
            for _ in 0..self.actions.num_actions() {
                let at = stream.uniform() * (head_mass + tail_mass);
                let drawn = if at < head_mass {
                    let beyond = |head: &HeadAction| head.mass * (head.score - unit).exp() > at;
                    let last = first + self.head[first..].partition_point(beyond).max(1) - 1;
                    let action = self.head[last].action;
                    (!placed.contains(&action)).then_some(action)
                } else {
                    self.draw_tail(placed, stream)
                };
                if drawn.is_some() {
                    return drawn;
                }
            }
        }
        // Giving up depends on the number of refusals alone, so it does not change the distribution.
        self.rejections.exact_passes += 1;
        self.draw_exactly(placed, stream)
    }

    /// A uniform proposal, if it is accepted.
    fn draw_tail(&mut self, placed: &[u32], stream: &mut Stream) -> Option<u32> {
        #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
        let action = stream.below(self.actions.num_actions() as u32);
        if is_excluded(self.excluded, action) || placed.contains(&action) {
            return None;
        }
        let score = self.score(action);
        let accepted = stream.uniform() < (score - self.least).exp();
        let missed = score > self.least && !self.head.iter().any(|head| head.action == action);
        self.rejections.proposed += 1;
        self.rejections.accepted += u64::from(accepted);
        self.rejections.above_head += u64::from(missed);
        accepted.then_some(action)
    }

    /// Draws by the inverse distribution function over all actions that are left, in O(P).
    fn draw_exactly(&self, placed: &[u32], stream: &mut Stream) -> Option<u32> {
        let left: Vec<(u32, f64)> = (0_u32..)
            .take(self.actions.num_actions())
            .filter(|action| !is_excluded(self.excluded, *action) && !placed.contains(action))
            .map(|action| (action, self.score(action)))
            .collect();
        let largest = left.iter().map(|entry| entry.1).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = left.iter().map(|entry| (entry.1 - largest).exp()).sum();
        let weights = left.iter().map(|entry| (entry.1 - largest).exp());
        stream.place(total, weights).map(|place| left[place].0)
    }

    fn score(&self, action: u32) -> f64 {
        f64::from(dot(self.h, self.actions.row(action)))
    }
}

/// Counts of what the rejection sampler proposed and accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejections {
    /// Actions of the uniform tail whose score was computed. Only these, retrieval and the exact
    /// passes read β.
    pub proposed: u64,
    /// Proposed actions that were accepted.
    pub accepted: u64,
    /// Proposed actions that score above the head without being in it: they are drawn too rarely.
    /// With an exact search there are none, except among scores that rounding cannot tell apart.
    pub above_head: u64,
    /// Positions drawn from the scores of all actions after P refusals.
    pub exact_passes: u64,
}

impl Rejections {
    /// The share of proposed actions that was accepted; 1 when nothing was proposed.
    #[must_use]
    pub fn acceptance_rate(&self) -> f64 {
        if self.proposed == 0 { 1.0 } else { self.accepted as f64 / self.proposed as f64 }
    }
}

impl Sum for Rejections {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            proposed: sum.proposed + part.proposed,
            accepted: sum.accepted + part.accepted,
            above_head: sum.above_head + part.above_head,
            exact_passes: sum.exact_passes + part.exact_passes,
        })
    }
}
