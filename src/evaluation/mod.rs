//! Slates of a recommender in, their value out: the mean reward on held-out contexts, `R̂(d_θ)` of
//! section 4.1, with its standard error and paired intervals, and ranking metrics.

mod metrics;
mod panel;

use std::collections::HashSet;

use crate::error::Result;
use crate::estimate::Estimate;
use crate::interrupt;
use crate::model::Model;
use crate::retrieval::{Search, Slates};
use crate::task::Task;

pub use crate::estimate::Interval;
use metrics::Tally;
pub use metrics::{MetricAt, Metrics};
pub use panel::Panel;

/// What a report says when it judges a checkpoint on the users whose rewards chose it.
pub const CHOSEN_HERE: &str = "this checkpoint was chosen on these users";

/// The reward of each context's slate, and the metrics over all slates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    rewards: Vec<f32>,
    /// The person of each reward, where one person may have several.
    people: Option<Vec<u32>>,
    metrics: Metrics,
    metrics_at: Vec<f64>,
}

/// Contexts decided at once. It bounds the memory of an evaluation.
const BLOCK: usize = 4096;

impl Evaluation {
    /// Judges the deterministic decision of `model` in each of `contexts`; on a log, the policy that
    /// explores, by the smoothed reward of each row.
    ///
    /// # Errors
    /// Fails if the retriever or the device fails.
    pub fn of(task: &Task, model: &Model, contexts: &[u32], search: Search) -> Result<Self> {
        if let Some(logged) = task.logged() {
            let latent = model.latent(&task.contexts.select(contexts))?;
            let rewards = logged.weighed(contexts, &latent).smoothed_rewards(logged.lambda());
            let (people, metrics) = (task.people_of(contexts), Metrics::default());
            return Ok(Self { rewards, people, metrics, metrics_at: Vec::new() });
        }
        let retriever = task.retriever(model, search)?;
        Self::by(task, contexts, |block| task.decide(model, block, retriever.as_ref()))
    }

    /// Judges any recommender: `decide` gives a slate for each context of a block.
    ///
    /// # Errors
    /// Fails if `decide` fails.
    pub fn by(
        task: &Task,
        contexts: &[u32],
        decide: impl Fn(&[u32]) -> Result<Slates>,
    ) -> Result<Self> {
        Self::with_metrics(task, contexts, &[], decide)
    }

    /// Judges any recommender also by metrics at other lengths than K: `decide` gives so many actions
    /// as the longest of `metrics` and K need ([`longest`](Self::longest)) for each context of a
    /// block, best first. All else is about the first K of them.
    ///
    /// # Errors
    /// Fails if `decide` or the reward fails.
    pub fn with_metrics(
        task: &Task,
        contexts: &[u32],
        metrics: &[MetricAt],
        decide: impl Fn(&[u32]) -> Result<Slates>,
    ) -> Result<Self> {
        let mut rewards = Vec::with_capacity(contexts.len());
        let tally = || Tally::new(task.sessions.num_actions);
        let (mut tallies, mut at_k) = (vec![tally(); metrics.len()], tally());
        for block in contexts.chunks(BLOCK) {
            interrupt::check()?;
            let slates = decide(block)?; // [block, longest]
            let judged = slates.first(task.slate_size());
            rewards.extend(task.reward.finite_rewards(block, &judged)?);
            for (at, &context) in block.iter().enumerate() {
                let hidden = task.sessions.hidden.of(context);
                at_k.add(hidden, judged.slate(at));
                for (tally, metric) in tallies.iter_mut().zip(metrics) {
                    tally.add(hidden, &slates.slate(at)[..metric.k()]);
                }
            }
        }
        let metrics_at = metrics.iter().zip(&tallies).map(|(it, tally)| it.of(tally.metrics()));
        let (people, metrics_at) = (task.people_of(contexts), metrics_at.collect());
        Ok(Self { rewards, people, metrics: at_k.metrics(), metrics_at })
    }

    /// The mean of evaluations of the same contexts about several halves of their items: of each context's
    /// reward, and of the metrics.
    ///
    /// # Errors
    /// The first error among them.
    pub fn mean_of(all: impl Iterator<Item = Result<Self>>) -> Result<Self> {
        Ok(Self::weighed(&all.map(|one| Ok((one?, 1))).collect::<Result<Vec<_>>>()?))
    }

