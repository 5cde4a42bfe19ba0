//! Plackett–Luce against gold numbers, against enumeration of every slate, and against the slow
//! obvious way, which is O(K P) a slate and works in logarithms throughout.

#![allow(clippy::float_cmp, reason = "counts, zeros and sums in the same order are exact")]

use std::collections::HashMap;
use std::sync::Arc;

use fast_slate::Error;
use fast_slate::dataset::{ActionSets, Sessions, Split};
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::{Estimator, PlRank};
use fast_slate::matrix::{Matrix, dot};
use fast_slate::policy::{
    BatchRows, Distribution, GradientSum, PlackettLuce, Sampling, ScoreGradient, SlateDraws,
    SlatePolicy,
};
use fast_slate::reward::{AnyHit, LinearReward, SlateReward};
use fast_slate::seed::{Purpose, Seed, Stream};
use statrs::distribution::{ChiSquared, ContinuousCDF};

use crate::common;

/// The slow, plain implementation that the fast one is compared with.
struct Slow {
    /// −∞ for excluded actions.
    scores: Vec<f64>,
}

impl Slow {
    fn new(scores: &[f64], excluded: &[u32]) -> Self {
        let mut scores = scores.to_vec();
        for &action in excluded {
            scores[action as usize] = f64::NEG_INFINITY;
        }
        Self { scores }
    }

    /// `f_d − log Z` of every action that is not in `placed`; −∞ of the others.
    fn log_probs(&self, placed: &[u32]) -> Vec<f64> {
        let mut left = self.scores.clone();
        for &action in placed {
            left[action as usize] = f64::NEG_INFINITY;
        }
        let best = left.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut terms: Vec<f64> = left.iter().map(|score| (score - best).exp()).collect();
        terms.sort_by(f64::total_cmp);
        let log_mass = terms.iter().sum::<f64>().ln();
        left.iter().map(|score| (score - best) - log_mass).collect()
    }

    fn log_prob(&self, slate: &[u32]) -> f64 {
        let at_rank = |k: usize| self.log_probs(&slate[..k])[slate[k] as usize];
        (0..slate.len()).map(at_rank).sum()
    }

    /// `∇ log π(A)`.
    fn score(&self, slate: &[u32]) -> Vec<f64> {
        let mut gradient = vec![0.0; self.scores.len()];
        for (k, &action) in slate.iter().enumerate() {
            gradient[action as usize] += 1.0;
            let log_probs = self.log_probs(&slate[..k]);
            gradient.iter_mut().zip(log_probs).for_each(|(g, log_prob)| *g -= log_prob.exp());
        }
        gradient
    }

    /// PL-Rank's gradient of one slate.
    fn pl_rank(&self, slate: &[u32], relevance: &[f64], rank_weights: &[f64]) -> Vec<f64> {
        let to_come = |k| reward(&slate[k..], relevance, &rank_weights[k..]);
        let mut gradient = vec![0.0; self.scores.len()];
        for (k, &action) in slate.iter().enumerate() {
            for (d, log_prob) in self.log_probs(&slate[..k]).iter().enumerate() {
                gradient[d] += log_prob.exp() * (relevance[d] * rank_weights[k] - to_come(k));
            }
            gradient[action as usize] += to_come(k + 1);
        }
        gradient
    }

    /// Every slate of K actions that are not excluded.
    fn slates(&self, slate_size: usize) -> Vec<Vec<u32>> {
        let actions = 0..self.scores.len() as u32;
        let available: Vec<u32> =
            actions.filter(|&action| self.scores[action as usize].is_finite()).collect();
        let mut slates = vec![Vec::new()];
        for _ in 0..slate_size {
            let longer = slates.iter().flat_map(|slate: &Vec<u32>| {
                let unplaced = available.iter().filter(|action| !slate.contains(action));
                unplaced.map(|&action| [slate.as_slice(), &[action]].concat())
            });
            slates = longer.collect();
        }
        slates
    }
}

