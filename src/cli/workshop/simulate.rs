//! `slate simulate`: users of whom the truth is known in, rounds of serving, learning and shipping out.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};
use serde::Serialize;

use super::prologue::named;
use crate::chart::{Axis, Chart, Line, Point};
use crate::cli::report::Report;
use crate::files::write_atomic;
use crate::logged::rewards::LoggedReward;
use crate::seed::Seed;
use crate::simulation::{LoopSettings, Round, Rounds, SimulationSettings, rounds};

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The folder to write to, which must not exist: a log and a run for each round, and a picture.
    #[arg(long, default_value = "artifacts/simulation", value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Rounds of serving and learning.
    #[arg(long, default_value_t = LoopSettings::default().rounds)]
    rounds: u32,
    /// Slates that a round shows.
    #[arg(long, default_value_t = LoopSettings::default().requests)]
    requests: u32,
    /// The number of users.
    #[arg(long, default_value_t = LoopSettings::default().world.users)]
    users: u32,
    /// P, the number of items.
    #[arg(long, default_value_t = LoopSettings::default().world.actions)]
    actions: u32,
    /// What an item leaves of the attraction of the items of its topic below it, from 0 to 1.
    #[arg(long, default_value_t = LoopSettings::default().world.satiation)]
    satiation: f64,
    /// L.
    #[arg(long, default_value_t = LoopSettings::default().latent_dim)]
    latent_dim: usize,
    /// The length of the noise that explores, in lengths of the query.
    #[arg(long, default_value_t = LoopSettings::default().exploration)]
    exploration: f32,
    /// Steps of learning in a round.
    #[arg(long, default_value_t = LoopSettings::default().steps)]
    steps: u64,
    /// Estimate a reward from each round's log, and train on it, in the place of learning by weights:
    /// direct, position-based or cascade-clicks.
    #[arg(long, value_name = "REWARD", value_parser = named::<LoggedReward>)]
    estimate: Option<LoggedReward>,
    /// The seed of every random draw.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, Serialize)]
struct Simulated {
    settings: LoopSettings,
    picture: PathBuf,
    #[serde(flatten)]
    found: Rounds,
}

pub(super) fn run(args: &SimulateArgs) -> Result<Report> {
    let world = SimulationSettings {
        users: args.users,
        actions: args.actions,
        satiation: args.satiation,
        seed: Seed(args.seed),
        ..LoopSettings::default().world
    };
    let settings = LoopSettings {
        world,
        rounds: args.rounds,
        requests: args.requests,
        latent_dim: args.latent_dim,
        exploration: args.exploration,
        steps: args.steps,
        estimate: args.estimate,
        seed: Seed(args.seed),
    };
    let found = rounds(&settings, &args.out, |round| tracing::info!("{}", line(round)))?;
    let picture = args.out.join("rounds.svg");
    let svg = chart(&found).svg()?;
    write_atomic(&picture, |file| Ok(std::io::Write::write_all(file, svg.as_bytes())?))?;
    let text = text(&found, &picture.display().to_string());
    Report::new(&Simulated { settings, picture, found }, text)
}

fn line(round: &Round) -> String {
    let Round { round, true_reward, learned_true_reward, estimate, gain_bound, shipped, .. } =
        round;
    let estimate = estimate.map_or_else(
        || "no estimate".to_owned(),
        |found| format!("estimated {:.4} [{:.4}, {:.4}]", found.mean, found.low, found.high),
    );
    let bound = gain_bound.map_or_else(String::new, |bound| format!(", gain above {bound:+.4}"));
    let said = if *shipped { "shipped" } else { "not shipped" };
    format!(
        "round {round:>2}  serves {true_reward:.4}  learned {learned_true_reward:.4}  {estimate}{bound}  \
         {said}"
    )
}

fn text(found: &Rounds, picture: &str) -> String {
    let Rounds { start, end, reference, ceiling, gap_closed, rounds } = found;
    let mut text =
        String::from("expected clicks on a slate; what is learned from knows none of them\n");
    for round in rounds {
        text += &format!("{}\n", line(round));
    }
    text += &format!("\n{:<34}exploring  decision\n", "");
    for (name, truth) in [("start", start), ("end", end), ("LGP on the true reward", reference)] {
        text += &format!("{name:<34}{:>9.4} {:>9.4}\n", truth.exploring, truth.decision);
    }
    text += &format!("{:<34}{:>9} {ceiling:>9.4}\n", "best slates", "");
    let shipped = rounds.iter().filter(|round| round.shipped).count();
    let closed = gap_closed.map_or_else(
        || "LGP on the true reward is no better than the start".to_owned(),
        |closed| format!("{:.0} % of the gap to LGP on the true reward closed", 100.0 * closed),
    );
    text + &format!("{shipped} of {} rounds shipped; {closed}\n{picture}", rounds.len())
}

/// The truth of what serves and the estimates of what was learned, by round.
fn chart(found: &Rounds) -> Chart {
    let of = |value: &dyn Fn(&Round) -> Option<(f64, f64)>| -> Vec<Point> {
        let point = |round: &Round| {
            value(round).map(|(y, error)| Point { x: f64::from(round.round), y, error })
        };
        found.rounds.iter().filter_map(point).collect()
    };
    let lines = [
        ("serves, true", of(&|round| Some((round.true_reward, 0.0)))),
        ("learned, true", of(&|round| Some((round.learned_true_reward, 0.0)))),
        (
            "learned, estimated ± 95 %",
            of(&|round| round.estimate.map(|found| (found.mean, found.high - found.mean))),
        ),
        ("LGP on the true reward", of(&|_| Some((found.reference.exploring, 0.0)))),
    ];
    let lines = lines.into_iter().enumerate().map(|(colour, (name, points))| Line {
        name: name.to_owned(),
        colour,
        points,
    });
    Chart {
        title: "Learning from what was shown".into(),
        x: Axis { name: "round".into(), logarithmic: false },
        y: Axis { name: "expected clicks on a slate".into(), logarithmic: false },
        lines: lines.collect(),
    }
}
