//! Exact search on a GPU takes queries up and brings down what may be on their slates. One share of the
//! catalogue after another is swept over for the products above the K-th best of the shares before; what
//! passes waits in a list of each query, which is pruned after each share. Shares grow by a constant factor, so
//! little passes; the host waits once, at the end, and nothing ever holds `[queries, P]`.
//!
//! What lies within rounding of the K-th best comes down, too, and is ranked by
//! [`dot`](crate::matrix::dot) on the host, so the answer is that of [`Exact`], bit for bit, also where β lies
//! there in f16.
//!
//! A share lies all over the catalogue, so that more passes than a list has room for only where much is alike.
//! The queries of such lists are searched for again: the host waits after each share and halves
//! those of which too much passes. Where that does not help, for so many are equal, it searches itself.

mod probe;
mod search;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

pub use self::probe::Trials;
use super::best::rank;
use super::{Exact, Queries, Retriever, Slates, check, nth_included};
use crate::device::{Chosen, Manner};
use crate::embedding::{ActionEmbeddings, Blocks};
use crate::error::Result;
use crate::matrix::Matrix;

/// The products of a query and its actions that neither overflow nor lose digits lie between these, in
/// absolute value.
const ORDINARY: Range<f32> = 1e-20..1e30;

/// Numbers of shorter vectors than this vanish when they are squared.
const SHORTEST: f32 = 1e-18;

/// The most queries that are searched for at once.
const QUERIES: usize = 4096;

/// The actions that a list has room for: so many, and so many times K.
const ROOM: (usize, usize) = (1024, 16);

/// A manner is chosen among more actions than these.
const FEW: usize = 4096;

/// Scores every action for every query on a GPU.
#[derive(Clone, Debug)]
pub struct OnDevice {
    host: Exact,
    blocks: Arc<Blocks>,
    manner: Manner,
    /// None if the manner was given.
    trials: Option<Trials>,
}

/// The exact search among `actions` where the `chosen` device computes: on a GPU if it is one, else on the
/// host. Both give the same answers.
///
/// # Errors
/// The errors of [`OnDevice::new`].
pub fn exact_on(actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Arc<dyn Retriever>> {
    Ok(match chosen.memory {
        Some(_) => Arc::new(OnDevice::new(actions, chosen)?),
        None => Arc::new(Exact::new(Arc::clone(actions))),
    })
}

impl OnDevice {
    /// Searches among `actions` on the `chosen` GPU, in the manner that it names, else in the one that is the
    /// fastest there.
    ///
    /// # Errors
    /// The errors of [`by`](Self::by) in f32.
    pub fn new(actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        if let Some(manner) = chosen.manner {
            return Self::by(manner, actions, chosen);
        }
        if actions.num_actions() <= FEW {
            return Self::by(Manner::Sweep, actions, chosen);
        }
        // By itself, so that β does not lie there twice.
        let half = Self::by(Manner::Half, actions, chosen).and_then(|half| half.trial());
        chosen.device.memory_cleanup();
        let single = Self::by(Manner::Sweep, actions, chosen)?;
        let (seconds, expected) = single.trial()?;
        let half = match half {
            Ok((seconds, found)) if found == expected => Some(seconds),
            Ok(_) => {
                tracing::warn!("{} finds something else in f16: not used", chosen.name);
                None
            }
            Err(error) => {
                tracing::debug!("{} does not search in f16: {error}", chosen.name);
                None
            }
        };
        let trials = Trials { queries: expected.len(), sweep: seconds, half };
        tracing::debug!("{} searches for so many queries in so many s: {trials:?}", chosen.name);
        let fastest = match trials.fastest() {
            Manner::Sweep => single,
            Manner::Half => {
                drop(single);
                chosen.device.memory_cleanup();
                Self::by(Manner::Half, actions, chosen)?
            }
        };
        Ok(Self { trials: Some(trials), ..fastest })
    }

    /// The numbers that are multiplied.
    #[must_use]
    pub fn manner(&self) -> Manner {
        self.manner
    }

    /// What the manner was chosen by; none if it was given, or if there are too few actions to matter.
    #[must_use]
    pub fn trials(&self) -> Option<Trials> {
        self.trials
    }

    /// β on the device.
    #[must_use]
    pub fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// Searches in one manner, whatever its speed.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the device has too little memory, runs no kernels, finds
    /// something else than the host, or has no f16 where it is asked for.
    pub fn by(manner: Manner, actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        let blocks = Arc::new(match manner {
            Manner::Half => Blocks::in_half(actions, chosen)?,
            Manner::Sweep => Blocks::shuffled(actions, chosen)?,
        });
        let host = Exact::new(Arc::clone(actions));
        Self { host, blocks, manner, trials: None }.compared()
    }

    /// The actions that a list has room for.
    fn room(&self, slate_size: usize) -> usize {
        ROOM.0.max(ROOM.1 * slate_size).min(self.blocks.actions().num_actions())
    }

    /// Puts the slates of some of the queries where they belong; returns the rows of those for which there was
    /// too little room.
    fn search_for(
        &self,
        queries: Queries<'_>,
        rows: &[u32],
        careful: bool,
        slates: &mut Slates,
    ) -> Result<Vec<u32>> {
        let (actions, slate_size) = (self.blocks.actions(), queries.slate_size);
        // Four lists of the queries of one search, and what is packed of them, fit into the two tensors that
        // blocks leave for work; the queries and what they exclude, into one each.
        let excluded = rows.iter().map(|row| queries.excluded_of(*row as usize).len()).max();
        let numbers =
            [3 * self.room(slate_size), self.blocks.format().width(), excluded.unwrap_or(0)];
        let most = numbers.map(|numbers| self.blocks.products() / numbers.max(1));
        let together = most.into_iter().fold(QUERIES, usize::min).max(1);
        let mut crowded = Vec::new();
        for rows in rows.chunks(together) {
            let picked = Picked::new(queries, rows);
            let found = self.blocks.attempt(|| self.found(picked.queries(slate_size), careful))?;
            let mut ranked = Slates::unscored(slate_size, vec![0; rows.len() * slate_size]);
            let of_rows = ranked.actions.par_chunks_mut(slate_size);
            let of_rows = of_rows.zip(ranked.scores.par_chunks_mut(slate_size));
            of_rows.enumerate().for_each(|(at, (best, scores))| {
                if let Some(found) = found.of(at) {
                    rank(picked.latent.row(at), actions, found, best, scores);
                }
            });
            picked.put(ranked, slates);
            let without = rows.iter().enumerate().filter(|(at, _)| found.of(*at).is_none());
            crowded.extend(without.map(|(_, row)| *row));
        }
        Ok(crowded)
    }

    /// Searches for the ordinary queries on the device and for the others here. A query of zeros gets
    /// the lowest actions without a search.
    fn search_apart(
        &self,
        queries: Queries<'_>,
        norms: &[f32],
        is_ordinary: impl Fn(&f32) -> bool,
    ) -> Result<Slates> {
        let (latent, slate_size) = (queries.latent, queries.slate_size);
        let mut slates = Slates::unscored(slate_size, vec![0; latent.rows() * slate_size]);
        let (mut ordinary, mut others) = (Vec::new(), Vec::new());
        for ((row, query), norm) in (0_u32..).zip(latent.iter_rows()).zip(norms) {
            if is_ordinary(norm) {
                ordinary.push(row);
            } else if query.iter().any(|number| *number != 0.0) {
                others.push(row);
            } else {
                let at = row as usize * slate_size;
                for (place, action) in (0_u32..).zip(&mut slates.actions[at..at + slate_size]) {
                    *action = nth_included(queries.excluded_of(row as usize), place);
                }
            }
        }
        for (retriever, rows) in [(self as &dyn Retriever, ordinary), (&self.host, others)] {
            let picked = Picked::new(queries, &rows);
            let found = retriever.search(picked.queries(slate_size))?;
            picked.put(found, &mut slates);
        }
        Ok(slates)
    }
}

/// Some of the queries, by their rows, which ascend.
struct Picked<'a> {
    rows: &'a [u32],
    latent: Cow<'a, Matrix>,
    excluded: Vec<&'a [u32]>,
}

