//! Takes the vectors of an SVD, of ALS or of a blend, and the training interactions; returns vectors whose
//! inner products also hold what each action's neighbours say of it.
//!
//! A few interactions each of many users have more structure than a thousand dimensions hold, which is why
//! EASE and item-kNN earn more there than decompositions do: they keep the weights of pairs of actions. Most of what EASE keeps is in
//! the weights of the most similar actions of each ([`Slim`]). With those of action i for action j, `s_ij`, in S `[P, P]`,
//! what is 0 elsewhere has full rank, but m numbers for each action that make nearly orthogonal rows of length one, Ω `[P, m]`
//! (`frame`), make vectors of it by which
//!
//! ```text
//! Ω_i · (Sᵀ Ω)_j = s_ij + an error of deviation ‖S_·j‖ √(1/m − 1/P)
//! ```
//!
//! The few that are not 0 stay far above that. With B = V f(s) n^κ of the decomposition ([`Form`]), an action's input
//! vector is `√(ω u) [(n_i/ñ)^γ Ω | 0] + [0 | B]` and its action vector `√(ω u) [Sᵀ Ω | 0] + [0 | B]`. S is fitted to contexts whose
//! actions all weigh the same, so that n^γ takes back what the encoder makes of popular ones; ñ is the median popularity of
//! neighbours. So neither part of a query is much longer than the other and noise has no more of it. u is what makes ω
//! the weight of the neighbours beside the decomposition: the median of `B_i · B_j (n_i/ñ)^−γ / s_ij` of the positive weights in S.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::embedding::frame::Frame;
use crate::embedding::{BlendOptions, Form, Slim, StoredEmbeddings, SvdOptions, Vectors};
use crate::error::{Error, Result};
use crate::matrix::{Matrix, dot};
use crate::seed::Seed;

