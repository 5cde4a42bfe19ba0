//! A prepared folder and settings → a task, with the folds of its training users.

use std::sync::Arc;

use super::Task;
use super::contexts::{Contexts, Profiles};
use super::folds::{CrossFit, Fit};
use super::search::Graph;
use crate::dataset::{Folds, Split};
use crate::device;
use crate::embedding::Vectors;
use crate::encoder::encode_all;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::prepared::Prepared;
use crate::retrieval::{Exact, check_slate_size, most_excluded};
use crate::settings::Settings;

impl Task {
    /// The task that `settings` make of a prepared folder. Fits the folds if they are not there yet.
    ///
    /// # Errors
    /// [`Error::SlateTooLarge`](crate::Error::SlateTooLarge); what embeddings, encoders and index refuse.
    pub fn load(prepared: &Prepared, settings: &Settings) -> Result<Self> {
        if let Some(said) = prepared.chosen_otherwise(settings) {
            tracing::info!("{said}");
        }
        if let Some(said) = prepared.unused_features(settings) {
            tracing::warn!("{said}");
        }
        let mut task = Self::to_decide(prepared, settings)?;
        if settings.context.redraw && prepared.is_split_by_time() {
            task.order = prepared.times()?.map(Arc::new);
        }
        match task.affordable(prepared, settings.folds()) {
            None => Ok(task),
            Some(folds) => task.cross_fitted(prepared, settings, folds),
        }
    }

    /// [`load`](Self::load) without folds, to decide for users who are not trained on.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load).
    pub fn to_decide(prepared: &Prepared, settings: &Settings) -> Result<Self> {
        let sessions = Arc::clone(&prepared.sessions);
        let (slate_size, exclude_observed) =
            (settings.slate_size, settings.retrieval.exclude_observed);
        let excluded = exclude_observed.then_some(sessions.as_ref());
        check_slate_size(slate_size, sessions.num_actions, most_excluded(excluded))?;
        let profiles = Profiles::load(prepared, &settings.context)?;
        let users = sessions.contexts(Split::Train);
        let contexts = Contexts::new(prepared, &prepared.embeddings, &users, &profiles, settings)?;
        let Contexts { vectors, encoder, encoding, .. } = contexts;
        let Vectors { inputs, actions } = vectors;
        let everybody: Vec<u32> = sessions.observed.contexts().collect();
        let known = |context| profiles.observed(&sessions, context);
        Ok(Self {
            contexts: Arc::new(encode_all(encoder.as_ref(), &everybody, known)),
            encoder,
            encoding,
            inputs,
            profiles: Arc::new(profiles),
            exact: Arc::new(Exact::new(Arc::clone(&actions))),
            graph: Arc::new(Graph::new(prepared, settings.retrieval.hnsw)),
            reward: settings
                .reward
                .kind
                .init(slate_size, Arc::clone(&sessions), || Ok(Arc::clone(&actions)))?,
            cross: None,
            order: None,
            held_out_at_random: prepared.hides_at_random(),
            split_seed: prepared.manifest.seed(),
            noise: None,
            elsewhere: None,
            exactly: false,
            gpu: None,
            before: None,
            people: None,
            logged: None,
            slate_size,
            exclude_observed,
            sessions,
            actions,
        })
    }

    /// The folds in the `wanted` parts of the training users if half of the memory holds as many, or in two parts,
    /// or none.
    fn affordable(&self, prepared: &Prepared, wanted: u16) -> Option<Folds> {
        if wanted == 0 {
            return None;
        }
        let beta = self.actions.beta();
        let bytes = size_of_val(beta.as_slice()) as f64;
        let half = device::available_memory().unwrap_or(f64::INFINITY) / 2.0;
        let fits = |folds: &Folds| f64::from(folds.count()) * bytes <= half;
        let all = prepared.folds(wanted);
        let wanted = all.count();
        let found = Some(all).filter(fits).or_else(|| Some(prepared.folds(2)).filter(fits));
        let count = found.as_ref().map_or(0, Folds::count);
        if count < wanted {
            tracing::warn!(
                "number of folds: {count} instead of {wanted}, since each takes {:.1} GB, and half of the free memory \
                 is {:.1} GB",
                bytes / 1e9,
                half / 1e9
            );
        }
        found
    }

    /// This task with contexts and searches of training users from embeddings that were fitted
    /// without their fold.
    fn cross_fitted(
        mut self,
        prepared: &Prepared,
        settings: &Settings,
        folds: Folds,
    ) -> Result<Self> {
        let embeddings = prepared.fold_embeddings(&folds)?;
        let mut fits = Vec::with_capacity(embeddings.len());
        for (fold, embeddings) in (0..).zip(&embeddings) {
            let fitted_on = folds.without(fold);
            let contexts =
                Contexts::new(prepared, embeddings, &fitted_on, &self.profiles, settings)?;
            let users = folds.within(fold);
            let fit = Fit::new(&contexts, &self.actions)?;
            let rows = self.encoded(&fit, &users);
            let fit = fit.scaled(&rows, &self.contexts.select(&users));
            fit.put(&rows, &users, Arc::make_mut(&mut self.contexts));
            fits.push(fit);
        }
        Ok(Self { cross: Some(Arc::new(CrossFit { folds, fits })), ..self })
    }

    /// Encodes the training users of each fold with what was fitted without it.
    pub(super) fn with_fold_contexts(mut self) -> Self {
        let Some(cross) = self.cross.clone() else { return self };
        for (fold, fit) in (0..).zip(&cross.fits) {
            let users = cross.folds.within(fold);
            let rows = self.encoded(fit, &users);
            fit.put(&rows, &users, Arc::make_mut(&mut self.contexts));
        }
        self
    }

    /// M(X) of `users` by what was fitted without their fold, `[users, D]`, in its space.
    fn encoded(&self, fit: &Fit, users: &[u32]) -> Matrix {
        fit.encode(users, |context| self.profiles.observed(&self.sessions, context))
    }
}