fn reward(slate: &[u32], relevance: &[f64], rank_weights: &[f64]) -> f64 {
    slate
        .iter()
        .zip(rank_weights)
        .map(|(&action, weight)| weight * relevance[action as usize])
        .sum()
}

fn relevant(relevance: &[f64]) -> Vec<u32> {
    (0..).zip(relevance).filter(|(_, rho)| **rho > 0.0).map(|(action, _)| action).collect()
}

fn pl_rank(distribution: &Distribution, slates: &[Vec<u32>], case: &Case) -> ScoreGradient {
    let relevant = relevant(&case.relevance);
    let mut sum = GradientSum::new(distribution, &relevant);
    for slate in slates {
        sum.add_pl_rank(slate, &case.rank_weights, 1.0 / slates.len() as f64);
    }
    sum.finish()
}

/// `Σ_s weight_s gradient_s`, dense.
fn weighted(gradients: impl Iterator<Item = (f64, Vec<f64>)>, num_actions: usize) -> Vec<f64> {
    let mut sum = vec![0.0; num_actions];
    for (weight, gradient) in gradients {
        sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += weight * g);
    }
    sum
}

/// Asserts that vectors agree relative to the largest number that is expected.
#[track_caller]
fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(0.0_f64, |scale, value| scale.max(value.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found - expected).abs();
        assert!(off <= tolerance * scale + 1e-15, "{at}: {found}, expected {expected}");
    }
}

fn stream(position: u64) -> Stream {
    Seed(3).stream(Purpose::Slates, 0, position)
}

fn normals(position: u64, rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    Seed(4).stream(Purpose::Synthetic, 0, position).fill_normals(matrix.as_mut_slice());
    matrix
}

/// Normal scores of the given scale.
fn scores(position: u64, num_actions: usize, scale: f64) -> Vec<f64> {
    let normals = normals(position, 1, num_actions);
    normals.as_slice().iter().map(|score| scale * f64::from(*score)).collect()
}

fn embeddings(beta: Matrix) -> Arc<ActionEmbeddings> {
    Arc::new(ActionEmbeddings::new(beta).unwrap())
}

fn identity(size: usize) -> Matrix {
    let mut matrix = Matrix::zeros(size, size);
    (0..size).for_each(|i| matrix.row_mut(i)[i] = 1.0);
    matrix
}

fn rows<'a>(contexts: &'a [u32], h: &'a Matrix) -> BatchRows<'a> {
    BatchRows { step: 5, contexts, h }
}

fn to_f64(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|number| f64::from(*number)).collect()
}

/// One of the gold cases.
#[derive(serde::Deserialize)]
struct Case {
    scores: Vec<f64>,
    relevance: Vec<f64>,
    rank_weights: Vec<f64>,
    slates: Vec<Vec<u32>>,
    pl_rank_on_these_slates: Vec<f64>,
    pl_pg_on_these_slates: Vec<f64>,
    log_prob_of_first_slate: f64,
    /// Given for cases in which every slate can be enumerated.
    exact_gradient_linear_reward: Option<Vec<f64>>,
    expected_linear_reward: Option<f64>,
}

fn gold() -> Vec<Case> {
    common::gold("plackett_luce.json")
}

impl Case {
    fn slate_size(&self) -> usize {
        self.rank_weights.len()
    }

    fn reward(&self, slate: &[u32]) -> f64 {
        reward(slate, &self.relevance, &self.rank_weights)
    }
}

#[test]
fn given_slates_have_the_gold_probability_and_gradients() {
    for case in gold() {
        let distribution = Distribution::new(case.scores.clone(), &[], case.slate_size()).unwrap();
        let log_prob = distribution.log_prob(&case.slates[0]);
        assert_close(&[log_prob], &[case.log_prob_of_first_slate], 1e-12);

        let score = |slate: &Vec<u32>| {
            let weight = case.reward(slate) / case.slates.len() as f64;
            (weight, ScoreGradient::log_prob(&distribution, slate).to_dense(&distribution))
        };
        let pl_pg = weighted(case.slates.iter().map(score), case.scores.len());
        assert_close(&pl_pg, &case.pl_pg_on_these_slates, 1e-10);
        let found = pl_rank(&distribution, &case.slates, &case).to_dense(&distribution);
        assert_close(&found, &case.pl_rank_on_these_slates, 1e-10);
    }
}

