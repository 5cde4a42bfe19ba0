//! A world and a rule for σ → action vectors, the queries of a policy that logs and of others at a given
//! distance from it, and rows of logs.

use std::sync::Arc;

use anyhow::Result;
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimate::Estimate;
use fast_slate::logged::{Drawn, Weighed};
use fast_slate::matrix::{Matrix, dot, norm};
use fast_slate::policy::{Radial, Scale, Sigma};
use fast_slate::retrieval::{Exact, Queries, Retriever as _, Slates};
use fast_slate::seed::{Purpose, Seed, Stream};
use fast_slate::simulation::{SimulationSettings, World};
use rayon::prelude::*;

/// L.
const LATENT_DIM: usize = 16;
/// How far the vectors of a topic's actions are from each other, and the logging policy's queries from
/// what users like, beside vectors of length one.
const SPREAD: f32 = 0.5;
const BLUR: f32 = 1.0;
/// Under a relative σ the length of a query says nothing; queries of other policies are so much longer.
const LONGER: f32 = 1.25;

pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) rule: Sigma,
    scale: Scale,
    exact: Exact,
    /// The direction of what each user likes, `[U, L]`.
    liked: Matrix,
    /// h₀, `[U, L]`, each of length one.
    pub(crate) logging: Matrix,
}

/// Rows of a log.
pub(crate) struct Rows {
    /// The user of each row, `[n]`.
    pub(crate) users: Vec<u32>,
    /// The person of each row, `[n]`.
    people: Vec<u32>,
    /// `[n, L]`.
    z: Matrix,
    /// `[n, K]`.
    pub(crate) slates: Slates,
    /// `[n · K]`.
    clicks: Vec<bool>,
}

/// Which rows to draw. Rows of one log do not depend on each other but for their persons.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) log: u64,
    pub(crate) rows: u32,
    pub(crate) rows_of_person: u32,
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.users.len()
    }

    /// The clicks on the slate of a row, `[K]`.
    pub(crate) fn clicks(&self, row: usize) -> &[bool] {
        let size = self.slates.slate_size();
        &self.clicks[row * size..(row + 1) * size]
    }

    /// The number of clicks on each slate, `[n]`.
    pub(crate) fn rewards(&self) -> Vec<f64> {
        let count = |row| self.clicks(row).iter().filter(|clicked| **clicked).count() as f64;
        (0..self.len()).map(count).collect()
    }
}

fn stream(purpose: Purpose, step: u64, position: u64) -> Stream {
    Seed(0).stream(purpose, step, position)
}

/// Normals `[rows, L]` of expected length one.
fn vectors(step: u64, rows: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, LATENT_DIM);
    matrix.par_rows_mut().enumerate().for_each(|(row, out)| {
        stream(Purpose::Synthetic, step, row as u64).fill_normals(out);
        for value in out.iter_mut() {
            *value /= (LATENT_DIM as f32).sqrt();
        }
    });
    matrix
}

fn add(to: &mut [f32], factor: f32, other: &[f32]) {
    to.iter_mut().zip(other).for_each(|(to, other)| *to += factor * other);
}

fn normalise(vector: &mut [f32]) {
    let length = norm(vector).max(f32::MIN_POSITIVE);
    for value in vector.iter_mut() {
        *value /= length;
    }
}

impl Scene {
    pub(crate) fn new(settings: &SimulationSettings, rule: Sigma) -> Result<Self> {
        let world = World::new(settings)?;
        let topics = vectors(10, settings.topics as usize);
        // An action stands near its topic, and the more popular it is the longer is its vector.
        let mut beta = vectors(11, settings.actions as usize);
        beta.par_rows_mut().enumerate().for_each(|(action, vector)| {
            for value in vector.iter_mut() {
                *value *= SPREAD;
            }
            add(vector, 1.0, topics.row(action % topics.rows()));
            let rank = (action / topics.rows()) as f32;
            for value in vector.iter_mut() {
                *value /= 1.0 + 0.1 * rank.ln_1p();
            }
        });
        let (mut liked, mut logging) = (
            Matrix::zeros(settings.users as usize, LATENT_DIM),
            vectors(12, settings.users as usize),
        );
        for user in 0..settings.users {
            let (direction, query) = (liked.row_mut(user as usize), logging.row_mut(user as usize));
            world
                .liked(user)
                .iter()
                .for_each(|topic| add(direction, 1.0, topics.row(*topic as usize)));
            normalise(direction);
            for value in query.iter_mut() {
                *value *= BLUR;
            }
            add(query, 1.0, direction);
            normalise(query);
        }
        let actions = Arc::new(ActionEmbeddings::new(beta)?);
        let scale = Scale::new(rule, Radial::Keep, LATENT_DIM, actions.mean_norm())?;
        Ok(Self { world, rule, scale, exact: Exact::new(actions), liked, logging })
    }

