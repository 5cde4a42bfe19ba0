//! Settings of the first version in, settings of the second out. That version had `[policy]` and
//! `[estimator]` where there is `[method]` today.

use toml::{Table, Value};

use super::second_version;
use crate::error::{Error, Result};
use crate::method::MethodKind;

/// Renames the keys of a `run.toml` of the first version to the second's.
///
/// # Errors
/// [`Error::Setting`] for a policy and an estimator that no method has.
pub(super) fn upgraded(mut table: Table) -> Result<Table> {
    let mut take = |name: &str| match table.remove(name) {
        Some(Value::Table(table)) => table,
        _ => Table::new(),
    };
    let (mut policy, mut estimator) = (take("policy"), take("estimator"));
    let (mut retrieval, mut embedding) = (take("retrieval"), take("embedding"));
    let mut slate_size = policy.remove("slate_size");
    let search = retrieval.remove("kind");
    let approximate = text(search.as_ref()) == "hnsw";
    let kind = kind(
        &text(policy.remove("kind").as_ref()),
        &text(estimator.remove("kind").as_ref()),
        approximate,
    )?;

    // Every key that some method had. The method takes those that it has.
    let mut keys = policy;
    keys.extend(estimator);
    keys.extend(search.map(|search| ("search".to_owned(), search)));
    let moved = ["candidates", "coverage"];
    keys.extend(moved.iter().filter_map(|key| retrieval.remove_entry(*key)));
    keys.extend(embedding.remove("learn").map(|learn| ("learn_actions".to_owned(), learn)));
    let method = Table::try_from(kind.method());
    let mut method = method.map_err(|error| Error::library("settings", error))?;
    for (key, value) in &mut method {
        if let Some(recorded) = keys.remove(key) {
            *value = recorded;
        }
    }
    // What the second version had, and today does not.
    if kind.method().latent().is_some() {
        let gone = second_version::keys_of_methods();
        method.extend(gone.filter_map(|key| keys.remove_entry(key)));
    }
    table.insert("method".into(), method.into());
    table.insert("retrieval".into(), retrieval.into());
    table.insert("embedding".into(), embedding.into());
    table.extend(slate_size.take().map(|size| ("slate_size".to_owned(), size)));
    Ok(table)
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn kind(policy: &str, estimator: &str, approximate: bool) -> Result<MethodKind> {
    Ok(match (policy, estimator, approximate) {
        ("lgp", "score-function", false) => MethodKind::Lgp,
        ("lgp", "score-function", true) => MethodKind::LgpMips,
        ("lrp", "score-function", false) => MethodKind::Lrp,
        ("lrp", "score-function", true) => MethodKind::LrpMips,
        ("plackett-luce", "score-function", _) => MethodKind::PlPg,
        ("plackett-luce", "pl-rank", _) => MethodKind::PlRank,
        ("plackett-luce", "covariance", _) => MethodKind::Covariance,
        ("plackett-luce", "covariance-as-printed", _) => MethodKind::CovarianceAsPrinted,
        ("plackett-luce", "fopo", _) => MethodKind::Fopo,
        _ => {
            let problem = format!("this version has no method of \"{policy}\", \"{estimator}\"");
            return Err(Error::setting("policy.kind", problem));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_today_does_not_have_is_not_lost_on_the_way() {
        let text = "[policy]\nkind = \"lgp\"\ncoupling = \"antithetic\"\n\
                    [estimator]\nkind = \"score-function\"";
        let table = upgraded(text.parse().unwrap()).unwrap();
        assert_eq!(table["method"]["coupling"].as_str(), Some("antithetic"));
    }
}
