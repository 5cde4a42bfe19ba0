//! What a league says in the end: its table, its winner, and what it left out.

use std::fmt;

use serde::{Serialize, Serializer};

use super::candidate::Candidate;

/// A candidate and what it earned.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// The candidate.
    pub candidate: Candidate,
    /// Mean reward at θ = I over the judges.
    pub reward: f64,
    /// Standard error of `reward`.
    pub reward_se: f64,
    /// `reward` minus that of the best candidate.
    pub difference: f64,
    /// Paired standard error of `difference`.
    pub difference_se: f64,
    /// Bytes of an action's vector in f32.
    pub bytes: usize,
    /// True for the winner.
    pub chosen: bool,
}

/// The result of a league.
#[derive(Clone, Debug, Serialize)]
pub struct League {
    /// The best candidate of each kind, η and L.
    pub table: Vec<Standing>,
    /// The number of users who judged.
    pub judges: usize,
    /// True if they had no part in what they judged; otherwise what they hid had none.
    pub strangers: bool,
    /// The number of times that each of them hid other items.
    pub draws: usize,
    /// The number of candidates tried.
    pub tried: usize,
    /// What more users say in the end; none where the judges of the table are all that there are, or no time was left.
    pub settled: Option<Settled>,
    /// What was left out.
    pub left_out: Vec<LeftOut>,
    /// Wall-clock seconds.
    pub seconds: f64,
}

impl League {
    /// True if more time would let in what was left out.
    #[must_use]
    pub fn wants_time(&self) -> bool {
        self.left_out.iter().any(|left_out| left_out.reason == Lack::Time)
    }
}

/// What a league left out, and why. A text in JSON, as it is displayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The source.
    pub what: String,
    /// What it would have taken more of.
    pub reason: Lack,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            Lack::Time => "no time",
            Lack::Memory => "no memory",
        };
        write!(f, "{}: {reason}", self.what)
    }
}

impl Serialize for LeftOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Time.
    Time,
    /// Memory.
    Memory,
}

/// The last round of a league.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Settled {
    /// The number of candidates, neighbours among them.
    pub tried: usize,
    /// The number of users who judged.
    pub judges: usize,
    /// What the winner earned from them: fewer candidates were compared than in the table, so that less of it is chance.
    pub reward: f64,
    /// Standard error of `reward`.
    pub reward_se: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_a_text_in_json() {
        let of = |reason| LeftOut { what: "als with L = 512".into(), reason };
        let json = |reason| serde_json::to_string(&of(reason)).unwrap();
        assert_eq!(json(Lack::Time), r#""als with L = 512: no time""#);
        assert_eq!(json(Lack::Memory), r#""als with L = 512: no memory""#);
    }
}
