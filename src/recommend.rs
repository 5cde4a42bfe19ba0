//! A trained policy at work: slates for a known user, or for somebody new.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::dataset::Catalogue;
use crate::device;
use crate::encoder::Known;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::model::Model;
use crate::prepared::Prepared;
use crate::problem::{Problem, Search};
use crate::retrieval::{Queries, Retriever};
use crate::run::{RunFolder, RunOrigin, Which};

/// A run's policy with the problem it was trained on.
#[derive(Clone, Debug)]
pub struct TrainedPolicy {
    /// The problem.
    pub problem: Problem,
    /// What the run was started on.
    pub origin: RunOrigin,
    /// The model of the checkpoint.
    pub model: Model,
    /// The model at step 0.
    pub initial: Model,
    /// Steps behind the checkpoint.
    pub step: u64,
}

impl TrainedPolicy {
    /// Opens a run's checkpoint on `device` (see [`device::choose`]; without a name the CPU or GPU
    /// that is there, which need not be the one of the training).
    ///
    /// # Errors
    /// What a missing or damaged run, checkpoint or prepared folder says; [`Error::File`] when the
    /// prepared folder is not the one that the run was trained on.
    pub fn open(run: &Path, which: Which, device: Option<&str>) -> Result<Self> {
        let folder = RunFolder::new(run);
        let (settings, origin) = folder.read_settings()?;
        let checkpoint = folder.checkpoint(which)?;
        let chosen = device::choose(device)?;
        let prepared = Prepared::open(&origin.data)?;
        if prepared.digest() != origin.data_digest {
            let problem = "has changed since this run was trained on it; train again";
            return Err(Error::file(&origin.data, problem));
        }
        let problem = Problem::load(&prepared, &settings)?;
        let initial = folder.initial_model(problem.initial_model(&settings, &chosen.device)?)?;
        let model = checkpoint.load_model(initial.clone())?;
        Ok(Self { problem, origin, model, initial, step: checkpoint.state.step })
    }
}

/// One place on a slate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The item's id in the input.
    pub item_id: String,
    /// Its title, where the input has one.
    pub title: Option<String>,
    /// `hᵀβ_a`.
    pub score: f32,
}

/// Recommends with a trained policy.
#[derive(Debug)]
pub struct Recommender<'a> {
    policy: &'a TrainedPolicy,
    retriever: Arc<dyn Retriever>,
    catalogue: Catalogue,
}

impl<'a> Recommender<'a> {
    /// A recommender that speaks in the input's ids.
    ///
    /// # Errors
    /// Naming the file of the prepared folder that cannot be read; those of the device.
    pub fn new(policy: &'a TrainedPolicy) -> Result<Self> {
        let retriever = policy.problem.retriever(&policy.model, Search::Exact)?;
        Ok(Self { policy, retriever, catalogue: Catalogue::read(&policy.origin.data)? })
    }

    /// The users of the prepared data, in the order of their contexts.
    pub fn user_ids(&self) -> impl Iterator<Item = &str> {
        self.catalogue.user_ids()
    }

    /// The slate for a user of the prepared data. Everything that is known of the user, observed
    /// and hidden actions, their times and the user's features, is context, and nothing of it is
    /// recommended again.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn for_user(&self, user_id: &str) -> Result<Vec<Recommendation>> {
        let context = self.catalogue.context_of(user_id)?;
        let Problem { sessions, profiles, .. } = &self.policy.problem;
        let (actions, times) = profiles.history(sessions, context);
        let features = profiles.features_of(context);
        self.slate(Known { actions: &actions, times: times.as_deref(), features })
    }

    /// The slate for somebody who has interacted with `item_ids`, none of which is shown: nobody
    /// knows when, and features there are none. Without any items, the most popular ones.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn for_items(&self, item_ids: &[String]) -> Result<Vec<Recommendation>> {
        let actions = item_ids.iter().map(|id| self.catalogue.action_of(id.trim()));
        let mut actions = actions.collect::<Result<Vec<u32>>>()?;
        actions.sort_unstable();
        actions.dedup();
        self.slate(Known { actions: &actions, ..Known::default() })
    }

    fn slate(&self, known: Known<'_>) -> Result<Vec<Recommendation>> {
        let problem = &self.policy.problem;
        let mut context = Matrix::zeros(1, problem.encoder.dim());
        problem.encoder.encode(known, context.row_mut(0));
        let latent = self.policy.model.latent(&context)?;
        let slates = self.retriever.search(Queries {
            latent: &latent,
            slate_size: problem.slate_size(),
            excluded: Some(&[known.actions]),
        })?;
        let placed = slates.slate(0).iter().zip(slates.scores(0));
        let recommendation = |(&action, &score): (&u32, &f32)| Recommendation {
            item_id: self.catalogue.item_id(action).to_owned(),
            title: self.catalogue.title(action).map(str::to_owned),
            score,
        };
        Ok(placed.map(recommendation).collect())
    }
}
