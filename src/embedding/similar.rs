//! The training matrix goes in; the most similar actions of each action come out, by cosine similarity with
//! shrinkage: `|i ∩ j| / (√|i||j| + s)`, where i and j are the sets of training contexts of two actions.

use rayon::prelude::*;

use crate::dataset::ActionSets;
use crate::error::Result;
use crate::interrupt;

/// The contexts that actions share, counted once for several numbers of neighbours and several s: counting takes long
/// where contexts have many actions. Of each action, those others are kept that are among its most similar ones by
/// any of them.
#[derive(Debug)]
pub struct SharedContexts {
    /// Other actions, ascending, with the number of shared contexts; `[P]`.
    of: Vec<Vec<(u32, u32)>>,
    /// Contexts of each action, `[P]`.
    popularity: Vec<u32>,
    most: usize,
    shrinkages: Vec<f32>,
}

impl SharedContexts {
    /// Counts them in a `[contexts, num_actions]` matrix, for up to `most` neighbours by these `shrinkages`.
    ///
    /// # Errors
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    pub fn count(
        matrix: &ActionSets,
        num_actions: usize,
        most: usize,
        shrinkages: &[f32],
    ) -> Result<Self> {
        let contexts_of = matrix.transposed(num_actions);
        let popularity = matrix.popularity(matrix.contexts(), num_actions);
        let of = of_shared([matrix, &contexts_of], |action, others| {
            let near = shrinkages.iter().flat_map(|&shrinkage| {
                let by = similarity(&popularity, action, shrinkage);
                first(others.iter().map(by).collect(), most)
            });
            let mut near: Vec<u32> = near.map(|(other, _)| other).collect();
            near.sort_unstable();
            near.dedup();
            let mut kept: Vec<(u32, u32)> = others.to_vec();
            kept.retain(|(other, _)| near.binary_search(other).is_ok());
            kept.sort_unstable();
            kept.shrink_to_fit();
            kept
        })?;
        Ok(Self { of, popularity, most, shrinkages: shrinkages.to_vec() })
    }

    /// Contexts of each action, `[P]`.
    #[must_use]
    pub fn popularity(&self) -> &[u32] {
        &self.popularity
    }

    /// The `count` most similar actions of each action, by falling similarity, `[P]`; both are of those for which the
    /// contexts were counted.
    pub(crate) fn most_similar(&self, count: usize, shrinkage: f32) -> Vec<Vec<(u32, f32)>> {
        debug_assert!(count <= self.most && self.shrinkages.contains(&shrinkage));
        let of_action = |(action, others): (usize, &Vec<(u32, u32)>)| {
            let by = similarity(&self.popularity, action, shrinkage);
            first(others.iter().map(by).collect(), count)
        };
        self.of.par_iter().enumerate().map(of_action).collect()
    }
}

/// For each member of `set`, adds 1 to the count of every other set that has the member; `others_of`
/// lists those sets.
pub(crate) fn count_shared(set: &[u32], others_of: &ActionSets, mut add: impl FnMut(u32)) {
    for &member in set {
        others_of.of(member).iter().for_each(|&other| add(other));
    }
}

/// The `count` most similar actions of each action, by falling similarity, `[P]`; s is `shrinkage`.
///
/// # Errors
/// [`Error::Interrupted`](crate::Error::Interrupted).
pub(crate) fn most_similar(
    [actions_of, contexts_of]: [&ActionSets; 2],
    count: usize,
    shrinkage: f32,
) -> Result<Vec<Vec<(u32, f32)>>> {
    let popularity = actions_of.popularity(actions_of.contexts(), contexts_of.len());
    of_shared([actions_of, contexts_of], |action, others| {
        let by = similarity(&popularity, action, shrinkage);
        first(others.iter().map(by).collect(), count)
    })
}

/// What `of` makes of each action and of the others that share contexts with it, with their number.
fn of_shared<T: Send>(
    [actions_of, contexts_of]: [&ActionSets; 2],
    of: impl Fn(usize, &[(u32, u32)]) -> T + Sync,
) -> Result<Vec<T>> {
    let all = contexts_of.contexts().into_par_iter().map_init(
        || (vec![0_u32; contexts_of.len()], Vec::new()),
        |(counts, others), action| {
            interrupt::check()?;
            count_shared(contexts_of.of(action), actions_of, |other| {
                if counts[other as usize] == 0 {
                    others.push((other, 0));
                }
                counts[other as usize] += 1;
            });
            for (other, shared) in &mut *others {
                *shared = std::mem::take(&mut counts[*other as usize]);
            }
            others.retain(|(other, _)| *other != action);
            let made = of(action as usize, others);
            others.clear();
            Ok(made)
        },
    );
    all.collect()
}

/// The similarity of an action to another one, by the number of contexts that they share.
fn similarity(
    popularity: &[u32],
    action: usize,
    shrinkage: f32,
) -> impl Fn(&(u32, u32)) -> (u32, f32) {
    let size = |action: usize| popularity[action] as f32;
    move |&(other, shared)| {
        let norms = (size(action) * size(other as usize)).sqrt();
        (other, shared as f32 / (norms + shrinkage))
    }
}

/// The `count` most similar, by falling similarity; of equals the lower action, which is the more popular one.
fn first(mut similar: Vec<(u32, f32)>, count: usize) -> Vec<(u32, f32)> {
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if count < similar.len() {
        similar.select_nth_unstable_by(count, order);
        similar.truncate(count);
    }
    similar.sort_unstable_by(order);
    similar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedding::tastes::users_of;

    #[test]
    fn counted_once_or_anew_the_most_similar_are_the_same() {
        let (matrix, num_actions) = (users_of(1, 200, 40, 4), 40);
        let sides = [&matrix, &matrix.transposed(num_actions)];
        let shrinkages = [0.0, 3.0, 30.0];
        let shared = SharedContexts::count(&matrix, num_actions, 4, &shrinkages).unwrap();
        for shrinkage in shrinkages {
            for count in [1, 4] {
                let similar = most_similar(sides, count, shrinkage).unwrap();
                assert_eq!(shared.most_similar(count, shrinkage), similar);
            }
        }
        // s changes which are the most similar, and not all others are kept.
        let kept = shared.of.iter().map(Vec::len);
        assert!(kept.clone().any(|kept| kept > 4) && kept.max() < Some(num_actions / 2));
    }
}
