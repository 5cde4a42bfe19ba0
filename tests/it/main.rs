//! One behaviour a file; `common` holds what several need.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]
#![allow(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

mod common;
mod compare;

mod backends;
mod bad_input;
mod baselines;
mod bundle;
mod by_hand;
mod chart;
mod cli;
mod conformance;
mod contexts;
mod covariance;
mod device_retrieval;
mod edges;
mod estimators;
mod evaluations;
mod facade;
mod gradient;
mod guide;
mod layering;
mod league;
mod learned_actions;
mod learner;
mod learning;
mod log;
mod methods;
mod off_policy;
mod onnx;
mod plackett_luce;
mod plot;
mod positions;
mod preparation;
mod real_data;
mod refit;
mod rejection;
mod report;
mod resume;
#[cfg(feature = "serve")]
mod server;
#[cfg(feature = "serve")]
mod serving;
#[cfg(feature = "serve")]
mod shards;
mod shared_candidates;
mod splits;
mod synth;
mod tune;
mod upgrade;
mod variance;