    /// The same of evaluations that are about so many halves each.
    pub(crate) fn weighed(all: &[(Self, u64)]) -> Self {
        let halves = all.iter().map(|(_, halves)| *halves).sum::<u64>() as f64;
        let mean = |of: &dyn Fn(&Self) -> f64| {
            all.iter().map(|(one, halves)| *halves as f64 * of(one)).sum::<f64>() / halves
        };
        let Some((first, _)) = all.first() else { return Self::default() };
        #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of rewards")]
        let reward = |at: usize| mean(&|one| one.rewards[at].into()) as f32;
        Self {
            rewards: (0..first.rewards.len()).map(reward).collect(),
            people: first.people.clone(),
            metrics: Metrics {
                ndcg: mean(&|one| one.metrics.ndcg),
                recall: mean(&|one| one.metrics.recall),
                hit_rate: mean(&|one| one.metrics.hit_rate),
                catalogue_coverage: mean(&|one| one.metrics.catalogue_coverage),
            },
            metrics_at: (0..first.metrics_at.len())
                .map(|at| mean(&|one| one.metrics_at[at]))
                .collect(),
        }
    }

    /// The number of actions of a slate that K and all of `metrics` can be computed on.
    #[must_use]
    pub fn longest(task: &Task, metrics: &[MetricAt]) -> usize {
        metrics.iter().map(|metric| metric.k()).max().unwrap_or(0).max(task.slate_size())
    }

    /// The values of the metrics that were asked for, in their order.
    #[must_use]
    pub fn metrics_at(&self) -> &[f64] {
        &self.metrics_at
    }

    /// This evaluation, with the metrics that were asked of `other`.
    #[must_use]
    pub fn with_metrics_of(self, other: Self) -> Self {
        Self { metrics_at: other.metrics_at, ..self }
    }

    /// The metrics that do not depend on the reward.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics
    }

    /// Mean reward over the contexts, with its standard error.
    #[must_use]
    pub fn reward(&self) -> Estimate {
        self.estimate(self.values())
    }

    /// Contexts are independent, unless several are of one person.
    fn estimate(&self, values: impl ExactSizeIterator<Item = f64> + Clone) -> Estimate {
        match &self.people {
            None => Estimate::of(values),
            Some(people) => Estimate::of_groups(values, people),
        }
    }

    /// Mean reward; 0 without contexts.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.reward().mean
    }

    /// Standard error of the mean over contexts.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        self.reward().standard_error
    }

    /// Mean gain over `start` on the same contexts, with its paired 95 % interval; a single context, or
    /// person, has none.
    #[must_use]
    pub fn gain_over(&self, start: &Self) -> Interval {
        let gains = self.values().zip(start.values()).map(|(now, then)| now - then);
        let independent = match &self.people {
            None => self.rewards.len(),
            Some(people) => people.iter().collect::<HashSet<_>>().len(),
        };
        self.estimate(gains).interval_of(independent)
    }

    fn values(&self) -> impl ExactSizeIterator<Item = f64> + Clone + '_ {
        self.rewards.iter().map(|reward| f64::from(*reward))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluations_weigh_as_many_halves_as_they_are_about() {
        let of = |rewards: [f32; 2]| Evaluation { rewards: rewards.into(), ..Default::default() };
        let all = [[1.0, 0.0], [3.0, 0.5], [8.0, 1.0]].map(of);
        let first = Evaluation::mean_of(all[..2].iter().cloned().map(Ok)).unwrap();
        let whole = Evaluation::mean_of(all.iter().cloned().map(Ok)).unwrap();
        assert_eq!(whole.rewards, [4.0, 0.5]);
        assert_eq!(Evaluation::weighed(&[(first, 2), (all[2].clone(), 1)]), whole);
    }

    #[test]
    fn a_paired_interval_is_tighter_than_the_spread_of_the_rewards() {
        let of = |reward: &dyn Fn(i32) -> f32| Evaluation {
            rewards: (0..100).map(reward).collect(),
            people: None,
            metrics: Metrics::default(),
            metrics_at: Vec::new(),
        };
        let start = of(&|i| i as f32);
        let now = of(&|i| i as f32 + 1.0 + 0.1 * (i % 2) as f32);
        let gain = now.gain_over(&start);
        assert!((gain.mean - 1.05).abs() < 1e-5);
        assert!(gain.low > 1.0 && gain.high < 1.1);
        assert!((start.reward().standard_error - 2.9011).abs() < 1e-3);
        // Rows that are copies are no evidence: here ten persons have ten rows each.
        let of_people = |of: Evaluation| {
            let people = Some((0..100).map(|row| row / 10).collect());
            let rewards = (0..100).map(|row| of.rewards[row / 10]).collect();
            Evaluation { rewards, people, ..of }
        };
        let error = of_people(start).reward().standard_error;
        assert!((error - 0.9574).abs() < 1e-3, "{error}");
    }
}
