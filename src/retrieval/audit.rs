//! How much of the true top-K an approximate index finds. Inner product is no metric, so recall
//! can collapse on embeddings of skewed norms: it is measured at every build, and said.

use std::collections::HashSet;

use crate::error::Result;
use crate::retrieval::{Queries, Retriever, Slates};

/// Scores this near to each other, relatively, are the same.
const SAME_SCORE: f32 = 1e-6;

/// Recall@K: the mean share of `exact`'s top K that `index` returns, in `[0, 1]`; the order does
/// not count. Without queries, 1.
///
/// # Errors
/// What either search returns.
pub fn recall(index: &dyn Retriever, exact: &dyn Retriever, queries: Queries<'_>) -> Result<f64> {
    Ok(overlap(&index.search(queries)?, &exact.search(queries)?))
}

/// The mean share of `wanted` that `found` holds, in `[0, 1]`; the order does not count, and an
/// action that scores what the last of `wanted` does is as good: items that the same users have
/// interacted with have the same embedding. Without slates, 1.
#[must_use]
pub fn overlap(found: &Slates, wanted: &Slates) -> f64 {
    if wanted.is_empty() {
        return 1.0;
    }
    let hits: usize = (0..wanted.len())
        .map(|i| {
            let set: HashSet<u32> = wanted.slate(i).iter().copied().collect();
            let last = wanted.scores(i).last().copied().unwrap_or(f32::INFINITY);
            // Two ways to the same score round differently.
            let enough = last - SAME_SCORE * last.abs();
            let scored = found.slate(i).iter().zip(found.scores(i));
            scored.filter(|(action, score)| set.contains(action) || **score >= enough).count()
        })
        .sum();
    hits as f64 / (wanted.len() * wanted.slate(0).len()) as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    #[derive(Debug)]
    struct Fixed(&'static [u32]);

    impl Retriever for Fixed {
        fn search(&self, queries: Queries<'_>) -> Result<Slates> {
            // Actions below 10 score less the greater they are; 21 scores what 1 does, and so on.
            let scores = self.0.iter().map(|action| -((action % 10) as f32)).collect();
            Ok(Slates::new(queries.slate_size, self.0.to_vec(), scores))
        }
    }

    #[test]
    fn recall_counts_sets() {
        let latent = Matrix::zeros(2, 1);
        let queries = Queries { latent: &latent, slate_size: 2, excluded: None };
        let exact = Fixed(&[1, 2, 3, 4]);
        assert!((recall(&exact, &exact, queries).unwrap() - 1.0).abs() < 1e-12);
        let swapped = Fixed(&[2, 1, 4, 9]);
        assert!((recall(&swapped, &exact, queries).unwrap() - 0.75).abs() < 1e-12);
        let equals = Fixed(&[1, 22, 3, 25]);
        assert!((recall(&equals, &exact, queries).unwrap() - 0.75).abs() < 1e-12);
    }
}