/// Options of neighbours beside a decomposition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourOptions {
    /// m, the dimensions of the neighbours.
    pub dims: usize,
    /// The most similar actions of each, which have weights.
    pub count: usize,
    /// ω, the weight of neighbours beside the decomposition, at least 0.
    pub weight: f32,
    /// λ of the regressions, at least 0.
    pub ridge: f32,
    /// γ of the encoder, at least 0, which their inputs take back.
    pub popularity_power: f32,
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

    fn validate(&self) -> Result<()> {
        for (key, value) in [("dims", self.dims), ("count", self.count)] {
            if value == 0 {
                let problem = "is 0, but must be at least 1";
                return Err(Error::setting(format!("embedding.{key}"), problem));
            }
        }
        let Self { weight, ridge, popularity_power, .. } = *self;
        let numbers =
            [("weight", weight), ("ridge", ridge), ("popularity_power", popularity_power)];
        for (key, value) in numbers {
            if !(value >= 0.0 && value.is_finite()) {
                let problem = format!("is {value}, but must be a number of at least 0");
                return Err(Error::setting(format!("embedding.{key}"), problem));
            }
        }
        Ok(())
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
/// [`Error::Setting`] for a weight, a length or a form that cannot be; [`Error::Interrupted`].
pub fn with_neighbours(
    decomposition: &StoredEmbeddings,
    slim: &Slim,
    options: NeighbourOptions,
    seed: Seed,
) -> Result<StoredEmbeddings> {
    options.validate()?;
    let NeighbourOptions { dims, count, weight, ridge, popularity_power, form, .. } = options;
    let stored = decomposition.resized(options.latent_dim() - dims);
    let popularity = slim.popularity();
    let Vectors { actions, .. } = stored.into_vectors(&form, &popularity)?;
    let weights = slim.weights(count, ridge)?;
    let relative = taken_back(&weights, &popularity, popularity_power);
    let length = (weight * unit(&weights, actions.beta(), &relative)).sqrt();
    let beside = |action: usize, rest: &mut [f32]| rest.copy_from_slice(actions.beta().row(action));
    let frame = Frame::new(weights.len(), dims, seed);
    let mut inputs = Matrix::zeros(weights.len(), options.latent_dim());
    inputs.par_rows_mut().enumerate().for_each(|(action, row)| {
        let (first, rest) = row.split_at_mut(dims);
        frame.write(action, length, first);
        beside(action, rest);
    });
    let mut v = Matrix::zeros(weights.len(), options.latent_dim());
    v.par_rows_mut().zip(&weights).enumerate().for_each(|(action, (row, weights))| {
        let (first, rest) = row.split_at_mut(dims);
        for &(other, weight) in weights {
            let others = &inputs.row(other as usize)[..dims];
            first.iter_mut().zip(others).for_each(|(sum, of_other)| *sum += weight * of_other);
        }
        beside(action, rest);
    });
    inputs.par_rows_mut().zip(&relative).for_each(|(row, relative)| {
        row[..dims].iter_mut().for_each(|value| *value *= relative);
    });
    Ok(StoredEmbeddings { v, spectrum: None, inputs: Some(inputs) })
}

/// `(n/ñ)^γ` of each action, `[P]`.
fn taken_back(weights: &[Vec<(u32, f32)>], popularity: &[u32], power: f32) -> Vec<f32> {
    let size = |action: usize| popularity[action].max(1) as f32;
    let others = weights.iter().flatten().map(|(other, _)| size(*other as usize));
    let middle = median(others.collect()).unwrap_or(1.0);
    (0..popularity.len()).map(|action| (size(action) / middle).powf(power)).collect()
}

/// u, at least 0; 0 where there are no neighbours.
fn unit(weights: &[Vec<(u32, f32)>], vectors: &Matrix, relative: &[f32]) -> f32 {
    let ratios = weights.par_iter().enumerate().flat_map_iter(|(action, weights)| {
        let positive = weights.iter().filter(|(_, weight)| *weight > 0.0);
        positive.map(move |&(other, weight)| {
            let score = dot(vectors.row(action), vectors.row(other as usize));
            score / (relative[other as usize] * weight)
        })
    });
    median(ratios.collect()).unwrap_or(0.0).max(0.0)
}

fn median(mut values: Vec<f32>) -> Option<f32> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f32::total_cmp).1)
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
            ridge: 2.0,
            popularity_power: 0.5,
            form: Form { power: Power::Half, ridge: 0.0, popularity: 0.25 },
            beside: Beside::Svd(SvdOptions { latent_dim: 6, ..SvdOptions::default() }),
        }
    }

    fn beside(
        svd: &StoredEmbeddings,
        matrix: &ActionSets,
        of: NeighbourOptions,
    ) -> Result<StoredEmbeddings> {
        with_neighbours(svd, &Slim::new(matrix, ITEMS, of.count)?, of, Seed(3))
    }

    fn svd(latent_dim: usize) -> StoredEmbeddings {
        let options = SvdOptions { latent_dim, ..SvdOptions::default() };
        truncated_svd(&tastes(), ITEMS, options, Seed(1)).unwrap().into_stored()
    }

    fn popularity() -> Vec<u32> {
        tastes().popularity(tastes().contexts(), ITEMS)
    }

    fn score(of: &StoredEmbeddings, i: usize, j: usize) -> f64 {
        f64::from(dot(of.inputs.as_ref().unwrap().row(i), of.v.row(j)))
    }

    #[test]
    fn a_score_is_that_of_the_decomposition_and_of_the_neighbours_whatever_the_encoder_weighs() {
        let options = options(ITEMS);
        let slim = Slim::new(&tastes(), ITEMS, options.count).unwrap();
        let weights = slim.weights(options.count, options.ridge).unwrap();
        // A longer decomposition serves too, unless it ends softly.
        let alone = svd(6).into_vectors(&options.form, &popularity()).unwrap().actions;
        let found = beside(&svd(9), &tastes(), options).unwrap();
        assert_eq!(found.v.cols(), ITEMS + 6);
        let encoder: Vec<f32> = popularity()
            .into_iter()
            .map(|count| (count.max(1) as f32).powf(-options.popularity_power))
            .collect();
        let of_beside = |i: usize, j: usize| {
            f64::from(encoder[i] * dot(alone.beta().row(i), alone.beta().row(j)))
        };
        let near = |j: usize| weights[j].iter().map(|&(i, weight)| (i as usize, f64::from(weight)));
        let positive = (0..ITEMS).flat_map(|j| near(j).map(move |(i, weight)| (i, j, weight)));
        let ratios = positive.filter(|(.., weight)| *weight > 0.0);
        let mut ratios: Vec<f64> = ratios.map(|(i, j, weight)| of_beside(i, j) / weight).collect();
        ratios.sort_by(f64::total_cmp);
        let unit = ratios[ratios.len() / 2];
        assert!(unit > 0.0 && ratios.len() > ITEMS);
        for (i, j) in (0..ITEMS).flat_map(|i| (0..ITEMS).map(move |j| (i, j))) {
            let weight = near(j).find(|(other, _)| *other == i).map_or(0.0, |(_, weight)| weight);
            let expected = 0.7 * unit * weight + of_beside(i, j);
            let score = f64::from(encoder[i]) * score(&found, i, j);
            assert!((score - expected).abs() < 1e-3 * unit, "{i} {j}: {score} {expected}");
        }
    }

    #[test]
    fn fewer_dimensions_add_noise_of_the_size_that_theory_gives() {
        let dims = 24;
        let exact = beside(&svd(6), &tastes(), options(ITEMS)).unwrap();
        let found = beside(&svd(6), &tastes(), options(dims)).unwrap();
        let row =
            |j: usize| exact.v.row(j)[..ITEMS].iter().map(|s| f64::from(*s).powi(2)).sum::<f64>();
        let own = |i: usize| f64::from(exact.inputs.as_ref().unwrap().row(i)[i]);
        let (mut errors, mut expected) = (0.0, 0.0);
        for (i, j) in (0..ITEMS).flat_map(|i| (0..ITEMS).map(move |j| (i, j))) {
            errors += (score(&found, i, j) - score(&exact, i, j)).powi(2);
            // An item's own row times itself is 1, and no noise.
            expected += own(i).powi(2)
                * (row(j) - f64::from(exact.v.row(j)[i]).powi(2))
                * (1.0 / dims as f64 - 1.0 / ITEMS as f64);
        }
        let ratio = errors / expected;
        assert!(expected > 0.0 && (0.8..1.25).contains(&ratio), "{ratio}");
    }

    #[test]
    fn the_inputs_of_an_item_have_the_same_signs_whoever_is_left_out() {
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
            (NeighbourOptions { ridge: f32::NAN, ..of }, "ridge"),
            (NeighbourOptions { popularity_power: -0.5, ..of }, "popularity_power"),
        ] {
            let error = beside(&svd(6), &tastes(), options).unwrap_err();
            assert!(error.to_string().contains(&format!("`embedding.{key}`")), "{error}");
        }
    }
}
