//! A candidate in, its vectors out: fitted again without what the judges of each part hide.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::axes::nearest_actions;
use super::candidate::{Candidate, Kind, plain};
use super::nobody;
use crate::dataset::{Folds, Sessions, Split};
use crate::embedding::{
    BlendOptions, Form, SessionPart, Slim, Spectrum, StoredEmbeddings, Vectors, blend,
    interactions_of, with_neighbours,
};
use crate::error::Result;
use crate::interrupt;
use crate::retrieval::Exact;
use crate::seed::Seed;

/// The parts of the training users, as many as the default preset trains with.
pub(super) const PARTS: u16 = 5;

/// A candidate and its source's fits, one for each part of the judges.
pub(super) struct Fitted {
    candidate: Candidate,
    stored: Vec<StoredEmbeddings>,
}

impl Fitted {
    /// True if it serves `candidate`: it is the source, and of a blend at least as long.
    fn serves(&self, candidate: Candidate) -> bool {
        let (fitted, length) = (self.candidate, candidate.latent_dim());
        match fitted.kind {
            Kind::Svd(_) | Kind::Als { .. } | Kind::Neighbours { .. } => {
                fitted.source() == candidate.source()
            }
            Kind::Blend { .. } => {
                let source = fitted.with_length(length).source();
                fitted.latent_dim() >= length && source == candidate.source()
            }
        }
    }

    /// True if it is the SVD of which `candidate` is made, or what its neighbours stand beside.
    fn is_part_of(&self, candidate: Candidate) -> bool {
        match candidate.beside_svd() {
            Some(BlendOptions { svd, .. }) => {
                matches!(self.candidate.kind, Kind::Svd(own) if own == svd)
            }
            None => candidate.beside_neighbours().is_some_and(|beside| self.serves(beside)),
        }
    }

    fn shorten(&mut self, length: usize) {
        for stored in &mut self.stored {
            if stored.v.cols() > length {
                *stored = stored.resized(length);
            }
        }
    }
}

/// A fit of a length with κ in place, ready to be searched.
pub(super) struct Searched {
    fit: usize,
    length: usize,
    pub(super) kappa: f32,
    /// V n^κ, as input and as action vectors.
    pub(super) vectors: Vectors,
    pub(super) exact: Exact,
}

/// Whom a fit leaves out, or what.
pub(super) enum Without {
    /// Each fold of the users.
    Folds,
    /// What the judges hide, in these sessions: one fit for all of them.
    Hidden(Arc<Sessions>),
}

/// What is fitted for those who judge.
pub(super) struct Fits<'a> {
    /// The training sessions.
    sessions: &'a Sessions,
    seed: Seed,
    folds: Folds,
    without: Without,
    /// The number of fits that judge until the last round.
    count: u16,
    /// The number of fits that judge now.
    judging: u16,
    /// Users of each action in each fit.
    popularity: Vec<Vec<u32>>,
    fitted: Option<Fitted>,
    /// The fits with κ in place.
    searched: Vec<Arc<Searched>>,
    /// The SVD at which ALS starts, and of which blends are made; in the end, what neighbours stand beside.
    base: Option<Fitted>,
    /// What neighbours are made of, of each fit that had some.
    slim: BTreeMap<u16, Slim>,
}

impl<'a> Fits<'a> {
    /// For judges of whom so many parts judge until the last round, each by a fit of its own; where they hide
    /// items, one fit serves all.
    pub(super) fn new(
        sessions: &'a Sessions,
        folds: Folds,
        without: Without,
        parts: u16,
        seed: Seed,
    ) -> Self {
        let (count, popularity) = match &without {
            Without::Folds => {
                let of = |fold| sessions.popularity(&folds.without(fold));
                (parts, (0..folds.count()).map(of).collect())
            }
            Without::Hidden(asked) => {
                let trained_on = asked.contexts(Split::Train);
                (1, vec![asked.observed.popularity(trained_on, asked.num_actions)])
            }
        };
        Self {
            sessions,
            seed,
            folds,
            without,
            count,
            judging: count,
            popularity,
            fitted: None,
            searched: Vec::new(),
            base: None,
            slim: BTreeMap::new(),
        }
    }

    /// True if those who judge had no part in what they judge; otherwise what they hide had none.
    pub(super) fn by_folds(&self) -> bool {
        matches!(self.without, Without::Folds)
    }

    /// The number of fits that judge a source until the last round.
    pub(super) fn count(&self) -> u32 {
        self.count.into()
    }

