//! What an estimator found in each log, and the truth → bias, error, coverage and width.

use fast_slate::estimate::Interval;
use fast_slate::logged::Value;
use serde::Serialize;

/// What an estimator found in one log.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) estimate: f64,
    /// None where the estimator gives none; a lower bound has an infinite upper end.
    pub(crate) interval: Option<[f64; 2]>,
}

impl From<Interval> for Found {
    fn from(Interval { mean, low, high }: Interval) -> Self {
        Self { estimate: mean, interval: Some([low, high]) }
    }
}

/// What an estimator found, or nothing where it refused.
pub(crate) type Named = (&'static str, Option<Found>);

/// The estimators of a value.
pub(crate) fn estimators(value: &Value) -> Vec<Named> {
    let lower = value.smoothed_lower.map(|low| [low, f64::INFINITY]);
    vec![
        ("plain", value.plain.map(Found::from)),
        ("bootstrap", value.bootstrap.map(Found::from)),
        ("self-normalised", value.self_normalised.map(Found::from)),
        ("clipped", value.clipped.map(Found::from)),
        ("smoothed", Some(Found { estimate: value.smoothed, interval: lower })),
    ]
}

/// How an estimator did over logs.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Judged {
    pub(crate) truth: f64,
    /// Logs in which the estimator refused to answer.
    pub(crate) refused: usize,
    pub(crate) bias: f64,
    pub(crate) rmse: f64,
    /// The share of intervals that hold the truth.
    pub(crate) coverage: Option<f64>,
    /// The median width.
    pub(crate) width: Option<f64>,
    /// The median of what a lower bound leaves below the truth.
    pub(crate) slack: Option<f64>,
}

impl Judged {
    pub(crate) fn new(truth: f64, found: &[Option<Found>]) -> Self {
        let answered: Vec<Found> = found.iter().flatten().copied().collect();
        let mean = |of: &dyn Fn(&Found) -> f64| {
            answered.iter().map(of).sum::<f64>() / answered.len().max(1) as f64
        };
        let intervals: Vec<[f64; 2]> = answered.iter().filter_map(|found| found.interval).collect();
        let holds = |[low, high]: &&[f64; 2]| *low <= truth && truth <= *high;
        let held = intervals.iter().filter(holds).count() as f64;
        let (finite, open): (Vec<[f64; 2]>, Vec<[f64; 2]>) =
            intervals.iter().partition(|[_, high]| high.is_finite());
        Self {
            truth,
            refused: found.len() - answered.len(),
            bias: mean(&|found| found.estimate - truth),
            rmse: mean(&|found| (found.estimate - truth).powi(2)).sqrt(),
            coverage: (!intervals.is_empty()).then(|| held / intervals.len() as f64),
            width: median(finite.iter().map(|[low, high]| high - low)),
            slack: median(open.iter().map(|[low, _]| truth - low)),
        }
    }
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The spread of many numbers, added up part by part.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spread {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        values.fold(Self::default(), |spread, value| {
            spread.and(Self { count: 1.0, sum: value, squares: value * value })
        })
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
        }
    }

    pub(crate) fn count(self) -> f64 {
        self.count
    }

    pub(crate) fn mean(self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    /// The standard deviation.
    pub(crate) fn deviation(self) -> f64 {
        (self.squares / self.count.max(1.0) - self.mean().powi(2)).max(0.0).sqrt()
    }
}
