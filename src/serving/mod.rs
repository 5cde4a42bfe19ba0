//! A bundle → answers over HTTP.
