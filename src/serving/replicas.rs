//! The addresses of shards, and what is known of the processes there.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::Uri;

use super::wire::{PATH, Place};

/// The addresses of shards, with a comma between shards and `|` between replicas of one.
#[derive(Clone, Debug)]
pub struct Addresses(Vec<Vec<Uri>>);

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = |text: &str| {
            let expected = || {
                format!(
                    "`{text}` is no address: expected http://host:port, with a comma between \
                         shards and | between replicas of one"
                )
            };
            let uri: Uri = text.trim().parse().map_err(|_| expected())?;
            let plain = uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/");
            let mut parts = uri.into_parts();
            parts.path_and_query = Some(axum::http::uri::PathAndQuery::from_static(PATH));
            match Uri::from_parts(parts) {
                Ok(uri) if plain && uri.host().is_some() => Ok(uri),
                _ => Err(expected()),
            }
        };
        let shard = |text: &str| text.split('|').map(address).collect();
        text.split(',').map(shard).collect::<Result<_, _>>().map(Self)
    }
}

impl Addresses {
    /// The shards there, in order.
    pub(super) fn groups(self) -> Vec<Group> {
        let of = self.0.len();
        let replica = |address| {
            let (answers, wrong) = (AtomicBool::new(false), Mutex::default());
            Arc::new(Replica { address, answers, wrong })
        };
        let group = |(at, addresses): (usize, Vec<Uri>)| Group {
            place: Place { index: at + 1, of },
            replicas: addresses.into_iter().map(replica).collect(),
            turn: AtomicUsize::new(0),
        };
        self.0.into_iter().enumerate().map(group).collect()
    }
}

/// A process that searches a shard.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) address: Uri,
    /// True if it answered what it was asked last.
    pub(super) answers: AtomicBool,
    /// The part that it holds, if it is another than the one expected of it.
    wrong: Mutex<Option<Place>>,
}

impl Replica {
    /// True if it holds the part that is expected of it; says so where it does not.
    pub(super) fn holds(&self, found: Place, expected: Place) -> bool {
        let wrong = (found != expected).then_some(found);
        let mut known = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong.is_some() && *known != wrong {
            tracing::warn!(
                "shard {} holds {found}, expected {expected}: its place in --shards is another part's",
                self.name()
            );
        }
        *known = wrong;
        wrong.is_none()
    }

    /// Its address.
    fn name(&self) -> &str {
        self.address.authority().map_or("", |authority| authority.as_str())
    }
}

/// The replicas of one shard.
#[derive(Debug)]
pub(super) struct Group {
    /// The part that each of them holds.
    pub(super) place: Place,
    pub(super) replicas: Vec<Arc<Replica>>,
    /// Whose turn it is.
    pub(super) turn: AtomicUsize,
}

impl Group {
    /// Its first address, or the replicas that hold another part, with what they hold.
    pub(super) fn described(&self) -> String {
        let wrong = |replica: &Arc<Replica>| {
            let found = (*replica.wrong.lock().unwrap_or_else(PoisonError::into_inner))?;
            let name = replica.name();
            Some(format!("{name}, which holds {found}, expected {}", self.place))
        };
        let wrong: Vec<String> = self.replicas.iter().filter_map(wrong).collect();
        if wrong.is_empty() { self.replicas[0].name().to_owned() } else { wrong.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_shards_and_replicas() {
        let read = |text: &str| text.parse::<Addresses>().map(|of| of.0);
        let found = read("http://a:1|http://b:1, http://c:1/").unwrap();
        let texts: Vec<Vec<String>> =
            found.iter().map(|shard| shard.iter().map(ToString::to_string).collect()).collect();
        let search = |host: &str| format!("http://{host}:1/v1/search");
        assert_eq!(texts, [vec![search("a"), search("b")], vec![search("c")]]);
        for wrong in ["", "a:1", "https://a:1", "http://a:1/path", "http://a:1,"] {
            assert!(read(wrong).unwrap_err().contains("is no address"), "{wrong}");
        }
    }
}