    /// Queries `[U, L]` at the distance `‖h̃ − h₀‖/σ` from those of the policy that logs, towards what
    /// each user likes. Under a relative σ they are turned and stretched, otherwise moved.
    pub(crate) fn queries(&self, distance: f32) -> Matrix {
        let mut queries = self.logging.clone();
        for user in 0..queries.rows() {
            let (logged, liked) = (self.logging.row(user), self.liked.row(user));
            let shift = distance * self.scale.sigma(logged);
            let mut way = liked.to_vec();
            let query = queries.row_mut(user);
            if let Sigma::Relative(_) = self.rule {
                add(&mut way, -dot(logged, liked), logged);
                normalise(&mut way);
                // A chord of this length, on the sphere of h₀, whose length is one.
                let half = (shift / 2.0).asin();
                let (sin, cos) = (2.0 * half).sin_cos();
                for value in query.iter_mut() {
                    *value *= cos * LONGER;
                }
                add(query, sin * LONGER, &way);
            } else {
                add(&mut way, -1.0, logged);
                normalise(&mut way);
                add(query, shift, &way);
            }
        }
        queries
    }

    fn num_users(&self) -> u32 {
        self.world.settings().users
    }

    fn search(&self, z: &Matrix) -> Result<Slates> {
        let slate_size = self.world.settings().slate_size;
        Ok(self.exact.search(Queries { latent: z, slate_size, excluded: None })?)
    }

    fn perturb(&self, h: &[f32], stream: &mut Stream, z: &mut [f32]) {
        let sigma = self.scale.sigma(h);
        stream.fill_normals(z);
        z.iter_mut().zip(h).for_each(|(z, h)| *z = h + sigma * *z);
    }

    /// Rows that the policy of the queries `h` `[U, L]` logs: a person is a random user.
    pub(crate) fn rows(&self, h: &Matrix, plan: Plan) -> Result<Rows> {
        let Plan { log, rows, rows_of_person } = plan;
        let mut z = Matrix::zeros(rows as usize, LATENT_DIM);
        let people: Vec<u32> = (0..rows).map(|row| row / rows_of_person).collect();
        let user = |person: &u32| {
            stream(Purpose::Exploration, 2 * log, u64::from(*person)).below(self.num_users())
        };
        let users: Vec<u32> = people.iter().map(user).collect();
        let mut streams: Vec<Stream> = (0..u64::from(rows))
            .map(|row| stream(Purpose::Exploration, 2 * log + 1, row))
            .collect();
        for (row, stream) in streams.iter_mut().enumerate() {
            self.perturb(h.row(users[row] as usize), stream, z.row_mut(row));
        }
        let slates = self.search(&z)?; // [n, K]
        let clicks = streams.iter_mut().zip(&users).enumerate();
        let clicks = clicks
            .flat_map(|(row, (stream, user))| self.world.clicks(*user, slates.slate(row), stream));
        Ok(Rows { clicks: clicks.collect(), users, people, z, slates })
    }

    /// `rows` of the policy that logs, with the weights of the policy of the queries `h` `[U, L]`.
    pub(crate) fn weighed(&self, rows: &Rows, h: &Matrix) -> Weighed {
        let ratio = |(row, user): (usize, &u32)| {
            let logged = self.logging.row(*user as usize);
            let drawn = Drawn { h: logged, z: rows.z.row(row), sigma: self.scale.sigma(logged) };
            drawn.ratio(self.rule, h.row(*user as usize))
        };
        let ratios = rows.users.iter().enumerate().map(ratio);
        let (log_weights, distances) =
            ratios.map(|ratio| (ratio.log_weight, ratio.distance)).unzip();
        let (rewards, people) = (rows.rewards(), rows.people.clone());
        Weighed { log_weights, distances, rewards, people, bounds: self.world.bounds() }
    }

    /// Slates that the policy of the queries `h` `[U, L]` shows to a user, `[draws, K]`.
    pub(crate) fn slates(&self, h: &Matrix, user: u32, draws: usize, step: u64) -> Result<Slates> {
        let mut z = Matrix::zeros(draws, LATENT_DIM);
        let mut stream = stream(Purpose::Noise, step, user.into());
        for draw in 0..draws {
            self.perturb(h.row(user as usize), &mut stream, z.row_mut(draw));
        }
        self.search(&z)
    }

    /// The mean of the expected clicks on slates that the policy of the queries `h` `[U, L]` shows, over
    /// all users; the standard error is that of `draws` slates for each.
    pub(crate) fn value(&self, h: &Matrix, draws: usize) -> Result<Estimate> {
        let of_user = |user: u32| -> Result<Estimate> {
            let slates = self.slates(h, user, draws, 0)?;
            let expected = |at| self.world.expected(user, slates.slate(at));
            Ok(Estimate::of((0..draws).map(expected).collect::<Vec<_>>().iter().copied()))
        };
        let users: Vec<Estimate> =
            (0..self.num_users()).into_par_iter().map(of_user).collect::<Result<_>>()?;
        let count = users.len() as f64;
        let squares: f64 = users.iter().map(|user| user.standard_error.powi(2)).sum();
        Ok(Estimate {
            mean: users.iter().map(|user| user.mean).sum::<f64>() / count,
            standard_error: squares.sqrt() / count,
        })
    }
}
