//! Settings of retrieval: the kind of search and the options of the graph.

use serde::{Deserialize, Serialize};
use usearch::{Index, IndexOptions, MetricKind, ScalarKind};

use crate::error::{Error, Result};

/// The kind of search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Search {
    /// Scores every action, in O(P).
    #[default]
    Exact,
    /// Walks a graph: time grows with log P, and a few of the top K are missed.
    Hnsw,
}

/// The type of the numbers that the graph stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", rename_all = "lowercase")]
pub enum Scalar {
    /// Four bytes, as β itself.
    F32,
    /// Two bytes, eleven significant bits.
    #[default]
    F16,
    /// Two bytes, eight significant bits.
    Bf16,
}

impl Scalar {
    pub(super) fn kind(self) -> ScalarKind {
        match self {
            Self::F32 => ScalarKind::F32,
            Self::F16 => ScalarKind::F16,
            Self::Bf16 => ScalarKind::BF16,
        }
    }

    /// The largest relative error of a stored number.
    pub(super) fn precision(self) -> f32 {
        match self {
            Self::F32 => 0.0,
            Self::F16 => 1.0 / 2048.0,
            Self::Bf16 => 1.0 / 256.0,
        }
    }
}

impl TryFrom<String> for Scalar {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "f32" => Ok(Self::F32),
            "f16" => Ok(Self::F16),
            "bf16" => Ok(Self::Bf16),
            "i8" => Err("i8 rounds inner products beyond use (recall 0.12 to 0.17 where f16 \
                         has 0.98): use f32, f16 or bf16"
                .into()),
            other => Err(format!("no scalar `{other}`: use f32, f16 or bf16")),
        }
    }
}

/// The graph's settings. The defaults were the fastest on Gowalla with recall@5 of at least 0.98.
/// Longer slates need a wider search, which `slate bench recall` finds; the heads
/// of FOPO and rejection, hundreds of actions, also need more neighbours. FOPO's authors use M = 32,
/// ef_construction = 40, ef_search = 16, f32 in FAISS, which finds less with these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HnswOptions {
    /// M: an action's neighbours in the upper layers; 2M in the lowest.
    pub connectivity: usize,
    /// Candidates kept while an action is inserted.
    pub ef_construction: usize,
    /// Candidates kept while searching; not stored, so the same graph serves any value.
    pub ef_search: usize,
    /// The stored precision.
    pub scalar: Scalar,
}

impl Default for HnswOptions {
    fn default() -> Self {
        Self { connectivity: 12, ef_construction: 128, ef_search: 48, scalar: Scalar::F16 }
    }
}

impl HnswOptions {
    /// The largest value of each number.
    pub const LARGEST: usize = 4096;

    pub(super) fn validate(&self) -> Result<()> {
        for (key, value, least) in [
            ("connectivity", self.connectivity, 2),
            ("ef_construction", self.ef_construction, 1),
            ("ef_search", self.ef_search, 1),
        ] {
            if !(least..=Self::LARGEST).contains(&value) {
                let problem = format!("is {value}, expected {least} to {}", Self::LARGEST);
                return Err(Error::setting(format!("retrieval.hnsw.{key}"), problem));
            }
        }
        Ok(())
    }

    pub(super) fn index(&self, latent_dim: usize) -> Result<Index> {
        Index::new(&IndexOptions {
            dimensions: latent_dim,
            metric: MetricKind::IP,
            quantization: self.scalar.kind(),
            connectivity: self.connectivity,
            expansion_add: self.ef_construction,
            expansion_search: self.ef_search,
            multi: false,
        })
        .map_err(|error| Error::library("creating the index", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_say_why() {
        let read = |text: &str| toml::from_str::<HnswOptions>(text).map_err(|e| e.to_string());
        assert_eq!(read("scalar = \"bf16\"").unwrap().scalar, Scalar::Bf16);
        let written = toml::to_string(&HnswOptions::default()).unwrap();
        assert_eq!(read(&written).unwrap(), HnswOptions::default());
        assert!(read("scalar = \"i8\"").unwrap_err().contains("recall 0.12 to 0.17"));
        assert!(read("ef = 3").unwrap_err().contains("ef_search"));

        let options = HnswOptions { connectivity: 1, ..HnswOptions::default() };
        let error = options.validate().unwrap_err().to_string();
        assert!(error.contains("retrieval.hnsw.connectivity"), "{error}");
    }
}
