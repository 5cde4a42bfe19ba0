//! How users of a synthetic log choose: how many actions, and which, by their taste.

use crate::error::{Error, Result};
use crate::seed::Stream;

/// Standard deviation of the logarithm of what a session has beyond the shortest.
const LENGTH_SPREAD: f64 = 0.8;
/// Topics of a neighbourhood.
const NEIGHBOURS: u32 = 5;
/// How often an action comes from the user's topics.
const TOPICAL: f64 = 0.8;

/// Actions in topics: action i has global rank i and is number `i / topics` of topic `i % topics`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    pub(crate) actions: u32,
    pub(crate) topics: u32,
}

/// The topics that a user likes, all of one neighbourhood; a topic that is listed twice is liked
/// twice as much.
#[derive(Clone, Debug)]
pub(crate) struct Taste {
    liked: [u32; 3],
    num_liked: u32,
}

impl Taste {
    pub(crate) fn liked(&self) -> &[u32] {
        &self.liked[..self.num_liked as usize]
    }
}

impl Model {
    /// # Errors
    /// [`Error::Setting`] for no topics, or more than there are actions.
    pub(crate) fn new(actions: u32, topics: u32) -> Result<Self> {
        if topics == 0 || topics > actions {
            return Err(Error::setting("topics", format!("expected 1 to {actions} (`actions`)")));
        }
        Ok(Self { actions, topics })
    }

    /// Beyond this, sessions are not about taste any more, and drawing without repetition is slow.
    pub(super) fn longest_session(self) -> u32 {
        self.actions / 4
    }

    pub(super) fn taste(self, stream: &mut Stream) -> Taste {
        let first = stream.below(self.topics);
        let neighbourhood = first - first % NEIGHBOURS;
        let neighbours = NEIGHBOURS.min(self.topics - neighbourhood);
        let num_liked = 2 + stream.below(2);
        let mut liked = [first; 3];
        for topic in &mut liked[1..] {
            *topic = neighbourhood + stream.below(neighbours);
        }
        Taste { liked, num_liked }
    }

    /// The number of actions in a topic.
    pub(crate) fn topic_size(self, topic: u32) -> u32 {
        (self.actions - topic).div_ceil(self.topics)
    }

    /// q(action | taste): the chance that a single draw gives this action.
    pub(super) fn probability(self, taste: &Taste, action: u32) -> f64 {
        let (topic, rank) = (action % self.topics, action / self.topics);
        let times = taste.liked().iter().filter(|liked| **liked == topic).count();
        let share = TOPICAL * times as f64 / taste.liked().len() as f64;
        share * Zipf::new(self.topic_size(topic)).probability(rank)
            + (1.0 - TOPICAL) * Zipf::new(self.actions).probability(action)
    }

    /// Fills `session`, whose first `num_dealt` actions are there already, with different actions
    /// drawn one by one from q. `taken` is empty before and after the call.
    pub(super) fn complete(
        self,
        taste: &Taste,
        session: &mut [u32],
        num_dealt: usize,
        taken: &mut Taken,
        stream: &mut Stream,
    ) {
        for &action in &session[..num_dealt] {
            taken.insert(action);
        }
        let everything = Zipf::new(self.actions);
        let topics = taste.liked.map(|topic| Zipf::new(self.topic_size(topic)));
        let mut filled = num_dealt;
        // Small topics run dry; what is popular fills up then.
        let mut draws = 20 * session.len();
        while filled < session.len() && draws > 0 {
            draws -= 1;
            let action = if stream.uniform() < TOPICAL {
                let at = stream.below(taste.num_liked) as usize;
                taste.liked[at] + self.topics * topics[at].draw(stream)
            } else {
                everything.draw(stream)
            };
            if taken.insert(action) {
                session[filled] = action;
                filled += 1;
            }
        }
        let popular = (0..self.actions).filter(|action| !taken.contains(*action));
        session[filled..].iter_mut().zip(popular).for_each(|(to, action)| *to = action);
        for &action in &*session {
            taken.remove(action);
        }
    }
}

/// Ranks in `0..size`; the chance of rank r is proportional to ln((r + 2) / (r + 1)), about 1/r,
/// which takes one uniform draw and no table.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    size: u32,
    total: f64,
}

impl Zipf {
    fn new(size: u32) -> Self {
        Self { size, total: (f64::from(size) + 1.0).ln() }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0..size")]
    fn draw(self, stream: &mut Stream) -> u32 {
        let rank = (stream.uniform() * self.total).exp() - 1.0;
        (rank as u32).min(self.size - 1)
    }

    fn probability(self, rank: u32) -> f64 {
        (1.0 / (f64::from(rank) + 1.0)).ln_1p() / self.total
    }
}

/// A set of actions, one bit each.
#[derive(Clone, Debug)]
pub(super) struct Taken(Vec<u64>);

impl Taken {
    /// None of `actions`.
    pub(super) fn none(actions: u32) -> Self {
        Self(vec![0; actions.div_ceil(u64::BITS) as usize])
    }

    fn contains(&self, action: u32) -> bool {
        self.0[(action / u64::BITS) as usize] & bit(action) != 0
    }

    /// Adds an action; true if it was not there before.
    fn insert(&mut self, action: u32) -> bool {
        let word = &mut self.0[(action / u64::BITS) as usize];
        let is_new = *word & bit(action) == 0;
        *word |= bit(action);
        is_new
    }

    fn remove(&mut self, action: u32) {
        self.0[(action / u64::BITS) as usize] &= !bit(action);
    }
}

fn bit(action: u32) -> u64 {
    1 << (action % u64::BITS)
}

/// A log-normal number of mean 1.
pub(super) fn spread(stream: &mut Stream) -> f64 {
    let mut normal = [0.0_f32];
    stream.fill_normals(&mut normal);
    (LENGTH_SPREAD * f64::from(normal[0]) - LENGTH_SPREAD * LENGTH_SPREAD / 2.0).exp()
}

/// Actions of a session that has `beyond` more than the shortest.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub(super) fn session_length(shortest: u32, beyond: f64, longest: u32) -> u32 {
    (f64::from(shortest) + beyond).round().clamp(1.0, f64::from(longest)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    #[test]
    fn draws_are_as_probable_as_said() {
        let model = Model { actions: 97, topics: 7 };
        let mut stream = Seed(1).stream(Purpose::Synthetic, 0, 0);
        for _ in 0..5 {
            let taste = model.taste(&mut stream);
            let draws = 200_000;
            let mut counts = vec![0_u32; 97];
            let mut taken = Taken::none(97);
            for _ in 0..draws {
                let mut session = [0];
                model.complete(&taste, &mut session, 0, &mut taken, &mut stream);
                counts[session[0] as usize] += 1;
            }
            let expected: Vec<f64> =
                (0..97).map(|action| model.probability(&taste, action)).collect();
            assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let chi_squared: f64 = counts
                .iter()
                .zip(expected)
                .map(|(&count, share)| {
                    (f64::from(count) - share * f64::from(draws)).powi(2)
                        / (share * f64::from(draws))
                })
                .sum();
            // A thousandth of what is right lies beyond.
            assert!(chi_squared < 144.6, "{chi_squared} at 96 degrees of freedom");
        }
    }
}
