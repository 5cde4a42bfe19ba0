//! Settings of the second version in, settings of today out. That version had keys that are gone.

use toml::{Table, Value};

use crate::error::{Error, Result};

/// A key that is gone: its table, its name, whether a value of it changed nothing, and what any other
/// value made a run do.
type Gone = (&'static str, &'static str, fn(&Value) -> bool, &'static str);

const GONE: [Gone; 6] = [
    ("method", "coupling", |value| value.as_str() == Some("independent"), "couple noise"),
    ("method", "learn_sigma", |value| value.as_bool() == Some(false), "learn σ"),
    ("method", "sigma_floor", |_| true, ""),
    ("tower", "dropout", |value| value.as_float() == Some(0.0), "drop hidden units"),
    ("context", "ridge", |_| true, ""),
    (
        "context",
        "half_life",
        |value| value.as_float() == Some(0.0),
        "weigh actions by their age in days",
    ),
];

/// Drops the keys that are gone from a `run.toml` of the second version.
///
/// # Errors
/// [`Error::Setting`] for a value that made a run do what today's version does not do.
pub(super) fn upgraded(mut table: Table) -> Result<Table> {
    let kind = table.get("method").and_then(|method| method.get("kind"));
    if kind.and_then(Value::as_str) == Some("likelihood") {
        return Err(gone("method.kind", "have the method \"likelihood\""));
    }
    let encoders = table.get("context").and_then(|context| context.get("encoders"));
    let encoders = encoders.and_then(Value::as_array);
    if encoders.is_some_and(|all| all.iter().any(|encoder| encoder.as_str() == Some("ridge"))) {
        return Err(gone("context.encoders", "have the encoder \"ridge\""));
    }
    for (name, key, changes_nothing, what) in GONE {
        let Some(Value::Table(inner)) = table.get_mut(name) else { continue };
        if inner.remove(key).is_some_and(|value| !changes_nothing(&value)) {
            return Err(gone(&format!("{name}.{key}"), what));
        }
    }
    Ok(table)
}

/// The keys of [`upgraded`] that a method had.
pub(super) fn keys_of_methods() -> impl Iterator<Item = &'static str> {
    GONE.into_iter().filter(|gone| gone.0 == "method").map(|gone| gone.1)
}

fn gone(key: &str, what: &str) -> Error {
    let problem =
        format!("this version does not {what} any more; the build that trained the run does");
    Error::setting(key, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgraded(text: &str) -> Result<Table> {
        super::upgraded(text.parse().unwrap())
    }

    #[test]
    fn what_changed_nothing_is_dropped() {
        let table = upgraded(
            "[method]\nkind = \"lgp\"\ncoupling = \"independent\"\nlearn_sigma = false\n\
             sigma_floor = 0.1\n[tower]\ndropout = 0.0\n[context]\n\
             encoders = [\"mean\"]\nridge = 10.0",
        )
        .unwrap();
        let expected = "[method]\nkind = \"lgp\"\n[tower]\n[context]\nencoders = [\"mean\"]";
        let expected: Table = expected.parse().unwrap();
        assert_eq!(table, expected);
    }

    #[test]
    fn what_a_run_needs_is_refused_by_name() {
        for (text, key) in [
            ("[method]\ncoupling = \"antithetic\"", "method.coupling"),
            ("[method]\nlearn_sigma = true", "method.learn_sigma"),
            ("[tower]\ndropout = 0.3", "tower.dropout"),
            ("[context]\nencoders = [\"mean\", \"ridge\"]", "context.encoders"),
            ("[method]\nkind = \"likelihood\"", "method.kind"),
        ] {
            let error = upgraded(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}`: this version does not")), "{error}");
        }
    }
}
