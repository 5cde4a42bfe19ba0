use faer::Mat;

use super::*;
use crate::embedding::tastes::{assert_same_on_any_threads, users_of};

const CONTEXTS: usize = 90;
const ACTIONS: usize = 60;
const L: usize = 4;

/// Four groups of contexts that like four groups of actions, of unequal sizes, and little
/// noise: four large singular values, then a gap.
fn blocks() -> ActionSets {
    let mut stream = Seed(3).stream(Purpose::Synthetic, 0, 0);
    let mut pairs = Vec::new();
    for context in 0..CONTEXTS {
        for action in 0..ACTIONS {
            let same = context * context / 2026 == action * action / 901;
            if stream.uniform() < if same { 0.9 } else { 0.02 } {
                pairs.push((u32::try_from(context).unwrap(), u32::try_from(action).unwrap()));
            }
        }
    }
    ActionSets::from_pairs(CONTEXTS, pairs.into_iter())
}

fn dense(matrix: &ActionSets) -> Mat<f64> {
    Mat::from_fn(matrix.len(), ACTIONS, |context, action| {
        let (context, action) = (context.try_into().unwrap(), action.try_into().unwrap());
        f64::from(u8::from(matrix.contains(context, action)))
    })
}

fn options(latent_dim: usize) -> SvdOptions {
    SvdOptions { latent_dim, normalization: 0.0, ..SvdOptions::default() }
}

fn as_f64(v: &Matrix) -> Mat<f64> {
    Mat::from_fn(v.rows(), v.cols(), |i, j| f64::from(v.row(i)[j]))
}

#[test]
fn the_subspace_is_that_of_the_dense_decomposition() {
    let matrix = blocks();
    let exact = dense(&matrix).thin_svd().unwrap();
    let values = exact.S().column_vector();
    assert!(values[L - 1] / values[L] >= 1.5, "the test needs a gap");
    let found = truncated_svd(&matrix, ACTIONS, options(L), Seed(1)).unwrap();
    // What is left of V outside the exact subspace is the sine of the largest angle.
    let v = as_f64(&found.v);
    let reference = exact.V().subcols(0, L);
    let outside = &v - reference * (reference.transpose() * &v);
    let sine = outside.singular_values().unwrap()[0];
    assert!(sine <= 1e-4, "sine of the largest principal angle {sine}");
    for (i, value) in found.singular_values.into_iter().enumerate() {
        assert!((f64::from(value) / values[i] - 1.0).abs() <= 1e-4, "σ_{i}");
    }
}

#[test]
fn normalisation_divides_by_powers_of_the_sizes() {
    for matrix in [blocks(), blocks().transposed(ACTIONS)] {
        let num_actions = if matrix.len() == CONTEXTS { ACTIONS } else { CONTEXTS };
        let sizes = |sets: &ActionSets| -> Vec<f64> {
            sets.contexts().map(|set| sets.of(set).len().max(1) as f64).collect()
        };
        let (rows, columns) = (sizes(&matrix), sizes(&matrix.transposed(num_actions)));
        let exact = Mat::from_fn(matrix.len(), num_actions, |i, j| {
            let (context, action) = (i.try_into().unwrap(), j.try_into().unwrap());
            let entry = f64::from(u8::from(matrix.contains(context, action)));
            entry / (rows[i] * columns[j]).powf(0.25)
        });
        let exact = exact.thin_svd().unwrap();
        let options = SvdOptions { normalization: 0.25, ..options(L) };
        let found = truncated_svd(&matrix, num_actions, options, Seed(1)).unwrap();
        let (v, reference) = (as_f64(&found.v), exact.V().subcols(0, L));
        let outside = &v - reference * (reference.transpose() * &v);
        assert!(outside.singular_values().unwrap()[0] <= 1e-4);
        for (i, value) in found.singular_values.into_iter().enumerate() {
            let expected = exact.S().column_vector()[i];
            assert!((f64::from(value) / expected - 1.0).abs() <= 1e-4, "σ_{i}");
        }
    }
}

#[test]
fn columns_are_orthonormal_and_their_largest_entry_is_positive() {
    // L beyond the rank of this matrix: the columns stay orthonormal.
    let few = ActionSets::from_pairs(20, (0..20).flat_map(|row| [(row, row % 3), (row, 7)]));
    let soft = |latent_dim| SvdOptions { passes: 0, ..options(latent_dim) };
    for (matrix, options) in
        [(blocks(), options(30)), (few.clone(), options(10)), (blocks(), soft(30)), (few, soft(10))]
    {
        let latent_dim = options.latent_dim;
        let found = truncated_svd(&matrix, ACTIONS, options, Seed(1)).unwrap();
        let v = as_f64(&found.v);
        let gram = v.transpose() * &v;
        for i in 0..latent_dim {
            for j in 0..latent_dim {
                let expected = f64::from(u8::from(i == j));
                assert!((gram[(i, j)] - expected).abs() < 1e-5, "VᵀV at {i}, {j}");
            }
            let column = || (0..ACTIONS).map(|row| v[(row, i)]);
            let (low, high) = (column().fold(0.0, f64::min), column().fold(0.0, f64::max));
            assert!(high >= -low - 1e-6, "column {i} from {low} to {high}");
        }
        assert!(found.singular_values.is_sorted_by(|a, b| a >= b));
    }
}

