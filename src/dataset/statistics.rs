//! Sessions → the numbers of the paper's Table 2, for all users and for each split.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Sessions, Split};

/// Users of one split and the interactions of their contexts, observed and hidden together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Number of users.
    pub users: usize,
    /// Number of interactions.
    pub interactions: usize,
}

/// The size of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// P.
    pub actions: usize,
    /// U.
    pub users: usize,
    /// Different pairs of a user and an action.
    pub interactions: usize,
    /// `interactions / (users · actions)`, a share.
    pub density: f64,
    /// Training users.
    pub train: Count,
    /// Validation users.
    pub validation: Count,
    /// Test users.
    pub test: Count,
}

impl Statistics {
    /// Counts `sessions`, each of another user.
    #[must_use]
    pub fn of(sessions: &Sessions) -> Self {
        Self::of_users(sessions, &sessions.observed.contexts().collect::<Vec<_>>())
    }

    /// Counts `sessions`, whose users are `users`; the contexts of a user stand together.
    #[must_use]
    pub fn of_users(sessions: &Sessions, users: &[impl PartialEq]) -> Self {
        let count = |split| {
            let contexts = sessions.contexts(split);
            let pairs = |&context: &u32| {
                sessions.observed.of(context).len() + sessions.hidden.of(context).len()
            };
            Count { users: contexts.len(), interactions: contexts.iter().map(pairs).sum() }
        };
        let actions = sessions.num_actions;
        let (mut contexts, mut num_users, mut interactions) = (sessions.observed.contexts(), 0, 0);
        for of_user in users.chunk_by(PartialEq::eq) {
            let sets = contexts.by_ref().take(of_user.len());
            let sets = sets.flat_map(|at| [sessions.observed.of(at), sessions.hidden.of(at)]);
            let mut different = sets.collect::<Vec<_>>().concat();
            different.sort_unstable();
            different.dedup();
            num_users += 1;
            interactions += different.len();
        }
        let users = num_users;
        Self {
            actions,
            users,
            interactions,
            density: interactions as f64 / (users as f64 * actions as f64).max(1.0),
            train: count(Split::Train),
            validation: count(Split::Validation),
            test: count(Split::Test),
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:12}{:>10}{:>12}{:>14}{:>10}",
            "", "#Actions", "#Users", "Interactions", "Density"
        )?;
        let density = percent(self.density);
        write!(
            f,
            "{:12}{:>10}{:>12}{:>14}{density:>10}",
            "all", self.actions, self.users, self.interactions
        )?;
        let splits = [("train", self.train), ("validation", self.validation), ("test", self.test)];
        for (name, Count { users, interactions }) in splits {
            write!(f, "\n{name:12}{:>10}{users:>12}{interactions:>14}", "")?;
        }
        Ok(())
    }
}

/// Writes a share in percent, with two decimals, or with two digits where two decimals are too few.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent >= 0.1 || percent <= 0.0 {
        return format!("{percent:.2}%");
    }
    #[allow(clippy::cast_possible_truncation, reason = "2 to 309")]
    let decimals = 1 - percent.log10().floor() as i32;
    let text = format!("{percent:.*}", decimals.unsigned_abs() as usize);
    format!("{}%", text.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::ActionSets;

    #[test]
    fn densities_are_written_as_the_paper_does() {
        let shares = [0.0024, 0.000_08, 0.0001, 0.017, 0.000_079_6, 0.0];
        let written = ["0.24%", "0.008%", "0.01%", "1.70%", "0.008%", "0.00%"];
        assert_eq!(shares.map(percent), written);
    }

    #[test]
    fn prints_the_papers_columns() {
        let sessions = Sessions {
            observed: ActionSets::from_pairs(2, [(0, 1), (1, 0)].into_iter()),
            hidden: ActionSets::from_pairs(2, [(0, 0)].into_iter()),
            split: vec![Split::Train, Split::Test],
            num_actions: 4,
        };
        insta::assert_snapshot!(Statistics::of(&sessions), @r"
                      #Actions      #Users  Interactions   Density
        all                  4           2             3    37.50%
        train                            1             2
        validation                       0             0
        test                             1             1
        ");
    }
}
