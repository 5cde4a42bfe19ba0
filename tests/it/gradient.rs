//! The score-function gradient of LGP and LRP against quadrature, on a catalogue in two dimensions:
//! there the slate depends on the direction of the query alone, so the expected reward is an
//! integral over a grid. Quadrature knows the densities only, and differentiates numerically.

use std::f64::consts::TAU;
use std::sync::{Arc, LazyLock};

use fast_slate::dataset::{ActionSets, Sessions, Split};
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::{BatchRows, ControlVariate, Estimator, Gradient, ScoreFunction};
use fast_slate::matrix::Matrix;
use fast_slate::policy::noise::Gaussian;
use fast_slate::policy::{LatentPerturbation, Noise, NoiseKind, Radial, Sampling, Scale, Sigma};
use fast_slate::retrieval::{Candidates, Exact, Queries, Retriever};
use fast_slate::reward::SlateReward;
use fast_slate::seed::{Purpose, Seed};

const K: usize = 2;
const H: [f32; 2] = [0.7, 0.4];
const BETA: [f32; 14] =
    [1.0, 0.1, 0.8, 0.6, 0.1, 1.1, -0.7, 0.8, -1.0, -0.2, -0.3, -0.9, 0.6, -0.8];
/// σ = 1/L.
const SIGMA: f64 = 0.5;

/// Not linear, not symmetric, never zero: a reward that a missing baseline would feel.
#[derive(Debug)]
struct Odd;

impl SlateReward for Odd {
    fn reward(&self, _context: u32, slate: &[u32]) -> f32 {
        let top = f32::from(u8::from(slate[0] == 2)) + 0.3 * f32::from(u8::from(slate[0] == 3));
        0.3 + top * (1.0 + f32::from(u8::from(slate[1] == 1)))
    }
}

/// Differs from slate to slate.
#[derive(Debug)]
struct First;

impl SlateReward for First {
    fn reward(&self, _context: u32, slate: &[u32]) -> f32 {
        slate[0] as f32
    }
}

fn actions() -> Arc<ActionEmbeddings> {
    Arc::new(ActionEmbeddings::new(Matrix::new(BETA.to_vec(), 2).unwrap()).unwrap())
}

/// The mean reward of each cell of a grid of perturbed queries, row after row.
struct Quadrature {
    rewards: Vec<f64>,
}

static QUADRATURE: LazyLock<Quadrature> = LazyLock::new(Quadrature::new);

impl Quadrature {
    /// Cells a side, and their width: the grid reaches 18 σ to either side of h.
    const CELLS: usize = 1000;
    const WIDTH: f64 = 0.02;

    /// The coordinate of the middle of part `i`, of `parts` a side.
    fn middle(i: usize, parts: usize) -> f64 {
        let reach = Self::CELLS as f64 * Self::WIDTH;
        reach * ((i as f64 + 0.5) / parts as f64 - 0.5)
    }

    fn new() -> Self {
        let directions = 40_000;
        let direction = |i: usize| {
            let angle = TAU * (i as f64 + 0.5) / directions as f64;
            [angle.cos() as f32, angle.sin() as f32]
        };
        let latent = Matrix::new((0..directions).flat_map(direction).collect(), 2).unwrap();
        let queries = Queries { latent: &latent, slate_size: K, excluded: None };
        let slates = Exact::new(actions()).search(queries).unwrap();
        let of_direction: Vec<f64> =
            (0..directions).map(|i| f64::from(Odd.reward(0, slates.slate(i)))).collect();

        // A cell that a change of slate crosses has the mean of its parts.
        let split = 4;
        let parts = split * Self::CELLS;
        #[allow(clippy::cast_sign_loss, reason = "a remainder is not negative")]
        let towards = |x: f64, y: f64| {
            let turns = y.atan2(x).rem_euclid(TAU) / TAU;
            of_direction[(turns * directions as f64) as usize % directions]
        };
        let mut rewards = vec![0.0; Self::CELLS * Self::CELLS];
        for j in 0..parts {
            for i in 0..parts {
                let of_part = towards(Self::middle(i, parts), Self::middle(j, parts));
                rewards[j / split * Self::CELLS + i / split] += of_part / (split * split) as f64;
            }
        }
        Self { rewards }
    }

    /// R(h, σ).
    fn reward(&self, noise: &dyn Noise, h: [f64; 2], sigma: f64) -> f64 {
        let [across, up] = h.map(|h| -> Vec<f64> {
            let density = |x: f64| noise.log_density((x - h) / sigma).exp() / sigma;
            (0..Self::CELLS).map(|i| density(Self::middle(i, Self::CELLS)) * Self::WIDTH).collect()
        });
        let rows = self.rewards.chunks_exact(Self::CELLS).zip(up);
        rows.map(|(row, up)| up * row.iter().zip(&across).map(|(r, w)| r * w).sum::<f64>()).sum()
    }

