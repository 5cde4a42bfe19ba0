//! Interactions → sessions. By FOPO's procedure, half of each user's items are observed, the rest is
//! hidden, and each user belongs to training, validation or test. The other kinds hold out a part of
//! each user's items, by time or as given files say ([`cuts`]).

mod cuts;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use polars::prelude::*;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::interactions::Interactions;
use super::moment::Moment;
use crate::dataset::{ActionSets, Dataset, Label, Sessions, Split, Statistics, Times};
use crate::error::{Error, Result};
use crate::seed::{Purpose, Seed};
use cuts::{Cut, Cuts};

/// What decides between training, validation and test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitKind {
    /// Users are assigned at random, and each one's items are cut at random (FOPO).
    #[default]
    Random,
    /// Each user's latest items are for the test, and those before them for validation. A user with
    /// fewer items than one for each of validation and test and two for training only trains.
    Temporal,
    /// What happened from a moment on is for the test. A user with nothing before it is left out.
    Dates {
        /// The beginning of the test.
        test_after: Moment,
        /// The beginning of validation; by default the moment that leaves validation the validation
        /// share of the interactions before the test.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        validation_after: Option<Moment>,
    },
    /// Files say it ([`Given`](super::Given)). Without a validation file, the validation share of
    /// each user's train file is held out at random.
    Given,
}

impl SplitKind {
    /// True if times decide. Interactions are then read with
    /// [`first_times`](super::Source::first_times).
    #[must_use]
    pub fn is_by_time(self) -> bool {
        matches!(self, Self::Temporal | Self::Dates { .. })
    }
}

/// How interactions are split into sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SplitSettings {
    /// What decides between training, validation and test.
    pub kind: SplitKind,
    /// Share of the n items of a user, or of those to train on, that is observed, ⌊n · share⌋ of
    /// them; in [0, 1). By time, the latest ones are hidden.
    pub observed_share: f64,
    /// Share of the users for validation, in [0, 1); of each user's items where they are held out.
    pub validation_share: f64,
    /// Share of the users for the test, in [0, 1); of each user's items where they are held out.
    /// Moments and files say it themselves.
    pub test_share: f64,
    /// Seed of the shuffle of users and the shuffle of each user's items.
    pub seed: Seed,
}

impl Default for SplitSettings {
    fn default() -> Self {
        Self {
            kind: SplitKind::default(),
            observed_share: 0.5,
            validation_share: 0.1,
            test_share: 0.1,
            seed: Seed(0),
        }
    }
}

impl SplitSettings {
    /// Checks the shares and the moments.
    ///
    /// # Errors
    /// [`Error::Setting`] for a share outside [0, 1), for shares that leave nothing of a user to train on,
    /// or for a validation that does not begin before the test.
    pub fn check(&self) -> Result<()> {
        let shares = [
            ("observed_share", self.observed_share),
            ("validation_share", self.validation_share),
            ("test_share", self.test_share),
        ];
        for (key, share) in shares {
            if !(0.0..1.0).contains(&share) {
                let problem = format!("expected a share in [0, 1), found {share}");
                return Err(Error::setting(key, problem));
            }
        }
        let held = self.validation_share + self.test_share;
        if self.kind == SplitKind::Temporal && held >= 1.0 {
            let problem = format!(
                "validation and test take {held} of each user's items; lower test_share or \
                 validation_share (--test-share, --validation-share)"
            );
            return Err(Error::setting("test_share", problem));
        }
        if let SplitKind::Dates { test_after, validation_after: Some(validation) } = self.kind
            && validation >= test_after
        {
            let problem = format!(
                "--validation-after {validation} has to be before --test-after {test_after}"
            );
            return Err(Error::setting("split.validation_after", problem));
        }
        Ok(())
    }
}

