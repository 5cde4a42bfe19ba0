//! Exposures and feedback → rows in numbers, each with its context, its queries and its reward.

use std::collections::{BTreeMap, HashMap, HashSet};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::rewards::{LoggedReward, Shown};
use super::{Bounds, Cut, Drawn, Unused, Weighed, smoothing};
use crate::bundle::{Recommender, Request, Who};
use crate::dataset::{ActionSets, Split};
use crate::error::{Error, Result};
use crate::log::{Exposure, Impression, Log};
use crate::matrix::Matrix;
use crate::policy::Sigma;

/// What a slate earned, out of the feedback on its positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The sum of all values.
    #[default]
    Sum,
    /// 1 if some value is above 0, otherwise 0.
    Any,
}

impl Outcome {
    fn of(self, values: &[(u32, f64)]) -> f64 {
        let mut values = values.iter().map(|(_, value)| *value);
        match self {
            Self::Sum => values.sum(),
            Self::Any => f64::from(u8::from(values.any(|value| value > 0.0))),
        }
    }
}

/// The n rows of a log that latent weights are known of, for policies over the same vectors.
#[derive(Clone, Debug)]
pub struct Logged {
    /// M(X), `[n, D]`.
    pub contexts: Matrix,
    /// h₀, `[n, L]`.
    pub h: Matrix,
    /// z, `[n, L]`.
    pub z: Matrix,
    /// σ, `[n]`.
    pub sigmas: Vec<f32>,
    /// r, `[n]`.
    pub rewards: Vec<f64>,
    /// The person of each row, `[n]`, numbered in the order of their first rows.
    pub people: Vec<u32>,
    /// The part of each row's person.
    pub parts: Vec<Split>,
    /// True where a row's person is a list of items or a context, `[n]`.
    pub unnamed: Vec<bool>,
    /// The rule for σ.
    pub rule: Sigma,
    /// The least and the most that a reward can be.
    pub bounds: Bounds,
}

/// How a log is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// What a slate earned.
    pub outcome: Outcome,
    /// The least and the most that a reward can be.
    pub bounds: Bounds,
    /// How the persons are divided.
    pub cut: Cut,
    /// The reward that is estimated from the log, to train on with the method of the run before; none to
    /// learn by weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<LoggedReward>,
}

/// Slates of K that were shown, whether they explored or not, for rewards that are estimated from them.
#[derive(Clone, Debug)]
pub struct ShownSlates {
    /// Contexts, slates and outcomes.
    pub shown: Shown,
    /// The actions that are known of the person of each row.
    pub known: ActionSets,
    /// The person of each row, numbered in the order of their first rows.
    pub people: Vec<u32>,
}

