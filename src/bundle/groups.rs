//! At most so many items of a group on a slate.

use std::cell::OnceCell;
use std::collections::HashMap;

use crate::dataset::Items;

/// How many items of each group a slate may hold, among the actions that may be shown to anybody.
pub(super) struct GroupLimit<'a> {
    items: &'a Items,
    most: usize,
    /// The actions of each group, and of none; counted when a slate asks for it.
    sizes: OnceCell<HashMap<Option<&'a str>, usize>>,
}

impl<'a> GroupLimit<'a> {
    pub(super) fn new(items: &'a Items, most: usize) -> Self {
        Self { items, most, sizes: OnceCell::new() }
    }

    /// True for each action whose group is on the slate fewer than so many times, when the actions come
    /// from the best one down.
    pub(super) fn has_room(&self) -> impl FnMut(u32) -> bool {
        let mut shown: HashMap<&str, usize> = HashMap::new();
        move |action| {
            let Some(group) = self.items.group(action) else { return true };
            let count = shown.entry(group).or_default();
            *count += 1;
            *count <= self.most
        }
    }

    /// The length of the longest slate of `all` actions without those of `excluded`, which are among them.
    pub(super) fn longest(
        &self,
        all: impl Iterator<Item = u32>,
        excluded: impl Iterator<Item = u32>,
    ) -> usize {
        let sizes = self.sizes.get_or_init(|| self.count(all));
        let shown = |group: Option<&str>, size: usize| group.map_or(size, |_| size.min(self.most));
        let without = self.count(excluded).into_iter().map(|(group, excluded)| {
            let size = sizes.get(&group).copied().unwrap_or_default();
            shown(group, size) - shown(group, size.saturating_sub(excluded))
        });
        let with: usize = sizes.iter().map(|(group, &size)| shown(*group, size)).sum();
        with - without.sum::<usize>()
    }

    fn count(&self, actions: impl Iterator<Item = u32>) -> HashMap<Option<&'a str>, usize> {
        let mut sizes = HashMap::new();
        actions.for_each(|action| *sizes.entry(self.items.group(action)).or_default() += 1);
        sizes
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use polars::prelude::df;

    use super::*;

    #[test]
    fn the_longest_slate_has_no_more_of_a_group_than_it_may_and_is_left() {
        let groups = [Some("a"), Some("a"), Some("a"), Some("b"), None, Some("b"), None];
        let table = df!("item_id" => ["0", "1", "2", "3", "4", "5", "6"], "group" => groups);
        let items = Items::new(&table.unwrap(), Path::new("items.parquet")).unwrap();
        for most in 1..4 {
            let limit = GroupLimit::new(&items, most);
            for excluded in [&[][..], &[0], &[0, 1, 2], &[3, 4, 5], &[0, 1, 2, 3, 4, 5, 6]] {
                let mut has_room = limit.has_room();
                let shown = (0..7).filter(|action| !excluded.contains(action));
                let shown = shown.filter(|action| has_room(*action)).count();
                let longest = limit.longest(0..7, excluded.iter().copied());
                assert_eq!(longest, shown, "{most} of a group without {excluded:?}");
            }
        }
    }
}
