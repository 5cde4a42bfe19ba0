//! A log of positions and a stationary policy → the mean outcome of a shown position under the policy,
//! at each position and over all.
//!
//! Over all positions, a row counts as much as any other: the positions have the shares that they have
//! in the log.

use serde::Serialize;

use super::super::doubts::LEAST_ROWS;
use super::direct::Direct;
use super::estimators::{Measured, doubly_robust, ips, snips};
use super::{DirectOptions, PositionLog, Stationary};
use crate::error::Result;

/// With fewer outcomes above 0 the normal approximation is rough.
const FEW: usize = 30;

/// A mean weight so many standard errors from 1 says that the propensities are not those of the log.
const DOUBTED: f64 = 4.0;

/// The value of a policy at one position, or over all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValueAt {
    /// The position as the file names it; none over all.
    pub position: Option<i64>,
    /// n.
    pub rows: usize,
    /// The rows whose outcome is above 0.
    pub above_zero: usize,
    /// The mean outcome in the log: the value of the policy that logged.
    pub logged: Measured,
    /// `1/n Σ w y`; none without propensities, as all that needs weights.
    pub ips: Option<Measured>,
    /// `Σ w y / Σ w`; none also if all weights are 0.
    pub snips: Option<Measured>,
    /// The doubly robust estimate.
    pub doubly_robust: Option<Measured>,
    /// The mean of the direct model; nobody knows its error.
    pub direct: f64,
    /// The mean weight, 1 in expectation.
    pub mean_weight: Option<Measured>,
    /// `(Σ w)² / Σ w²`: so many rows of the policy itself would say as much.
    pub effective_rows: Option<f64>,
    /// `(Σ w y)² / Σ (w y)²`: so many outcomes of equal weight would say as much.
    pub effective_outcomes: Option<f64>,
    /// The probability that the policy gives to items that the log never shows there.
    pub uncovered: f64,
}

/// The value of a policy, and what there is to doubt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyValue {
    /// The policy.
    pub policy: Stationary,
    /// At each position, in their order.
    pub positions: Vec<ValueAt>,
    /// Over all rows.
    pub all: ValueAt,
    /// What there is to doubt, a sentence each.
    pub doubts: Vec<String>,
}

/// The mean outcomes of a log: the value of the policy that logged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogMeans {
    /// The rows.
    pub rows: usize,
    /// The rows whose outcome is above 0.
    pub above_zero: usize,
    /// Each position with its mean, in their order.
    pub positions: Vec<(i64, Measured)>,
    /// Over all rows.
    pub all: Measured,
}

impl LogMeans {
    /// Takes the means of a log.
    #[must_use]
    pub fn of(log: &PositionLog) -> Self {
        let all: Vec<usize> = (0..log.len()).collect();
        let at = |(position, rows): (&i64, Vec<usize>)| (*position, logged(log, &rows));
        Self {
            rows: log.len(),
            above_zero: log.above_zero(&all),
            positions: log.positions.iter().zip(log.rows_at()).map(at).collect(),
            all: logged(log, &all),
        }
    }
}

fn logged(log: &PositionLog, rows: &[usize]) -> Measured {
    Measured::of(&rows.iter().map(|row| log.outcomes[*row]).collect::<Vec<_>>())
}

impl PolicyValue {
    /// Estimates the value of a policy over the items of `log`.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] for options that no model can be fitted with.
    pub fn of(log: &PositionLog, policy: Stationary, options: DirectOptions) -> Result<Self> {
        let rows = Rows::new(log, &policy, &Direct::fit(log, options)?);
        let at = |(at, rows_at): (usize, Vec<usize>)| {
            rows.value(Some(at), &rows_at, rows.uncovered(at, &rows_at))
        };
        let positions: Vec<ValueAt> = log.rows_at().into_iter().enumerate().map(at).collect();
        let weighted = positions.iter().map(|at| at.rows as f64 * at.uncovered);
        let uncovered = weighted.sum::<f64>() / log.len().max(1) as f64;
        let all = rows.value(None, &(0..log.len()).collect::<Vec<_>>(), uncovered);
        let doubts = positions.iter().chain([&all]).flat_map(doubts).collect();
        Ok(Self { policy, positions, all, doubts })
    }
}

