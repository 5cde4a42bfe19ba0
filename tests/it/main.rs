//! One behaviour a file; `common` holds what several need.

mod common;

mod layering;
