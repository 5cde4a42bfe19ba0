//! `slate prepare`: a log in, a prepared folder with an index and a report out.

mod args;
mod data;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::bench::recall;
use super::folders::typed;
use super::prologue::watched;
use crate::cli::progress::spinner;
use crate::cli::report::Report;
use crate::dataset::{FeatureColumn, FeatureTable};
use crate::embedding::{BlendOptions, NeighbourOptions};
use crate::error::listed;
use crate::estimate::Estimate;
use crate::experiment::{Candidate, Kind, League, Settled, Standing, league};
use crate::prepared::{HeldOut, Judge, Manifest, Phase, Phases, prepare};
use crate::settings::Preset;
use crate::task::{Audit, EfSearch};
pub(crate) use args::PrepareArgs;

/// The report of a preparation.
#[derive(Debug, Serialize)]
struct PreparedReport {
    folder: PathBuf,
    #[serde(flatten)]
    manifest: Manifest,
    /// The time of each phase.
    phases: Seconds,
    reused: Vec<Phase>,
    features: Option<FeatureTable>,
    /// Recall of the preset's index on the queries of its first step.
    recall: Option<Audit>,
    tuning: Option<EfSearch>,
    /// The embeddings that were tried, unless they were named or taken over.
    league: Option<League>,
}

/// Seconds of each phase.
#[derive(Debug, Serialize)]
struct Seconds {
    #[serde(flatten)]
    prepared: Phases,
    /// Building the index and measuring its recall.
    index: Option<f64>,
}

pub(super) fn run(args: &PrepareArgs) -> Result<Report> {
    let played = RefCell::new(None);
    let choose = |sessions: &_, held_out: HeldOut<'_>, judge: &Judge, seed| {
        tracing::info!("comparing item vectors for up to {} s (--within)", judge.within);
        let watched = spinner("comparing item vectors");
        let result = league(sessions, held_out, judge, seed);
        watched.finish_and_clear();
        let (chosen, league) = result?;
        played.replace(Some(league));
        Ok(chosen)
    };
    let (prepared, phases) =
        prepare(&args.input()?, &args.settings()?, &choose, &args.out, args.force)?;
    let league = played.into_inner();
    let mut prepared = watched(prepared);
    let started = Instant::now();
    let wanted = args.recall.is_some() || prepared.preset(args.preset).needs_index();
    let is_indexed = wanted && !args.no_index;
    let (recall, tuning) = if is_indexed {
        prepared.build_index(args.preset, args.recall).with_context(|| {
            format!(
                "{} is prepared, but has no index, which training builds when it needs one",
                args.out.display()
            )
        })?
    } else {
        (None, None)
    };
    let index = is_indexed.then(|| started.elapsed().as_secs_f64());
    let mut text = prepared.manifest.statistics.to_string();
    text += &format!(
        "\nread and split {:.1} s · embeddings {:.1} s · written {:.1} s",
        phases.sessions, phases.embeddings, phases.written
    );
    if let Some(seconds) = index {
        text += &format!(" · index {seconds:.1} s");
    }
    if !phases.reused.is_empty() {
        let names: Vec<_> = phases.reused.iter().map(|phase| phase.name()).collect();
        text += &format!("\nreused from an earlier preparation: {}", names.join(", "));
    }
    if let Some(league) = &league {
        text += &format!("\n{}", table(league));
    }
    let features = prepared.feature_table()?;
    if let Some(table) = &features {
        text += &format!("\n{}", describe(table));
    }
    if let Some(audit) = recall {
        text += &format!(
            "\nindex recall {:.4} on {} perturbed training queries",
            audit.recall, audit.queries
        );
    }
    if let Some(tuning) = &tuning {
        text += &format!("\n{}", recall::table(tuning).trim_end());
    }
    text += &format!("\ntrain on it with\n  slate train --data {} --out RUN", typed(&args.out));
    if args.preset == Preset::Paper {
        text += " --preset paper";
    }
    if let Some(encoders) = prepared.with_features(&prepared.preset(args.preset)) {
        text += &format!(
            " --set 'context.encoders={encoders}'\n(without --set the features of users are not used)"
        );
    }
    let manifest = prepared.manifest.clone();
    let report = PreparedReport {
        folder: args.out.clone(),
        manifest,
        reused: phases.reused.clone(),
        features,
        phases: Seconds { prepared: phases, index },
        recall,
        tuning,
        league,
    };
    Report::new(&report, text)
}

