//! The two named sets of defaults.

use serde::{Deserialize, Serialize};

use super::{
    BudgetSettings, BudgetUnit, CheckpointSettings, EvaluationSearch, EvaluationSettings,
    OptimizerSettings, RetrievalSettings, RewardSettings, Schedule, Settings,
};
use crate::embedding::{AlsOptions, Form, Power};
use crate::encoder::{ContextSettings, EncoderKind};
use crate::estimator::ControlVariate;
use crate::method::{LatentMethod, Method, MethodKind};
use crate::policy::{Radial, Sigma};
use crate::retrieval::{HnswOptions, Scalar};
use crate::reward::RewardKind;
use crate::seed::Seed;
use crate::tower::{Initial, TowerKind, TowerSettings};

/// A named set of defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// The values of the paper and of its authors' earlier code; of their graph of FAISS, its recall.
    Paper,
    /// The values that earned the most in this project's measurements; what depends on the data is
    /// taken from the prepared folder.
    #[default]
    Default,
}

impl Preset {
    /// The recall of the graph that the preset stands for; none if it stands for an `ef_search`.
    /// The paper names a library's numbers, which find other shares in another library: on Gowalla
    /// M = 32 and `ef_search` = 16 find 0.68 of the true top 5 in FAISS and 0.84 in usearch.
    #[must_use]
    pub fn recall(self) -> Option<f64> {
        (self == Self::Paper).then_some(0.7)
    }

    /// The preset's settings.
    #[must_use]
    pub fn settings(self) -> Settings {
        let als = AlsOptions::default();
        let paper = Settings {
            seed: Seed(0),
            slate_size: 5,
            embedding: Form { power: Power::Zero, ridge: 0.0, popularity: 0.0 },
            context: ContextSettings {
                encoders: vec![EncoderKind::Mean],
                popularity_power: 0.5,
                recency: 0.0,
                confidence: als.confidence,
                regularization: als.regularization,
                folds: 0,
                redraw: false,
            },
            retrieval: RetrievalSettings {
                exclude_observed: false,
                recall_warning: 0.6,
                // What FAISS finds with its numbers, M = 32, 40 and 16, at a third of their time.
                hnsw: HnswOptions {
                    connectivity: 8,
                    ef_construction: 128,
                    ef_search: 12,
                    scalar: Scalar::F16,
                },
            },
            tower: TowerSettings { initial: Initial::Paper, ..TowerSettings::default() },
            method: MethodKind::LgpMips.method(),
            reward: RewardSettings { kind: RewardKind::Discounted },
            optimizer: OptimizerSettings {
                learning_rate: 1e-3,
                schedule: Schedule::Constant,
                growth: 1.0,
                batch_size: 32,
                beta_1: 0.9,
                beta_2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.0,
                gradient_clipping: 0.0,
            },
            budget: BudgetSettings { unit: BudgetUnit::Steps, amount: 5000 },
            evaluation: EvaluationSettings {
                count: 10,
                train_contexts: 2000,
                validation_contexts: 10_000,
                validation_halves: 1,
                search: EvaluationSearch::Auto,
                patience: 0,
                gradient_draws: 0,
            },
            checkpoint: CheckpointSettings { keep: 2 },
        };
        match self {
            Self::Paper => paper,
            Self::Default => Settings {
                embedding: Form { power: Power::Quarter, ..paper.embedding },
                context: ContextSettings {
                    encoders: vec![EncoderKind::WeightedMean],
                    popularity_power: 0.25,
                    folds: 5,
                    redraw: true,
                    ..paper.context
                },
                retrieval: RetrievalSettings {
                    exclude_observed: true,
                    recall_warning: 0.9,
                    hnsw: HnswOptions::default(),
                },
                // Linear too, but what decays is what has been learned, not θ = I.
                tower: TowerSettings {
                    kind: TowerKind::ResidualMlp,
                    balance: true,
                    ..TowerSettings::default()
                },
                method: Method::LgpMips(LatentMethod {
                    samples: 30,
                    sigma: Sigma::Relative(0.3),
                    radial: Radial::Project,
                    baseline: ControlVariate::LeaveOneOut,
                    candidates: 100,
                    ..LatentMethod::gaussian()
                }),
                optimizer: OptimizerSettings {
                    schedule: Schedule::Linear,
                    growth: 3.0,
                    weight_decay: 3.0,
                    ..paper.optimizer
                },
                budget: BudgetSettings { unit: BudgetUnit::Steps, amount: 1000 },
                evaluation: EvaluationSettings {
                    count: 5,
                    patience: 4,
                    train_contexts: 1000,
                    validation_halves: 16,
                    ..paper.evaluation
                },
                ..paper
            },
        }
    }
}