    /// The gradient of `h ↦ R(h, sigma(h))`, to the fourth order in the width of a cell. Differences
    /// over whole cells: what the grid makes of a kink in the density is the same on both sides.
    fn gradient(&self, noise: &dyn Noise, sigma: impl Fn([f64; 2]) -> f64) -> [f64; 2] {
        [0, 1].map(|i| {
            let slope = |cells: f64| {
                let at = |step: f64| {
                    let mut h = H.map(f64::from);
                    h[i] += step;
                    self.reward(noise, h, sigma(h))
                };
                (at(cells * Self::WIDTH) - at(-cells * Self::WIDTH)) / (2.0 * cells * Self::WIDTH)
            };
            (4.0 * slope(1.0) - slope(2.0)) / 3.0
        })
    }
}

/// A Monte Carlo mean and its standard error (of the vector, from independent batches).
#[derive(Clone, Copy, Debug)]
struct Estimate<const N: usize> {
    mean: [f64; N],
    error: f64,
}

impl<const N: usize> Estimate<N> {
    fn agrees_with(&self, truth: [f64; N]) -> bool {
        let off: [f64; N] = std::array::from_fn(|i| self.mean[i] - truth[i]);
        length(off) <= 4.0 * self.error
    }

    fn scaled(self, factor: f64) -> Self {
        Self { mean: self.mean.map(|m| m * factor), error: self.error * factor.abs() }
    }
}