#[test]
fn given_slates_have_the_gold_gradients_in_the_query() {
    for case in gold() {
        let num_actions = case.scores.len();
        let sampling = Sampling {
            num_samples: 1,
            slate_size: case.slate_size(),
            excluded: None,
            seed: Seed(0),
        };
        let policy =
            PlackettLuce::new(embeddings(identity(num_actions)), SlateDraws::default(), sampling)
                .unwrap();
        let h = case.scores.iter().map(|score| *score as f32).collect();
        let h = Matrix::new(h, num_actions).unwrap();
        let beta = policy.actions().beta();
        let gradients = |_: usize, distribution: &Distribution| {
            let score = |slate: &Vec<u32>| ScoreGradient::log_prob(distribution, slate);
            let mut gradients = vec![pl_rank(distribution, &case.slates, &case)];
            gradients.extend(case.slates.iter().map(score));
            Ok((gradients, ()))
        };
        let (found, _) = policy.latent_gradients(beta, rows(&[0], &h), gradients).unwrap();
        assert_close(&to_f64(found.row(0)), &case.pl_rank_on_these_slates, 1e-5);
        let score = |(at, slate): (usize, &Vec<u32>)| {
            let weight = case.reward(slate) / case.slates.len() as f64;
            (weight, to_f64(found.row(at)))
        };
        let pl_pg = weighted((1..).zip(&case.slates).map(score), num_actions);
        assert_close(&pl_pg, &case.pl_pg_on_these_slates, 1e-5);
    }
}

#[test]
fn over_all_slates_both_gradients_add_up_to_the_gold_one() {
    for case in gold() {
        let (Some(expected), Some(value)) =
            (&case.exact_gradient_linear_reward, case.expected_linear_reward)
        else {
            continue;
        };
        let distribution = Distribution::new(case.scores.clone(), &[], case.slate_size()).unwrap();
        let slates = Slow::new(&case.scores, &[]).slates(case.slate_size());
        let prob = |slate: &[u32]| distribution.log_prob(slate).exp();
        let found: f64 = slates.iter().map(|slate| prob(slate) * case.reward(slate)).sum();
        assert_close(&[found], &[value], 1e-12);
        let pl_pg = slates.iter().map(|slate| {
            let gradient = ScoreGradient::log_prob(&distribution, slate);
            (prob(slate) * case.reward(slate), gradient.to_dense(&distribution))
        });
        assert_close(&weighted(pl_pg, case.scores.len()), expected, 1e-10);
        let pl_rank = slates.iter().map(|slate| {
            let gradient = pl_rank(&distribution, std::slice::from_ref(slate), &case);
            (prob(slate), gradient.to_dense(&distribution))
        });
        assert_close(&weighted(pl_rank, case.scores.len()), expected, 1e-10);
    }
}

