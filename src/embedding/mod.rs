//! Sessions → action embeddings β and contexts M(X).
