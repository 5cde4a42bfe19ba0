//! Files that are split already → one set of interactions, each pair marked with the files that hold
//! it.

use std::path::PathBuf;

use polars::prelude::Series;

use super::filter::Filters;
use super::ids::Numbered;
use super::interactions::{Interactions, in_file, mark};
use super::read::{digest, read};
use super::source::Source;
use crate::dataset::{ActionSets, Label, Split};
use crate::error::{Error, Result};

/// The files of a split that was made before. They have the same columns.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The file to train on, and the columns of all files.
    pub train: Source,
    /// The file to validate on, if there is one.
    pub validation: Option<PathBuf>,
    /// The file to test on.
    pub test: PathBuf,
}

impl Given {
    /// The files and what each one is for.
    #[must_use]
    pub fn files(&self) -> Vec<(Split, Source)> {
        let of = |path: &PathBuf| Source { path: path.clone(), ..self.train.clone() };
        let validation = self.validation.iter().map(|path| (Split::Validation, of(path)));
        let test = (Split::Test, of(&self.test));
        std::iter::once((Split::Train, self.train.clone()))
            .chain(validation)
            .chain([test])
            .collect()
    }

    /// SHA-256 of each file, in hex.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn digests(&self) -> Result<String> {
        let digests = self.files().into_iter().map(|(_, source)| digest(&source));
        Ok(digests.collect::<Result<Vec<_>>>()?.join(" "))
    }
}

/// Reads the files. `filters` hold for each of them, but the least numbers of interactions hold for
/// the train file alone. A pair that several files hold keeps the time that the first of them says.
///
/// # Errors
/// The errors of [`read`]; [`Error::File`] for a file that shares no user with the train file, and for
/// a test file most of which is the validation file's.
pub fn read_given(given: &Given, filters: &Filters) -> Result<Interactions> {
    let (mut users, mut items) = (Numbered::default(), Numbered::default());
    let (mut rows, mut labels) = (Vec::new(), Vec::new());
    let mut trained = 0;
    for (split, source) in given.files() {
        let all = Filters { min_user_interactions: 1, min_item_interactions: 1, ..filters.clone() };
        let part = read(&source, if split == Split::Train { filters } else { &all })?;
        let numbers =
            |ids: &mut Numbered, names: &Series| ids.number(names, &vec![true; names.len()]);
        let (user_of, item_of) =
            (numbers(&mut users, &part.users)?, numbers(&mut items, &part.items)?);
        if split == Split::Train {
            trained = users.len();
        } else if user_of.iter().all(|user| *user as usize >= trained) {
            let train = given.train.path.display();
            let example =
                part.users.get(0).map(|id| id.str_value().to_string()).unwrap_or_default();
            let problem = format!("none of its users (`{example}` is one) is in {train}");
            return Err(Error::file(source.path, problem));
        }
        for user in part.items_of.contexts() {
            for (at, &item) in part.items_of.of(user).iter().enumerate() {
                let time = part.times.as_ref().map(|all| part.items_of.values_of(user, all)[at]);
                rows.push((user_of[user as usize], item_of[item as usize], split, time));
            }
        }
        labels.extend(item_of.into_iter().zip(part.labels.into_iter().flatten()));
    }
    let (all_users, all_items) = (vec![true; users.len()], vec![true; items.len()]);
    let ((users, user_ranks), (items, item_ranks)) =
        (users.ranked(&all_users), items.ranked(&all_items));
    for (user, item, ..) in &mut rows {
        (*user, *item) = (user_ranks[*user as usize], item_ranks[*item as usize]);
    }
    // Rows of an equal pair stay in the order of the files.
    rows.sort_by_key(|&(user, item, ..)| (user, item));
    let (mut of_pairs, mut times, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for pair in rows.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (user, item, _, time) = pair[0];
        of_pairs.push((user, item));
        times.extend(time);
        files.push(pair.iter().fold(0, |files, row| files | mark(row.2)));
    }
    let tested = files.iter().filter(|marks| in_file(**marks, Split::Test));
    let both = tested.clone().filter(|marks| in_file(**marks, Split::Validation)).count();
    if 2 * both > tested.count() {
        let problem = format!(
            "{both} of its pairs, more than half, are in the validation file too: what is chosen on \
             them would be judged on them"
        );
        return Err(Error::file(&given.test, problem));
    }
    let items_of = ActionSets::from_pairs(users.len(), of_pairs.into_iter());
    let labels = (!labels.is_empty()).then(|| {
        let mut by_rank = vec![Label::default(); items.len()];
        for (item, label) in labels {
            by_rank[item_ranks[item as usize] as usize] = label;
        }
        by_rank
    });
    let times = given.train.time_column.as_ref().map(|_| times);
    Ok(Interactions { users, items, labels, items_of, times, files: Some(files) })
}