/// Cuts `interactions` into sessions and numbers contexts, by ascending user id, then split, and
/// actions, by falling number of training users, then by item id. The same interactions in any order
/// and the same settings give the same sessions.
///
/// # Errors
/// The errors of [`SplitSettings::check`]; [`Error::Setting`] for shares or moments that leave nobody to
/// train or to judge on, or for a split by time of interactions without times.
pub fn assemble(interactions: Interactions, settings: &SplitSettings) -> Result<Dataset> {
    settings.check()?;
    let contexts = Cuts::new(&interactions, settings)?;
    let cuts = contexts.all.as_slice();
    // The order of a user's items is theirs alone, so each part can be cut by itself.
    let observed = ActionSets::filled(&sizes(cuts, |cut| cut.observed), |context, set| {
        let cut = &cuts[context as usize];
        set.copy_from_slice(&contexts.order(cut.user)[..cut.observed]);
    });
    let hidden = ActionSets::filled(&sizes(cuts, |cut| cut.hidden.len()), |context, set| {
        let cut = &cuts[context as usize];
        set.copy_from_slice(&contexts.order(cut.user)[cut.hidden.clone()]);
    });
    let users_of: Vec<u32> = cuts.iter().map(|cut| cut.user).collect();
    let split = cuts.iter().map(|cut| cut.split).collect();
    let Interactions { users, items, labels, items_of, times, .. } = interactions;
    let mut sessions = Sessions { observed, hidden, split, num_actions: items.len() };

    let popularity = sessions.popularity(&sessions.contexts(Split::Train));
    let unknown = popularity.iter().filter(|count| **count == 0).count();
    if unknown > 0 {
        tracing::info!("{unknown} of {} items are not trained on", items.len());
    }
    let mut item_of: Vec<u32> = (0..).take(items.len()).collect();
    item_of.sort_by_key(|&item| (Reverse(popularity[item as usize]), item));
    let mut action_of = vec![0; items.len()];
    for (action, &item) in (0_u32..).zip(&item_of) {
        action_of[item as usize] = action;
    }
    sessions.observed.renumber(&action_of);
    sessions.hidden.renumber(&action_of);

    let times = times.map(|times| {
        let of = |sets: &ActionSets| {
            let of_context = |context: u32| {
                let user = users_of[context as usize];
                let (items, times) = (items_of.of(user), items_of.values_of(user, &times));
                let time = |item| times[items.partition_point(|&other| other < item)];
                let actions = sets.of(context).iter();
                actions.map(|&action| time(item_of[action as usize])).collect::<Vec<_>>()
            };
            sets.contexts().into_par_iter().flat_map_iter(of_context).collect()
        };
        Times { observed: of(&sessions.observed), hidden: of(&sessions.hidden) }
    });
    let several = settings.kind != SplitKind::Random;
    let contexts = self::contexts(&users, &users_of, several.then_some(sessions.split.as_slice()))
        .map_err(|error| Error::library("naming contexts", error))?;
    let actions = actions(&items, &item_of, labels.as_deref())
        .map_err(|error| Error::library("naming actions", error))?;
    let statistics = Statistics::of_users(&sessions, &users_of);
    Ok(Dataset { sessions, times, contexts, actions, statistics })
}

fn sizes(cuts: &[Cut], size: impl Fn(&Cut) -> usize) -> Vec<usize> {
    cuts.iter().map(size).collect()
}

fn count(name: &str, len: usize) -> Column {
    Column::new(name.into(), (0_u32..).take(len).collect::<Vec<_>>())
}

/// The table of contexts; with their splits where users have several contexts.
fn contexts(users: &Series, users_of: &[u32], split: Option<&[Split]>) -> PolarsResult<DataFrame> {
    let users = users.take(&IdxCa::from_slice("order".into(), users_of))?;
    let mut columns =
        vec![count("context", users_of.len()), users.with_name("user_id".into()).into()];
    columns.extend(split.map(|split| {
        Column::new("split".into(), split.iter().map(|split| split.name()).collect::<Vec<_>>())
    }));
    DataFrame::new_infer_height(columns)
}

/// The table of actions.
fn actions(items: &Series, item_of: &[u32], labels: Option<&[Label]>) -> PolarsResult<DataFrame> {
    let items = items.take(&IdxCa::from_slice("order".into(), item_of))?;
    let mut columns =
        vec![count("action", item_of.len()), items.with_name("item_id".into()).into()];
    let label = |&item: &u32| labels.and_then(|labels| labels.get(item as usize));
    let labels: Vec<Option<&Label>> = item_of.iter().map(label).collect();
    columns.extend(Label::columns(&labels).into_iter().flatten());
    DataFrame::new_infer_height(columns)
}

fn split_users(num_users: usize, settings: &SplitSettings) -> Result<Vec<Split>> {
    let num_test = share_of(num_users, settings.test_share, f64::round);
    let num_validation = share_of(num_users, settings.validation_share, f64::round);
    if num_test + num_validation >= num_users {
        return Err(Error::setting(
            "test_share",
            format!(
                "{num_test} test and {num_validation} validation users leave none of the \
                 {num_users} to train on; lower test_share or validation_share (--test-share, \
                 --validation-share)"
            ),
        ));
    }
    let mut order: Vec<usize> = (0..num_users).collect();
    settings.seed.stream(Purpose::Split, 0, 0).shuffle(&mut order);
    let mut split = vec![Split::Train; num_users];
    let (test, rest) = order.split_at(num_test);
    for &user in test {
        split[user] = Split::Test;
    }
    for &user in &rest[..num_validation] {
        split[user] = Split::Validation;
    }
    Ok(split)
}

/// `count · share` as a whole number; 0.29 of 100 is 29 although the product of the floats is less.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0..=count")]
fn share_of(count: usize, share: f64, whole: impl Fn(f64) -> f64) -> usize {
    whole(count as f64 * share + 1e-9) as usize
}
