//! Draws from the softmax, and Plackett–Luce slates, without their normalising constant: rejection
//! from a head found by MIPS and a uniform tail (Algorithm 2 of the appendix "Accelerating
//! Plackett-Luce training", corrected).
//!
//! Let s_1 ≥ … ≥ s_M be the scores of the head, the M actions that retrieval answers with (the
//! algorithm's K). The envelope puts `e^{s_i} − e^{s_M}` on each of them, and on top of that
//! `e^{s_M}` on every one of the P actions. Its first part is accepted as it is, the uniform one
//! with probability `min(1, e^{s_q − s_M})`. So an action of the head is drawn with weight
//! `(e^{s_i} − e^{s_M}) + e^{s_M} = e^{s_i}`, and any other with `e^{s_M} e^{s_q − s_M} = e^{s_q}`
//! provided that `s_q ≤ s_M`: exact when the head is the true top M. As printed, the head's weight
//! is `e^{s_i}` before the tail accepts its actions once more.
//!
//! An action that an approximate search misses has `s_q > s_M` outside the head; it is drawn with
//! weight `e^{s_M}` instead of `e^{s_q}`, too rarely. Those met are counted
//! ([`Rejections::above_head`]).
//!
//! A slate is drawn action after action: what is placed already is refused, which leaves the
//! softmax of the rest, as Plackett–Luce asks. One retrieval serves all slates of a query, since
//! M ≥ K leaves an action of the head for every position.

use std::iter::Sum;
use std::ops::Add;
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
    /// A sampler over `actions` whose head is the `head` best of them by `retriever`, fewer where
    /// exclusion leaves fewer.
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

    /// The same with the head weights of the algorithm as printed, `e^{s_i}`. It draws the actions
    /// of the head too often; it is here to be compared with.
    #[must_use]
    pub fn as_printed(self) -> Self {
        Self { as_printed: true, ..self }
    }

    /// β.
    #[must_use]
    pub fn actions(&self) -> &Arc<ActionEmbeddings> {
        &self.actions
    }

    /// S, K and what is excluded.
    #[must_use]
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Hands every row's number and envelope to `visit`, in parallel, after one retrieval of all
    /// heads. Returns what `visit` does, in the order of the rows, and how the rejection went.
    ///
    /// # Errors
    /// Those of retrieval and of `visit`; [`Error::NotFinite`](crate::Error::NotFinite) for a score that f32 cannot hold.
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

    /// Draws S slates for each row, `[rows · S, K]`, and says how the rejection went.
    ///
    /// # Errors
    /// Those of [`visit`](Self::visit).
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
    /// `Σ_{j ≥ i} (e^{s_j} − e^{s_M})`, in units of `e^{s_i}`: these neither overflow nor vanish,
    /// however far the scores are apart.
    mass: f64,
}

/// What dominates the softmax of one query: its head and the uniform tail.
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
    /// Draws the positions of `slate` that are missing to `slate_size`, given those that it has;
    /// stops early only when no action is left.
    pub fn complete(&mut self, slate: &mut Vec<u32>, slate_size: usize, stream: &mut Stream) {
        while slate.len() < slate_size
            && let Some(action) = self.draw(slate, stream)
        {
            slate.push(action);
        }
    }

    /// How the rejection went so far.
    #[must_use]
    pub fn rejections(&self) -> Rejections {
        self.rejections
    }

    /// An action from the softmax of those that are not placed.
    fn draw(&mut self, placed: &[u32], stream: &mut Stream) -> Option<u32> {
        // Masses are in units of the largest score that is left: what was placed may be so far
        // above it that nothing else remains in units of the first.
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
        // Giving up depends on the number of refusals alone, not on the action that is drawn in
        // the end, so the distribution stays what it was.
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

    /// By inverse distribution function over all actions that are left, in O(P).
    fn draw_exactly(&self, placed: &[u32], stream: &mut Stream) -> Option<u32> {
        let left: Vec<(u32, f64)> = (0_u32..)
            .take(self.actions.num_actions())
            .filter(|action| !is_excluded(self.excluded, *action) && !placed.contains(action))
            .map(|action| (action, self.score(action)))
            .collect();
        let largest = left.iter().map(|entry| entry.1).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = left.iter().map(|entry| (entry.1 - largest).exp()).sum();
        let mut before = stream.uniform() * total;
        let chosen = left.iter().find(|entry| {
            before -= (entry.1 - largest).exp();
            before < 0.0
        });
        // Rounding may leave a remainder after the last one.
        chosen.or(left.last()).map(|entry| entry.0)
    }

    fn score(&self, action: u32) -> f64 {
        f64::from(dot(self.h, self.actions.row(action)))
    }
}

/// How the rejection went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejections {
    /// Actions of the uniform tail whose score was computed, the only reads of β besides retrieval
    /// and the exact passes.
    pub proposed: u64,
    /// How many of them were accepted.
    pub accepted: u64,
    /// How many of them scored above the head without being in it, so that they are drawn too
    /// rarely. With an exact search there are none, but for scores that rounding cannot tell apart.
    pub above_head: u64,
    /// Positions that were drawn from the scores of all actions after P refusals.
    pub exact_passes: u64,
}

impl Rejections {
    /// The share of the proposed that was accepted; 1 when nothing was proposed.
    #[must_use]
    pub fn acceptance_rate(&self) -> f64 {
        if self.proposed == 0 { 1.0 } else { self.accepted as f64 / self.proposed as f64 }
    }
}

impl Add for Rejections {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            proposed: self.proposed + other.proposed,
            accepted: self.accepted + other.accepted,
            above_head: self.above_head + other.above_head,
            exact_passes: self.exact_passes + other.exact_passes,
        }
    }
}

impl Sum for Rejections {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}
