//! Settings as dotted keys, overlaid one after the other and then checked: what the file and the
//! flags of a run become.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use serde::Deserialize as _;
use toml::{Table, Value};

use super::{Preset, RUN_TABLE, Settings};
use crate::error::{Error, Result, toml_problem};
use crate::method::MethodKind;

/// The key that names the method.
const METHOD: &str = "method.kind";

/// Settings under construction: a preset, overlaid by files and single keys in turn.
#[derive(Clone, Debug)]
pub struct SettingsBuilder {
    table: Table,
}

impl SettingsBuilder {
    /// Starts from `settings`.
    ///
    /// # Errors
    /// Never on settings of this crate; TOML has no way to say so.
    pub fn new(settings: &Settings) -> Result<Self> {
        Ok(Self { table: Table::try_from(settings).map_err(library)? })
    }

    /// Overlays a TOML file: any part of what `run.toml` holds; its `[run]` table is left out.
    ///
    /// # Errors
    /// Naming the file: not there, no TOML, an unknown key, or a value of the wrong type.
    pub fn file(self, path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        let parsed: Result<Table, _> = text.parse();
        let mut overlay = parsed.map_err(|error| Error::file(path, toml_problem(&error, &text)))?;
        overlay.remove(RUN_TABLE);
        self.overlay(&overlay).map_err(|error| Error::file(path, error.to_string()))
    }

    /// Overlays every key of a table.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn overlay(mut self, table: &Table) -> Result<Self> {
        let mut leaves = leaves(table);
        // Which keys a method has depends on its kind.
        if let Some(kind) = leaves.remove(METHOD) {
            self.choose_method(&kind)?;
        }
        self.insert_all(leaves)?;
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
            .ok_or_else(|| Error::setting(text, "expected key=value, as in method.samples=32"))?;
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

    /// Overlays one whole number.
    ///
    /// # Errors
    /// As [`set`](Self::set); [`Error::Setting`] for a number beyond TOML's.
    pub fn count(self, key: &str, number: usize) -> Result<Self> {
        let large = |_| Error::setting(key, format!("{number} is too large"));
        self.set(key, i64::try_from(number).map_err(large)?)
    }

    /// The settings, each value within its range and the whole possible.
    ///
    /// # Errors
    /// [`Error::Setting`] naming the key.
    pub fn build(self) -> Result<Settings> {
        let valid: Settings = self.table.try_into().map_err(library)?;
        valid.validate()?;
        Ok(valid)
    }

    fn insert(&mut self, key: &str, value: Value) -> Result<()> {
        if key == METHOD {
            return self.choose_method(&value);
        }
        self.insert_all([(key.to_owned(), value)])
    }

    /// Overlays values whose keys are known, and not the method's.
    fn insert_all(&mut self, leaves: impl IntoIterator<Item = (String, Value)>) -> Result<()> {
        let typed = |(key, value): (String, Value)| match (get(&self.table, &key), value) {
            // TOML tells 1 from 1.0; a reader of `learning_rate=1` does not.
            (Some(Value::Float(_)), Value::Integer(number)) => {
                Ok((key, Value::Float(number as f64)))
            }
            (Some(_), value) => Ok((key, value)),
            (None, _) => Err(self.unknown(&key)),
        };
        let leaves = leaves.into_iter().map(typed).collect::<Result<Vec<_>>>()?;
        // Tried here, so that the message can name the file, and in a valid whole: together, which is
        // fast, and alone where that fails, so that the message can name the key.
        let mut whole = Table::try_from(Preset::Default.settings()).map_err(library)?;
        if let Some(method) = self.method_kind() {
            whole.insert("method".into(), Value::Table(defaults(method)?));
        }
        let tried = |leaves: &[(String, Value)]| {
            let mut whole = whole.clone();
            insert_each(&mut whole, leaves);
            Settings::deserialize(whole)
        };
        if tried(&leaves).is_err() {
            for leaf in &leaves {
                tried(std::slice::from_ref(leaf)).map_err(|error| {
                    // A value that is read by its own `FromStr` has said already whose it is.
                    let named = format!("setting `{}`: ", leaf.0);
                    let message = error.message();
                    Error::setting(&leaf.0, message.strip_prefix(&named).unwrap_or(message))
                })?;
            }
        }
        insert_each(&mut self.table, &leaves);
        Ok(())
    }