impl<'a> Picked<'a> {
    fn new(queries: Queries<'a>, rows: &'a [u32]) -> Self {
        let excluded = rows.iter().map(|row| queries.excluded_of(*row as usize)).collect();
        let latent = if rows.len() == queries.latent.rows() {
            Cow::Borrowed(queries.latent)
        } else {
            Cow::Owned(queries.latent.select(rows))
        };
        Self { rows, latent, excluded }
    }

    fn queries(&self, slate_size: usize) -> Queries<'_> {
        Queries { latent: &self.latent, slate_size, excluded: Some(&self.excluded) }
    }

    /// Puts what was `found` for these where it belongs.
    fn put(&self, found: Slates, slates: &mut Slates) {
        if found.len() == slates.len() {
            *slates = found;
            return;
        }
        for (at, row) in self.rows.iter().enumerate() {
            let size = slates.slate_size;
            let place = *row as usize * size..(*row as usize + 1) * size;
            slates.actions[place.clone()].copy_from_slice(found.slate(at));
            slates.scores[place].copy_from_slice(found.scores(at));
        }
    }
}

impl Retriever for OnDevice {
    fn on_device(&self) -> Option<&OnDevice> {
        Some(self)
    }

    fn search(&self, queries: Queries<'_>) -> Result<Slates> {
        let (actions, latent) = (self.blocks.actions(), queries.latent);
        check(queries, actions.num_actions(), actions.latent_dim())?;
        let is_ordinary = |norm: &f32| {
            let longest = self.host.largest_norm();
            norm.min(longest) > SHORTEST && ORDINARY.contains(&(norm * longest))
        };
        let norms = latent.norms();
        if !norms.iter().all(is_ordinary) {
            return self.search_apart(queries, &norms, is_ordinary);
        }
        let mut slates =
            Slates::unscored(queries.slate_size, vec![0; latent.rows() * queries.slate_size]);
        let mut rows: Vec<u32> = (0_u32..).take(latent.rows()).collect();
        for careful in [false, true] {
            rows = self.search_for(queries, &rows, careful, &mut slates)?;
        }
        if !rows.is_empty() {
            let picked = Picked::new(queries, &rows);
            picked.put(self.host.search(picked.queries(queries.slate_size))?, &mut slates);
        }
        Ok(slates)
    }
}

#[cfg(test)]
mod tests;
