//! Estimators that others have for slates: rows, and how often two policies show each action at each
//! position, → a value.
//!
//! Neither policy can say these shares: they are counted over many slates drawn for each user, which a
//! real log with as many contexts as rows cannot afford.

use anyhow::Result;
use fast_slate::estimate::{Estimate, Interval};
use fast_slate::matrix::Matrix;
use rayon::prelude::*;

use crate::scene::{Rows, Scene};

/// How often a policy shows each action at each position to each user.
pub(crate) struct Shares {
    /// `[U, K, P]`.
    counts: Vec<u32>,
    /// The share of actions that the user likes, `[U, K]`.
    liked: Vec<f64>,
    draws: f64,
    slate_size: usize,
    num_actions: usize,
}

impl Shares {
    pub(crate) fn new(scene: &Scene, h: &Matrix, draws: usize) -> Result<Self> {
        let settings = scene.world.settings();
        let (slate_size, num_actions) = (settings.slate_size, settings.actions as usize);
        let of_user = |user: u32| -> Result<(Vec<u32>, Vec<f64>)> {
            let slates = scene.slates(h, user, draws, 1)?;
            let (mut counts, mut liked) =
                (vec![0; slate_size * num_actions], vec![0.0; slate_size]);
            for at in 0..draws {
                for (k, action) in slates.slate(at).iter().enumerate() {
                    counts[k * num_actions + *action as usize] += 1;
                    liked[k] += is_liked(scene, user, *action) / draws as f64;
                }
            }
            Ok((counts, liked))
        };
        let users: Vec<(Vec<u32>, Vec<f64>)> =
            (0..settings.users).into_par_iter().map(of_user).collect::<Result<_>>()?;
        let (counts, liked): (Vec<_>, Vec<_>) = users.into_iter().unzip();
        let (counts, liked) = (counts.concat(), liked.concat());
        Ok(Self { counts, liked, draws: draws as f64, slate_size, num_actions })
    }

    /// The share of an action at a position.
    fn of(&self, user: u32, k: usize, action: u32) -> f64 {
        let row = user as usize * self.slate_size + k;
        f64::from(self.counts[row * self.num_actions + action as usize]) / self.draws
    }

    /// The chance of the action at k given those above, if the share at k were that of draws without
    /// repetition: its share among the actions that are left.
    fn after(&self, user: u32, slate: &[u32], k: usize) -> f64 {
        self.of(user, k, slate[k]) / self.left(user, &slate[..k])
    }

    /// The share at the position below `above` of actions that are not in it; one draw at least.
    fn left(&self, user: u32, above: &[u32]) -> f64 {
        let taken: f64 = above.iter().map(|action| self.of(user, above.len(), *action)).sum();
        (1.0 - taken).max(1.0 / self.draws)
    }

    /// The chance of a liked action below `above`, by the same assumption.
    fn liked_below(&self, scene: &Scene, user: u32, above: &[u32]) -> f64 {
        let k = above.len();
        let share = |action: &u32| is_liked(scene, user, *action) * self.of(user, k, *action);
        let taken: f64 = above.iter().map(share).sum();
        let liked = self.liked[user as usize * self.slate_size + k];
        ((liked - taken) / self.left(user, above)).clamp(0.0, 1.0)
    }
}

/// The two policies' shares; an action that was never drawn for the policy that logged counts once.
pub(crate) struct Both<'a> {
    pub(crate) logging: &'a Shares,
    pub(crate) other: &'a Shares,
}

fn is_liked(scene: &Scene, user: u32, action: u32) -> f64 {
    f64::from(u8::from(scene.world.liked(user).contains(&scene.world.topic(action))))
}

impl Both<'_> {
    /// Each click by the ratio of the shares of its action at its position (Li, Abbasi-Yadkori, Kveton,
    /// Muthukrishnan, Vinay, Wen, "Offline Evaluation of Ranking Policies with Click Models", KDD 2018,
    /// the item-position estimator). Right if a click depends on the action and the position alone.
    pub(crate) fn item_position(&self, rows: &Rows) -> Interval {
        let of_row = |row: usize| -> f64 {
            let (user, slate) = (rows.users[row], rows.slates.slate(row));
            let clicked = (0..slate.len()).filter(|k| rows.clicks(row)[*k]);
            let weight = |k| {
                let logged = self.logging.of(user, k, slate[k]).max(1.0 / self.logging.draws);
                self.other.of(user, k, slate[k]) / logged
            };
            clicked.map(weight).sum()
        };
        interval((0..rows.len()).map(of_row))
    }

    /// The cascade doubly robust estimator (Kiyohara, Saito, Matsuhiro, Narita, Shimizu, Yamamoto, WSDM
    /// 2022), with the conditional chances of [`Shares::after`], and for Q̂ the mean click at each
    /// position on actions that the user likes and on others. Right, for these click models, if the
    /// conditional chances are.
    pub(crate) fn cascade(&self, scene: &Scene, rows: &Rows) -> Interval {
        let clicks = Clicks::new(scene, rows);
        let size = rows.slates.slate_size();
        let of_row = |row: usize| -> f64 {
            let (user, slate) = (rows.users[row], rows.slates.slate(row));
            // Expected clicks from each position on.
            let mut rest = vec![0.0; size + 1];
            for k in (0..size).rev() {
                let liked = self.other.liked[user as usize * size + k];
                rest[k] = rest[k + 1] + clicks.mean(k, liked);
            }
            let (mut value, mut weight) = (0.0, 1.0);
            for k in 0..size {
                let liked = self.other.liked_below(scene, user, &slate[..k]);
                value += weight * (clicks.mean(k, liked) + rest[k + 1]);
                let logged = self.logging.after(user, slate, k).max(1.0 / self.logging.draws);
                weight *= self.other.after(user, slate, k) / logged;
                let expected = clicks.mean(k, is_liked(scene, user, slate[k])) + rest[k + 1];
                value += weight * (f64::from(u8::from(rows.clicks(row)[k])) - expected);
            }
            value
        };
        interval((0..rows.len()).map(of_row))
    }
}

fn interval(values: impl Iterator<Item = f64>) -> Interval {
    Estimate::of(values.collect::<Vec<_>>().iter().copied()).interval()
}

/// The mean clicks at each position, on actions that are not liked and on liked ones.
struct Clicks(Vec<[f64; 2]>);

impl Clicks {
    fn new(scene: &Scene, rows: &Rows) -> Self {
        let mean = |k: usize| {
            let (mut clicks, mut counts) = ([0.0; 2], [0.0; 2]);
            for row in 0..rows.len() {
                let action = rows.slates.slate(row)[k];
                let liked = usize::from(is_liked(scene, rows.users[row], action) > 0.0);
                clicks[liked] += f64::from(u8::from(rows.clicks(row)[k]));
                counts[liked] += 1.0;
            }
            [0, 1].map(|liked| clicks[liked] / f64::max(counts[liked], 1.0))
        };
        Self((0..rows.slates.slate_size()).map(mean).collect())
    }

    fn mean(&self, k: usize, liked: f64) -> f64 {
        let [other, of_liked] = self.0[k];
        liked * of_liked + (1.0 - liked) * other
    }
}
