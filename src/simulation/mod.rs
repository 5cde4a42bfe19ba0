//! Settings → users with known tastes who look at slates and click, and what every slate earns from them
//! in expectation, exactly. For judging estimators and for closing the loop where no log can say what
//! is true.
//!
//! Actions belong to topics, and a user likes two or three of them ([`crate::dataset::synthetic()`], whose
//! users of the same seed have the same tastes). An action of a liked topic attracts by its rank in the
//! topic, any other action little. Satiation makes slates differ from the sum of their actions: the j-th
//! action of one topic, from 0 at the top, attracts `satiation^j` of what it would alone. A
//! [`ClickModel`] makes clicks of attractions.

mod clicks;
mod rounds;
mod users;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dataset::{Model, SyntheticSettings};
use crate::error::{Error, Result};
use crate::logged::Bounds;
use crate::reward::SlateReward;
use crate::seed::{Seed, Stream};
use users::Users;

pub use clicks::ClickModel;
pub use rounds::{LoopSettings, Round, Rounds, Truth, rounds};

/// The world to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimulationSettings {
    /// U.
    pub users: u32,
    /// P.
    pub actions: u32,
    /// Number of topics.
    pub topics: u32,
    /// K, the size of the slates that users look at.
    pub slate_size: usize,
    /// How users go through a slate.
    pub click: ClickModel,
    /// What each action leaves of the attraction of those of its topic below it, in `[0, 1]`.
    pub satiation: f64,
    /// Seed of the users' tastes.
    pub seed: Seed,
}

impl Default for SimulationSettings {
    fn default() -> Self {
        Self {
            users: 1000,
            actions: 1000,
            topics: 40,
            slate_size: 5,
            click: ClickModel::default(),
            satiation: 0.7,
            seed: Seed(0),
        }
    }
}

impl SimulationSettings {
    /// The sessions of the same users, to prepare and train on. The user of number u has the id u + 1
    /// there, and so have actions ([`number`]).
    #[must_use]
    pub fn sessions(&self) -> SyntheticSettings {
        let &Self { users, actions, topics, seed, .. } = self;
        SyntheticSettings { users, actions, topics, seed, ..Default::default() }
    }

    fn validate(&self) -> Result<()> {
        let &Self { users, actions, slate_size, satiation, .. } = self;
        if users == 0 {
            return Err(Error::setting("users", "expected at least 1"));
        }
        if slate_size == 0 || slate_size > actions as usize {
            let problem = format!("expected 1 to {actions} (`actions`), found {slate_size}");
            return Err(Error::setting("slate_size", problem));
        }
        if !(0.0..=1.0).contains(&satiation) {
            let problem = format!("expected a share from 0 to 1, found {satiation}");
            return Err(Error::setting("satiation", problem));
        }
        self.click.validate()
    }
}

/// The number of the user, or the action, that has this id in the synthetic sessions.
#[must_use]
pub fn number(id: &str) -> Option<u32> {
    id.parse::<u32>().ok()?.checked_sub(1)
}

/// Users who look at slates. Users are numbered below U and actions below P; a method panics on a user
/// that there is not.
#[derive(Clone, Debug)]
pub struct World {
    settings: SimulationSettings,
    users: Users,
}

impl World {
    /// The world of these settings; the same settings make the same world.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings that are out of range or contradict each other.
    pub fn new(settings: &SimulationSettings) -> Result<Self> {
        settings.validate()?;
        let model = Model::new(settings.actions, settings.topics)?;
        let users = Users::new(model, settings.seed, settings.users);
        Ok(Self { settings: settings.clone(), users })
    }

    /// The settings that it was made of.
    #[must_use]
    pub fn settings(&self) -> &SimulationSettings {
        &self.settings
    }

    /// The topics that a user likes, two or three, not all different.
    #[must_use]
    pub fn liked(&self, user: u32) -> &[u32] {
        self.users.liked(user)
    }

    /// The topic of an action.
    #[must_use]
    pub fn topic(&self, action: u32) -> u32 {
        self.users.topic(action)
    }

    /// The chance in `[0, 1]` that the user clicks on the action when they examine it, with none of its
    /// topic above.
    #[must_use]
    pub fn attraction(&self, user: u32, action: u32) -> f64 {
        self.users.attraction(user, action)
    }

