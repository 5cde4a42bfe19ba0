//! The rejection sampler draws from Plackett–Luce, as enumeration has it, and reads little of β.

use std::sync::Arc;

use fast_slate::Result;
use fast_slate::dataset::{ActionSets, Sessions, Split};
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::BatchRows;
use fast_slate::matrix::Matrix;
use fast_slate::policy::{RejectionSampler, Rejections, Sampling};
use fast_slate::retrieval::{Exact, Queries, Retriever, Slates};
use fast_slate::seed::{Purpose, Seed, Stream};

use crate::common::enumeration::Enumeration;
use crate::common::monte_carlo::chance;

/// β = I: the query is the scores.
fn identity(num_actions: usize) -> Arc<ActionEmbeddings> {
    let mut beta = Matrix::zeros(num_actions, num_actions);
    (0..num_actions).for_each(|action| beta.row_mut(action)[action] = 1.0);
    Arc::new(ActionEmbeddings::new(beta).unwrap())
}

fn normals(seed: u64, rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    Seed(seed).stream(Purpose::Synthetic, 0, 0).fill_normals(matrix.as_mut_slice());
    matrix
}

fn sampling(slate_size: usize, num_actions: usize, excluded: &[u32]) -> Sampling {
    let observed = excluded.iter().map(|action| (0, *action));
    let sessions = Sessions {
        observed: ActionSets::from_pairs(1, observed),
        hidden: ActionSets::from_pairs(1, std::iter::empty()),
        split: vec![Split::Train],
        num_actions,
    };
    let excluded = (!excluded.is_empty()).then(|| Arc::new(sessions));
    Sampling { num_samples: 1, slate_size, excluded, seed: Seed(11) }
}

/// Completes `prefix` to many slates of the one query `h`.
fn draw(
    sampler: &RejectionSampler,
    h: &[f32],
    prefix: &[u32],
    draws: usize,
) -> (Vec<Vec<u32>>, Rejections) {
    let h = Matrix::new(h.to_vec(), h.len()).unwrap();
    let rows = BatchRows { step: 0, contexts: &[0], h: &h };
    let slate_size = sampler.sampling().slate_size;
    let visited = sampler.visit(rows, |row, envelope| {
        let mut stream: Stream = rows.stream(sampler.sampling().seed, Purpose::Slates, row);
        let slates = (0..draws).map(|_| {
            let mut slate = prefix.to_vec();
            envelope.complete(&mut slate, slate_size, &mut stream);
            slate
        });
        Ok(slates.collect::<Vec<_>>())
    });
    let (mut slates, rejections) = visited.unwrap();
    (slates.remove(0), rejections)
}

/// The probability that what `sampler` draws deviates as much from Plackett–Luce by chance.
fn chance_of_plackett_luce(sampler: &RejectionSampler, scores: &[f64], prefix: &[u32]) -> f64 {
    let h: Vec<f32> = scores.iter().map(|score| *score as f32).collect();
    let Sampling { slate_size, .. } = *sampler.sampling();
    let enumeration = Enumeration::new(scores, slate_size, sampler.sampling().excluded_of(0));
    let (slates, probabilities): (Vec<&[u32]>, Vec<f64>) =
        enumeration.slates().filter(|(slate, _)| slate.starts_with(prefix)).unzip();
    let total: f64 = probabilities.iter().sum();
    let given: Vec<f64> = probabilities.iter().map(|probability| probability / total).collect();
    let mut counts = vec![0; slates.len()];
    for drawn in draw(sampler, &h, prefix, 60_000).0 {
        let at = slates.iter().position(|slate| *slate == drawn);
        counts[at.unwrap_or_else(|| panic!("{drawn:?} cannot be shown"))] += 1;
    }
    chance(&counts, &given)
}

fn exact(
    actions: &Arc<ActionEmbeddings>,
    head: usize,
    slate_size: usize,
    excluded: &[u32],
) -> RejectionSampler {
    let sampling = sampling(slate_size, actions.num_actions(), excluded);
    let retriever = Arc::new(Exact::new(actions.clone()));
    RejectionSampler::new(actions.clone(), retriever, head, sampling).unwrap()
}

#[test]
fn single_actions_follow_the_softmax_and_those_as_printed_do_not() {
    let scores: Vec<f64> = normals(1, 1, 50).row(0).iter().map(|s| 1.5 * f64::from(*s)).collect();
    for head in [2, 10, 50] {
        let sampler = exact(&identity(50), head, 1, &[]);
        let right = chance_of_plackett_luce(&sampler, &scores, &[]);
        assert!(right > 1e-3, "head of {head}: {right}");
        let printed = chance_of_plackett_luce(&sampler.as_printed(), &scores, &[]);
        // With every action in the head the printed weights are off by the least action's only.
        assert!(printed < 1e-6 || head == 50, "head of {head}: the printed weights pass");
    }
}

