//! A shape → a synthetic log, one session at a time, so that it never is in memory as a whole.
//!
//! A first pass decides how long each session is: the shortest length plus a log-normal number, at
//! a scale at which the lengths, rounded and cut, add up to the density asked for. Every action is
//! then dealt to some user, so that none is missing: the actions are shuffled and dealt in
//! proportion to the lengths. This takes P of the interactions, a few percent in logs like the
//! paper's. The rest of each session is drawn from its user's taste.

use std::path::Path;

use polars::prelude::*;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::model::{Model, Taken, Taste, session_length, spread};
use crate::dataset::parquet::batched;
use crate::error::{Error, Result};
use crate::seed::{Purpose, Seed};

/// The shortest session that `slate prepare` keeps by default.
const SHORTEST: u32 = 20;
/// Topics by default: twice the length of the paper's embeddings. At the shape of MovieLens 25M,
/// embeddings of rank 100 tell nearly all of 100 topics apart and almost none of 400; with 200
/// topics they tell some apart and leave something to learn.
const TOPICS: u32 = 200;
/// Interactions in a group of rows, the most that is in memory at once.
const BLOCK: usize = 1 << 20;

/// The size of a log.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// U.
    pub users: u32,
    /// P.
    pub actions: u32,
    /// Interactions / (U · P), a share.
    pub density: f64,
}

/// The paper's data sets (Table 2).
pub const PAPER_SHAPES: [(&str, Shape); 3] = [
    ("movielens-25m", Shape { users: 162_000, actions: 55_000, density: 0.0024 }),
    ("twitch", Shape { users: 580_000, actions: 750_000, density: 0.000_08 }),
    ("goodreads", Shape { users: 400_000, actions: 2_230_000, density: 0.0001 }),
];

/// The synthetic log to generate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyntheticLog {
    /// Users, actions and density.
    #[serde(flatten)]
    pub shape: Shape,
    /// Number of topics.
    pub topics: u32,
    /// Users over whom the rewards of [`Synthesized`](super::Synthesized) are averaged; all users
    /// where there are fewer.
    pub ceiling_users: u32,
    /// Seed of every draw.
    pub seed: Seed,
}

impl SyntheticLog {
    /// A log of this shape, with defaults for the rest.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Self { shape, topics: shape.actions.min(TOPICS), ceiling_users: 10_000, seed: Seed(0) }
    }
}

/// A file format that logs are written in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    Parquet,
    Csv,
}

impl Format {
    /// The format that a file's extension names.
    pub(super) fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => Ok(Self::Parquet),
            Some("csv") => Ok(Self::Csv),
            _ => Err(Error::file(path, "expected a name that ends in .parquet or .csv")),
        }
    }
}

/// A log whose sessions are generated when asked for.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) model: Model,
    pub(super) seed: Seed,
    /// Where the sessions begin, and where the last one ends.
    offsets: Vec<usize>,
    /// All actions, as they are dealt.
    deck: Vec<u32>,
}

impl Log {
    pub(super) fn new(log: &SyntheticLog) -> Result<Self> {
        let &SyntheticLog { shape: Shape { users, actions, density }, topics, seed, .. } = log;
        if users == 0 {
            return Err(Error::setting("users", "expected at least 1"));
        }
        let model = Model::new(actions, topics)?;
        if log.ceiling_users == 0 {
            return Err(Error::setting("ceiling_users", "expected at least 1"));
        }
        let longest = model.longest_session();
        if longest < SHORTEST {
            let problem = format!(
                "expected at least {}, because a user has {SHORTEST} of them at least and a quarter at \
                 most, found {actions}",
                4 * SHORTEST
            );
            return Err(Error::setting("actions", problem));
        }
        let mean = density * f64::from(actions);
        if !(f64::from(SHORTEST)..=f64::from(longest)).contains(&mean) {
            let problem = format!(
                "a density of {density} is {mean} of the {actions} actions for each user; expected \
                 {SHORTEST} to {longest}, a quarter of them"
            );
            return Err(Error::setting("density", problem));
        }
        let offsets = offsets(seed, users, mean, longest);
        let interactions = offsets[users as usize];
        if interactions < actions as usize {
            let problem = format!(
                "expected an interaction for each at least, but {users} users have {interactions} \
                 at a density of {density}"
            );
            return Err(Error::setting("actions", problem));
        }
        let mut deck: Vec<u32> = (0..actions).collect();
        seed.stream(Purpose::Synthetic, 2, 0).shuffle(&mut deck);
        Ok(Self { model, seed, offsets, deck })
    }

    pub(super) fn interactions(&self) -> usize {
        self.offsets[self.offsets.len() - 1]
    }

    pub(super) fn length(&self, user: u32) -> usize {
        self.offsets[user as usize + 1] - self.offsets[user as usize]
    }

    /// Fills `session` with a user's actions and returns the user's taste.
    pub(super) fn fill(&self, user: u32, session: &mut [u32], taken: &mut Taken) -> Taste {
        let mut stream = self.seed.stream(Purpose::Synthetic, 0, user.into());
        let taste = self.model.taste(&mut stream);
        let (start, end) = (self.offsets[user as usize], self.offsets[user as usize + 1]);
        let dealt = &self.deck[self.num_dealt(start)..self.num_dealt(end)];
        session[..dealt.len()].copy_from_slice(dealt);
        self.model.complete(&taste, session, dealt.len(), taken, &mut stream);
        taste
    }

