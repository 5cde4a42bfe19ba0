//! Training users in, disjoint folds of them out: what is fitted without a fold has not seen the
//! hidden items of its users.

use super::{Sessions, Split};
use crate::seed::{Purpose, Seed};

/// The fold of every training context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folds {
    /// The fold of each context `[U]`; none for contexts that are not trained on.
    of: Vec<Option<u16>>,
    count: u16,
}

impl Folds {
    /// `count` folds of equal size, give or take one, of the training contexts. The seed decides,
    /// and nothing else.
    #[must_use]
    pub fn new(sessions: &Sessions, count: u16, seed: Seed) -> Self {
        let mut order = sessions.contexts(Split::Train);
        seed.stream(Purpose::Folds, 0, 0).shuffle(&mut order);
        let mut of = vec![None; sessions.num_contexts()];
        for (&context, fold) in order.iter().zip((0..count).cycle()) {
            of[context as usize] = Some(fold);
        }
        Self { of, count }
    }

    /// The number of folds.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The fold of a context; none if it is not trained on.
    #[must_use]
    pub fn of(&self, context: u32) -> Option<u16> {
        self.of[context as usize]
    }

    /// The contexts of one fold, ascending.
    #[must_use]
    pub fn within(&self, fold: u16) -> Vec<u32> {
        self.select(|of| of == fold)
    }

    /// The training contexts outside one fold, ascending.
    #[must_use]
    pub fn without(&self, fold: u16) -> Vec<u32> {
        self.select(|of| of != fold)
    }

    fn select(&self, wanted: impl Fn(u16) -> bool) -> Vec<u32> {
        let contexts = (0_u32..).zip(&self.of);
        contexts.filter(|(_, of)| of.is_some_and(&wanted)).map(|(context, _)| context).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::ActionSets;

    #[test]
    fn every_training_context_is_in_one_fold() {
        let mut split = vec![Split::Train; 103];
        (split[4], split[70]) = (Split::Test, Split::Validation);
        let none = ActionSets::from_pairs(103, std::iter::empty());
        let sessions = Sessions { observed: none.clone(), hidden: none, split, num_actions: 9 };
        let folds = Folds::new(&sessions, 5, Seed(1));
        assert_eq!((folds.of(4), folds.of(70)), (None, None));
        let mut all = Vec::new();
        for fold in 0..5 {
            let (within, without) = (folds.within(fold), folds.without(fold));
            assert!((20..=21).contains(&within.len()));
            assert_eq!(within.len() + without.len(), 101);
            assert!(within.iter().all(|context| folds.of(*context) == Some(fold)));
            all.extend(within);
        }
        all.sort_unstable();
        assert_eq!(all, sessions.contexts(Split::Train));
        assert_ne!(folds, Folds::new(&sessions, 5, Seed(2)));
    }
}
