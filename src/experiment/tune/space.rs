//! The values that a search may try for each of some settings keys go in; a trial's settings come out.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::seed::{Purpose, Seed};
use crate::settings::{Settings, SettingsBuilder};

/// A key and its values: `KEY=A|B|C`, or `KEY=LOW..HIGH` for any number between the two, uniform in
/// its logarithm. Text may surround a range, as in `method.sigma=relative(0.1..1)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dimension {
    /// As it was typed.
    text: String,
    key: String,
    values: Values,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    List(Vec<String>),
    Range { before: String, low: f64, high: f64, whole: bool, after: String },
}

/// The dimensions of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Space(Vec<Dimension>);

/// Draws for a trial before the search gives up on finding possible settings.
const DRAWS: u64 = 100;

impl Space {
    /// A space of `dimensions` around `settings`.
    ///
    /// # Errors
    /// [`Error::Setting`] if there is no dimension, if a key is there twice or unknown, if it changes
    /// what is measured or is the search's own, or if a value has the wrong type.
    pub fn new(dimensions: Vec<Dimension>, settings: &Settings) -> Result<Self> {
        if dimensions.is_empty() {
            return Err(Error::setting("over", "expected at least one KEY=VALUES to search over"));
        }
        for (at, dimension) in dimensions.iter().enumerate() {
            let key = dimension.key.as_str();
            let of_judges = key.starts_with("evaluation.validation_") || key == "evaluation.search";
            if key == "slate_size" || key.starts_with("reward") || of_judges {
                let problem = "changes what is measured, so that trials cannot be compared; give it \
                               to the whole search";
                return Err(Error::setting(key, problem));
            }
            if key.starts_with("budget") || key == "checkpoint.keep" {
                let problem = "is the same for all trials of a rung, and the search decides it";
                return Err(Error::setting(key, problem));
            }
            if dimensions[..at].iter().any(|other| other.key == dimension.key) {
                return Err(Error::setting(&dimension.key, "is searched over twice"));
            }
            // Other values may make an impossible one possible, but not one of a wrong type.
            for value in dimension.ends() {
                SettingsBuilder::new(settings)?
                    .assignment(&format!("{}={value}", dimension.key))?;
            }
        }
        Ok(Self(dimensions))
    }

    /// The dimensions.
    pub fn iter(&self) -> impl Iterator<Item = &Dimension> {
        self.0.iter()
    }

