//! Settings as dotted keys, overlaid one after the other and then checked: what the file and the
//! flags of a run become.

use std::path::Path;

use fs_err as fs;
use serde::Deserialize as _;
use toml::{Table, Value};

use super::{Preset, RUN_TABLE, Settings};
use crate::error::{Error, Result, toml_problem};

/// Settings under construction: a preset, overlaid by files and single keys in turn.
#[derive(Clone, Debug)]
pub struct SettingsBuilder {
    table: Table,
    known: Vec<String>,
}

impl SettingsBuilder {
    /// Starts from `settings`.
    ///
    /// # Errors
    /// Never on settings of this crate; TOML has no way to say so.
    pub fn new(settings: &Settings) -> Result<Self> {
        let table = Table::try_from(settings).map_err(|error| Error::library("settings", error))?;
        let mut known = Vec::new();
        collect_keys(&table, "", &mut known);
        Ok(Self { table, known })
    }

    /// Overlays a TOML file: any part of what `run.toml` holds; its `[run]` table is left out.
    ///
    /// # Errors
    /// Naming the file: not there, no TOML, an unknown key, or a value of the wrong type.
    pub fn file(mut self, path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        let parsed: Result<Table, _> = text.parse();
        let mut overlay = parsed.map_err(|error| Error::file(path, toml_problem(&error, &text)))?;
        overlay.remove(RUN_TABLE);
        let mut leaves = Vec::new();
        collect_leaves(&overlay, "", &mut leaves);
        for (key, value) in leaves {
            self.insert(&key, value).map_err(|error| Error::file(path, error.to_string()))?;
        }
        Ok(self)
    }

    /// Overlays one `key=value`; the value is TOML, or else taken as a string.
    ///
    /// # Errors
    /// [`Error::UnknownSetting`], or [`Error::Setting`] when there is no `=` or the value is of the
    /// wrong type.
    pub fn assignment(mut self, text: &str) -> Result<Self> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| Error::setting(text, "expected key=value, as in policy.samples=32"))?;
        let (key, value) = (key.trim(), value.trim());
        let parsed = format!("x = {value}").parse::<Table>().ok().and_then(|mut t| t.remove("x"));
        self.insert(key, parsed.unwrap_or_else(|| Value::String(value.to_owned())))?;
        Ok(self)
    }

    /// Overlays one value.
    ///
    /// # Errors
    /// [`Error::UnknownSetting`] with the nearest keys, [`Error::Setting`] for a value of the wrong
    /// type.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Result<Self> {
        self.insert(key, value.into())?;
        Ok(self)
    }

    /// The settings, each value within its range and the whole possible.
    ///
    /// # Errors
    /// [`Error::Setting`] naming the key.
    pub fn build(self) -> Result<Settings> {
        let valid: Settings =
            self.table.try_into().map_err(|error| Error::library("settings", error))?;
        valid.validate()?;
        Ok(valid)
    }

    fn insert(&mut self, key: &str, value: Value) -> Result<()> {
        if !self.known.iter().any(|known| known == key) {
            let mut nearest = self.known.clone();
            nearest.sort_by(|a, b| {
                let distance = |known: &str| {
                    strsim::jaro_winkler(last(known), last(key)) + strsim::jaro_winkler(known, key)
                };
                distance(b).total_cmp(&distance(a))
            });
            nearest.truncate(3);
            return Err(Error::UnknownSetting { key: key.to_owned(), nearest });
        }
        // TOML tells 1 from 1.0; a reader of `learning_rate=1` does not.
        let old = get(&self.table, key);
        let value = match (old, value) {
            (Some(Value::Float(_)), Value::Integer(number)) => Value::Float(number as f64),
            (_, value) => value,
        };
        // Tried alone in a valid whole, so that the message can name the key, and here, so that it
        // can name the file.
        let mut whole = Table::try_from(Preset::Default.settings())
            .map_err(|error| Error::library("settings", error))?;
        insert(&mut whole, key, value.clone());
        Settings::deserialize(whole).map_err(|error| {
            // A value that is read by its own `FromStr` has said already whose it is.
            let named = format!("setting `{key}`: ");
            let message = error.message();
            Error::setting(key, message.strip_prefix(&named).unwrap_or(message))
        })?;
        insert(&mut self.table, key, value);
        Ok(())
    }
}

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

pub(super) fn collect_leaves(table: &Table, prefix: &str, leaves: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) => collect_leaves(inner, &key, leaves),
            leaf => leaves.push((key, leaf.clone())),
        }
    }
}

fn collect_keys(table: &Table, prefix: &str, keys: &mut Vec<String>) {
    let mut leaves = Vec::new();
    collect_leaves(table, prefix, &mut leaves);
    keys.extend(leaves.into_iter().map(|(key, _)| key));
}

fn get<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let (first, rest) =
        key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    match (table.get(first)?, rest) {
        (Value::Table(inner), Some(rest)) => get(inner, rest),
        (value, None) => Some(value),
        _ => None,
    }
}

