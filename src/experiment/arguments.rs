//! Tables of flags go in; arguments of a command come out, and the command as a shell takes it.

use toml::{Table, Value};

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
}