/// Contexts of ten tastes, in panels enough for several threads.
fn tastes() -> ActionSets {
    users_of(10, 3000, 250, 20)
}

#[test]
fn the_same_seed_gives_the_same_numbers_on_any_number_of_threads() {
    let matrix = tastes();
    let options = SvdOptions { latent_dim: 12, ..SvdOptions::default() };
    assert_same_on_any_threads(|| truncated_svd(&matrix, 2500, options, Seed(5)).unwrap());
}

#[test]
fn two_passes_capture_nearly_all_that_more_capture() {
    let matrix = tastes();
    let captured = |passes| {
        let options = SvdOptions { latent_dim: 20, passes, ..SvdOptions::default() };
        let found = truncated_svd(&matrix, 2500, options, Seed(5)).unwrap();
        found.singular_values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>()
    };
    let (most, first) = (captured(12), captured(0));
    let share = captured(SvdOptions::default().passes) / most;
    assert!(first < 0.99 * most, "the test needs something to converge");
    assert!(0.998 < share && share < 1.0 + 1e-6, "captured {share} of the most");
}

#[test]
fn without_passes_the_spectrum_ends_softly() {
    let (matrix, latent_dim) = (tastes(), 20);
    let vectors = |options| as_f64(&truncated_svd(&matrix, 2500, options, Seed(5)).unwrap().v);
    let all = vectors(SvdOptions { latent_dim: 80, passes: 6, ..SvdOptions::default() });
    // What a subspace holds of each right singular vector.
    let shares = |options| -> Vec<f64> {
        let products = vectors(options).transpose() * &all;
        products.col_iter().map(|column| column.squared_norm_l2()).collect()
    };
    let hard = shares(SvdOptions { latent_dim, passes: 6, ..SvdOptions::default() });
    let soft = shares(SvdOptions::soft(latent_dim, SvdOptions::default().normalization));
    // The ten tastes are in both; what follows ends with the twentieth, or goes on.
    let beyond = |shares: &[f64]| shares[latent_dim..].iter().sum::<f64>();
    for shares in [&hard, &soft] {
        assert!(shares[..10].iter().all(|share| *share > 0.99), "{shares:?}");
    }
    assert!(beyond(&hard) < 1.0 && beyond(&soft) > 3.0, "{hard:?} {soft:?}");
    let (near, far): (f64, f64) = (soft[20..40].iter().sum(), soft[60..].iter().sum());
    assert!(near > 1.5 * far, "{soft:?}");
}

#[test]
fn the_first_columns_are_the_decomposition_of_fewer() {
    let matrix = tastes();
    let of = |latent_dim| {
        let options = SvdOptions { latent_dim, passes: 6, ..SvdOptions::default() };
        truncated_svd(&matrix, 2500, options, Seed(5)).unwrap()
    };
    // The ten tastes are ten singular values far above the rest.
    let (few, many) = (of(10), of(40));
    for (i, value) in few.singular_values.iter().enumerate() {
        assert!((value / many.singular_values[i] - 1.0).abs() < 1e-5, "σ_{i}");
    }
    let (few, many) = (as_f64(&few.v), as_f64(&many.v));
    let first = many.subcols(0, 10);
    let outside = &few - first * (first.transpose() * &few);
    assert!(outside.norm_max() < 1e-4, "{}", outside.norm_max());
}

#[test]
fn the_energy_is_the_sum_of_all_squared_singular_values() {
    for normalization in [0.0, 0.25] {
        let options = SvdOptions { normalization, ..options(ACTIONS - 1) };
        let found = truncated_svd(&blocks(), ACTIONS, options, Seed(1)).unwrap();
        let squares = found.singular_values.iter().map(|value| f64::from(*value).powi(2));
        // All but the last of 60.
        let left = 1.0 - squares.sum::<f64>() / found.energy;
        assert!((-1e-6..1e-2).contains(&left), "{left} of the energy is left");
    }
    let found = truncated_svd(&blocks(), ACTIONS, options(L), Seed(1)).unwrap();
    assert!((found.energy - blocks().num_pairs() as f64).abs() < 1e-9);
}

#[test]
fn an_impossible_dimension_says_what_is_possible() {
    for latent_dim in [0, 60, 1000] {
        let error = truncated_svd(&blocks(), ACTIONS, options(latent_dim), Seed(1));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("embedding.latent_dim") && error.contains("1 to 59"), "{error}");
    }
    assert!(truncated_svd(&blocks(), ACTIONS, options(59), Seed(1)).is_ok());
}

#[test]
fn only_training_contexts_make_the_matrix() {
    let sessions = Sessions {
        observed: ActionSets::from_pairs(3, [(0, 1), (1, 2), (2, 0)].into_iter()),
        hidden: ActionSets::from_pairs(3, [(0, 0), (1, 0), (2, 3)].into_iter()),
        split: vec![Split::Train, Split::Test, Split::Train],
        num_actions: 4,
    };
    let all = training_matrix(&sessions, SessionPart::All);
    assert_eq!((all.of(0), all.of(1)), (&[0, 1][..], &[0, 3][..]));
    let observed = training_matrix(&sessions, SessionPart::Observed);
    assert_eq!((observed.of(0), observed.of(1)), (&[1][..], &[0][..]));
    assert_eq!((all.len(), observed.num_pairs()), (2, 2));
}
