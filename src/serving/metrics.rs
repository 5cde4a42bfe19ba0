//! What happened, counted, in the text format that Prometheus reads.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::front::Front;
use super::journal::Journal;
use super::loaded::Loaded;

/// The content type of [`Metrics::text`].
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Request {
    /// The route's pattern: what was asked for may be anything.
    pub(super) route: String,
    pub(super) status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Route {
    pub(super) route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Explored {
    pub(super) explored: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Outcome {
    pub(super) outcome: &'static str,
}

type Number = Gauge<f64, AtomicU64>;

/// Counters and histograms of one server.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    pub(super) requests: Family<Request, Counter>,
    pub(super) seconds: Family<Route, Histogram, fn() -> Histogram>,
    pub(super) slates: Family<Explored, Counter>,
    pub(super) unlogged: Counter,
    pub(super) feedback: Counter,
    pub(super) reloads: Family<Outcome, Counter>,
    pub(super) connections: Gauge,
    pub(super) turned_away: Counter,
    shards_missing: Counter,
    shards_hedged: Counter,
    log_healthy: Gauge,
    recall: Number,
    items: Gauge,
}

/// From 0.25 ms to 4 s, by powers of two.
fn histogram() -> Histogram {
    Histogram::new((0..15).map(|power| 0.000_25 * f64::from(1 << power)))
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("slate");
        let requests = Family::default();
        registry.register("http_requests", "Requests answered", requests.clone());
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        let help = "Time from a request's head to its answer's";
        registry.register_with_unit("http_request", help, Unit::Seconds, seconds.clone());
        let slates = Family::default();
        registry.register("slates", "Slates shown", slates.clone());
        let unlogged = Counter::default();
        let help = "Slates shown while the log could not be written";
        registry.register("slates_unlogged", help, unlogged.clone());
        let feedback = Counter::default();
        registry.register("feedback", "Outcomes stored", feedback.clone());
        let reloads = Family::default();
        registry.register("reloads", "Bundles loaded or refused", reloads.clone());
        let connections = Gauge::default();
        registry.register("connections", "Open connections", connections.clone());
        let turned_away = Counter::default();
        let help = "Connections turned away because too many were open";
        registry.register("connections_turned_away", help, turned_away.clone());
        let shards_missing = Counter::default();
        let help = "Times that a shard did not answer in time";
        registry.register("shards_missing", help, shards_missing.clone());
        let shards_hedged = Counter::default();
        let help = "Questions that a second replica was asked because the first was late";
        registry.register("shards_hedged", help, shards_hedged.clone());
        let log_healthy = Gauge::default();
        let help = "1 if the log can be written, 0 if it cannot, -1 if the server has no log";
        registry.register("log_healthy", help, log_healthy.clone());
        let recall = Number::default();
        let help = "What the index found of the true top K in its last audit; NaN without an index";
        registry.register("index_recall", help, recall.clone());
        let items = Gauge::default();
        registry.register("items", "Items of the bundle", items.clone());
        Self {
            registry,
            requests,
            seconds,
            slates,
            unlogged,
            feedback,
            reloads,
            connections,
            turned_away,
            shards_missing,
            shards_hedged,
            log_healthy,
            recall,
            items,
        }
    }

    /// All numbers as they are now.
    pub(super) fn text(
        &self,
        loaded: &Loaded,
        journal: Option<&Journal>,
        front: Option<&Front>,
    ) -> Result<String, std::fmt::Error> {
        self.recall.set(loaded.recall.get().copied().unwrap_or(f64::NAN));
        let items = loaded.recommender.bundle().items.ids.len();
        self.items.set(i64::try_from(items).unwrap_or(i64::MAX));
        self.log_healthy.set(match journal {
            None => -1,
            Some(journal) => i64::from(journal.is_healthy()),
        });
        if let Some(front) = front {
            let counters =
                [(&self.shards_missing, &front.missing), (&self.shards_hedged, &front.hedges)];
            for (counter, now) in counters {
                counter.inner().fetch_max(now.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
