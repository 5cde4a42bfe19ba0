//! A run and a log in; what the log says of the run's policy out, and whether to ship it.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::EvaluateArgs;
use crate::cli::report::{DOUBTED, NOT_SHIPPED, Report};
use crate::estimate::Interval;
use crate::facade::{Policy, Verdict};
use crate::logged::{Cut, Value};

#[derive(Debug, Serialize)]
struct Logged {
    run: PathBuf,
    #[serde(flatten)]
    verdict: Verdict,
    /// True if the policy surely earns more than the one that logged; none if nobody asked.
    ship: Option<bool>,
}

pub(super) fn run(args: &EvaluateArgs, policy: &Policy) -> Result<Report> {
    let reading = args.logged.reading(Cut::default(), None)?;
    let verdict = policy.by_log(&args.logged.logged, reading, args.ship_if_above)?;
    let doubted = verdict.value.doubt.is_some();
    let ship = args.ship_if_above.then(|| verdict.gain_bound.is_some_and(|bound| bound > 0.0));
    let logged = Logged { run: args.run.clone(), verdict, ship };
    let mut report = Report::new(&logged, logged.text())?;
    report.exit = match ship {
        _ if doubted => DOUBTED,
        Some(false) => NOT_SHIPPED,
        _ => 0,
    };
    Ok(report)
}

impl Logged {
    fn text(&self) -> String {
        let Verdict { step, value, unnamed, learned_from, gain_bound, unused } = &self.verdict;
        let Value { rows, people, logging, .. } = value;
        let mut text = format!(
            "{}, step {step}: the policy that explores, by {rows} rows of {people} persons\n",
            self.run.display()
        );
        if *unnamed > 0 {
            text += &format!(
                "{unnamed} of {people} persons are lists of items or contexts: somebody whose list changes counts \
                 as several persons, so that intervals may be too narrow\n"
            );
        }
        let mut line = |name: &str, value: String| text += &format!("{name:<24}{value}\n");
        if *rows > 0 {
            line("what logged", plain(*logging));
        }
        for (name, interval) in [
            ("plain", value.plain),
            ("  by bootstrap", value.bootstrap),
            ("self-normalised", value.self_normalised),
            ("clipped at √n", value.clipped),
            ("plain − what logged", value.gain),
        ] {
            if let Some(interval) = interval {
                line(name, plain(interval));
            }
        }
        if let Some(lower) = value.smoothed_lower {
            let smoothed = value.smoothed;
            let above =
                format!("{smoothed:.4}, above {lower:.4} in 19 of 20 logs of these requests");
            line("smoothed", above);
        }
        if *rows > 0 {
            line("mean weight", value.mean_weight.to_string());
            let (found, expected) = (value.effective_rows, value.expected_effective_rows);
            line("effective rows", format!("{found:.0}, {expected:.0} expected"));
        }
        if let Some(doubt) = value.doubt.as_ref().or(value.doubt_of_intervals.as_ref()) {
            text += &format!("no interval: {doubt}\n");
        }
        if let Some(bound) = gain_bound {
            let said = if *bound > 0.0 { "ship it" } else { "do not ship it" };
            text += &format!(
                "gain over what logged is above {bound:+.4} in 19 of 20 logs of these requests: {said}\n"
            );
        }
        if *learned_from > 0 {
            text +=
                &format!("not judged: {learned_from} rows of persons that it has learned from\n");
        }
        for (reason, count) in &unused.0 {
            text += &format!("left out: {count} {reason}\n");
        }
        text + "the value of the decision without noise cannot be told from a log"
    }
}

fn plain(interval: Interval) -> String {
    let Interval { mean, low, high } = interval;
    format!("{mean:.4} [{low:.4}, {high:.4}]")
}
