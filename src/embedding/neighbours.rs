//! Takes the vectors of an SVD, of ALS or of a blend, and the training interactions; returns vectors whose
//! inner products also hold the similarities of neighbours.
//!
//! A few interactions each of many users have more structure than a thousand dimensions hold, which is why
//! item-kNN earns more there than decompositions do: it keeps a few similarities of each action whole, and none of the
//! others. Both together earn more than either (`artifacts/quality`). Let S `[P, P]` hold
//!
//! ```text
//! s_ij = |i ∩ j| / (√|i||j| + s)
//! ```
//!
//! where each of two actions is among the few most similar ones of the other, and 0 elsewhere; i and j are their sets of
//! training contexts, and s is the shrinkage. S has full rank, but m random signs for each action, Ω `[P, m]` over √m, make vectors
//! of it by which (Johnson & Lindenstrauss, *Extensions of Lipschitz mappings into a Hilbert space*, 1984; signs by
//! Achlioptas, *Database-friendly random projections*, 2003)
//!
//! ```text
//! Ω_i · (S Ω)_j = s_ij + an error of deviation ‖S_j‖/√m
//! ```
//!
//! The few that are not 0 stay far above that. With B = V f(s) n^κ of the decomposition ([`Form`]), an action's input
//! vector is `√(ω u) [Ω | 0] + [0 | B]` and its action vector `√(ω u) [S Ω | 0] + [0 | B]`, so that neither part of a
//! query is much longer than the other and noise has no more of it; u is what makes ω the weight of the similarities
//! beside the decomposition: the median of `B_i · B_j / s_ij` of the pairs in S.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::embedding::{BlendOptions, Form, SharedContexts, StoredEmbeddings, SvdOptions, Vectors};
use crate::error::{Error, Result};
use crate::matrix::{Matrix, dot};
use crate::seed::{Purpose, Seed};

/// Options of neighbours beside a decomposition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourOptions {
    /// m, the dimensions of the neighbours.
    pub dims: usize,
    /// The most similar actions of each, among which two neighbours find each other.
    pub count: usize,
    /// ω, the weight of their similarities, at least 0.
    pub weight: f32,
    /// What is added to √|i||j|, at least 0: without it, actions of one and the same user are the most similar ones.
    pub shrinkage: f32,
    /// How B is made of the decomposition.
    pub form: Form,
    /// The decomposition.
    pub beside: Beside,
}

/// What stands beside the neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Beside {
    /// An SVD.
    Svd(SvdOptions),
    /// A blend of an SVD and ALS, or ALS alone.
    Blend(BlendOptions),
}

impl NeighbourOptions {
    /// L, of both parts.
    #[must_use]
    pub fn latent_dim(&self) -> usize {
        let beside = match self.beside {
            Beside::Svd(svd) => svd.latent_dim,
            Beside::Blend(blend) => blend.latent_dim,
        };
        self.dims + beside
    }

    /// With no more dimensions than `most` in any part of the decomposition.
    #[must_use]
    pub fn at_most(mut self, most: usize) -> Self {
        match &mut self.beside {
            Beside::Svd(svd) => svd.latent_dim = svd.latent_dim.min(most),
            Beside::Blend(blend) => *blend = blend.at_most(most),
        }
        self
    }
}

/// Puts neighbours beside a decomposition, which is as long as the options have it or longer; both are of the same matrix.
///
/// # Errors
/// [`Error::Setting`] for a weight, a length or a form that cannot be.
pub fn with_neighbours(
    decomposition: &StoredEmbeddings,
    shared: &SharedContexts,
    options: NeighbourOptions,
    seed: Seed,
) -> Result<StoredEmbeddings> {
    let NeighbourOptions { dims, count, weight, shrinkage, form, .. } = options;
    for (key, value) in [("dims", dims), ("count", count)] {
        if value == 0 {
            return Err(Error::setting(format!("embedding.{key}"), "is 0, but must be at least 1"));
        }
    }
    for (key, value) in [("weight", weight), ("shrinkage", shrinkage)] {
        if !(value >= 0.0 && value.is_finite()) {
            let problem = format!("is {value}, but must be a number of at least 0");
            return Err(Error::setting(format!("embedding.{key}"), problem));
        }
    }
    let stored = decomposition.resized(options.latent_dim() - dims);
    let Vectors { actions, .. } = stored.into_vectors(&form, shared.popularity())?;
    let similar = mutual(&shared.most_similar(count, shrinkage));
    let length = (weight * unit(&similar, actions.beta())).sqrt();
    let beside = |action: usize, rest: &mut [f32]| rest.copy_from_slice(actions.beta().row(action));
    let mut inputs = Matrix::zeros(similar.len(), options.latent_dim());
    inputs.par_rows_mut().enumerate().for_each(|(action, row)| {
        let (first, rest) = row.split_at_mut(dims);
        signs(action, similar.len(), length, seed, first);
        beside(action, rest);
    });
    let mut v = Matrix::zeros(similar.len(), options.latent_dim());
    v.par_rows_mut().zip(&similar).enumerate().for_each(|(action, (row, similar))| {
        let (first, rest) = row.split_at_mut(dims);
        for &(other, similarity) in similar {
            let others = &inputs.row(other as usize)[..dims];
            first.iter_mut().zip(others).for_each(|(sum, sign)| *sum += similarity * sign);
        }
        beside(action, rest);
    });
    Ok(StoredEmbeddings { v, spectrum: None, inputs: Some(inputs) })
}

