//! The wheel.
