//! Slates and hidden actions Y in, ranking metrics out: how many of Y the slates show, how high up,
//! and how much of the catalogue they show in all.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Means over contexts, each in `[0, 1]`; a context that hides nothing counts as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// nDCG@K: `Σ_k 1[a_k ∈ Y] / log₂(k + 1)`, over what `min(K, |Y|)` hits at the top would give.
    pub ndcg: f64,
    /// Recall@K: the share of Y that is on the slate.
    pub recall: f64,
    /// The share of the contexts whose slate has a hit.
    pub hit_rate: f64,
    /// The share of the P actions that some slate shows.
    pub catalogue_coverage: f64,
}

/// A metric of the first k actions of a slate, written as `recall@20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricAt {
    metric: Ranking,
    k: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranking {
    Ndcg,
    Recall,
    Hits,
}

const RANKINGS: [(&str, Ranking); 3] =
    [("ndcg", Ranking::Ndcg), ("recall", Ranking::Recall), ("hits", Ranking::Hits)];

impl MetricAt {
    /// k.
    #[must_use]
    pub fn k(self) -> usize {
        self.k
    }

    /// Its value among the metrics of slates of k actions.
    pub(super) fn of(self, metrics: Metrics) -> f64 {
        match self.metric {
            Ranking::Ndcg => metrics.ndcg,
            Ranking::Recall => metrics.recall,
            Ranking::Hits => metrics.hit_rate,
        }
    }
}

impl FromStr for MetricAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (name, k) = text.trim().split_once('@')?;
            let metric = RANKINGS.iter().find(|(known, _)| *known == name)?.1;
            Some(Self { metric, k: k.parse().ok().filter(|k| *k > 0)? })
        };
        read().ok_or_else(|| {
            format!("expected ndcg@K, recall@K or hits@K, such as recall@20, found `{text}`")
        })
    }
}

impl fmt::Display for MetricAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = RANKINGS.iter().find(|(_, metric)| *metric == self.metric);
        write!(f, "{}@{}", named.map_or("", |(name, _)| name), self.k)
    }
}

/// Sums of the metrics over the contexts so far.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    sums: Metrics,
    contexts: usize,
    shown: Vec<bool>, // [P]
}

impl Tally {
    pub(super) fn new(num_actions: usize) -> Self {
        Self { sums: Metrics::default(), contexts: 0, shown: vec![false; num_actions] }
    }

    /// Counts the slate of a context with these `hidden` actions, which ascend.
    pub(super) fn add(&mut self, hidden: &[u32], slate: &[u32]) {
        let gain = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
        let (mut hits, mut gained) = (0, 0.0);
        for (rank, action) in slate.iter().enumerate() {
            self.shown[*action as usize] = true;
            if hidden.binary_search(action).is_ok() {
                hits += 1;
                gained += gain(rank);
            }
        }
        self.contexts += 1;
        if hits > 0 {
            let ideal: f64 = (0..slate.len().min(hidden.len())).map(gain).sum();
            self.sums.ndcg += gained / ideal;
            self.sums.recall += f64::from(hits) / hidden.len() as f64;
            self.sums.hit_rate += 1.0;
        }
    }

    pub(super) fn metrics(&self) -> Metrics {
        let contexts = self.contexts.max(1) as f64;
        let shown = self.shown.iter().filter(|shown| **shown).count();
        Metrics {
            ndcg: self.sums.ndcg / contexts,
            recall: self.sums.recall / contexts,
            hit_rate: self.sums.hit_rate / contexts,
            catalogue_coverage: shown as f64 / self.shown.len().max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_by_hand() {
        let mut tally = Tally::new(10);
        tally.add(&[1, 4, 7, 9], &[4, 0, 9]); // hits at ranks 1 and 3, of three possible
        tally.add(&[5], &[0, 5, 2]); // a hit at rank 2, of one possible
        tally.add(&[8], &[0, 1, 2]);
        tally.add(&[], &[0, 1, 2]);
        let Metrics { ndcg, recall, hit_rate, catalogue_coverage } = tally.metrics();
        let third = 1.0 / 3.0_f64.log2();
        let expected = ((1.0 + 0.5) / (1.0 + third + 0.5) + third) / 4.0;
        assert!((ndcg - expected).abs() < 1e-12, "{ndcg} instead of {expected}");
        assert_eq!((recall, hit_rate, catalogue_coverage), ((0.5 + 1.0) / 4.0, 0.5, 0.6));
    }

    #[test]
    fn metrics_at_k_look_at_the_first_k_actions() {
        let (hidden, slate) = ([1, 4, 7], [4, 0, 7, 1, 2]);
        let third = 1.0 / 3.0_f64.log2();
        for (text, expected) in [
            ("recall@1", 1.0 / 3.0),
            ("recall@4", 1.0),
            ("ndcg@1", 1.0),
            ("ndcg@2", 1.0 / (1.0 + third)), // two hits were possible
            ("ndcg@5", (1.0 + 0.5 + 1.0 / 5.0_f64.log2()) / (1.0 + third + 0.5)),
            ("hits@5", 1.0),
        ] {
            let metric: MetricAt = text.parse().unwrap();
            assert_eq!(metric.to_string(), text);
            let mut tally = Tally::new(10);
            tally.add(&hidden, &slate[..metric.k()]);
            let found = metric.of(tally.metrics());
            assert!((found - expected).abs() < 1e-12, "{text}: {found} instead of {expected}");
        }
        for text in ["recall", "recall@", "recall@0", "recall@-1", "map@5", "@5", "recall@5,"] {
            let message = text.parse::<MetricAt>().unwrap_err();
            assert!(message.contains("such as recall@20"), "{message}");
        }
    }

    #[test]
    fn without_contexts_there_is_nothing() {
        assert_eq!(Tally::new(3).metrics(), Metrics::default());
    }
}