    /// The least and the most clicks on a slate of K.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        Bounds { low: 0.0, high: Some(self.settings.click.most(self.settings.slate_size)) }
    }

    /// The attraction of each action on a slate, after satiation.
    fn on(&self, user: u32, slate: &[u32]) -> impl Iterator<Item = f64> {
        slate.iter().enumerate().map(move |(at, &action)| {
            let topic = self.topic(action);
            let above = slate[..at].iter().filter(|above| self.topic(**above) == topic).count();
            self.attraction(user, action) * self.settings.satiation.powf(above as f64)
        })
    }

    /// Draws which positions of `slate`, best first, the user clicks on.
    pub fn clicks(&self, user: u32, slate: &[u32], stream: &mut Stream) -> Vec<bool> {
        self.settings.click.draw(self.on(user, slate), stream)
    }

    /// The expected number of clicks on `slate`, best first; exact.
    #[must_use]
    pub fn expected(&self, user: u32, slate: &[u32]) -> f64 {
        self.settings.click.expected(self.on(user, slate))
    }

    /// The slate of K that earns the most from a user, best first.
    ///
    /// The j-th action of a topic is worth its attraction times `satiation^j`, which falls with j where
    /// actions stand by their ranks. Both click models grow in each of these numbers and want them in
    /// falling order, so the K largest make the slate.
    #[must_use]
    pub fn best(&self, user: u32) -> Vec<u32> {
        let size = self.settings.slate_size;
        let first = self.users.first(u32::try_from(size).unwrap_or(u32::MAX));
        let worth = |action: u32| {
            let above = f64::from(action / self.settings.topics);
            self.attraction(user, action) * self.settings.satiation.powf(above)
        };
        let mut ranked: Vec<(f64, u32)> = first.map(|action| (worth(action), action)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.into_iter().take(size).map(|(_, action)| action).collect()
    }
}

/// The expected number of clicks as a reward to train on.
#[derive(Clone, Debug)]
pub struct TrueReward {
    world: Arc<World>,
    numbers: Option<Numbers>,
}

/// The numbers in the world of the contexts and the actions of a data set.
#[derive(Clone, Debug)]
struct Numbers {
    users: Vec<u32>,
    actions: Vec<u32>,
}

impl TrueReward {
    /// Context c is the user c of the world, and actions have the numbers of the world.
    #[must_use]
    pub fn new(world: Arc<World>) -> Self {
        Self { world, numbers: None }
    }

    /// Context c is the user `users[c]` of the world, and action a is the action `actions[a]`: in a
    /// prepared data set both are numbered anew.
    #[must_use]
    pub fn numbered(world: Arc<World>, users: Vec<u32>, actions: Vec<u32>) -> Self {
        Self { world, numbers: Some(Numbers { users, actions }) }
    }
}

impl SlateReward for TrueReward {
    #[allow(clippy::cast_possible_truncation, reason = "rewards are f32")]
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        let expected = match &self.numbers {
            None => self.world.expected(context, slate),
            Some(Numbers { users, actions }) => {
                let slate: Vec<u32> =
                    slate.iter().map(|action| actions[*action as usize]).collect();
                self.world.expected(users[context as usize], &slate)
            }
        };
        expected as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimate;
    use crate::seed::Purpose;

    const MODELS: [ClickModel; 2] =
        [ClickModel::PositionBased { power: 0.5 }, ClickModel::Cascade { patience: 0.9 }];

    fn world(click: ClickModel) -> World {
        World::new(&SimulationSettings { click, ..Default::default() }).unwrap()
    }

    /// Two actions of one liked topic, one of another, and two that the user does not care for.
    fn slate(world: &World, user: u32) -> Vec<u32> {
        let topic = world.liked(user)[0];
        vec![topic, (topic + 1) % 40, topic + 40, (topic + 20) % 40, (topic + 10) % 40]
    }

    #[test]
    fn the_mean_of_clicks_is_the_expectation() {
        for model in MODELS {
            let world = world(model);
            for user in 0..5 {
                let (slate, draws) = (slate(&world, user), 200_000);
                let mut stream = Seed(1).stream(Purpose::Exploration, 0, user.into());
                let clicks: Vec<f64> = (0..draws)
                    .map(|_| {
                        let clicks = world.clicks(user, &slate, &mut stream);
                        assert_eq!(clicks.len(), slate.len());
                        clicks.into_iter().map(|click| f64::from(u8::from(click))).sum()
                    })
                    .collect();
                assert!(clicks.iter().all(|clicks| *clicks <= world.bounds().high.unwrap()));
                let found = Estimate::of(clicks.iter().copied());
                let expected = world.expected(user, &slate);
                let off = (found.mean - expected).abs();
                assert!(off < 4.0 * found.standard_error, "{model:?}: {found} {expected}");
            }
        }
    }

