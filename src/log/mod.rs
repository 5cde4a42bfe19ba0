//! What was shown and what happened.