fn insert(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Sigma;
    use crate::settings::Preset;

    fn default() -> SettingsBuilder {
        SettingsBuilder::new(&Preset::Default.settings()).unwrap()
    }

    #[test]
    fn every_preset_survives_its_own_file() {
        for preset in [Preset::Paper, Preset::Default] {
            let settings = preset.settings();
            assert_eq!(SettingsBuilder::new(&settings).unwrap().build().unwrap(), settings);
        }
    }

    #[test]
    fn single_keys_are_read_as_toml_or_as_text() {
        let settings = default()
            .assignment("policy.samples=32")
            .and_then(|builder| builder.assignment("policy.sigma = relative(0.5)"))
            .and_then(|builder| builder.assignment("optimizer.learning_rate=1"))
            .and_then(SettingsBuilder::build)
            .unwrap();
        assert_eq!(settings.policy.samples, 32);
        assert_eq!(settings.policy.sigma, Sigma::Relative(0.5));
        assert!((settings.optimizer.learning_rate - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = default().assignment("policy.sample=3").unwrap_err().to_string();
        assert!(error.contains("no setting `policy.sample`"), "{error}");
        assert!(error.contains("policy.samples"), "{error}");
    }

    #[test]
    fn a_wrong_value_names_its_key() {
        for (assignment, key) in [
            ("policy.samples=many", "policy.samples"),
            ("policy.samples=-1", "policy.samples"),
            ("embedding.power=0.7", "embedding.power"),
            ("retrieval.hnsw.scalar=i8", "retrieval.hnsw.scalar"),
            ("optimizer.learning_rate=0", "optimizer.learning_rate"),
            ("policy.sigma=huge", "policy.sigma"),
            ("policy.noise=uniform", "policy.noise"),
        ] {
            let error = default().assignment(assignment).and_then(SettingsBuilder::build);
            let message = error.unwrap_err().to_string();
            assert_eq!(message.matches(&format!("`{key}`")).count(), 1, "{assignment}: {message}");
        }
    }

    #[test]
    fn what_is_wrong_in_a_file_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        for (text, said) in [
            ("[policy]\nkind = \"pl\"", "setting `policy.kind`"),
            ("[estimator]\nbaselin = \"none\"", "estimator.baseline"),
        ] {
            fs::write(&path, text).unwrap();
            let error = default().file(&path).unwrap_err().to_string();
            assert!(error.contains("mine.toml: ") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn biased_combinations_are_refused_with_the_reason() {
        for (assignments, reason) in [
            (&["policy.coupling=antithetic"][..], "S/(S − 1)"),
            (&["policy.noise=laplace"], "lrp"),
            (&["retrieval.coverage=1.5"], "from 0 to 1"),
            (&["estimator.kind=pl-rank"], "plackett-luce"),
            (&["embedding.learn=true"], "no gradient for β"),
            (&["policy.kind=plackett-luce", "policy.learn_sigma=true"], "no σ"),
            (&["policy.kind=plackett-luce", "estimator.kind=likelihood"], "in units of σ"),
            (&["estimator.kind=likelihood", "policy.learn_sigma=true"], "no gradient for σ"),
            (&["estimator.kind=likelihood", "policy.coupling=orthogonal"], "perturbs no query"),
            (&["estimator.temperature=0"], "above 0"),
            (&["tower.kind=linear", "tower.hidden=[4]"], "residual-mlp"),
            (&["tower.kind=sigmoid-mlp", "tower.dropout=0.1"], "residual-mlp"),
            (&["tower.kind=residual-mlp", "tower.hidden=[4, 0]"], "from 1 to"),
            (&["tower.kind=residual-mlp", "tower.dropout=1"], "less than 1"),
            (&["tower.kind=residual-mlp", "tower.initial=paper"], "use \"identity\""),
            (&["optimizer.weight_decay=-1"], "at least 0"),
            (&["optimizer.gradient_clipping=nan"], "at least 0"),
            (&["policy.kind=plackett-luce", "policy.coupling=antithetic"], "latent noise"),
            (&["policy.kind=plackett-luce", "policy.draws=rejection"], "covariance"),
            (&["policy.kind=plackett-luce", "estimator.kind=fopo"], "slates of one action"),
            (
                &["policy.kind=plackett-luce", "estimator.kind=pl-rank", "reward.kind=any-hit"],
                "not linear",
            ),
            (
                &[
                    "policy.kind=plackett-luce",
                    "estimator.kind=covariance-as-printed",
                    "policy.samples=1",
                ],
                "at least 2",
            ),
        ] {
            let built = assignments
                .iter()
                .try_fold(default(), |builder, assignment| builder.assignment(assignment))
                .and_then(SettingsBuilder::build);
            let error = built.unwrap_err().to_string();
            assert!(error.contains(reason), "{assignments:?}: {error}");
        }
    }

    #[test]
    fn differences_name_key_and_both_values() {
        let other =
            default().assignment("policy.samples=3").and_then(SettingsBuilder::build).unwrap();
        let differences = Preset::Default.settings().differences(&other);
        assert_eq!(differences[0].1, "policy.samples: 30 → 3");
    }
}