#[test]
fn over_all_slates_the_gradients_agree_beyond_the_head_and_with_exclusion() {
    let (num_actions, slate_size, excluded) = (23, 3, [2, 5]);
    let scores = scores(1, num_actions, 1.5);
    let relevance: Vec<f64> = (0..num_actions).map(|d| f64::from(u8::from(d % 3 == 0))).collect();
    let (relevant, rank_weights) = (relevant(&relevance), [1.0, 0.5, 0.25]);
    let slow = Slow::new(&scores, &excluded);
    let fast = Distribution::new(scores, &excluded, slate_size).unwrap();
    let slates = slow.slates(slate_size);
    let (mut mass, mut value) = (0.0, 0.0);
    let [mut exact, mut by_score, mut by_pl_rank] = [(); 3].map(|()| vec![0.0; num_actions]);
    for slate in &slates {
        let (prob, reward) = (slow.log_prob(slate).exp(), reward(slate, &relevance, &rank_weights));
        let found = fast.log_prob(slate).exp();
        (mass, value) = (mass + found, value + found * reward);
        // The derivative of a probability in each score, from what it is made of.
        let score = slow.score(slate);
        let gradient = ScoreGradient::log_prob(&fast, slate).to_dense(&fast);
        let mut pl_rank = GradientSum::new(&fast, &relevant);
        pl_rank.add_pl_rank(slate, &rank_weights, found);
        let pl_rank = pl_rank.finish().to_dense(&fast);
        for d in 0..num_actions {
            exact[d] += prob * reward * score[d];
            by_score[d] += found * reward * gradient[d];
            by_pl_rank[d] += pl_rank[d];
        }
    }
    assert_close(&[mass], &[1.0], 1e-12);
    assert!(value > 0.1);
    assert_eq!([exact[2], by_pl_rank[5]], [0.0; 2]);
    assert_close(&by_score, &exact, 1e-10);
    assert_close(&by_pl_rank, &exact, 1e-10);
}

/// Scores that break what takes exponentials of them, with K and the excluded actions.
fn extremes() -> Vec<(Vec<f64>, usize, Vec<u32>)> {
    let spread = |count: u32| (0..count).map(|i| 1e4 - 2e4 * f64::from(i * 7 % count)).collect();
    let far: Vec<f64> = (0..40).map(|i| if i % 2 == 0 { 1e4 } else { -1e4 }).collect();
    let steps = (0..40).map(|i| -400.0 * f64::from(i)).collect();
    vec![
        (spread(30), 5, vec![]),
        (far.clone(), 20, vec![]),
        (far.clone(), 30, vec![]),
        (far, 21, (0..19).map(|i| 2 * i).collect()),
        (steps, 18, vec![0, 7]),
        (vec![0.0; 50], 20, vec![3]),
        (vec![-1e4; 6], 6, vec![]),
        (scores(2, 25, 1.0), 25, vec![]),
        (scores(3, 30, 3.0), 20, (0..10).collect()),
        (scores(4, 30, 200.0), 12, vec![1]),
    ]
}

#[test]
fn extreme_scores_give_what_the_slow_obvious_way_gives() {
    for (case, (scores, slate_size, excluded)) in (0_u64..).zip(extremes()) {
        let num_actions = scores.len();
        let relevance: Vec<f64> =
            (0..num_actions).map(|d| f64::from(u8::from(d % 3 == 0))).collect();
        let relevant = relevant(&relevance);
        let rank_weights: Vec<f64> = (0..slate_size).map(|k| 1.0 / (k as f64 + 1.0)).collect();
        let slow = Slow::new(&scores, &excluded);
        let fast = Distribution::new(scores, &excluded, slate_size).unwrap();

        // Likely slates by both samplers, and one that begins with the worst there is.
        let mut stream = stream(case);
        let mut slates = vec![Vec::new(); 7];
        let available = (0..num_actions as u32).filter(|action| !excluded.contains(action));
        slates[6].extend(available.min_by(|a, b| fast.score(*a).total_cmp(&fast.score(*b))));
        for (at, slate) in slates.iter_mut().enumerate() {
            if at < 3 {
                fast.complete_gumbel(slate, slate_size, &mut stream);
            } else {
                fast.complete(slate, slate_size, &mut stream);
            }
        }
        for slate in &slates {
            let distinct: std::collections::HashSet<_> = slate.iter().collect();
            assert_eq!((slate.len(), distinct.len()), (slate_size, slate_size), "case {case}");
            assert!(slate.iter().all(|action| !excluded.contains(action)));
            assert_close(&[fast.log_prob(slate)], &[slow.log_prob(slate)], 1e-12);
            let score = ScoreGradient::log_prob(&fast, slate).to_dense(&fast);
            assert_close(&score, &slow.score(slate), 1e-10);
            let mut pl_rank = GradientSum::new(&fast, &relevant);
            pl_rank.add_pl_rank(slate, &rank_weights, 1.0);
            let expected = slow.pl_rank(slate, &relevance, &rank_weights);
            assert_close(&pl_rank.finish().to_dense(&fast), &expected, 1e-10);
        }
    }
}