impl ShownSlates {
    /// The rows of `log`, as [`of`](Self::of) reads them.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_log(log: &Log, policy: &Recommender, cut: Cut) -> Result<(Self, Unused)> {
        let mut unused = Unused::default();
        let outcomes = outcomes(log, &mut unused);
        let impression = |row: &Exposure| {
            let mut values = vec![0.0; row.slate.len()];
            for (position, value) in outcomes.get(row.request.as_str()).into_iter().flatten() {
                #[allow(clippy::cast_possible_truncation, reason = "rewards to train on are f32")]
                let value = *value as f32;
                values[*position as usize] += value;
            }
            let (who, slate) = (row.who.clone(), row.slate.clone());
            Impression { who, slate, outcomes: values, propensities: None }
        };
        Self::of(log.exposures.iter().map(impression), policy, cut, unused)
    }

    /// The `impressions` whose slates have the size of those of `policy`, which also encodes the contexts;
    /// and how many others there are, by reason, beside those that are `unused` already.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for no row at all; [`crate::Error::Setting`] where most outcomes above 0 are
    /// on actions that are known of their persons, and the policy was trained to show no such action.
    pub fn of(
        impressions: impl IntoIterator<Item = Impression>,
        policy: &Recommender,
        cut: Cut,
        mut unused: Unused,
    ) -> Result<(Self, Unused)> {
        let slate_size = policy.bundle().trained.slate_size;
        let items = &policy.bundle().items.ids;
        let (mut contexts, mut slates, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut known, mut parts, mut people) =
            (ActionSets::none(), Vec::new(), People::default());
        let mut propensities = Some(Vec::new());
        let (mut above_zero, mut on_known) = (0, 0);
        for row in impressions {
            let slate: Option<Vec<u32>> = row.slate.iter().map(|id| items.find(id)).collect();
            let slate = slate.filter(|slate| slate.len() == slate_size);
            let request = Request { who: row.who, exclude: Vec::new() };
            let (slate, (context, actions)) = match (slate, policy.context(&request)) {
                (Some(_), Ok((_, known))) if items.len() < known.len() + slate_size => {
                    unused.add("a user who knows too many items for a slate of others");
                    continue;
                }
                (Some(slate), Ok(context)) => (slate, context),
                (None, _) => {
                    unused.add("a slate of another size, or of items without vectors");
                    continue;
                }
                (_, Err(_)) => {
                    unused.add(UNKNOWN);
                    continue;
                }
            };
            for (action, _) in slate.iter().zip(&row.outcomes).filter(|(_, found)| **found > 0.0) {
                above_zero += 1;
                on_known += u64::from(actions.binary_search(action).is_ok());
            }
            contexts.extend(context);
            slates.extend(slate);
            outcomes.extend(row.outcomes);
            match (&mut propensities, row.propensities) {
                (Some(all), Some(more)) => all.extend(more),
                _ => propensities = None,
            }
            known.push_set();
            for action in actions {
                known.push(action);
            }
            let person = person(&request.who);
            parts.push(cut.part(&person));
            people.push(person);
        }
        check_known(policy, above_zero, on_known)?;
        let contexts = Matrix::new(contexts, policy.context_dim())?;
        let shown = Shown { contexts, slates, slate_size, outcomes, propensities, parts };
        Ok((Self { shown, known, people: people.numbers }, unused))
    }
}

/// Says that outcomes are on actions that are known of their persons: a context that holds a click predicts
/// it, and no slate without known actions can earn it again.
fn check_known(policy: &Recommender, above_zero: u64, on_known: u64) -> Result<()> {
    let found = format!(
        "{on_known} of {above_zero} outcomes above 0 are on items that the person's history holds already"
    );
    let retrieval = policy.bundle().trained.settings.get("retrieval");
    let excludes = retrieval.and_then(|settings| settings.get("exclude_observed"));
    if excludes.and_then(toml::Value::as_bool) == Some(true) && 2 * on_known > above_zero {
        let problem = format!(
            "{found}, and this run shows no such items; prepare a run from data older than the slates"
        );
        return Err(Error::setting("estimate", problem));
    }
    if on_known > 0 {
        tracing::warn!(
            "{found}: where these are the clicks of the log, prepare a run from data older than the slates"
        );
    }
    Ok(())
}

const UNKNOWN: &str = "a user or a context that is not known";

/// Persons, numbered in the order in which they come.
#[derive(Default)]
struct People {
    known: HashMap<String, u32>,
    numbers: Vec<u32>,
}

impl People {
    fn push(&mut self, person: String) {
        #[allow(clippy::cast_possible_truncation, reason = "rows are numbered by u32")]
        let next = self.known.len() as u32;
        self.numbers.push(*self.known.entry(person).or_insert(next));
    }
}

/// A row that may be used, and the context of its person.
struct Usable<'a> {
    row: &'a Exposure,
    context: Vec<f32>,
}

/// Who a row is about: rows with the same text belong together.
fn person(who: &Who) -> String {
    match who {
        Who::User { id, .. } => format!("user {id}"),
        Who::Items(items) => format!("items {items:?}"),
        Who::Context(context) => format!("context {context:?}"),
    }
}