#[test]
fn slates_follow_plackett_luce_whatever_is_excluded_and_placed() {
    let scores = [0.3, 1.9, -1.2, 0.8, 2.6, -0.1];
    for head in [3, 4, 6] {
        for (excluded, prefix) in [(&[][..], &[][..]), (&[1], &[]), (&[0, 3], &[]), (&[0], &[2, 4])]
        {
            let sampler = exact(&identity(6), head, 3, excluded);
            let chance = chance_of_plackett_luce(&sampler, &scores, prefix);
            assert!(chance > 1e-3, "head {head}, without {excluded:?}, from {prefix:?}: {chance}");
        }
    }
}

#[test]
fn scores_may_be_equal_or_as_far_apart_as_f32_goes() {
    let cases: [(&[f64], usize); 5] = [
        (&[0.0; 4], 4),
        (&[-1e4; 4], 2),
        (&[1e4, 1e4, -1e4, -1e4, 0.0], 5),
        (&[1e4, 1e4 - 0.5, -1e4, -1e4 + 0.5, -1e4], 4),
        (&[-1e4, 3.0, -1e4 + 1.0, 1e4, -1e4 + 2.0], 4),
    ];
    for (scores, slate_size) in cases {
        for head in slate_size..=scores.len() {
            let sampler = exact(&identity(scores.len()), head, slate_size, &[]);
            let chance = chance_of_plackett_luce(&sampler, scores, &[]);
            assert!(chance > 1e-3, "{scores:?}, head {head}: {chance}");
        }
    }
}

#[test]
fn a_hopeless_tail_is_left_for_an_exact_pass() {
    // Two actions far above the rest: with one of them as the head, one proposal in 12 is accepted.
    let scores: Vec<f64> =
        (0..24).map(|at| if at < 2 { 9.0 } else { -f64::from(at) / 9.0 }).collect();
    let sampler = exact(&identity(24), 1, 1, &[]);
    let h: Vec<f32> = scores.iter().map(|score| *score as f32).collect();
    let (_, rejections) = draw(&sampler, &h, &[], 60_000);
    assert!(rejections.exact_passes > 5000, "{rejections:?}");
    assert!((rejections.acceptance_rate() - 1.0 / 12.0).abs() < 0.01, "{rejections:?}");
    let chance = chance_of_plackett_luce(&sampler, &scores, &[]);
    assert!(chance > 1e-3, "{chance}");
}

#[test]
fn few_of_many_actions_are_scored() {
    let (num_actions, slate_size, draws) = (200_000, 5, 200);
    let actions = Arc::new(ActionEmbeddings::new(normals(1, num_actions, 16)).unwrap());
    let direction = normals(2, 1, 16);
    let sampler = exact(&actions, 256, slate_size, &[7, 1234, 199_999]);
    // Nearly uniform scores first, scores so peaked that the head has nearly all mass last.
    for scale in [0.1, 0.25, 1.0, 2.0] {
        let h: Vec<f32> = direction.row(0).iter().map(|value| scale * value).collect();
        let rejections = draw(&sampler, &h, &[], draws).1;
        let per_slate = rejections.proposed as f64 / draws as f64;
        assert!(per_slate < 0.01 * num_actions as f64, "{scale}: {per_slate} scores a slate");
        assert_eq!((rejections.above_head, rejections.exact_passes), (0, 0), "{scale}");
    }
}

/// Never finds the best action.
#[derive(Debug)]
struct MissesTheBest(Exact);

impl Retriever for MissesTheBest {
    fn search(&self, queries: Queries<'_>) -> Result<Slates> {
        let best = self.0.search(Queries { slate_size: 1, ..queries })?;
        let without: Vec<[u32; 1]> = (0..best.len()).map(|row| [best.slate(row)[0]]).collect();
        let excluded: Vec<&[u32]> = without.iter().map(<[u32; 1]>::as_slice).collect();
        self.0.search(Queries { excluded: Some(&excluded), ..queries })
    }
}

#[test]
fn an_action_that_retrieval_misses_weighs_as_much_as_the_last_of_the_head() {
    let scores: [f64; 6] = [0.3, 1.9, -1.2, 0.8, 2.6, -0.1];
    let h = scores.map(|score| score as f32);
    let actions = identity(6);
    let retriever = Arc::new(MissesTheBest(Exact::new(actions.clone())));
    let sampler = RejectionSampler::new(actions, retriever, 2, sampling(1, 6, &[])).unwrap();
    let (slates, rejections) = draw(&sampler, &h, &[], 60_000);
    assert!(rejections.above_head > 1000, "{rejections:?}");
    let mut counts = [0; 6];
    for slate in slates {
        counts[slate[0] as usize] += 1;
    }
    // The head is {1, 3}; action 4 gets the weight of action 3.
    let weights = [0.3, 1.9, -1.2, 0.8, 0.8, -0.1].map(f64::exp);
    let shares = weights.map(|weight| weight / weights.iter().sum::<f64>());
    let chance = chance(&counts, &shares);
    assert!(chance > 1e-3, "{chance}");
}

#[test]
fn a_head_smaller_than_the_slate_is_refused() {
    let actions = identity(6);
    let retriever = Arc::new(Exact::new(actions.clone()));
    let error = RejectionSampler::new(actions, retriever, 2, sampling(3, 6, &[])).unwrap_err();
    assert!(error.to_string().contains("`method.head`: expected at least"), "{error}");
}