    #[test]
    fn satiation_makes_one_topic_earn_less_than_two() {
        for click in MODELS {
            let of = |satiation| {
                let settings = SimulationSettings { click, satiation, ..Default::default() };
                World::new(&settings).unwrap()
            };
            let users = 0..of(0.5).settings().users;
            let liking_two = |user: &u32| of(1.0).liked(*user)[0] != of(1.0).liked(*user)[1];
            let user = users.into_iter().find(liking_two).unwrap();
            let (sated, patient) = (of(0.5), of(1.0));
            let liked = sated.liked(user);
            // The actions at the same places have the same attractions.
            let one = [liked[0], liked[0] + 40, liked[0] + 80];
            let mixed = [liked[0], liked[1] + 40, liked[0] + 80];
            assert_eq!(patient.expected(user, &one), patient.expected(user, &mixed));
            assert!(sated.expected(user, &one) < sated.expected(user, &mixed));
        }
    }

    #[test]
    fn the_best_slate_earns_the_most() {
        for (click, satiation) in MODELS.into_iter().flat_map(|model| [(model, 0.3), (model, 0.9)])
        {
            let settings = SimulationSettings {
                users: 10,
                actions: 12,
                topics: 4,
                slate_size: 3,
                click,
                satiation,
                seed: Seed(0),
            };
            let world = World::new(&settings).unwrap();
            for user in 0..10 {
                let slates = (0..12 * 12 * 12).map(|at: u32| [at / 144, at / 12 % 12, at % 12]);
                let possible = slates.filter(|[a, b, c]| a != b && b != c && a != c);
                let most = possible.map(|slate| world.expected(user, &slate)).fold(0.0, f64::max);
                let best = world.expected(user, &world.best(user));
                assert!((best - most).abs() < 1e-12, "{click:?}: {best} {most}");
            }
        }
    }

    #[test]
    fn the_seed_decides() {
        let liked = |seed| {
            let settings = SimulationSettings { seed: Seed(seed), ..Default::default() };
            let world = World::new(&settings).unwrap();
            (0..1000).map(|user| world.liked(user).to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(liked(1), liked(1));
        assert_ne!(liked(1), liked(2));
    }

    #[test]
    fn the_reward_is_the_expectation_under_other_numbers_too() {
        let world = Arc::new(world(ClickModel::default()));
        let slate = slate(&world, 7);
        let expected = world.expected(7, &slate);
        let reward = TrueReward::new(Arc::clone(&world)).reward(7, &slate);
        assert!((f64::from(reward) - expected).abs() < 1e-6);
        let numbered = TrueReward::numbered(world, vec![3, 7], slate);
        assert_eq!(numbered.reward(1, &[0, 1, 2, 3, 4]), reward);
        assert_eq!((number("8"), number("0"), number("x")), (Some(7), None, None));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |settings: SimulationSettings| World::new(&settings).unwrap_err().to_string();
        let small = SimulationSettings::default;
        for (settings, key) in [
            (SimulationSettings { users: 0, ..small() }, "`users`"),
            (SimulationSettings { topics: 0, ..small() }, "`topics`"),
            (SimulationSettings { slate_size: 0, ..small() }, "`slate_size`"),
            (SimulationSettings { slate_size: 1001, ..small() }, "`slate_size`"),
            (SimulationSettings { satiation: 1.1, ..small() }, "`satiation`"),
            (SimulationSettings { satiation: f64::NAN, ..small() }, "`satiation`"),
            (
                SimulationSettings { click: ClickModel::Cascade { patience: 2.0 }, ..small() },
                "`click.patience`",
            ),
            (
                SimulationSettings { click: ClickModel::PositionBased { power: -1.0 }, ..small() },
                "`click.power`",
            ),
        ] {
            assert!(refused(settings).contains(key), "{key}");
        }
        assert!(toml::from_str::<SimulationSettings>("user = 3").is_err());
        assert_eq!(toml::from_str::<SimulationSettings>("users = 3").unwrap().users, 3);
    }
}