    /// The longest SVD that every fold allows.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if a fold leaves too few users.
    pub(super) fn longest(&self) -> Result<usize> {
        let folds = 0..self.folds.count();
        let fewest = folds.map(|fold| self.folds.without(fold).len()).min().unwrap_or(0);
        match fewest.min(self.sessions.num_actions) {
            0..2 => Err(nobody()),
            rank => Ok(rank - 1),
        }
    }

    /// P.
    pub(super) fn num_actions(&self) -> usize {
        self.sessions.num_actions
    }

    /// The training users.
    pub(super) fn num_users(&self) -> usize {
        self.sessions.contexts(Split::Train).len()
    }

    /// The number of fits of the winner: on everybody, and without each fold.
    pub(super) fn all(&self) -> u32 {
        1 + u32::from(self.folds.count())
    }

    /// How many of the fits that judge are of use when the winner is fitted, if nothing else was fitted since.
    pub(super) fn kept(&self) -> u32 {
        if self.by_folds() { self.count() } else { 0 }
    }

    /// The number of fits that it takes to have all parts judge `candidate`, and of those that are still to
    /// make if it wins.
    pub(super) fn before_and_after_all(&self, candidate: Candidate) -> [u32; 2] {
        let kept = if self.is_fitted(candidate) { self.count() } else { 0 };
        let [before, after] = self.before_and_after_anew();
        [before - kept, after]
    }

    /// The same, if nothing is fitted.
    pub(super) fn before_and_after_anew(&self) -> [u32; 2] {
        if self.by_folds() { [self.all() - 1, 1] } else { [1, self.all()] }
    }

    /// The number of fits that those who judge now have made, and of those that are still to make if it wins.
    pub(super) fn now_and_later(&self, candidate: Candidate) -> [u32; 2] {
        let judging = u32::from(self.judging);
        let there = [&self.fitted, &self.base].into_iter().flatten();
        let made = there.filter(|fitted| fitted.serves(candidate)).map(|it| it.stored.len()).max();
        let made = made.map_or(0, |made| u32::try_from(made).unwrap_or(u32::MAX));
        let kept = if self.by_folds() { made.max(judging) } else { 0 };
        [judging.saturating_sub(made), self.all() - kept]
    }

    /// The pairs of items that a training user has both of, of all users.
    pub(super) fn pairs(&self) -> usize {
        let Sessions { observed, hidden, .. } = self.sessions;
        let size = |user| observed.of(user).len() + hidden.of(user).len();
        self.sessions.contexts(Split::Train).into_iter().map(|user| size(user).pow(2)).sum()
    }

    /// The fit that a part of the judges judges: that without their fold, or the only one.
    pub(super) fn of_part(&self, part: usize) -> usize {
        if self.by_folds() && self.folds.count() > 1 { part } else { 0 }
    }

    /// Users of each action in a fit.
    pub(super) fn popularity(&self, fit: usize) -> &[u32] {
        &self.popularity[fit]
    }

    /// The singular values of a fit.
    pub(super) fn spectrum(&self, fit: usize) -> Option<&Spectrum> {
        self.fitted.as_ref()?.stored.get(fit)?.spectrum.as_ref()
    }

    /// Fits the source of a candidate without what the judges of each fit hide.
    pub(super) fn fit(&mut self, candidate: Candidate) -> Result<()> {
        // Two of them at once may be more than the memory holds.
        self.put(None);
        let stored = (0..self.judging).map(|fold| self.fit_without(fold, candidate));
        let stored = stored.collect::<Result<_>>()?;
        self.fitted = Some(Fitted { candidate, stored });
        Ok(())
    }

    /// Fits it without every fold, where folds are left out; what was fitted is among them, if it serves.
    pub(super) fn fit_all(&mut self, candidate: Candidate) -> Result<()> {
        if self.by_folds() {
            self.judging = self.folds.count();
            let stored = self.folds_of(candidate)?;
            self.fitted = Some(Fitted { candidate, stored });
        } else if !self.is_fitted(candidate) {
            self.fit(candidate)?;
        }
        Ok(())
    }

    /// Fits for those who judge until the last round again.
    pub(super) fn dismiss_others(&mut self) {
        self.judging = self.count;
    }

