//! Interactions and the settings of a split go in; the contexts come out: whose each one is, and
//! which places X and Y have in the order of that user's items.
//!
//! One mechanism serves all splits. A user's items have an order: shuffled, by time, or by the file
//! that holds them. X is the beginning of the order, Y a range behind it. FOPO's split makes one
//! context of a user; the others make up to three, whose Y come one after the other:
//!
//! | context | X | Y |
//! |---|---|---|
//! | training | the first part of the training items | the rest of them |
//! | validation | the training items | the validation items |
//! | test | everything before the test items | the test items |

use std::ops::Range;

use super::{SplitKind, SplitSettings, share_of, split_users};
use crate::dataset::Split;
use crate::dataset::prepare::interactions::{Interactions, in_file};
use crate::dataset::prepare::moment::Moment;
use crate::error::{Error, Result};
use crate::seed::{Purpose, Seed};

/// The items that a context has to leave to choose from: K of the default preset.
const LEFT: usize = 5;
/// One of so many contexts may leave fewer and be left out for that; where more do, the catalogue is small.
const OF_FEW: usize = 10;

/// A context of a user. X has the places `..observed` of the user's order, and Y the places `hidden`.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    pub(super) user: u32,
    pub(super) split: Split,
    pub(super) observed: usize,
    pub(super) hidden: Range<usize>,
}

/// The order of each user's items.
enum Order<'a> {
    Shuffled,
    /// By these times of the pairs; items of one time are shuffled, as their ids may follow their popularity.
    Time(&'a [i64]),
    /// The shuffled items of the train file, then the others of the validation file, then those of
    /// the test file, by these marks of the pairs.
    File(&'a [u8]),
}

/// All contexts, by user, then split.
pub(super) struct Cuts<'a> {
    interactions: &'a Interactions,
    order: Order<'a>,
    seed: Seed,
    pub(super) all: Vec<Cut>,
}

impl<'a> Cuts<'a> {
    /// # Errors
    /// [`Error::Setting`] for shares or moments that leave nothing to train or to judge on.
    pub(super) fn new(interactions: &'a Interactions, settings: &SplitSettings) -> Result<Self> {
        let order = match (settings.kind, &interactions.times, &interactions.files) {
            (SplitKind::Given, _, Some(files)) => Order::File(files),
            (SplitKind::Given, ..) | (_, _, Some(_)) => {
                let problem =
                    "files that are split already go with the kind `given`, and no log does";
                return Err(Error::setting("split.kind", problem));
            }
            (SplitKind::Random, ..) => Order::Shuffled,
            (_, Some(times), _) => Order::Time(times),
            (_, None, _) => {
                let problem = "a split by time needs the times of the interactions; name their \
                               column (--time-column)";
                return Err(Error::setting("split.kind", problem));
            }
        };
        let mut cuts = Self { interactions, order, seed: settings.seed, all: Vec::new() };
        if settings.kind == SplitKind::Random {
            let split = split_users(interactions.users.len(), settings)?;
            let cut = |(user, split): (u32, Split)| {
                let count = interactions.items_of.of(user).len();
                let observed = share_of(count, settings.observed_share, f64::floor);
                Cut { user, split, observed, hidden: observed..count }
            };
            cuts.all = (0..).zip(split).map(cut).collect();
            cuts.leave_room();
        } else {
            cuts.hold_out(settings)?;
        }
        Ok(cuts)
    }

    /// The items of a user in order.
    pub(super) fn order(&self, user: u32) -> Vec<u32> {
        let items = self.interactions.items_of.of(user);
        let shuffled = |mut items: Vec<u32>| {
            self.seed.stream(Purpose::Hide, 0, user.into()).shuffle(&mut items);
            items
        };
        match self.order {
            Order::Shuffled => shuffled(items.to_vec()),
            Order::Time(times) => {
                let times = self.interactions.items_of.values_of(user, times);
                let mut rows: Vec<_> = times.iter().zip(items).collect();
                self.seed.stream(Purpose::Hide, 0, user.into()).shuffle(&mut rows);
                rows.sort_by_key(|(time, _)| *time);
                rows.into_iter().map(|(_, item)| *item).collect()
            }
            Order::File(files) => {
                let [train, validation, test] = self.of_files(user, files);
                [shuffled(train), validation, test].concat()
            }
        }
    }

