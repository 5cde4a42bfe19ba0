//! Settings → synthetic interactions in memory, for demonstrations and tests.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::model::{Model, Taken, Taste, session_length, spread};
use crate::dataset::prepare::interactions::Interactions;
use crate::dataset::{ActionSets, Label};
use crate::error::{Error, Result};
use crate::seed::{Purpose, Seed, Stream};

/// The size of the synthetic sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SyntheticSettings {
    /// U.
    pub users: u32,
    /// P, counting the actions that no user takes, which are left out afterwards.
    pub actions: u32,
    /// Number of topics.
    pub topics: u32,
    /// Mean number of interactions of a user.
    pub mean_interactions: u32,
    /// Least number of interactions of a user.
    pub min_interactions: u32,
    /// Seed of every draw.
    pub seed: Seed,
}

impl Default for SyntheticSettings {
    fn default() -> Self {
        Self {
            users: 3000,
            actions: 2000,
            topics: 40,
            mean_interactions: 40,
            min_interactions: 20,
            seed: Seed(0),
        }
    }
}

/// A user whose session is not drawn yet.
pub(crate) struct Newcomer {
    /// The length of the session beyond the shortest, in means of it.
    spread: f64,
    /// The topics that the user likes.
    pub(crate) taste: Taste,
    /// The draws that go on with the session.
    stream: Stream,
}

impl Newcomer {
    /// The user of this number in all sessions of the same model and seed.
    pub(crate) fn new(model: Model, seed: Seed, user: u32) -> Self {
        let mut stream = seed.stream(Purpose::Synthetic, 0, user.into());
        let spread = spread(&mut stream);
        Self { spread, taste: model.taste(&mut stream), stream }
    }
}

/// Generates the interactions of users with known tastes, at least `min_interactions` for each.
///
/// # Errors
/// [`Error::Setting`] for settings that contradict each other.
pub fn synthetic(settings: &SyntheticSettings) -> Result<Interactions> {
    let &SyntheticSettings { users, actions, topics, mean_interactions, min_interactions, .. } =
        settings;
    if users == 0 {
        return Err(Error::setting("users", "expected at least 1"));
    }
    let model = Model::new(actions, topics)?;
    if mean_interactions < min_interactions || min_interactions == 0 {
        let problem = format!("expected 1 to {mean_interactions} (`mean_interactions`)");
        return Err(Error::setting("min_interactions", problem));
    }
    let longest = model.longest_session();
    if mean_interactions > longest {
        let problem = format!("expected at most a quarter of the {actions} `actions`");
        return Err(Error::setting("mean_interactions", problem));
    }

    let session = |taken: &mut Taken, user: u32| {
        let Newcomer { spread, taste, mut stream } = Newcomer::new(model, settings.seed, user);
        let beyond = f64::from(mean_interactions - min_interactions) * spread;
        let length = session_length(min_interactions, beyond, longest);
        let mut session = vec![0; length as usize];
        model.complete(&taste, &mut session, 0, taken, &mut stream);
        session
    };
    let sessions: Vec<Vec<u32>> =
        (0..users).into_par_iter().map_init(|| Taken::none(actions), session).collect();
    let mut taken = vec![false; actions as usize];
    sessions.iter().flatten().for_each(|&action| taken[action as usize] = true);
    let items: Vec<u32> = (0..actions).filter(|&action| taken[action as usize]).collect();
    let mut rows = vec![0; actions as usize];
    (0..).zip(&items).for_each(|(row, &action)| rows[action as usize] = row);
    let sizes: Vec<usize> = sessions.iter().map(Vec::len).collect();
    let items_of = ActionSets::filled(&sizes, |user, items| {
        let session = &sessions[user as usize];
        items.iter_mut().zip(session).for_each(|(to, &action)| *to = rows[action as usize]);
    });
    let label = |&action: &u32| {
        let (topic, rank) = (action % topics, action / topics);
        let title = format!("Topic {:02} · item {:04}", topic + 1, rank + 1);
        Label::new(Some(title), None)
    };
    let ids = |numbers: &[u32]| numbers.iter().map(|&number| i64::from(number) + 1).collect();
    Ok(Interactions {
        users: ids(&(0..users).collect::<Vec<_>>()),
        labels: Some(items.iter().map(label).collect()),
        items: ids(&items),
        items_of,
        times: None,
        files: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> SyntheticSettings {
        SyntheticSettings { users: 400, ..Default::default() }
    }

    #[test]
    fn sessions_are_long_enough_and_of_the_mean_asked_for() {
        let made = synthetic(&small()).unwrap();
        let sets = made.items_of;
        let lengths: Vec<_> = sets.contexts().map(|user| sets.of(user).len()).collect();
        assert_eq!(lengths.len(), 400);
        assert!(lengths.iter().all(|&length| length >= 20));
        let mean = lengths.iter().sum::<usize>() as f64 / 400.0;
        assert!((36.0..44.0).contains(&mean), "{mean}");
        assert_eq!(made.labels.unwrap()[41].title.as_deref(), Some("Topic 02 · item 0002"));
    }

    #[test]
    fn items_of_one_user_tell_of_each_other() {
        let made = synthetic(&small()).unwrap();
        let ids: Vec<i64> = made.items.i64().unwrap().into_no_null_iter().collect();
        let (mut together, mut chance) = (0, 0);
        let topic = |item: &u32| (ids[*item as usize] - 1) % 40;
        let sets = made.items_of;
        let sessions: Vec<_> = sets.contexts().map(|user| sets.of(user)).collect();
        for (session, other) in sessions.iter().zip(&sessions[1..]) {
            together += usize::from(topic(&session[3]) == topic(&session[10]));
            chance += usize::from(topic(&session[3]) == topic(&other[10]));
        }
        assert!(together > 5 * chance.max(1), "{together} {chance}");
    }

    #[test]
    fn a_newcomer_likes_what_the_session_of_the_same_number_is_about() {
        let settings = small();
        let made = synthetic(&settings).unwrap();
        let ids: Vec<i64> = made.items.i64().unwrap().into_no_null_iter().collect();
        let model = Model::new(settings.actions, settings.topics).unwrap();
        // The share of a session that is of the topics somebody likes.
        let share = |session: u32, user: u32| {
            let taste = Newcomer::new(model, settings.seed, user).taste;
            let topic = |item: &u32| u32::try_from((ids[*item as usize] - 1) % 40).unwrap();
            let session = made.items_of.of(session);
            let liked = session.iter().filter(|item| taste.liked().contains(&topic(item)));
            liked.count() as f64 / session.len() as f64
        };
        let mean =
            |off: u32| (0..400).map(|user| share(user, (user + off) % 400)).sum::<f64>() / 400.0;
        assert!(mean(0) > 0.7, "{}", mean(0));
        assert!(mean(1) < 0.3, "{}", mean(1));
    }

    #[test]
    fn the_seed_decides() {
        let pairs =
            |seed| synthetic(&SyntheticSettings { seed: Seed(seed), ..small() }).unwrap().items_of;
        assert_eq!(pairs(1), pairs(1));
        assert_ne!(pairs(1), pairs(2));
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |settings: SyntheticSettings| synthetic(&settings).unwrap_err().to_string();
        assert!(refused(SyntheticSettings { users: 0, ..small() }).contains("`users`"));
        assert!(refused(SyntheticSettings { topics: 0, ..small() }).contains("`topics`"));
        let long = SyntheticSettings { actions: 100, ..small() };
        assert!(refused(long).contains("`mean_interactions`"));
        let short = SyntheticSettings { min_interactions: 41, ..small() };
        assert!(refused(short).contains("`min_interactions`"));
    }
}