/// What the estimators need of each row.
struct Rows<'a> {
    log: &'a PositionLog,
    policy: &'a Stationary,
    /// w, `[n]`.
    weights: Option<Vec<f64>>,
    /// q of the row's item and position, `[n]`.
    modelled: Vec<f64>,
    /// v, `[n]`.
    expected: Vec<f64>,
}

impl<'a> Rows<'a> {
    fn new(log: &'a PositionLog, policy: &'a Stationary, direct: &Direct) -> Self {
        let place = |row: usize| (log.position[row] as usize, log.item[row] as usize);
        let weight = |(row, propensity): (usize, &f64)| {
            let (position, item) = place(row);
            policy.at(position)[item] / propensity
        };
        let folds = 1 + direct.fold_of.iter().max().map_or(0, |last| *last as usize);
        let expected: Vec<Vec<f64>> = (0..folds)
            .map(|fold| {
                let at = |at| expected(policy, direct, fold, at);
                (0..log.positions.len()).map(at).collect()
            })
            .collect();
        Self {
            log,
            policy,
            weights: log
                .propensities
                .as_ref()
                .map(|propensities| propensities.iter().enumerate().map(weight).collect()),
            modelled: (0..log.len()).map(|row| direct.of_row(log, row)).collect(),
            expected: (0..log.len())
                .map(|row| expected[direct.fold_of[row] as usize][place(row).0])
                .collect(),
        }
    }

    /// The probability of items that none of `rows`, all those at a position, shows.
    fn uncovered(&self, position: usize, rows: &[usize]) -> f64 {
        let mut shown = vec![false; self.log.items.len()];
        for row in rows {
            shown[self.log.item[*row] as usize] = true;
        }
        let never = self.policy.at(position).iter().zip(shown).filter(|(_, shown)| !shown);
        self.policy.elsewhere[position] + never.fold(0.0, |sum, (probability, _)| sum + probability)
    }

    /// The value over `rows`, all those at a position or all of the log.
    fn value(&self, position: Option<usize>, rows: &[usize], uncovered: f64) -> ValueAt {
        let log = self.log;
        let of = |column: &[f64]| -> Vec<f64> { rows.iter().map(|row| column[*row]).collect() };
        let weights = self.weights.as_deref().map(of);
        let weights = weights.as_deref();
        let (outcomes, modelled, expected) =
            (of(&log.outcomes), of(&self.modelled), of(&self.expected));
        let effective = |weights: &[f64]| {
            let squares = weights.iter().map(|weight| weight * weight).sum::<f64>();
            if squares > 0.0 { weights.iter().sum::<f64>().powi(2) / squares } else { 0.0 }
        };
        let weighted = |weights: &[f64]| -> Vec<f64> {
            weights.iter().zip(&outcomes).map(|(weight, outcome)| weight * outcome.abs()).collect()
        };
        ValueAt {
            position: position.map(|at| log.positions[at]),
            rows: rows.len(),
            above_zero: log.above_zero(rows),
            logged: Measured::of(&outcomes),
            ips: weights.map(|weights| ips(weights, &outcomes)),
            snips: weights.and_then(|weights| snips(weights, &outcomes)),
            doubly_robust: weights
                .map(|weights| doubly_robust(weights, &outcomes, &modelled, &expected)),
            direct: Measured::of(&expected).mean,
            mean_weight: weights.map(Measured::of),
            effective_rows: weights.map(effective),
            effective_outcomes: weights.map(|weights| effective(&weighted(weights))),
            uncovered,
        }
    }
}

/// v of a fold at a position; an item that the log does not have is worth the position's mean.
fn expected(policy: &Stationary, direct: &Direct, fold: usize, position: usize) -> f64 {
    let pairs = policy.at(position).iter().zip(direct.at(fold, position));
    let known: f64 = pairs.map(|(probability, q)| probability * q).sum();
    known + policy.elsewhere[position] * direct.mean(fold, position)
}

