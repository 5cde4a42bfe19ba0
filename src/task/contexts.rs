//! A prepared folder and settings in; the users' profiles, the vectors of the items and the context
//! encoder out.

use std::sync::Arc;

use crate::dataset::{Sessions, Times};
use crate::embedding::{EmbeddingFile, Vectors};
use crate::encoder::{
    Concatenation, ContextEncoder, ContextSettings, EncoderKind, Encoding, Features, Fitted, Known,
    encode_all, joined, popularity_weights,
};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::prepared::Prepared;
use crate::settings::Settings;

/// The times and features of users that a run's encoders read.
#[derive(Clone, Debug)]
pub struct Profiles {
    /// When they acted.
    pub times: Option<Times>,
    /// `[U, F]`.
    pub features: Option<Matrix>,
}

impl Profiles {
    /// # Errors
    /// [`Error::Setting`] for a setting that needs what the folder does not have.
    pub(super) fn load(prepared: &Prepared, settings: &ContextSettings) -> Result<Self> {
        let folder = prepared.folder().display();
        let missing = |key: &str, what: &str, flag: &str| {
            let problem = format!("needs {what}, which {folder} does not have: prepare it {flag}");
            Err(Error::setting(format!("context.{key}"), problem))
        };
        let times = if settings.recency > 0.0 { prepared.times()? } else { None };
        if settings.recency > 0.0 && times.is_none() {
            let flag = "again with --time-column NAME (MovieLens has `timestamp`)";
            return missing("recency", "the times of interactions", flag);
        }
        let looks = settings.encoders.contains(&EncoderKind::Features);
        let features = if looks { prepared.features()? } else { None };
        if looks && features.is_none() {
            return missing("encoders", "the features of users", "again with --user-features FILE");
        }
        Ok(Self { times, features })
    }

    /// The observed actions of a context, with their times and the user's features.
    #[must_use]
    pub fn observed<'a>(&'a self, sessions: &'a Sessions, context: u32) -> Known<'a> {
        let observed = &sessions.observed;
        Known {
            actions: observed.of(context),
            times: self.times.as_ref().map(|times| observed.values_of(context, &times.observed)),
            features: self.features_of(context),
        }
    }

    /// All actions of a context, ascending, with their times.
    #[must_use]
    pub fn history(&self, sessions: &Sessions, context: u32) -> (Vec<u32>, Option<Vec<i64>>) {
        let Sessions { observed, hidden, .. } = sessions;
        let actions = [observed.of(context), hidden.of(context)].concat();
        let mut order: Vec<usize> = (0..actions.len()).collect();
        order.sort_unstable_by_key(|&at| actions[at]);
        let times = self.times.as_ref().map(|times| {
            let observed = observed.values_of(context, &times.observed);
            let times = [observed, hidden.values_of(context, &times.hidden)].concat();
            order.iter().map(|&at| times[at]).collect()
        });
        (order.iter().map(|&at| actions[at]).collect(), times)
    }

    /// The features of a context.
    #[must_use]
    pub fn features_of(&self, context: u32) -> Option<&[f32]> {
        self.features.as_ref().map(|features| features.row(context as usize))
    }
}

/// Training contexts on which the spread of a context's numbers is measured.
const SAMPLE: usize = 4096;

/// What contexts are encoded with, and what was fitted for that.
#[derive(Clone, Debug)]
pub(super) struct Contexts {
    pub(super) vectors: Vectors,
    pub(super) encoder: Arc<dyn ContextEncoder>,
    pub(super) encoding: Encoding,
    /// The first number of each encoder that gives a vector in the space of the actions.
    pub(super) of_actions: Vec<usize>,
}

impl Contexts {
    /// The vectors of `embeddings`, and the encoder that computes M(X) with them; what is fitted is
    /// fitted on `users`.
    pub(super) fn new(
        prepared: &Prepared,
        embeddings: &EmbeddingFile,
        users: &[u32],
        profiles: &Profiles,
        settings: &Settings,
    ) -> Result<Self> {
        let sessions = &prepared.sessions;
        let popularity = sessions.popularity(users);
        let vectors = embeddings.vectors(&settings.embedding, &popularity)?;
        let (kinds, settings) = (settings.encoders(), &settings.context);
        let weighted = kinds.contains(&EncoderKind::WeightedMean);
        let weights = || Arc::new(popularity_weights(&popularity, settings.popularity_power));
        let mut encoding = Encoding { encoders: Vec::new(), weights: weighted.then(weights) };
        let mut encoders: Vec<Arc<dyn ContextEncoder>> = Vec::new();
        let mut of_actions = Vec::new();
        for kind in kinds {
            let ContextSettings { recency, confidence, regularization, .. } = *settings;
            let fitted = match kind {
                EncoderKind::Mean => Fitted::Mean,
                EncoderKind::WeightedMean => Fitted::WeightedMean { recency },
                EncoderKind::BalancedMean => Fitted::BalancedMean { recency },
                EncoderKind::FoldIn => Fitted::FoldIn { regularization, confidence },
                EncoderKind::Features => {
                    let width = profiles.features.as_ref().map_or(0, Matrix::cols);
                    let step = users.len().div_ceil(SAMPLE).max(1);
                    let sample: Vec<u32> = users.iter().copied().step_by(step).collect();
                    let before = Concatenation(encoders.clone());
                    let known = |context| profiles.observed(sessions, context);
                    let others = encode_all(&before, &sample, known);
                    Fitted::Features { width, scale: Features::beside(width, &others).scale() }
                }
            };
            if kind != EncoderKind::Features {
                of_actions.push(encoders.iter().map(|encoder| encoder.dim()).sum());
            }
            encoders.push(fitted.encoder(&vectors, encoding.weights.as_ref())?);
            encoding.encoders.push(fitted);
        }
        Ok(Self { vectors, encoder: joined(encoders), encoding, of_actions })
    }
}