    /// The items of a user in the train file, and those that only another file adds to them.
    fn of_files(&self, user: u32, files: &[u8]) -> [Vec<u32>; 3] {
        let items_of = &self.interactions.items_of;
        let rows = || items_of.of(user).iter().zip(items_of.values_of(user, files));
        Split::ALL.map(|split| {
            let belongs = |files: u8| {
                in_file(files, split) && (split == Split::Train || !in_file(files, Split::Train))
            };
            rows().filter(|(_, files)| belongs(**files)).map(|(item, _)| *item).collect()
        })
    }

    /// Makes the contexts of a split that holds out a part of each user's items.
    fn hold_out(&mut self, settings: &SplitSettings) -> Result<()> {
        let begins = match settings.kind {
            SplitKind::Dates { test_after, validation_after } => {
                validation_after.unwrap_or_else(|| self.validation_after(test_after, settings))
            }
            _ => Moment(0),
        };
        let has_file = matches!(self.order, Order::File(files)
            if files.iter().any(|files| in_file(*files, Split::Validation)));
        let (mut left_out, mut only_train) = (0, 0);
        for user in self.interactions.items_of.contexts() {
            let Ends { train, validation, test, known } =
                self.ends(user, settings, begins, has_file);
            let observed = share_of(train, settings.observed_share, f64::floor);
            let least = usize::from(settings.observed_share > 0.0 && train > 1);
            let observed = observed.max(least);
            let before = self.all.len();
            for (split, is_known, observed, hidden) in [
                (Split::Train, train > 0, observed, observed..train),
                (Split::Validation, train > 0, train, train..validation),
                (Split::Test, known > 0, known, validation..test),
            ] {
                if is_known && !hidden.is_empty() {
                    self.all.push(Cut { user, split, observed, hidden });
                }
            }
            match &self.all[before..] {
                [] => left_out += 1,
                [Cut { split: Split::Train, .. }] => only_train += 1,
                _ => {}
            }
        }
        self.leave_room();
        if left_out > 0 {
            tracing::info!("{left_out} users are left out: nothing is known of them beforehand");
        }
        if only_train > 0 {
            tracing::info!("{only_train} users only train: nothing of theirs is held out");
        }
        self.check(settings, begins, has_file)
    }

    /// Leaves out the few whose X is nearly the whole catalogue, such as a crawler: no slate could be made for them, so that
    /// nobody could be trained or judged with theirs.
    fn leave_room(&mut self) {
        let most = self.interactions.items.len().saturating_sub(LEFT);
        let all = self.all.len();
        let full = self.all.iter().filter(|cut| cut.observed > most).count();
        if full > 0 && full * OF_FEW <= all {
            self.all.retain(|cut| cut.observed <= most);
            tracing::warn!(
                "{full} of {all} contexts are left out: their users have all items but {} or fewer",
                LEFT - 1
            );
        }
    }

    /// The ends of the parts of a user's items. Validation begins at the moment `begins` where
    /// moments say so, and comes from a file of its own if it `has_file`.
    fn ends(&self, user: u32, settings: &SplitSettings, begins: Moment, has_file: bool) -> Ends {
        let items_of = &self.interactions.items_of;
        match (settings.kind, &self.order) {
            (SplitKind::Dates { test_after, .. }, Order::Time(times)) => {
                let times = items_of.values_of(user, times);
                let before = |end: Moment| times.iter().filter(|time| **time < end.0).count();
                let validation = before(test_after);
                let (train, test) = (before(begins), times.len());
                Ends { train, validation, test, known: validation }
            }
            (_, Order::File(files)) => {
                let [known, validation, test] = self.of_files(user, files).map(|it| it.len());
                let held = Ends::of_shares(known, settings.validation_share, 0.0);
                let train = if has_file { known } else { held.train };
                let validation = known + validation;
                Ends { train, validation, test: validation + test, known }
            }
            _ => {
                let SplitSettings { validation_share, test_share, .. } = *settings;
                Ends::of_shares(items_of.of(user).len(), validation_share, test_share)
            }
        }
    }

