//! Trains the slate a recommender shows, the ordered top K out of millions of items, directly for
//! its own reward: *Fast Slate Policy Optimization: Going Beyond Plackett-Luce* (Sakhi, Rohde,
//! Chopin; TMLR 2023), on [Burn](https://burn.dev) and [usearch](https://github.com/unum-cloud/usearch).
//!
//! A policy maps a context x to the K actions of largest inner product,
//! `d_θ(x) = argsort^K h_θ(x)ᵀβ_a`. LGP, the latent Gaussian perturbation, relaxes it to
//! `argsort^K (h_θ(x) + σε)ᵀβ_a` with `ε ~ N(0, I)`, so that slates are sampled by approximate
//! maximum inner product search and the gradient of *any* reward costs `O(S log P)`.
//!
//! ```
//! use std::sync::Arc;
//! use fast_slate::embedding::ActionEmbeddings;
//! use fast_slate::matrix::Matrix;
//! use fast_slate::retrieval::{Exact, Queries, Retriever};
//!
//! # fn main() -> fast_slate::Result<()> {
//! // Three actions in two dimensions, and the slate of two that a query gets.
//! let beta = Matrix::new(vec![1.0, 0.0, 0.0, 1.0, 0.7, 0.7], 2)?;
//! let exact = Exact::new(Arc::new(ActionEmbeddings::new(beta)?));
//! let h = Matrix::new(vec![1.0, 0.2], 2)?;
//! let slates = exact.search(Queries { latent: &h, slate_size: 2, excluded: None })?;
//! assert_eq!(slates.slate(0), [0, 2]);
//! # Ok(())
//! # }
//! ```
//!
//! # The seam
//! With β fixed, every method of the paper is a gradient of the estimated reward with respect to
//! the *query*, `g_b = ∂R̂/∂h_b`. An [`estimator`] takes h `[B, L]` on the host and returns g
//! `[B, L]`; it knows nothing of autodiff. The learner step (`training::Learner`, Burn's
//! `TrainStep`) does forward, asks the estimator for g, and backpropagates the surrogate loss
//! `−⟨h, g⟩ / B`. S and K never reach the tape; a new tower needs no new estimator and a new
//! estimator no new tower.
//!
//! # The map
//! Data flows one way, and a module imports only from those above it in this table.
//!
//! | module | from → to |
//! |---|---|
//! | [`error`], [`interrupt`], `decimal`, `bytes`, [`files`], [`seed`], [`matrix`] | errors; the early end of long work; f32s in files; numbers in bytes; files that appear whole; addressed randomness; host matrices |
//! | [`estimate`] | numbers → mean, standard error, interval |
//! | [`device`] | `--device` names → Burn devices and their memory; the kernel of their searches |
//! | [`dataset`] | files, or tables in memory → sessions X, Y |
//! | [`embedding`] | sessions → β, and the input vectors of contexts |
//! | [`encoder`] | what is known of somebody → the context M(X) |
//! | [`retrieval`] | β → top K by inner product |
//! | [`reward`] | context and slate → r̂ |
//! | [`tower`], [`model`] | M(X) → h; all that is trained |
//! | [`policy`] | h → distributions over slates |
//! | [`bundle`] | all that serving needs, in a folder → slates for anybody |
//! | [`log`] | what was shown and what happened → rows that survive, and tables of them |
//! | [`logged`] | a log and a policy → what another policy would have earned, and what it can learn |
//! | `serving` | a bundle → answers over HTTP |
//! | [`estimator`] | samples and rewards → g |
//! | [`method`] | one tagged setting → policy and estimator |
//! | [`settings`] | presets, files and keys → one validated whole |
//! | [`prepared`] | the folder that holds sessions, embeddings and indexes |
//! | [`run`] | a run's folder: settings, record, checkpoints |
//! | [`task`] | a prepared folder and settings → what a policy is trained on and judged by |
//! | [`evaluation`] | the decision's reward on held-out contexts |
//! | [`baseline`] | training sessions → the recommenders that a policy is compared with |
//! | `training` | the learner step, the loop, checkpoints |
//! | `chart` | numbers → pictures |
//! | [`experiment`] | embeddings, settings, hyperparameters, a grid of methods → what earns most, and a report |
//! | [`facade`] | a log → a trained policy → slates and bundles, in a few lines |
//! | [`simulation`] | settings → users who click on slates, what slates earn from them, and the closed loop |
//! | [`cli`] | what was typed → one file per verb |
//!
//! # Paper → code
//! | paper | code |
//! |---|---|
//! | context x, action a, slate A_K, K, P, L, S | `context`, `action: u32`, `slate`, `slate_size`, `num_actions`, `latent_dim`, `num_samples` |
//! | X, Y, U users | [`Sessions::observed`](dataset::Sessions), `hidden`, `num_contexts` |
//! | β (SVD of the interactions) | [`embedding::ActionEmbeddings`], [`embedding::svd`]; beside it [`embedding::als`], [`embedding::blend`](mod@embedding::blend) and [`embedding::neighbours`] |
//! | M(X), mean embedding | [`encoder::Mean`] |
//! | `argsort^K`, equation 2 | [`retrieval::Retriever`]; for all samples at once [`retrieval::Candidates`] |
//! | `h_θ(X) = M(X)θ`, equation 10 | [`tower::LinearTower`] |
//! | the deep policy `sigmoid(Mθ₁)θ₂` | [`tower::SigmoidMlp`] |
//! | r̂(A_K, X), section 4.1 | [`reward::LinearReward::discounted`] |
//! | Plackett–Luce, section 2 | [`policy::PlackettLuce`] |
//! | LGP, σ, section 3 | [`policy::LatentPerturbation`], [`policy::Scale`] |
//! | LRP, the noise Q, appendix | [`policy::LatentPerturbation`], [`policy::Noise`] |
//! | rejection sampling by MIPS, Algorithm 2 | [`policy::RejectionSampler`] |
//! | REINFORCE, equation 6, PL-PG; `G^σ_θ`, equation 9, the body of Algorithm 1 | [`estimator::ScoreFunction`] |
//! | PL-Rank | [`estimator::PlRank`] |
//! | the covariance gradient, equation 8; FOPO | [`estimator::Covariance`], [`estimator::Fopo`] |
//! | learning β, appendix "Effect of fixing β" | [`estimator::LearnedActions`], [`model::Model`] |
//! | the variance `V[G]` | `training::GradientStatistics` |
//! | Algorithm 1 | `training::Trainer` |
//! | R̂(d_θ) | [`evaluation::Evaluation`] |
//! | the tables and figures of section 4 and the appendix | `experiment::Comparison`, with the grids in `examples/paper` |
//!
//! Four formulas are corrected. In Algorithm 1 the perturbed query is `h + σε` (not `h + ε`), and θ
//! moves up the reward (not down). The covariance gradient holds for K = 1 only; for longer slates
//! it pairs slates that share a prefix. The head of the rejection sampler weighs `e^{s_i} − e^{s_K}`
//! (not `e^{s_i}`), because its tail draws head actions too.
//!
//! # Invariants
//! - Nothing above `training` knows autodiff, and a build without the feature `train` has none and
//!   reads no CSV: it opens bundles and answers from them.
//! - Nothing but [`device`] knows which backends are compiled in.
//! - Nothing draws from a global generator: a draw is addressed by (seed, purpose, step, place in
//!   the batch), so a resumed run draws what an uninterrupted one draws.
//! - Nothing ever holds `[queries, P]` scores, and an exact search on a GPU ([`retrieval::OnDevice`]) gives
//!   the answer of the one on the host, bit for bit.
//! - No context of a training user is made from vectors that were fitted on what that user hides,
//!   unless a setting asks for it ([`dataset::Folds`]).
//! - No public function takes a distance: retrieval speaks in scores, greater is better.
//! - No file is half written under its final name.
//! - Actions are numbered by falling popularity, so that ties, and a context that says nothing
//!   (M(∅) = 0), resolve to what is popular.

