//! Tables of a grid go in; keys of settings and arguments of a command come out.

use toml::{Table, Value};

/// The dotted keys of a table of settings, whether it is nested or its keys have dots.
pub(super) fn leaves(table: &Table) -> Vec<(String, Value)> {
    let of_entry = |(key, value): (&String, &Value)| match value {
        Value::Table(inner) => {
            let below = leaves(inner).into_iter();
            below.map(|(rest, value)| (format!("{key}.{rest}"), value)).collect()
        }
        value => vec![(key.clone(), value.clone())],
    };
    table.iter().flat_map(of_entry).collect()
}

/// A table of flags as arguments, one each: `{ seed = 3, no-index = true }` becomes `--no-index` and
/// `--seed=3`.
#[must_use]
pub fn flags(table: &Table) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    let flag = |(key, value): (&String, &Value)| match value {
        Value::Boolean(given) => given.then(|| format!("--{key}")),
        Value::Array(values) => {
            Some(format!("--{key}={}", values.iter().map(text).collect::<Vec<_>>().join(",")))
        }
        value => Some(format!("--{key}={}", text(value))),
    };
    table.iter().filter_map(flag).collect()
}

/// Arguments as a shell takes them: quoted where they have to be.
#[must_use]
pub fn shell<T: AsRef<str>>(arguments: &[T]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+%@".contains(c);
    let quoted = |argument: &T| match argument.as_ref() {
        text if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        text => format!("'{}'", text.replace('\'', r"'\''")),
    };
    arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn tables_become_arguments_that_are_never_split() {
        let table = "seed = 3\nno-index = true\nforce = false\nembeddings = \"my file.npy\"\n\
                     density = 0.002\nfeature-columns = [\"a\", \"b\"]";
        let arguments = flags(&table.parse().unwrap());
        assert_eq!(
            arguments,
            [
                "--density=0.002",
                "--embeddings=my file.npy",
                "--feature-columns=a,b",
                "--no-index",
                "--seed=3"
            ]
        );
        assert_eq!(shell(&arguments[..2]), "--density=0.002 '--embeddings=my file.npy'");
        assert_eq!(shell(&["it's", ""]), r"'it'\''s' ''");
    }

    #[test]
    fn settings_may_be_nested_or_have_dots() {
        let nested: Table = "a = 1\n\"x.z\" = 2\n[x]\ny = 3".parse().unwrap();
        let keys: Vec<_> = leaves(&nested).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["a", "x.y", "x.z"]);
    }
}