/// How often each slate is drawn.
fn frequencies(
    distribution: &Distribution,
    draws: SlateDraws,
    prefix: &[u32],
    slate_size: usize,
    num_draws: usize,
) -> HashMap<Vec<u32>, usize> {
    let mut stream = stream(draws as u64);
    let mut counts = HashMap::new();
    for _ in 0..num_draws {
        let mut slate = prefix.to_vec();
        match draws {
            SlateDraws::Gumbel => distribution.complete_gumbel(&mut slate, slate_size, &mut stream),
            _ => distribution.complete(&mut slate, slate_size, &mut stream),
        }
        *counts.entry(slate).or_default() += 1;
    }
    counts
}

/// Pearson's χ² of counts of slates that begin with `prefix`, over what a test at 10⁻⁴ allows.
/// Slates of fewer than five expected draws count as one.
fn chi_squared(
    counts: &HashMap<Vec<u32>, usize>,
    expected: &Slow,
    prefix: &[u32],
    slate_size: usize,
) -> f64 {
    let num_draws = counts.values().sum::<usize>() as f64;
    let given = expected.log_prob(prefix);
    let (mut cells, mut rare) = (Vec::new(), [0.0; 2]);
    for slate in expected.slates(slate_size).iter().filter(|slate| slate.starts_with(prefix)) {
        let cell = [
            *counts.get(slate).unwrap_or(&0) as f64,
            num_draws * (expected.log_prob(slate) - given).exp(),
        ];
        if cell[1] < 5.0 {
            rare = [rare[0] + cell[0], rare[1] + cell[1]];
        } else {
            cells.push(cell);
        }
    }
    // Every draw is a slate of the enumeration.
    let in_cells: f64 = cells.iter().map(|cell| cell[0]).sum();
    assert_eq!(in_cells + rare[0], num_draws);
    cells.extend((rare[1] > 0.5).then_some(rare));
    let statistic: f64 =
        cells.iter().map(|[found, expected]| (found - expected).powi(2) / expected).sum();
    statistic / ChiSquared::new(cells.len() as f64 - 1.0).unwrap().inverse_cdf(1.0 - 1e-4)
}

#[test]
fn both_samplers_draw_slates_as_often_as_enumeration_says() {
    // The head is best but not by much, and the tail is one action and little else: once that is
    // placed, rejection would hardly end.
    let mut peaked = vec![0.0; 21];
    peaked[17..].fill(-6.0);
    for (scores, slate_size, excluded, prefix) in [
        (scores(5, 6, 1.0), 3, vec![], vec![]),
        (scores(5, 7, 1.0), 3, vec![4], vec![1]),
        (scores(6, 24, 0.7), 2, vec![3, 11], vec![]),
        (scores(7, 24, 0.7), 3, vec![], vec![23]),
        (peaked.clone(), 2, vec![], vec![]),
        (peaked, 3, vec![], vec![16]),
    ] {
        let slow = Slow::new(&scores, &excluded);
        let fast = Distribution::new(scores.clone(), &excluded, slate_size).unwrap();
        let mut other = scores;
        other[0] += 0.3;
        let other = Slow::new(&other, &excluded);
        for draws in [SlateDraws::PrefixSums, SlateDraws::Gumbel] {
            let counts = frequencies(&fast, draws, &prefix, slate_size, 40_000);
            let share = chi_squared(&counts, &slow, &prefix, slate_size);
            assert!(share < 1.0, "{draws:?}: χ² is {share} of what is allowed");
            let share = chi_squared(&counts, &other, &prefix, slate_size);
            assert!(share > 1.0, "{draws:?}: another distribution passes with {share}");
        }
    }
}