#![cfg_attr(not(feature = "train"), allow(dead_code, unused_imports, reason = "for training only"))]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare numbers that are exact"))]

#[cfg(feature = "train")]
pub mod baseline;
pub mod bundle;
mod bytes;
#[cfg(feature = "train")]
pub mod chart;
pub mod cli;
pub mod dataset;
mod decimal;
pub mod device;
pub mod embedding;
pub mod encoder;
pub mod error;
pub mod estimate;
#[cfg(feature = "train")]
pub mod estimator;
#[cfg(feature = "train")]
pub mod evaluation;
#[cfg(feature = "train")]
pub mod experiment;
#[cfg(feature = "train")]
pub mod facade;
pub mod files;
pub mod interrupt;
pub mod log;
#[cfg(feature = "train")]
pub mod logged;
pub mod matrix;
#[cfg(feature = "train")]
pub mod method;
pub mod model;
pub mod policy;
#[cfg(feature = "train")]
pub mod prepared;
pub mod retrieval;
pub mod reward;
#[cfg(feature = "train")]
pub mod run;
pub mod seed;
#[cfg(feature = "serve")]
pub mod serving;
#[cfg(feature = "train")]
pub mod settings;
#[cfg(feature = "train")]
pub mod simulation;
#[cfg(feature = "train")]
pub mod task;
pub mod tower;
#[cfg(feature = "train")]
pub mod training;

pub use error::{Error, Result};