    /// The settings of one of `trials`, around `settings`, and the drawn values as `key=value`. Each
    /// dimension is cut into as many equal parts as there are trials, and each trial draws from its
    /// own part (a Latin hypercube). An impossible combination is drawn again.
    ///
    /// # Errors
    /// [`Error::Setting`] if no draw was possible, with the reason of the last one.
    pub(super) fn draw(
        &self,
        settings: &Settings,
        trial: u64,
        trials: u64,
    ) -> Result<(Settings, Vec<String>)> {
        let mut last = Error::setting("over", "nothing was drawn");
        for draw in 0..DRAWS {
            let assignments: Vec<String> = (0..)
                .zip(&self.0)
                .map(|(at, dimension)| {
                    let place = place(settings.seed, at, trial, trials, draw);
                    format!("{}={}", dimension.key, dimension.at(place))
                })
                .collect();
            let built = assignments
                .iter()
                .try_fold(SettingsBuilder::new(settings)?, |builder, text| builder.assignment(text))
                .and_then(SettingsBuilder::build);
            match built {
                Ok(settings) => return Ok((settings, assignments)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// A trial's place in `[0, 1)` of dimension `at`: within its own part first, anywhere once that was
/// impossible.
fn place(seed: Seed, at: u64, trial: u64, trials: u64, draw: u64) -> f64 {
    let mut stream = seed.stream(Purpose::Search, at, draw * trials + trial);
    if draw > 0 {
        return stream.uniform();
    }
    // This dimension's order of the parts is the same for every trial.
    let mut parts: Vec<u64> = (0..trials).collect();
    seed.stream(Purpose::Search, at, u64::MAX).shuffle(&mut parts);
    let part = usize::try_from(trial).ok().and_then(|trial| parts.get(trial));
    (*part.unwrap_or(&0) as f64 + stream.uniform()) / trials as f64
}

impl Dimension {
    /// The value at a place in `[0, 1)`.
    fn at(&self, place: f64) -> String {
        match &self.values {
            Values::List(values) => {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0..len"
                )]
                let at = (place * values.len() as f64) as usize;
                values[at.min(values.len() - 1)].clone()
            }
            Values::Range { before, low, high, whole, after } => {
                let value = low * (high / low).powf(place);
                let value =
                    if *whole { value.round().to_string() } else { rounded(value, *low, *high) };
                format!("{before}{value}{after}")
            }
        }
    }

    /// The first and the last value of a range, or all of a list.
    fn ends(&self) -> Vec<String> {
        match &self.values {
            Values::List(values) => values.clone(),
            Values::Range { .. } => vec![self.at(0.0), self.at(1.0)],
        }
    }
}

/// Two digits, or as many as tell hundredths of the range apart.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 17")]
fn rounded(value: f64, low: f64, high: f64) -> String {
    let places = (value / ((high - low) / 100.0)).log10().floor().clamp(1.0, 17.0) as usize;
    let rounded: f64 = format!("{value:.places$e}").parse().unwrap_or(value);
    rounded.clamp(low, high).to_string()
}

impl FromStr for Dimension {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let expected = "expected KEY=A|B|C or KEY=LOW..HIGH with 0 < LOW < HIGH";
            Error::setting(text.split('=').next().unwrap_or(text), expected)
        };
        let (key, values) = text.split_once('=').ok_or_else(wrong)?;
        let dimension = |values| Self { text: text.to_owned(), key: key.trim().to_owned(), values };
        let values = values.trim();
        let Some((left, right)) = values.split_once("..") else {
            let values: Vec<String> =
                values.split('|').map(|value| value.trim().to_owned()).collect();
            let complete = values.iter().all(|value| !value.is_empty());
            return complete.then(|| dimension(Values::List(values))).ok_or_else(wrong);
        };
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '-' | '+');
        let start = left.len() - left.chars().rev().take_while(|c| is_number(*c)).count();
        let end = right.chars().take_while(|c| is_number(*c)).count();
        let ((before, low), (high, after)) = (left.split_at(start), right.split_at(end));
        let whole = [low, high].iter().all(|number| number.parse::<u32>().is_ok());
        let number = |text: &str| text.parse::<f64>().map_err(|_| wrong());
        let (low, high) = (number(low)?, number(high)?);
        if !(low > 0.0 && low < high && high.is_finite()) {
            return Err(wrong());
        }
        let (before, after) = (before.to_owned(), after.to_owned());
        Ok(dimension(Values::Range { before, low, high, whole, after }))
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Dimension {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Dimension> for String {
    fn from(dimension: Dimension) -> Self {
        dimension.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Preset;

    fn dimension(text: &str) -> Dimension {
        text.parse().unwrap()
    }

    #[test]
    fn dimensions_are_lists_and_ranges() {
        let list = dimension("tower.kind=linear|sigmoid-mlp");
        assert_eq!((list.at(0.0), list.at(0.99)), ("linear".into(), "sigmoid-mlp".into()));
        let range = dimension("method.sigma=relative(0.1..1)");
        assert_eq!(
            (range.at(0.0), range.at(0.5)),
            ("relative(0.1)".into(), "relative(0.32)".into())
        );
        let rate = dimension("optimizer.learning_rate=1e-4..1e-2");
        assert_eq!(rate.at(0.5), "0.001");
        let whole = dimension("method.samples=10..1000");
        assert_eq!(whole.at(0.5), "100");
        for text in [&list, &range, &rate, &whole] {
            assert_eq!(dimension(&text.to_string()), *text);
        }
    }

    #[test]
    fn a_wrong_dimension_says_what_was_expected() {
        for text in ["method.samples", "method.samples=", "a=1..", "a=2..1", "a=0..1", "a=x..y"] {
            let error = text.parse::<Dimension>().unwrap_err().to_string();
            assert!(error.contains("LOW..HIGH"), "{text}: {error}");
        }
        let settings = Preset::Default.settings();
        for (text, says) in [
            ("method.sample=1|2", "method.samples"),
            ("method.samples=1|many", "method.samples"),
            ("tower.kind=linear|deep", "tower.kind"),
        ] {
            let error = Space::new(vec![dimension(text)], &settings).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn the_trials_of_a_search_are_spread_over_each_range() {
        let settings = Preset::Default.settings();
        let space =
            [dimension("optimizer.learning_rate=1e-4..1e-2"), dimension("method.samples=2|3")];
        let space = Space::new(space.to_vec(), &settings).unwrap();
        let mut rates = Vec::new();
        let mut twos = 0;
        for trial in 0..10 {
            let (drawn, assignments) = space.draw(&settings, trial, 10).unwrap();
            assert_eq!(assignments.len(), 2);
            rates.push(drawn.optimizer.learning_rate);
            twos += usize::from(drawn.method.recipe().num_samples() == 2);
        }
        rates.sort_by(f64::total_cmp);
        for (part, rate) in rates.iter().enumerate() {
            let place = (rate.log10() + 4.0) * 5.0;
            assert!((place - 0.5 - part as f64).abs() < 0.7, "{rates:?}");
        }
        assert_eq!(twos, 5);
    }

    #[test]
    fn an_impossible_draw_is_drawn_again() {
        let settings = Preset::Default.settings();
        // The default preset projects, which a σ that does not depend on h would bias.
        let dimensions = ["method.sigma=inverse-dim|relative(0.3)", "method.samples=2|4"];
        let space = Space::new(dimensions.map(dimension).to_vec(), &settings).unwrap();
        for trial in 0..20 {
            assert!(space.draw(&settings, trial, 20).is_ok());
        }
        let never = [dimension("method.sigma=inverse-dim|inverse-norm")];
        let error = Space::new(never.to_vec(), &settings).unwrap().draw(&settings, 1, 3);
        assert!(error.unwrap_err().to_string().contains("use \"keep\""));
    }
}