    /// The moment from which the interactions before `test_after` are for validation: the validation
    /// share of them, or more where several have the same time.
    fn validation_after(&self, test_after: Moment, settings: &SplitSettings) -> Moment {
        let times = self.interactions.times.iter().flatten().copied();
        let mut before: Vec<i64> = times.filter(|time| *time < test_after.0).collect();
        let held = share_of(before.len(), settings.validation_share, f64::round);
        if held == 0 {
            return test_after;
        }
        let at = before.len() - held;
        let begins = Moment(*before.select_nth_unstable(at).1);
        tracing::info!("validation begins at {}", begins.0);
        begins
    }

    /// Fails where there is nothing to train on, or nothing to judge on although it was asked for.
    fn check(&self, settings: &SplitSettings, begins: Moment, has_file: bool) -> Result<()> {
        let (kind, is_given) = (settings.kind, settings.kind == SplitKind::Given);
        let is_explicit =
            matches!(kind, SplitKind::Dates { validation_after: Some(_), .. }) || has_file;
        let tests = settings.test_share > 0.0 || kind != SplitKind::Temporal;
        let asked = [
            (Split::Train, true),
            (Split::Validation, is_explicit || settings.validation_share > 0.0),
            (Split::Test, tests),
        ];
        let is_missing = |split: Split| !self.all.iter().any(|cut| cut.split == split);
        let Some((split, _)) =
            asked.into_iter().find(|(split, asked)| *asked && is_missing(*split))
        else {
            return Ok(());
        };
        let (key, problem) = match kind {
            SplitKind::Dates { test_after, .. } => {
                let times = self.interactions.times.iter().flatten();
                let (first, last) = times.fold((i64::MAX, i64::MIN), |(first, last), &time| {
                    (first.min(time), last.max(time))
                });
                let (first, last) = (Moment(first).day(), Moment(last).day());
                let problem = format!(
                    "no user is left for {split}, with validation from {} and test from \
                     {test_after} on; the log goes from {first} to {last} \
                     (--validation-after, --test-after)",
                    begins.day()
                );
                ("split.test_after", problem)
            }
            _ if is_given && (has_file || split == Split::Test) => {
                let problem = format!(
                    "no user of the {split} file is in the train file and has rows that the train \
                     file lacks"
                );
                ("split.kind", problem)
            }
            _ => {
                let problem = format!(
                    "no user has enough interactions for {split}: one for each of validation and \
                     test and two to train on; ask for less (--validation-share, --test-share)"
                );
                ("split.validation_share", problem)
            }
        };
        Err(Error::setting(key, problem))
    }
}

/// Where the parts of a user's items end in their order.
struct Ends {
    train: usize,
    validation: usize,
    test: usize,
    /// The end of X of the test context.
    known: usize,
}

impl Ends {
    /// The ends for a user with `count` items. Each part has an item, and training two; a user with
    /// fewer only trains.
    fn of_shares(count: usize, validation: f64, test: f64) -> Self {
        let least = 2 + usize::from(validation > 0.0) + usize::from(test > 0.0);
        let part = |share: f64, most: usize| {
            let part = share_of(count, share, f64::round);
            if share > 0.0 && count >= least { part.clamp(1, most) } else { 0 }
        };
        let test = part(test, (count + 1).saturating_sub(least));
        let known = count - test;
        let validation = part(validation, known.saturating_sub(2));
        Self { train: known - validation, validation: known, test: count, known }
    }
}
