//! A prepared folder and context settings in; the users' profiles and the context encoder out.

use std::sync::Arc;

use crate::dataset::{ActionSets, Sessions, Split, Times};
use crate::embedding::{ActionEmbeddings, FoldIn, FoldInOptions};
use crate::encoder::{
    Concatenation, ContextEncoder, ContextSettings, EncoderKind, Features, Known, Mean, Ridge,
    encode_all, least_squares,
};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::prepared::Prepared;

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
    fn load(prepared: &Prepared, settings: &ContextSettings) -> Result<Self> {
        let folder = prepared.folder().display();
        let missing = |key: &str, what: &str, flag: &str| {
            let problem = format!("needs {what}, which {folder} does not have: prepare it {flag}");
            Err(Error::setting(format!("context.{key}"), problem))
        };
        let times = if settings.half_life > 0.0 { prepared.times()? } else { None };
        if settings.half_life > 0.0 && times.is_none() {
            let flag = "again with --time-column NAME (MovieLens has `timestamp`)";
            return missing("half_life", "the times of interactions", flag);
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

/// The encoder that computes M(X), and the profiles that it reads. The weights of a ridge regression
/// are kept in the prepared folder.
pub(super) fn encoder(
    prepared: &Prepared,
    actions: &Arc<ActionEmbeddings>,
    settings: &ContextSettings,
) -> Result<(Arc<dyn ContextEncoder>, Profiles)> {
    let (sessions, profiles) = (&prepared.sessions, Profiles::load(prepared, settings)?);
    let mut encoders: Vec<Arc<dyn ContextEncoder>> = Vec::new();
    for kind in &settings.encoders {
        encoders.push(match kind {
            EncoderKind::Mean => Arc::new(Mean::new(Arc::clone(actions))),
            EncoderKind::WeightedMean => {
                let (popularity, gamma) = (popularity(sessions), settings.popularity_power);
                let mean = Mean::inverse_popularity(Arc::clone(actions), &popularity, gamma);
                Arc::new(mean.with_half_life(settings.half_life))
            }
            EncoderKind::Ridge => {
                let key = format!("{:?}", ("ridge", actions.digest(), settings.ridge));
                let fit = || Ok(fit(sessions, actions, settings.ridge)?.into_weights());
                Arc::new(Ridge::new(prepared.kept(&key, fit)?))
            }
            EncoderKind::FoldIn => {
                let ContextSettings { confidence, regularization, .. } = *settings;
                let options = FoldInOptions { regularization, confidence };
                Arc::new(FoldIn::new(Arc::clone(actions), options)?)
            }
            EncoderKind::Features => {
                let dim = profiles.features.as_ref().map_or(0, Matrix::cols);
                let trained_on = sessions.contexts(Split::Train);
                let step = trained_on.len().div_ceil(SAMPLE).max(1);
                let sample: Vec<u32> = trained_on.into_iter().step_by(step).collect();
                let before = Concatenation(encoders.clone());
                let others =
                    encode_all(&before, &sample, |context| profiles.observed(sessions, context));
                Arc::new(Features::beside(dim, &others))
            }
        });
    }
    let encoder = match encoders.len() {
        1 => encoders.swap_remove(0),
        _ => Arc::new(Concatenation(encoders)),
    };
    Ok((encoder, profiles))
}

/// The ridge regression of what training users hid on what was observed of them.
fn fit(sessions: &Sessions, actions: &ActionEmbeddings, lambda: f32) -> Result<Ridge> {
    let trained_on = sessions.contexts(Split::Train);
    let of_training = |sets: &ActionSets| {
        let sizes: Vec<usize> = trained_on.iter().map(|&context| sets.of(context).len()).collect();
        ActionSets::filled(&sizes, |row, set| {
            set.copy_from_slice(sets.of(trained_on[row as usize]));
        })
    };
    let targets = least_squares(&of_training(&sessions.hidden), actions)?;
    Ridge::fit(&of_training(&sessions.observed), sessions.num_actions, &targets, lambda)
}

/// The number of training users of each action.
fn popularity(sessions: &Sessions) -> Vec<u32> {
    let mut counts = vec![0; sessions.num_actions];
    for context in sessions.contexts(Split::Train) {
        for set in [&sessions.observed, &sessions.hidden] {
            set.of(context).iter().for_each(|&action| counts[action as usize] += 1);
        }
    }
    counts
}