    /// How many actions are dealt to the first so many interactions: never more than there are
    /// interactions, so a session is never dealt more than it holds.
    #[allow(clippy::cast_possible_truncation, reason = "at most the size of the deck")]
    fn num_dealt(&self, interactions: usize) -> usize {
        (interactions as u128 * self.deck.len() as u128 / self.interactions() as u128) as usize
    }

    /// Writes the log into `file`, whose name is `path`.
    pub(super) fn write(
        &self,
        file: impl std::io::Write,
        format: Format,
        path: &Path,
    ) -> Result<()> {
        let wrap = |error| Error::writing(path, error);
        let schema = Schema::from_iter([
            Field::new("user_id".into(), DataType::UInt32),
            Field::new("item_id".into(), DataType::UInt32),
        ]);
        match format {
            Format::Parquet => {
                let mut writer = batched(file, &schema, Vec::new()).map_err(wrap)?;
                for block in self.blocks() {
                    writer.write_batch(&block?).map_err(wrap)?;
                }
                writer.finish().map_err(wrap)?;
            }
            Format::Csv => {
                let mut writer = CsvWriter::new(file).batched(&schema).map_err(wrap)?;
                for block in self.blocks() {
                    writer.write_batch(&block?).map_err(wrap)?;
                }
            }
        }
        Ok(())
    }

    /// The rows in order, some whole sessions at a time.
    fn blocks(&self) -> impl Iterator<Item = Result<DataFrame>> {
        let users = self.offsets.len() - 1;
        let mut start = 0;
        std::iter::from_fn(move || {
            (start < users).then(|| {
                let begin = self.offsets[start];
                let end = self.offsets.partition_point(|offset| *offset <= begin + BLOCK) - 1;
                let end = end.max(start + 1);
                let block = self.block(start, end);
                start = end;
                block
            })
        })
    }

    #[allow(clippy::cast_possible_truncation, reason = "users are numbered by u32")]
    fn block(&self, start: usize, end: usize) -> Result<DataFrame> {
        let rows = self.offsets[end] - self.offsets[start];
        let (mut user_ids, mut item_ids) = (vec![0; rows], vec![0; rows]);
        let (mut ids, mut items) = (user_ids.as_mut_slice(), item_ids.as_mut_slice());
        let sessions: Vec<_> = (start as u32..end as u32)
            .map(|user| {
                let length = self.length(user);
                let ids = ids.split_off_mut(..length).unwrap_or_default();
                (user, ids, items.split_off_mut(..length).unwrap_or_default())
            })
            .collect();
        sessions.into_par_iter().for_each_init(
            || Taken::none(self.model.actions),
            |taken, (user, ids, items)| {
                self.fill(user, items, taken);
                ids.fill(user + 1);
                for item in items {
                    *item += 1;
                }
            },
        );
        DataFrame::new_infer_height(vec![
            Column::new("user_id".into(), user_ids),
            Column::new("item_id".into(), item_ids),
        ])
        .map_err(|error| Error::library("synthetic sessions", error))
    }
}

/// Where sessions of this mean length begin, and where the last one ends. Rounding and the longest
/// length move the mean, so the scale of the lengths is searched for.
fn offsets(seed: Seed, users: u32, mean: f64, longest: u32) -> Vec<usize> {
    let spreads: Vec<f64> = (0..users)
        .into_par_iter()
        .map(|user| spread(&mut seed.stream(Purpose::Synthetic, 1, user.into())))
        .collect();
    let length = |scale: f64, spread: f64| session_length(SHORTEST, scale * spread, longest);
    let total = |scale: f64| -> u64 {
        spreads.par_iter().map(|spread| u64::from(length(scale, *spread))).sum()
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
    let wanted = (mean * f64::from(users)).round() as u64;
    let (mut low, mut high) = (0.0, mean);
    while total(high) < wanted {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if total(middle) < wanted { low = middle } else { high = middle }
    }
    let ends = spreads.iter().scan(0, |end, spread| {
        *end += length(high, *spread) as usize;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other_and_hold_whole_sessions() {
        let shape = Shape { users: 20_000, actions: 1000, density: 0.12 };
        let log = Log::new(&SyntheticLog::new(shape)).unwrap();
        let blocks: Vec<DataFrame> = log.blocks().map(Result::unwrap).collect();
        let heights: Vec<usize> = blocks.iter().map(DataFrame::height).collect();
        assert_eq!(heights.iter().sum::<usize>(), log.interactions());
        assert_eq!(heights.len(), 3);
        assert!(heights.iter().all(|height| *height <= BLOCK));
        let ends: Vec<[u32; 2]> = blocks
            .iter()
            .map(|block| {
                let ids = block.column("user_id").unwrap().u32().unwrap();
                [ids.first().unwrap(), ids.last().unwrap()]
            })
            .collect();
        assert!(ends.windows(2).all(|pair| pair[0][1] + 1 == pair[1][0]), "{ends:?}");
    }
}