    /// Takes the keys of another method: those that both have keep their values, the others have
    /// the paper's.
    fn choose_method(&mut self, kind: &Value) -> Result<()> {
        let name = kind.as_str().map_or_else(|| kind.to_string(), str::to_owned);
        let kind: MethodKind = name.parse().map_err(|problem| Error::setting(METHOD, problem))?;
        let mut method = defaults(kind)?;
        if let Some(Value::Table(old)) = self.table.get("method") {
            for (key, value) in &mut method {
                if let Some(old) = old.get(key).filter(|_| key != "kind") {
                    *value = old.clone();
                }
            }
        }
        self.table.insert("method".into(), Value::Table(method));
        Ok(())
    }

    fn method_kind(&self) -> Option<MethodKind> {
        get(&self.table, METHOD)?.as_str()?.parse().ok()
    }

    /// The error for a key that there is not, or not for this method.
    fn unknown(&self, key: &str) -> Error {
        let has = |kind: &&MethodKind| {
            let name = key.strip_prefix("method.");
            name.is_some_and(|name| defaults(**kind).is_ok_and(|method| method.contains_key(name)))
        };
        let others: Vec<_> = MethodKind::ALL.iter().filter(has).map(|kind| kind.key()).collect();
        if let (Some(kind), false) = (self.method_kind(), others.is_empty()) {
            let others = others.join(", ");
            let problem = format!("method.kind = \"{kind}\" has no such key; {others} have it");
            return Error::setting(key, problem);
        }
        // The time grows with the product of both lengths, and no key is as long as this.
        let asked: String = key.chars().take(100).collect();
        let like = |known: &str| {
            strsim::jaro_winkler(last(known), last(&asked)) + strsim::jaro_winkler(known, &asked)
        };
        let mut nearest: Vec<(f64, String)> =
            leaves(&self.table).into_keys().map(|known| (like(&known), known)).collect();
        nearest.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let nearest = nearest.into_iter().take(3).map(|(_, known)| known).collect();
        Error::UnknownSetting { key: key.to_owned(), nearest }
    }
}

fn library(error: impl std::fmt::Display) -> Error {
    Error::library("settings", error)
}

/// The `[method]` table of a kind with the paper's values.
fn defaults(kind: MethodKind) -> Result<Table> {
    Table::try_from(kind.method()).map_err(library)
}

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// Every dotted key of a table with its value.
pub(crate) fn leaves(table: &Table) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                found.extend(
                    leaves(inner).into_iter().map(|(name, value)| (format!("{key}.{name}"), value)),
                );
            }
            leaf => drop(found.insert(key.clone(), leaf.clone())),
        }
    }
    found
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

