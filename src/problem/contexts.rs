//! The context encoder that a run's settings name.

use std::sync::Arc;

use crate::dataset::{ActionSets, Sessions, Split};
use crate::embedding::ActionEmbeddings;
use crate::encoder::{
    Concatenation, ContextEncoder, ContextSettings, EncoderKind, Mean, Ridge, least_squares,
};
use crate::error::Result;
use crate::prepared::Prepared;

/// What turns what is known of somebody into M(X). What the ridge regression has learned is kept in
/// the prepared folder.
pub(super) fn encoder(
    prepared: &Prepared,
    actions: &Arc<ActionEmbeddings>,
    settings: &ContextSettings,
) -> Result<Arc<dyn ContextEncoder>> {
    let sessions = &prepared.sessions;
    let one = |kind: &EncoderKind| -> Result<Arc<dyn ContextEncoder>> {
        Ok(match kind {
            EncoderKind::Mean => Arc::new(Mean::new(Arc::clone(actions))),
            EncoderKind::WeightedMean => Arc::new(Mean::inverse_popularity(
                Arc::clone(actions),
                &popularity(sessions),
                settings.popularity_power,
            )),
            EncoderKind::Ridge => {
                let key = format!("{:?}", ("ridge", actions.digest(), settings.ridge));
                let fit = || Ok(fit(sessions, actions, settings.ridge)?.into_weights());
                Arc::new(Ridge::new(prepared.kept(&key, fit)?))
            }
        })
    };
    match settings.encoders.as_slice() {
        [kind] => one(kind),
        kinds => Ok(Arc::new(Concatenation(kinds.iter().map(one).collect::<Result<_>>()?))),
    }
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