fn length<const N: usize>(v: [f64; N]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// A way to draw and to weigh samples.
#[derive(Clone, Copy, Debug)]
struct Way {
    num_samples: usize,
    baseline: ControlVariate,
}

fn way(num_samples: usize, baseline: ControlVariate) -> Way {
    Way { num_samples, baseline }
}

fn estimator(sigma: Sigma, radial: Radial, noise: Arc<dyn Noise>, way: Way) -> ScoreFunction {
    let actions = actions();
    let scale = Scale::new(sigma, radial, 2, actions.mean_norm()).unwrap();
    let sampling =
        Sampling { num_samples: way.num_samples, slate_size: K, excluded: None, seed: Seed(7) };
    let retriever = Arc::new(Exact::new(actions));
    let policy = LatentPerturbation::new(scale, noise, retriever, sampling).unwrap();
    ScoreFunction::new(Arc::new(policy), Arc::new(Odd), way.baseline)
}

fn fixed_sigma(noise: Arc<dyn Noise>, way: Way) -> ScoreFunction {
    estimator(Sigma::InverseDim, Radial::Keep, noise, way)
}

/// The mean of g over the rows of a batch.
fn mean_g(gradient: &Gradient) -> [f64; 2] {
    let rows = gradient.h.rows() as f64;
    [0, 1].map(|i| gradient.h.iter_rows().map(|g| f64::from(g[i])).sum::<f64>() / rows)
}

/// The estimate from a batch of `rows` contexts, all at h.
fn batch(estimator: &ScoreFunction, step: u64, rows: usize) -> Gradient {
    let h = Matrix::new(H.repeat(rows), 2).unwrap();
    let contexts = vec![0; rows];
    let rows = BatchRows { step, contexts: &contexts, h: &h };
    estimator.gradient(rows).unwrap()
}

/// Averages what `of_batch` takes from a batch's estimate until 4 standard errors are at most 2 % of the truth.
fn estimate<const N: usize>(
    estimator: &ScoreFunction,
    truth: [f64; N],
    of_batch: impl Fn(&Gradient) -> [f64; N],
) -> Estimate<N> {
    let (mut count, mut sums, mut squares) = (0.0, [0.0; N], [0.0; N]);
    for step in 0..30_000 {
        let found = of_batch(&batch(estimator, step, 1000));
        for i in 0..N {
            sums[i] += found[i];
            squares[i] += found[i] * found[i];
        }
        count += 1.0;
        let variance = |i: usize| (squares[i] / count - (sums[i] / count).powi(2)) / (count - 1.0);
        let error = (0..N).map(variance).sum::<f64>().sqrt();
        if count >= 30.0 && 4.0 * error <= 0.02 * length(truth) {
            return Estimate { mean: sums.map(|sum| sum / count), error };
        }
    }
    panic!("not enough samples for 4 standard errors to be 2 % of the gradient");
}

/// Estimates g and fails unless it agrees with `truth`.
fn check(estimator: &ScoreFunction, truth: [f64; 2]) {
    let found = estimate(estimator, truth, mean_g);
    assert!(found.agrees_with(truth), "{estimator:?}: {found:?}, quadrature {truth:?}");
}

#[test]
fn every_baseline_and_sigma_rule_has_the_gradient_of_quadrature() {
    let of = |sigma: &dyn Fn([f64; 2]) -> f64| QUADRATURE.gradient(&Gaussian, sigma);
    let mean_norm = f64::from(actions().mean_norm());
    let relative = |h: [f64; 2]| 0.6 * length(h) / 2.0_f64.sqrt();
    let at_h = relative(H.map(f64::from));
    for (sigma, radial, truth) in [
        (Sigma::InverseDim, Radial::Keep, of(&|_| SIGMA)),
        (Sigma::InverseNorm, Radial::Keep, of(&|_| 1.0 / mean_norm)),
        (Sigma::Relative(0.6), Radial::Keep, of(&|_| at_h)),
        (Sigma::Relative(0.6), Radial::Project, of(&relative)),
    ] {
        for way in [
            way(8, ControlVariate::None),
            way(8, ControlVariate::LeaveOneOut),
            way(1, ControlVariate::None),
            way(1, ControlVariate::LeaveOneOut),
        ] {
            check(&estimator(sigma, radial, Arc::new(Gaussian), way), truth);
        }
    }
}

#[test]
fn every_noise_has_the_gradient_of_quadrature() {
    for name in ["laplace", "logistic", "student-t(5)", "gumbel", "raised-cosine"] {
        let noise = name.parse::<NoiseKind>().unwrap().init();
        let truth = QUADRATURE.gradient(noise.as_ref(), |_| SIGMA);
        for baseline in [ControlVariate::None, ControlVariate::LeaveOneOut] {
            check(&fixed_sigma(Arc::clone(&noise), way(8, baseline)), truth);
        }
    }
}

#[test]
fn the_radial_part_under_a_relative_sigma_is_zero() {
    let h = H.map(f64::from);
    let g = QUADRATURE.gradient(&Gaussian, |h| 0.6 * length(h) / 2.0_f64.sqrt());
    let along = (g[0] * h[0] + g[1] * h[1]) / (length(g) * length(h));
    assert!(along.abs() < 1e-3, "{along}");
}

#[test]
fn a_wrong_sign_and_a_missing_sigma_are_told_apart() {
    let truth = QUADRATURE.gradient(&Gaussian, |_| SIGMA);
    let plain = fixed_sigma(Arc::new(Gaussian), way(8, ControlVariate::None));
    let right = estimate(&plain, truth, mean_g);
    assert!(right.agrees_with(truth));
    assert!(!right.scaled(-1.0).agrees_with(truth), "a flipped sign passes");
    assert!(!right.scaled(0.5).agrees_with(truth), "a missing σ passes");
}

/// The mean of g over the rows of a batch in its first two dimensions, with its standard error, and the
/// variance of g in all dimensions.
fn spread(found: &Gradient) -> (Estimate<2>, f64) {
    let (rows, dims) = (found.h.rows() as f64, found.h.cols());
    let mut moments = vec![[0.0; 2]; dims];
    for g in found.h.iter_rows() {
        for ([sum, squares], g) in moments.iter_mut().zip(g) {
            *sum += f64::from(*g) / rows;
            *squares += f64::from(*g).powi(2) / rows;
        }
    }
    let variance =
        |of: &[[f64; 2]]| of.iter().map(|[mean, squares]| squares - mean * mean).sum::<f64>();
    let error = f64::sqrt(variance(&moments[..2]) / rows);
    (Estimate { mean: [moments[0][0], moments[1][0]], error }, variance(&moments))
}

#[test]
fn the_baseline_lowers_the_variance() {
    let variance = |baseline| {
        let estimator = fixed_sigma(Arc::new(Gaussian), way(8, baseline));
        spread(&batch(&estimator, 0, 20_000)).1
    };
    assert!(variance(ControlVariate::LeaveOneOut) < 0.7 * variance(ControlVariate::None));
}

/// The same actions in eight dimensions, six of which none of them has: noise in these changes no slate.
#[test]
fn dimensions_that_no_candidate_has_add_no_variance() {
    const DIM: usize = 8;
    let padded = |numbers: &[f32]| -> Vec<f32> {
        numbers.chunks_exact(2).flat_map(|pair| [pair, &[0.0; DIM - 2]].concat()).collect()
    };
    let beta = Matrix::new(padded(&BETA), DIM).unwrap();
    let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
    let h = Matrix::new(padded(&H).repeat(20_000), DIM).unwrap();
    let of_noise = |noise: &str, share: bool| {
        // σ is the same as in two dimensions.
        let c = SIGMA as f32 * (DIM as f32).sqrt() / H[0].hypot(H[1]);
        let scale = Scale::new(Sigma::Relative(c), Radial::Keep, DIM, 1.0).unwrap();
        let sampling = Sampling { num_samples: 8, slate_size: K, excluded: None, seed: Seed(7) };
        let noise = noise.parse::<NoiseKind>().unwrap().init();
        let exact: Arc<dyn Retriever> = Arc::new(Exact::new(Arc::clone(&actions)));
        let policy = LatentPerturbation::new(scale, noise, Arc::clone(&exact), sampling).unwrap();
        // All seven actions, so that sharing them changes no slate.
        let candidates = Candidates::new(exact, Arc::clone(&actions), actions.num_actions());
        let policy = if share { policy.with_candidates(candidates) } else { policy };
        let baseline = ControlVariate::LeaveOneOut;
        let estimator = ScoreFunction::new(Arc::new(policy), Arc::new(Odd), baseline);
        let rows = BatchRows { step: 0, contexts: &vec![0; h.rows()], h: &h };
        estimator.gradient(rows).unwrap()
    };
    let truth = QUADRATURE.gradient(&Gaussian, |_| SIGMA);
    let [plain, shared] = [false, true].map(|share| of_noise("gaussian", share));
    let [(_, before), (mean, after)] = [&plain, &shared].map(spread);
    assert!(mean.agrees_with(truth) && 4.0 * mean.error < 0.1 * length(truth), "{mean:?}");
    assert!(after < 0.4 * before, "{after} after, {before} before");
    assert!(shared.h.iter_rows().all(|g| g[2..].iter().all(|g| *g == 0.0)));
    // Laplace noise has preferred directions: what is orthogonal is not independent.
    assert!(of_noise("laplace", true).h == of_noise("laplace", false).h);
}

/// Rows with queries and exclusions of their own, and candidates that are a part of the catalogue.
#[test]
fn a_gradient_is_in_the_span_of_the_candidates_of_its_row() {
    const DIM: usize = 20;
    const POOL: usize = 8;
    let normals = |rows: usize, seed: u64| {
        let mut matrix = Matrix::zeros(rows, DIM);
        Seed(seed).stream(Purpose::Synthetic, 0, 0).fill_normals(matrix.as_mut_slice());
        matrix
    };
    let actions = Arc::new(ActionEmbeddings::new(normals(300, 1)).unwrap());
    let (h, contexts) = (normals(4, 2), [3, 1, 0, 2]);
    let observed = (0..4).flat_map(|user| {
        (0..300).filter(move |item| item % (user + 2) == 0).map(move |item| (user, item))
    });
    let sessions = Arc::new(Sessions {
        observed: ActionSets::from_pairs(4, observed),
        hidden: ActionSets::from_pairs(4, (0..4).map(|user| (user, 1))),
        split: vec![Split::Train; 4],
        num_actions: 300,
    });
    let exact = Arc::new(Exact::new(Arc::clone(&actions)));
    let sampling = Sampling {
        num_samples: 50,
        slate_size: K,
        excluded: Some(Arc::clone(&sessions)),
        seed: Seed(7),
    };
    let scale = Scale::new(Sigma::Relative(0.3), Radial::Keep, DIM, 1.0).unwrap();
    let policy =
        LatentPerturbation::new(scale, Arc::new(Gaussian), Arc::clone(&exact) as _, sampling)
            .unwrap()
            .with_candidates(Candidates::new(Arc::clone(&exact) as _, Arc::clone(&actions), POOL));
    let estimator =
        ScoreFunction::new(Arc::new(policy), Arc::new(First), ControlVariate::LeaveOneOut);
    let rows = BatchRows { step: 0, contexts: &contexts, h: &h };
    let found = estimator.gradient(rows).unwrap().h;

    let excluded = contexts.map(|context| sessions.observed.of(context));
    let asked = Queries { latent: &h, slate_size: POOL, excluded: Some(&excluded) };
    let pools = exact.search(asked).unwrap();
    // Where a head stays the same in all samples there is nothing to learn.
    assert!(found.as_slice().iter().any(|g| *g != 0.0));
    for row in 0..4 {
        let g = found.row(row);
        // Gram–Schmidt.
        let mut basis: Vec<Vec<f64>> = Vec::new();
        let wide = |row: &[f32]| -> Vec<f64> { row.iter().map(|x| f64::from(*x)).collect() };
        let outside = |mut v: Vec<f64>, basis: &[Vec<f64>]| {
            for unit in basis {
                let along: f64 = v.iter().zip(unit).map(|(v, unit)| v * unit).sum();
                v.iter_mut().zip(unit).for_each(|(v, unit)| *v -= along * unit);
            }
            v
        };
        let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        for &action in pools.slate(row) {
            let v = outside(wide(actions.beta().row(action as usize)), &basis);
            let length = norm(&v);
            basis.push(v.iter().map(|v| v / length).collect());
        }
        assert!(norm(&outside(wide(g), &basis)) <= 1e-4 * norm(&wide(g)), "row {row}");
    }
}