    /// The source of a candidate without what the judges of a fold hide; what stands beside it is not fitted again, if
    /// it is kept.
    fn fit_without(&mut self, fold: u16, candidate: Candidate) -> Result<StoredEmbeddings> {
        interrupt::check()?;
        let (sessions, users, part) = match &self.without {
            Without::Folds => (self.sessions, self.folds.without(fold), SessionPart::All),
            Without::Hidden(asked) => {
                (&**asked, asked.contexts(Split::Train), SessionPart::Observed)
            }
        };
        let base = self.base.as_ref().filter(|base| base.is_part_of(candidate));
        let stored = base.and_then(|base| base.stored.get(usize::from(fold)));
        match (candidate.kind, stored) {
            (Kind::Als { blend: options } | Kind::Blend { blend: options }, Some(svd)) => {
                blend(svd, &interactions_of(sessions, &users, part), options)
            }
            (Kind::Neighbours { neighbours }, Some(beside)) => {
                let slim = match self.slim.entry(fold) {
                    Entry::Occupied(found) => found.into_mut(),
                    Entry::Vacant(vacant) => {
                        let matrix = interactions_of(sessions, &users, part);
                        vacant.insert(nearest_actions(&matrix, sessions.num_actions)?)
                    }
                };
                with_neighbours(beside, slim, neighbours, self.seed)
            }
            _ => candidate.source_of(part).fit(sessions, &users, self.seed),
        }
    }

    /// Keeps what is fitted for what is made of it.
    pub(super) fn keep_base(&mut self) {
        self.base = self.take();
    }

    /// True if `svd` is what [`Self::keep_base`] kept.
    pub(super) fn has_base(&self, svd: Candidate) -> bool {
        self.base.as_ref().is_some_and(|base| base.serves(svd))
    }

    /// Takes the fits of [`Self::keep_base`] out.
    pub(super) fn take_base(&mut self) -> Option<Fitted> {
        self.base.take()
    }

    /// Takes the fits out, to put them back when another source has had its turn.
    pub(super) fn take(&mut self) -> Option<Fitted> {
        self.searched.clear();
        self.fitted.take()
    }

    pub(super) fn put(&mut self, fitted: Option<Fitted>) {
        self.searched.clear();
        self.fitted = fitted;
    }

    /// True if what is fitted serves `candidate`.
    pub(super) fn is_fitted(&self, candidate: Candidate) -> bool {
        self.fitted.as_ref().is_some_and(|fitted| fitted.serves(candidate))
    }

    /// A fit with κ in place, as long as the candidate: a search takes as long as its vectors are.
    pub(super) fn searched(&mut self, fit: usize, candidate: Candidate) -> Result<Arc<Searched>> {
        let length = candidate.latent_dim();
        let kappa = candidate.settings().embedding.popularity;
        let Some(fitted) = &self.fitted else { unreachable!("judged before it was fitted") };
        // All of them at once, in the last round, may be more than the memory holds.
        let keep = fitted.stored.len() <= self.count.into();
        #[allow(clippy::float_cmp, reason = "one of a few constants")]
        let serves = |known: &Arc<Searched>| known.kappa == kappa && known.length == length;
        self.searched.retain(|known| serves(known) && (keep || known.fit == fit));
        if let Some(known) = self.searched.iter().find(|known| known.fit == fit) {
            return Ok(Arc::clone(known));
        }
        let form = Form { popularity: kappa, ..plain() };
        let stored = fitted.stored[fit].resized(length);
        let vectors = stored.into_vectors(&form, &self.popularity[fit])?;
        let exact = Exact::new(Arc::clone(&vectors.actions));
        let searched = Arc::new(Searched { fit, length, kappa, vectors, exact });
        self.searched.push(Arc::clone(&searched));
        Ok(searched)
    }

    /// The embeddings of the winner without each fold; what was fitted is among them, if it serves.
    pub(super) fn into_folds(
        mut self,
        winner: Candidate,
    ) -> Result<(Folds, Vec<StoredEmbeddings>)> {
        // Anything else may be more than the memory holds.
        self.base = self.base.filter(|base| base.is_part_of(winner));
        let of_folds = self.folds_of(winner)?;
        Ok((self.folds, of_folds))
    }

    fn folds_of(&mut self, candidate: Candidate) -> Result<Vec<StoredEmbeddings>> {
        let fitted = self.take().filter(|fitted| self.by_folds() && fitted.serves(candidate));
        let mut folds = fitted.map_or_else(Vec::new, |mut fitted| {
            fitted.shorten(candidate.latent_dim());
            fitted.stored
        });
        for fold in (0..self.folds.count()).skip(folds.len()) {
            folds.push(if self.by_folds() {
                self.fit_without(fold, candidate)?
            } else {
                let users = self.folds.without(fold);
                candidate.source().fit(self.sessions, &users, self.seed)?
            });
        }
        Ok(folds)
    }
}