impl Logged {
    /// The rows of `log` that say something of policies over the vectors of `policy`, which also encodes
    /// the contexts; and how many others there are, by reason.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] if the policy does not draw by Gaussian noise on its query.
    pub fn of(log: &Log, policy: &Recommender, reading: Reading) -> Result<(Self, Unused)> {
        let Reading { outcome, bounds, cut, .. } = reading;
        let rule = policy.sigma_rule()?;
        let mut unused = Unused::default();
        let outcomes = outcomes(log, &mut unused);
        let usable: Vec<Result<Usable<'_>, &'static str>> =
            log.exposures.par_iter().map(|row| usable(row, policy)).collect();
        let mut rows = Vec::new();
        for row in usable {
            match row {
                Ok(row) => rows.push(row),
                Err(reason) => unused.add(reason),
            }
        }
        let mut searches: BTreeMap<&str, u64> = BTreeMap::new();
        for Usable { row, .. } in &rows {
            *searches.entry(&row.retrieval).or_default() += 1;
        }
        let most = searches.iter().max_by_key(|(_, count)| **count).map(|(search, _)| *search);
        rows.retain(|Usable { row, .. }| {
            let same = Some(row.retrieval.as_str()) == most;
            if !same {
                unused.add("another search than most rows");
            }
            same
        });

        let (dim, latent_dim) = (policy.context_dim(), policy.bundle().actions.latent_dim());
        let gather = |cols: usize, of: &dyn Fn(&Usable<'_>) -> Vec<f32>| {
            Matrix::new(rows.iter().flat_map(of).collect(), cols)
        };
        let (mut people, mut parts) = (People::default(), Vec::new());
        let unnamed = |Usable { row, .. }: &Usable<'_>| !matches!(row.who, Who::User { .. });
        let unnamed = rows.iter().map(unnamed).collect();
        for Usable { row, .. } in &rows {
            let person = person(&row.who);
            parts.push(cut.part(&person));
            people.push(person);
        }
        let reward = |Usable { row, .. }: &Usable<'_>| {
            outcome.of(outcomes.get(row.request.as_str()).map_or(&[], Vec::as_slice))
        };
        let rewards: Vec<f64> = rows.iter().map(reward).collect();
        bounds.check(&rewards)?;
        let logged = Self {
            contexts: gather(dim, &|row| row.context.clone())?,
            h: gather(latent_dim, &|row| row.row.h.clone())?,
            z: gather(latent_dim, &|row| row.row.z.clone())?,
            sigmas: rows.iter().map(|row| row.row.sigma).collect(),
            rewards,
            people: people.numbers,
            parts,
            unnamed,
            rule,
            bounds,
        };
        Ok((logged, unused))
    }

    /// n.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// True without rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// The rows of a part, or all.
    #[must_use]
    pub fn rows_of(&self, part: Option<Split>) -> Vec<u32> {
        let rows = (0_u32..).zip(&self.parts);
        rows.filter(|(_, found)| part.is_none_or(|part| part == **found))
            .map(|(row, _)| row)
            .collect()
    }

    /// How many persons of `rows` are lists of items or contexts, as somebody is who asks without an id.
    #[must_use]
    pub fn unnamed_of(&self, rows: &[u32]) -> usize {
        let unnamed = rows.iter().map(|row| *row as usize).filter(|row| self.unnamed[*row]);
        unnamed.map(|row| self.people[row]).collect::<HashSet<_>>().len()
    }

    /// The reward of a row on the scale of the bounds, at least 0.
    #[must_use]
    pub fn mapped_reward(&self, row: u32) -> f64 {
        self.bounds.mapped(self.rewards[row as usize])
    }

    /// The mean of [`mapped_reward`](Self::mapped_reward) over the rows that are learned from.
    #[must_use]
    pub fn mean_reward(&self) -> f64 {
        let rows = self.rows_of(Some(Split::Train));
        rows.iter().map(|row| self.mapped_reward(*row)).sum::<f64>() / rows.len().max(1) as f64
    }

    /// λ of the smoothed objective, for the rows that are learned from, with weights of about 1.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        let rows = self.rows_of(Some(Split::Train));
        let squares: f64 = rows.iter().map(|row| self.mapped_reward(*row).powi(2)).sum();
        let mean = squares / rows.len().max(1) as f64;
        smoothing(rows.len(), if mean > 0.0 { mean } else { 1.0 })
    }

    /// The query that a row was shown by.
    #[must_use]
    pub fn drawn(&self, row: u32) -> Drawn<'_> {
        let row = row as usize;
        Drawn { h: self.h.row(row), z: self.z.row(row), sigma: self.sigmas[row] }
    }

    /// `rows` with the weights of a policy whose queries of them are `latent` `[rows, L]`.
    #[must_use]
    pub fn weighed(&self, rows: &[u32], latent: &Matrix) -> Weighed {
        let ratio = |(row, h): (&u32, &[f32])| self.drawn(*row).ratio(self.rule, h);
        let ratios = rows.iter().zip(latent.iter_rows()).map(ratio);
        let (log_weights, distances) =
            ratios.map(|ratio| (ratio.log_weight, ratio.distance)).unzip();
        let mut numbers = HashMap::new();
        let number = |row: &u32| {
            #[allow(clippy::cast_possible_truncation, reason = "rows are numbered by u32")]
            let next = numbers.len() as u32;
            *numbers.entry(self.people[*row as usize]).or_insert(next)
        };
        Weighed {
            log_weights,
            distances,
            rewards: rows.iter().map(|row| self.rewards[*row as usize]).collect(),
            people: rows.iter().map(number).collect(),
            bounds: self.bounds,
        }
    }
}