fn insert_each(table: &mut Table, leaves: &[(String, Value)]) {
    for (key, value) in leaves {
        insert(table, key, value.clone());
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
    use crate::estimator::ControlVariate;
    use crate::method::Method;
    use crate::policy::{NoiseKind, Sigma, SlateDraws};
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
            .assignment("method.samples=32")
            .and_then(|builder| builder.assignment("method.sigma = relative(0.5)"))
            .and_then(|builder| builder.assignment("optimizer.learning_rate=1"))
            .and_then(|builder| builder.assignment("optimizer.weight_decay=1"))
            .and_then(SettingsBuilder::build)
            .unwrap();
        let latent = settings.method.latent().unwrap();
        assert_eq!((latent.samples, latent.sigma), (32, Sigma::Relative(0.5)));
        assert!((settings.optimizer.learning_rate - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = default().assignment("method.sample=3").unwrap_err().to_string();
        assert!(error.contains("no setting `method.sample`"), "{error}");
        assert!(error.contains("method.samples"), "{error}");
    }

    #[test]
    fn a_wrong_value_names_its_key() {
        for (assignment, key) in [
            ("method.samples=many", "method.samples"),
            ("method.samples=-1", "method.samples"),
            ("embedding.power=0.7", "embedding.power"),
            ("retrieval.hnsw.scalar=i8", "retrieval.hnsw.scalar"),
            ("optimizer.learning_rate=0", "optimizer.learning_rate"),
            ("method.sigma=huge", "method.sigma"),
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
            ("[method]\nkind = \"pl\"", "setting `method.kind`"),
            ("[method]\nbaselin = \"none\"", "method.baseline"),
            ("seed = 3\n[method]\nsamples = 4\nsigma = \"huge\"", "setting `method.sigma`"),
        ] {
            fs::write(&path, text).unwrap();
            let error = default().file(&path).unwrap_err().to_string();
            assert!(error.contains("mine.toml: ") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn biased_combinations_are_refused_with_the_reason() {
        for (assignments, reason) in [
            (&["method.noise=laplace"][..], "lrp, lrp-mips have it"),
            (&["method.coverage=1.5"], "from 0 to 1"),
            (&["method.sigma=inverse-dim"], "use \"keep\""),
            (&["method.kind=plackett-luce"], "there are lgp, lgp-mips"),
            (&["method.learn_actions=true"], "pl-pg, pl-rank have it"),
            (&["method.kind=pl-pg", "method.radial=keep"], "no such key"),
            (&["method.kind=pl-pg", "method.uniform_share=0.5"], "fopo have it"),
            (
                &["method.kind=pl-rank", "method.learn_actions=true", "evaluation.search=index"],
                "goes stale",
            ),
            (&["tower.kind=linear", "tower.hidden=[4]"], "residual-mlp"),
            (&["tower.kind=sigmoid-mlp", "tower.activation=gelu"], "residual-mlp"),
            (&["tower.kind=residual-mlp", "tower.hidden=[4, 0]"], "from 1 to"),
            (&["tower.kind=residual-mlp", "tower.initial=paper"], "use \"identity\""),
            (&["optimizer.weight_decay=-1"], "at least 0"),
            (&["optimizer.gradient_clipping=nan"], "at least 0"),
            (&["method.kind=pl-pg", "method.draws=rejection"], "covariance"),
            (&["method.kind=fopo"], "slates of one action"),
            (&["method.kind=covariance", "method.draws=rejection", "method.head=4"], "slate_size"),
            (&["method.kind=pl-rank", "reward.kind=any-hit"], "not linear"),
            (&["method.kind=covariance-as-printed", "method.samples=1"], "at least 2"),
            (&["method.kind=fopo", "slate_size=1", "method.samples=1"], "at least 2"),
            (&["optimizer.learning_rate=1"], "`optimizer.learning_rate` times this is 3"),
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
    fn another_method_keeps_what_both_have() {
        let chosen = |assignments: &[&str]| {
            let built = assignments.iter().try_fold(default(), |b, text| b.assignment(text));
            built.and_then(SettingsBuilder::build).unwrap().method
        };
        let Method::PlPg(pl_pg) = chosen(&["method.samples=7", "method.kind=pl-pg"]) else {
            panic!("pl-pg was chosen")
        };
        assert_eq!((pl_pg.samples, pl_pg.baseline), (7, ControlVariate::LeaveOneOut));
        let lrp = chosen(&["method.kind=lrp", "method.noise=laplace"]);
        assert_eq!(lrp.latent().unwrap().noise, Some(NoiseKind::Laplace));
        assert_eq!(lrp.latent().unwrap().candidates, 100);
        let method = Preset::Default.settings().method;
        assert_eq!(chosen(&["method.kind=pl-rank", "method.kind=lgp-mips"]).kind(), method.kind());
    }

    #[test]
    fn the_order_of_keys_in_a_file_is_no_matter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        fs::write(&path, "[method]\ndraws = \"gumbel\"\nkind = \"pl-rank\"").unwrap();
        let settings = default().file(&path).and_then(SettingsBuilder::build).unwrap();
        let Method::PlRank(pl_rank) = settings.method else { panic!("pl-rank was chosen") };
        assert_eq!(pl_rank.draws, SlateDraws::Gumbel);
    }

    #[test]
    fn differences_name_key_and_both_values() {
        let other =
            default().assignment("method.samples=3").and_then(SettingsBuilder::build).unwrap();
        let differences = Preset::Default.settings().differences(&other);
        assert_eq!(differences[0].1, "method.samples: 30 → 3");
    }
}