/// The similarities of pairs that are in each other's lists.
fn mutual(similar: &[Vec<(u32, f32)>]) -> Vec<Vec<(u32, f32)>> {
    let has = |of: u32, action: usize| {
        similar[of as usize].iter().any(|(other, _)| *other as usize == action)
    };
    let of_action = |(action, others): (usize, &Vec<(u32, f32)>)| {
        others.iter().copied().filter(|(other, _)| has(*other, action)).collect()
    };
    similar.par_iter().enumerate().map(of_action).collect()
}

/// An action's row of Ω, of this length; that of a unit vector, where there are no more actions than dimensions.
fn signs(action: usize, num_actions: usize, length: f32, seed: Seed, row: &mut [f32]) {
    if num_actions <= row.len() {
        row[action] = length;
        return;
    }
    seed.stream(Purpose::Sketch, 2, action as u64).fill_normals(row);
    let each = length / (row.len() as f32).sqrt();
    for value in row {
        *value = each.copysign(*value);
    }
}

/// u, at least 0; 0 where there are no neighbours.
fn unit(similar: &[Vec<(u32, f32)>], vectors: &Matrix) -> f32 {
    let ratios = similar.par_iter().enumerate().flat_map_iter(|(action, similar)| {
        let own = vectors.row(action);
        similar.iter().map(move |&(other, s)| dot(own, vectors.row(other as usize)) / s)
    });
    let mut ratios: Vec<f32> = ratios.collect();
    if ratios.is_empty() {
        return 0.0;
    }
    let middle = ratios.len() / 2;
    ratios.select_nth_unstable_by(middle, f32::total_cmp).1.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::ActionSets;
    use crate::embedding::tastes::{assert_same_on_any_threads, users_of};
    use crate::embedding::{Power, truncated_svd};

    const ITEMS: usize = 40;

    /// Users of five tastes; nobody wants the last items.
    fn tastes() -> ActionSets {
        users_of(5, 60, 7, 9)
    }

    fn options(dims: usize) -> NeighbourOptions {
        NeighbourOptions {
            dims,
            count: 4,
            weight: 0.7,
            shrinkage: 2.0,
            form: Form { power: Power::Half, ridge: 0.0, popularity: 0.25 },
            beside: Beside::Svd(SvdOptions { latent_dim: 6, ..SvdOptions::default() }),
        }
    }

    fn beside(
        svd: &StoredEmbeddings,
        matrix: &ActionSets,
        of: NeighbourOptions,
    ) -> Result<StoredEmbeddings> {
        let shared = SharedContexts::count(matrix, ITEMS, of.count, &[of.shrinkage])?;
        with_neighbours(svd, &shared, of, Seed(3))
    }

    fn svd(latent_dim: usize) -> StoredEmbeddings {
        let options = SvdOptions { latent_dim, ..SvdOptions::default() };
        truncated_svd(&tastes(), ITEMS, options, Seed(1)).unwrap().into_stored()
    }

    fn popularity() -> Vec<u32> {
        tastes().popularity(tastes().contexts(), ITEMS)
    }

    /// S by its definition.
    fn similarities(options: NeighbourOptions) -> Vec<Vec<f64>> {
        let (matrix, popularity) = (tastes(), popularity());
        let shared = |i: usize, j: usize| {
            let has = |user: u32, item: usize| matrix.contains(user, u32::try_from(item).unwrap());
            matrix.contexts().filter(|user| has(*user, i) && has(*user, j)).count() as f64
        };
        let size = |item: usize| f64::from(popularity[item]);
        let of = |i: usize, j: usize| {
            let own = if i == j { 0.0 } else { shared(i, j) };
            own / ((size(i) * size(j)).sqrt() + f64::from(options.shrinkage))
        };
        let all: Vec<Vec<f64>> =
            (0..ITEMS).map(|i| (0..ITEMS).map(|j| of(i, j)).collect()).collect();
        // The first of equals is more similar.
        let before = |i: usize, j: usize| {
            let is_before =
                |k: &usize| all[i][*k] > all[i][j] || (all[i][*k] == all[i][j] && *k < j);
            (0..ITEMS).filter(is_before).count()
        };
        let mutual =
            |i: usize, j: usize| before(i, j) < options.count && before(j, i) < options.count;
        let kept = |i: usize, j: usize| if mutual(i, j) { all[i][j] } else { 0.0 };
        (0..ITEMS).map(|i| (0..ITEMS).map(|j| kept(i, j)).collect()).collect()
    }

    fn score(of: &StoredEmbeddings, i: usize, j: usize) -> f64 {
        f64::from(dot(of.inputs.as_ref().unwrap().row(i), of.v.row(j)))
    }

    #[test]
    fn a_score_is_that_of_the_decomposition_and_of_the_similarity() {
        let options = options(ITEMS);
        let s = similarities(options);
        // A longer decomposition serves too, unless it ends softly.
        let alone = svd(6).into_vectors(&options.form, &popularity()).unwrap().actions;
        let found = beside(&svd(9), &tastes(), options).unwrap();
        let score_beside =
            |i: usize, j: usize| f64::from(dot(alone.beta().row(i), alone.beta().row(j)));
        let pairs = || (0..ITEMS).flat_map(|i| (0..ITEMS).map(move |j| (i, j)));
        let near = pairs().filter(|(i, j)| s[*i][*j] > 0.0);
        let mut ratios: Vec<f64> = near.map(|(i, j)| score_beside(i, j) / s[i][j]).collect();
        ratios.sort_by(f64::total_cmp);
        let unit = ratios[ratios.len() / 2];
        assert!(unit > 0.0 && ratios.len() > ITEMS && found.v.cols() == ITEMS + 6);
        for (i, j) in pairs() {
            let expected = 0.7 * unit * s[i][j] + score_beside(i, j);
            assert!((score(&found, i, j) - expected).abs() < 1e-3 * unit, "{i} {j}");
        }
    }

    #[test]
    fn fewer_dimensions_add_noise_of_the_size_that_theory_gives() {
        let dims = 24;
        let exact = beside(&svd(6), &tastes(), options(ITEMS)).unwrap();
        let found = beside(&svd(6), &tastes(), options(dims)).unwrap();
        let row =
            |j: usize| exact.v.row(j)[..ITEMS].iter().map(|s| f64::from(*s).powi(2)).sum::<f64>();
        let unit = f64::from(exact.inputs.as_ref().unwrap().row(0)[0]).powi(2);
        let (mut errors, mut expected) = (0.0, 0.0);
        for (i, j) in (0..ITEMS).flat_map(|i| (0..ITEMS).map(move |j| (i, j))) {
            errors += (score(&found, i, j) - score(&exact, i, j)).powi(2);
            // The item's own sign times itself is 1, and no noise.
            expected += unit * (row(j) - f64::from(exact.v.row(j)[i]).powi(2)) / dims as f64;
        }
        let ratio = errors / expected;
        assert!(expected > 0.0 && (0.8..1.25).contains(&ratio), "{ratio}");
    }

    #[test]
    fn the_signs_of_an_item_are_the_same_whoever_is_left_out() {
        let some = users_of(5, 40, 7, 9);
        let of = |matrix: &ActionSets| beside(&svd(6), matrix, options(16)).unwrap();
        let signs = [of(&tastes()), of(&some)].map(|of| {
            let inputs = of.inputs.unwrap().resized(16);
            inputs.as_slice().iter().map(|value| value.signum()).collect::<Vec<_>>()
        });
        assert_eq!(signs[0], signs[1]);
        assert_same_on_any_threads(|| of(&some));
    }

    #[test]
    fn without_neighbours_the_decomposition_decides() {
        // Nobody has two items.
        let alone = ActionSets::from_pairs(ITEMS, (0_u32..40).map(|item| (item, item)));
        let found = beside(&svd(6), &alone, options(16)).unwrap();
        assert!(found.v.iter_rows().all(|row| row[..16].iter().all(|value| *value == 0.0)));
        assert!(found.v.require_finite("found").is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let of = options(16);
        for (options, key) in [
            (NeighbourOptions { dims: 0, ..of }, "dims"),
            (NeighbourOptions { count: 0, ..of }, "count"),
            (NeighbourOptions { weight: -1.0, ..of }, "weight"),
            (NeighbourOptions { shrinkage: f32::NAN, ..of }, "shrinkage"),
        ] {
            let error = beside(&svd(6), &tastes(), options).unwrap_err();
            assert!(error.to_string().contains(&format!("`embedding.{key}`")), "{error}");
        }
    }
}
