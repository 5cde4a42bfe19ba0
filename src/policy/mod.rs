//! Policies: distributions over slates that relax the decision `d_θ(x) = argsort^K h_θ(x)ᵀβ_a`.

mod latent;

pub use latent::{LatentPerturbation, Radial, Sigma};