/// The positions and values of each request's feedback.
fn outcomes<'a>(log: &'a Log, unused: &mut Unused) -> HashMap<&'a str, Vec<(u32, f64)>> {
    let shown: HashMap<&str, &Exposure> =
        log.exposures.iter().map(|row| (row.request.as_str(), row)).collect();
    let mut outcomes: HashMap<&str, Vec<(u32, f64)>> = HashMap::new();
    for event in &log.feedback {
        match shown.get(event.request.as_str()) {
            None => unused.add("feedback on a request that is not in the log"),
            Some(row) if event.position as usize >= row.slate.len() => {
                unused.add("feedback beyond the slate");
            }
            Some(row) if event.time < row.time => unused.add("feedback before its slate"),
            Some(_) => {
                outcomes.entry(&event.request).or_default().push((event.position, event.value));
            }
        }
    }
    outcomes
}

/// The row with its context, or why it cannot be used.
fn usable<'a>(row: &'a Exposure, policy: &Recommender) -> Result<Usable<'a>, &'static str> {
    let bundle = policy.bundle();
    let limits_groups = |filter: &String| filter.starts_with("max_per_group=");
    let reasons = [
        (row.sigma <= 0.0 || !row.exploring, "shown without noise"),
        (row.vectors != bundle.trained.vectors, "other action vectors"),
        (row.fallback || row.shards_answered < row.shards, "degraded"),
        (!row.filters.iter().all(limits_groups), "re-ranked"),
        (row.h.len() != bundle.actions.latent_dim(), "a query of another length"),
        (policy.is_floored(&row.h), "too short a query: its noise is not relative to it"),
        (!policy.draws_with(row.sigma, &row.h), "drawn with another noise than this policy's"),
    ];
    if let Some((_, reason)) = reasons.iter().find(|(holds, _)| *holds) {
        return Err(reason);
    }
    let request = Request { who: row.who.clone(), exclude: Vec::new() };
    let (context, _) = policy.context(&request).map_err(|_| UNKNOWN)?;
    Ok(Usable { row, context })
}