/// 19 contexts that hide and show some of 300 actions.
fn sessions(num_actions: u32) -> Arc<Sessions> {
    let pairs = |stride: u32, offset: u32| {
        let of = move |context: u32| {
            let actions = (0..num_actions).skip((context + offset) as usize);
            actions.step_by(stride as usize).map(move |action| (context, action))
        };
        ActionSets::from_pairs(19, (0..19).flat_map(of))
    };
    let (observed, hidden) = (pairs(7, 0), pairs(5, 1));
    Arc::new(Sessions {
        observed,
        hidden,
        split: vec![Split::Train; 19],
        num_actions: num_actions as usize,
    })
}

#[test]
fn the_rows_that_follow_do_not_change_a_bit() {
    let sessions = sessions(300);
    let contexts: Vec<u32> = (0..19).collect();
    for (latent_dim, draws) in
        [(1, SlateDraws::Gumbel), (20, SlateDraws::PrefixSums), (130, SlateDraws::PrefixSums)]
    {
        let mut h = normals(1, 19, latent_dim);
        h.as_mut_slice().iter_mut().for_each(|h| *h *= 2.0 / (latent_dim as f32).sqrt());
        let excluded = Some(sessions.clone());
        let sampling = Sampling { num_samples: 3, slate_size: 4, excluded, seed: Seed(9) };
        let actions = embeddings(normals(2, 300, latent_dim));
        let policy = PlackettLuce::new(actions, draws, sampling).unwrap();
        let reward = LinearReward::dcg(4, sessions.clone());
        let estimator = PlRank::new(policy.clone(), &reward).unwrap();
        let whole = policy.sample(rows(&contexts, &h)).unwrap();
        let whole_gradient = estimator.gradient(rows(&contexts, &h)).unwrap();
        for count in [1, 3, 8, 11, 18] {
            let first = &contexts[..count];
            let first_h = h.select(first);
            let part = policy.sample(rows(first, &first_h)).unwrap();
            let scores = part.scores.as_slice();
            assert_eq!(
                scores,
                &whole.scores.as_slice()[..scores.len()],
                "L = {latent_dim}, {count}"
            );
            for at in 0..part.slates.len() {
                assert_eq!(part.slates.slate(at), whole.slates.slate(at));
                assert_eq!(part.slates.scores(at), whole.slates.scores(at));
            }
            let gradient = estimator.gradient(rows(first, &first_h)).unwrap();
            assert_eq!(gradient.rewards, whole_gradient.rewards[..3 * count]);
            let g = gradient.h.as_slice();
            assert_eq!(g, &whole_gradient.h.as_slice()[..g.len()]);
        }
    }
}