/// What there is to doubt about a value.
fn doubts(value: &ValueAt) -> Vec<String> {
    let place = value.position.map_or("all positions".into(), |at| format!("position {at}"));
    let mut doubts = Vec::new();
    if value.above_zero < FEW {
        let found = value.above_zero;
        doubts.push(format!(
            "{place}: {found} outcomes are above 0, fewer than {FEW}; the intervals are rough"
        ));
    } else if let Some(found) = value.effective_outcomes.filter(|found| *found < FEW as f64) {
        doubts.push(format!(
            "{place}: the weights leave {found:.0} outcomes' worth above 0, fewer than {FEW}; the intervals are \
             rough, and often too low"
        ));
    }
    if value.uncovered > 1e-9 {
        let share = 100.0 * value.uncovered;
        doubts.push(format!(
            "{place}: {share:.1} % of the policy's probability is on items that the log never shows \
             there; IPS counts them as 0, SNIPS as the rest, direct and DR as the position's mean"
        ));
    }
    if let Some(Measured { mean, standard_error, .. }) = value.mean_weight {
        let off = DOUBTED * standard_error.max(1e-9);
        // Items that were drawn too seldom to be seen weigh nothing here, so the mean may be lower by as much.
        if mean - off > 1.0 || mean + off < 1.0 - value.uncovered {
            doubts.push(format!(
                "{place}: the mean weight is {mean:.4} ± {standard_error:.4}, expected 1; the \
                 propensities are not those of the policy that logged"
            ));
        }
    }
    if let Some(effective) = value.effective_rows.filter(|effective| *effective < LEAST_ROWS) {
        doubts.push(format!(
            "{place}: the weights leave {effective:.0} rows' worth of information, fewer than {LEAST_ROWS}; \
             the intervals are rough"
        ));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::super::samples::log;
    use super::*;
    use crate::seed::{Purpose, Seed};

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }

    /// Two items; four rows at the first position, two at the second.
    fn six_rows() -> PositionLog {
        log(
            2,
            &[
                (0, 0, 1.0, 0.8),
                (0, 0, 0.0, 0.8),
                (1, 0, 1.0, 0.2),
                (0, 0, 0.0, 0.5),
                (1, 1, 1.0, 0.25),
                (0, 1, 0.0, 0.5),
            ],
        )
    }

    #[test]
    fn the_estimators_by_hand() {
        let log = six_rows();
        let options = DirectOptions::default();
        let value = PolicyValue::of(&log, Stationary::uniform(&log), options).unwrap();
        // w is ⅝, ⅝, 2½, 1 | 2, 1.
        let [first, second] = &value.positions[..] else { panic!("two positions") };
        assert_eq!((first.position, first.rows, first.above_zero), (Some(1), 4, 2));
        close(first.logged.mean, 0.5);
        let ips = first.ips.unwrap();
        close(ips.mean, 3.125 / 4.0);
        let squares = 0.15625_f64.powi(2) + 2.0 * 0.78125_f64.powi(2) + 1.71875_f64.powi(2);
        close(ips.standard_error, (squares / 3.0 / 4.0).sqrt());
        close(ips.high, ips.mean + 1.96 * ips.standard_error);
        let snips = first.snips.unwrap();
        let mean = 3.125 / 4.75;
        close(snips.mean, mean);
        let off = [0.625 * (1.0 - mean), 0.625 * mean, 2.5 * (1.0 - mean), mean];
        let squares: f64 = off.iter().map(|off| off * off).sum();
        close(snips.standard_error, (squares * 4.0 / 3.0).sqrt() / 4.75);
        close(first.effective_rows.unwrap(), 4.75 * 4.75 / (2.0 * 0.390_625 + 6.25 + 1.0));
        close(first.mean_weight.unwrap().mean, 4.75 / 4.0);
        close(second.ips.unwrap().mean, 1.0);
        close(second.snips.unwrap().mean, 2.0 / 3.0);
        close(value.all.ips.unwrap().mean, (3.125 + 2.0) / 6.0);
        close(value.all.snips.unwrap().mean, 5.125 / 7.75);
        assert_eq!((value.all.position, value.all.rows, value.all.above_zero), (None, 6, 3));
        assert_eq!(first.uncovered, 0.0);
        assert!(value.doubts.iter().any(|doubt| doubt.contains("fewer than 30")));
        let means = LogMeans::of(&log);
        close(means.all.mean, 0.5);
        assert_eq!((means.positions[1].0, means.positions[1].1.mean), (2, 0.5));
    }

    #[test]
    fn doubly_robust_takes_the_model_of_the_other_folds() {
        let log = six_rows();
        let policy = Stationary::uniform(&log);
        let direct = Direct::fit(&log, DirectOptions::default()).unwrap();
        let terms: f64 = (0..4)
            .map(|row| {
                let q = direct.at(direct.fold_of[row] as usize, 0);
                let weight = 0.5 / log.propensities.as_ref().unwrap()[row];
                f64::midpoint(q[0], q[1]) + weight * (log.outcomes[row] - q[log.item[row] as usize])
            })
            .sum();
        let value = PolicyValue::of(&log, policy, DirectOptions::default()).unwrap();
        close(value.positions[0].doubly_robust.unwrap().mean, terms / 4.0);
    }

    #[test]
    fn intervals_hold_the_value_of_a_simulated_log() {
        let (logging, clicks) =
            ([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], [[0.3, 0.1, 0.5], [0.2, 0.4, 0.1]]);
        let (mut held, logs) = ([0; 3], 100);
        for seed in 0..logs {
            let mut stream = Seed(seed).stream(Purpose::Synthetic, 0, 0);
            let rows: Vec<_> = (0..900_u32)
                .map(|row| {
                    let (position, draw) = (row % 2, stream.uniform());
                    let p = logging[position as usize];
                    let item = u32::from(draw > p[0]) + u32::from(draw > p[0] + p[1]);
                    let chance = clicks[position as usize][item as usize];
                    let click = f64::from(u8::from(stream.uniform() < chance));
                    (item, position, click, p[item as usize])
                })
                .collect();
            let log = log(3, &rows);
            let value =
                PolicyValue::of(&log, Stationary::uniform(&log), DirectOptions::default()).unwrap();
            let at = &value.positions[0];
            for (held, found) in held.iter_mut().zip([at.ips, at.snips, at.doubly_robust]) {
                let found = found.unwrap();
                *held += i32::from(found.low <= 0.3 && 0.3 <= found.high);
            }
            assert_eq!(value.doubts, Vec::<String>::new());
        }
        assert!(held.iter().all(|held| (87..=100).contains(held)), "{held:?}");
    }

    #[test]
    fn what_cannot_be_told_is_doubted_or_left_out() {
        // The second item is never shown at the first position, and propensities are too high.
        let rows: Vec<_> = (0..200).map(|row| (row % 2, row % 2, 1.0, 0.9)).collect();
        let mut log = log(2, &rows);
        let uniform = Stationary::uniform(&log);
        let value = PolicyValue::of(&log, uniform.clone(), DirectOptions::default()).unwrap();
        close(value.positions[0].uncovered, 0.5);
        assert!(value.doubts[0].contains("position 1: 50.0 % of the policy's probability"));
        log.propensities = None;
        let value = PolicyValue::of(&log, uniform, DirectOptions::default()).unwrap();
        assert_eq!((value.all.ips, value.all.snips, value.all.doubly_robust), (None, None, None));
        close(value.all.direct, 1.0);

        // One click weighs as much as all the others.
        let rows: Vec<_> = (0..300)
            .map(|row| if row == 0 { (1, 0, 1.0, 0.01) } else { (0, 0, f64::from(row % 2), 0.99) })
            .collect();
        let log = super::super::samples::log(2, &rows);
        let value = PolicyValue::of(&log, Stationary::uniform(&log), DirectOptions::default());
        let doubts = value.unwrap().doubts.join("\n");
        assert!(doubts.contains("outcomes' worth above 0, fewer than 30"), "{doubts}");

        let rows: Vec<_> = (0..200).map(|row| (row / 100, 0, 1.0, 0.9)).collect();
        let log = super::super::samples::log(2, &rows);
        let value =
            PolicyValue::of(&log, Stationary::uniform(&log), DirectOptions::default()).unwrap();
        assert!(value.doubts[0].contains("the mean weight is 0.5556"), "{:?}", value.doubts);
    }

    #[test]
    fn a_value_that_rests_on_a_few_rows_is_doubted() {
        // Two items alike, of which the second is shown in one row of a hundred.
        let rows: Vec<_> = (0..1000_u32)
            .map(|row| {
                let rare = row % 100 == 0;
                (u32::from(rare), 0, f64::from(row % 2), if rare { 0.01 } else { 0.99 })
            })
            .collect();
        let log = super::super::samples::log(2, &rows);
        let value =
            PolicyValue::of(&log, Stationary::uniform(&log), DirectOptions::default()).unwrap();
        // 1000² / (990 / 1.98² + 10 · 50²).
        assert!(value.doubts[0].contains("position 1: the weights leave 40 rows' worth"));
        assert!(value.doubts[1].contains("all positions: the weights leave 40 rows' worth"));
    }
}