/// The standings of a league, the best of each kind, η and L.
fn table(league: &League) -> String {
    let League { table, judges, strangers, draws, tried, settled, left_out, seconds } = league;
    let outside = if *strangers { "outside the fit" } else { "by items outside the fit" };
    let halves = if *draws > 1 { format!(", {draws} halves of each") } else { String::new() };
    let mut text = format!(
        "embeddings: {tried} tried in {seconds:.0} s, by the reward at θ = I of {judges} training users \
         {outside}{halves}\n  {:>15}  {:>17}  bytes an item",
        "reward", "difference",
    );
    for standing in table {
        let Standing { candidate, reward, reward_se, difference, difference_se, .. } = *standing;
        let reward = Estimate { mean: reward, standard_error: reward_se }.to_string();
        let difference = format!("{difference:+.4} ± {difference_se:.4}");
        let mark = if standing.chosen { '→' } else { ' ' };
        let name = name(&candidate);
        let bytes = standing.bytes;
        text += &format!("\n{mark} {reward:>15}  {difference:>17}  {bytes:>13}  {name}");
    }
    text += &match settled {
        None => "\n→ the shortest within a standard error and 1 % of the best".to_owned(),
        Some(Settled { tried, judges, reward, reward_se }) => {
            let reward = Estimate { mean: *reward, standard_error: *reward_se };
            format!("\n→ in the end chosen among {tried} by {judges} users, who say {reward}")
        }
    };
    if !left_out.is_empty() {
        let hint = if league.wants_time() { " (--within SECONDS gives more time)" } else { "" };
        let left_out: Vec<_> = left_out.iter().map(ToString::to_string).collect();
        text += &format!("\n  left out: {}{hint}", left_out.join("; "));
    }
    text
}

fn name(candidate: &Candidate) -> String {
    let kind = match candidate.kind {
        Kind::Svd(svd) => format!("svd L = {}, {}", svd.latent_dim, svd.kind()),
        Kind::Als { blend } => {
            let BlendOptions { latent_dim, svd, confidence, regularization, .. } = blend;
            let kind = svd.kind();
            format!(
                "als L = {latent_dim} from svd with {kind}, α = {confidence}, λ = {regularization}"
            )
        }
        Kind::Blend { blend } => {
            let BlendOptions {
                latent_dim, svd, als_dim, share, confidence, regularization, ..
            } = blend;
            format!(
                "blend L = {latent_dim} of svd {} with {} and als {als_dim}, ω = {share}, \
                 α = {confidence}, λ = {regularization}",
                svd.latent_dim,
                svd.kind(),
            )
        }
        Kind::Neighbours { neighbours } => {
            let NeighbourOptions { dims, count, weight, ridge, .. } = neighbours;
            let beside = candidate.beside_neighbours().as_ref().map(name).unwrap_or_default();
            return format!(
                "{count} neighbours in {dims} dimensions, ω = {weight}, λ = {ridge}, beside {beside}"
            );
        }
    };
    let Candidate { form, popularity_power, recency, .. } = candidate;
    let weight = match form.ridge {
        0.0 => format!("p = {}", f64::from(form.power)),
        ridge => format!("λ = {ridge}"),
    };
    let mut text = format!("{kind}, {weight}, κ = {}, γ = {popularity_power}", form.popularity);
    if *recency > 0.0 {
        text += &format!(", ρ = {recency}");
    }
    text
}

/// The columns of features, and the number of users without any.
fn describe(table: &FeatureTable) -> String {
    let column = |column: &FeatureColumn| match column {
        FeatureColumn::Number { name, .. } => name.clone(),
        FeatureColumn::Category { name, categories } => {
            format!("{name} ({} categories)", categories.len())
        }
    };
    let columns: Vec<String> = table.columns.iter().map(column).collect();
    let FeatureTable { width, users_without_row, .. } = table;
    let mut text = format!("{width} features of users: {}", listed(&columns));
    if *users_without_row > 0 {
        text += &format!("; zeros for {users_without_row} users without a row");
    }
    text
}