#[test]
fn the_passes_over_beta_give_what_the_slow_obvious_way_gives() {
    let (num_actions, latent_dim, slate_size) = (5000, 20, 3);
    let sessions = sessions(5000);
    let contexts: Vec<u32> = (0..10).collect();
    let mut h = normals(3, 10, latent_dim);
    h.as_mut_slice().iter_mut().for_each(|h| *h *= 0.5);
    let beta = normals(4, num_actions, latent_dim);
    let sampling =
        Sampling { num_samples: 2, slate_size, excluded: Some(sessions.clone()), seed: Seed(2) };
    let policy =
        PlackettLuce::new(embeddings(beta.clone()), SlateDraws::default(), sampling).unwrap();
    let drawn = policy.sample(rows(&contexts, &h)).unwrap();
    // Fewer weights than ranks: the last rank earns nothing.
    let reward = LinearReward::new(vec![1.0, 0.5], sessions.clone());
    let estimator = PlRank::new(policy, &reward).unwrap();
    let found = estimator.gradient(rows(&contexts, &h)).unwrap();

    let to_latent = |gradient: &[f64]| {
        let of_action = gradient.iter().zip(beta.iter_rows()).map(|(g, row)| (*g, to_f64(row)));
        weighted(of_action, latent_dim)
    };
    for &context in &contexts {
        let query = to_f64(h.row(context as usize));
        let score = |row: &[f32]| row.iter().zip(&query).map(|(b, h)| f64::from(*b) * h).sum();
        let scores: Vec<f64> = beta.iter_rows().map(score).collect();
        let slow = Slow::new(&scores, sessions.observed.of(context));
        let hidden = |d: u32| f64::from(u8::from(sessions.hidden.contains(context, d)));
        let relevance: Vec<f64> = (0..num_actions as u32).map(hidden).collect();
        let mut pl_rank = vec![0.0; num_actions];
        for at in 2 * context as usize..2 * context as usize + 2 {
            let slate = drawn.slates.slate(at);
            let score = to_latent(&slow.score(slate));
            assert_close(&to_f64(drawn.scores.row(at)), &score, 1e-5);
            for (&action, score) in slate.iter().zip(drawn.slates.scores(at)) {
                let expected = dot(h.row(context as usize), beta.row(action as usize));
                assert!((score - expected).abs() < 1e-5);
            }
            assert_eq!(found.rewards[at], reward.reward(context, slate));
            let gradient = slow.pl_rank(slate, &relevance, &[1.0, 0.5, 0.0]);
            pl_rank.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g / 2.0);
        }
        let g = to_f64(found.h.row(context as usize));
        assert_close(&g, &to_latent(&pl_rank), 1e-5);
    }
    assert!(found.rewards.iter().any(|reward| *reward > 0.0));
}

#[test]
fn what_cannot_be_drawn_or_credited_is_refused_with_the_reason() {
    let sessions = sessions(300);
    let sampling =
        |slate_size, excluded| Sampling { num_samples: 2, slate_size, excluded, seed: Seed(0) };
    let actions = embeddings(normals(1, 300, 4));
    let policy = |slate_size, excluded| {
        let sampling = sampling(slate_size, excluded);
        PlackettLuce::new(actions.clone(), SlateDraws::Gumbel, sampling).unwrap()
    };
    let rejection = PlackettLuce::new(actions.clone(), SlateDraws::Rejection, sampling(2, None));
    let error = rejection.unwrap_err().to_string();
    assert!(error.contains("method.draws") && error.contains("\"covariance\""), "{error}");
    let error = PlRank::new(policy(2, None), &AnyHit::new(sessions.clone())).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("reward.kind") && error.contains("slate as a whole"), "{error}");

    let sample = |policy: PlackettLuce, h: Vec<f32>, latent_dim| {
        let h = Matrix::new(h, latent_dim).unwrap();
        policy.sample(rows(&[1], &h)).map(|drawn| drawn.slates.len())
    };
    let error = sample(policy(260, Some(sessions)), vec![1.0; 4], 4).unwrap_err().to_string();
    assert!(error.contains("only 257 can be chosen (43 of 300 are excluded)"), "{error}");
    let error = sample(policy(301, None), vec![1.0; 4], 4).unwrap_err();
    assert!(matches!(error, Error::SlateTooLarge { available: 300, .. }));
    let error = sample(policy(2, None), vec![0.0, 0.0, f32::NAN, 0.0], 4).unwrap_err();
    assert!(matches!(error, Error::NotFinite { column: 2, .. }));
    let error = sample(policy(2, None), vec![f32::MAX; 4], 4).unwrap_err();
    assert!(matches!(error, Error::NotFinite { .. }), "scores beyond f32 pass");
    let error = sample(policy(2, None), vec![1.0; 3], 3).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }));
    let none = policy(2, None).sample(rows(&[], &Matrix::new(vec![], 4).unwrap())).unwrap();
    assert_eq!((none.slates.len(), none.scores.rows()), (0, 0));
}
