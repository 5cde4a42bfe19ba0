//! The training matrix goes in; the most similar actions of each action come out, by cosine similarity with
//! shrinkage: `|i ∩ j| / (√|i||j| + s)`, where i and j are the sets of training contexts of two actions.

use rayon::prelude::*;

use crate::dataset::ActionSets;
use crate::error::Result;
use crate::interrupt;

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
    let all = contexts_of.contexts().into_par_iter().map_init(
        || (vec![0_u32; contexts_of.len()], Vec::new()),
        |(counts, others), action| {
            interrupt::check()?;
            count_shared(contexts_of.of(action), actions_of, |other| {
                if counts[other as usize] == 0 {
                    others.push(other);
                }
                counts[other as usize] += 1;
            });
            let similar = others.drain(..).map(|other| {
                let shared = std::mem::take(&mut counts[other as usize]) as f32;
                let size = |action: u32| popularity[action as usize] as f32;
                (other, shared / ((size(action) * size(other)).sqrt() + shrinkage))
            });
            Ok(first(similar.filter(|(other, _)| *other != action).collect(), count))
        },
    );
    all.collect()
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
