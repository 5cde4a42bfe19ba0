//! Plackett–Luce over so few actions that every slate can be looked at.

use fast_slate::matrix::Matrix;

/// Every slate of K of the available actions, with its probability and score function.
#[derive(Clone, Debug)]
pub(crate) struct Enumeration {
    num_actions: usize,
    slates: Vec<Slate>,
}

#[derive(Clone, Debug)]
struct Slate {
    actions: Vec<u32>,
    probability: f64,
    /// ∂ log probability / ∂ scores, `[P]`.
    score: Vec<f64>,
}

impl Enumeration {
    /// The slates of `slate_size` that `scores` `[P]` give without the `excluded` actions.
    pub(crate) fn new(scores: &[f64], slate_size: usize, excluded: &[u32]) -> Self {
        let empty = Slate { actions: Vec::new(), probability: 1.0, score: vec![0.0; scores.len()] };
        let mut slates = vec![empty];
        for _ in 0..slate_size {
            slates = slates.iter().flat_map(|slate| slate.extended(scores, excluded)).collect();
        }
        Self { num_actions: scores.len(), slates }
    }

    /// The slates under the scores `hᵀβ_a`.
    pub(crate) fn of_query(h: &[f32], beta: &Matrix, slate_size: usize, excluded: &[u32]) -> Self {
        let dot =
            |beta: &[f32]| h.iter().zip(beta).map(|(h, b)| f64::from(*h) * f64::from(*b)).sum();
        Self::new(&beta.iter_rows().map(dot).collect::<Vec<f64>>(), slate_size, excluded)
    }

    /// Slates and their probabilities.
    pub(crate) fn slates(&self) -> impl Iterator<Item = (&[u32], f64)> {
        self.slates.iter().map(|slate| (slate.actions.as_slice(), slate.probability))
    }

    /// R̂(π), the expectation of `reward`.
    pub(crate) fn expected(&self, reward: impl Fn(&[u32]) -> f64) -> f64 {
        self.slates().map(|(slate, probability)| probability * reward(slate)).sum()
    }

    /// ∂R̂(π) / ∂ scores, `[P]`.
    pub(crate) fn gradient(&self, reward: impl Fn(&[u32]) -> f64) -> Vec<f64> {
        let mut gradient = vec![0.0; self.num_actions];
        for Slate { actions, probability, score } in &self.slates {
            let weight = probability * reward(actions);
            gradient.iter_mut().zip(score).for_each(|(g, score)| *g += weight * score);
        }
        gradient
    }

    /// `Cov(reward, Σ_i ∂f(a_i)/∂ scores)`, `[P]`: the gradient as the paper prints it.
    pub(crate) fn printed_covariance(&self, reward: impl Fn(&[u32]) -> f64) -> Vec<f64> {
        let mean = self.expected(&reward);
        let mut covariance = vec![0.0; self.num_actions];
        for (slate, probability) in self.slates() {
            let weight = probability * (reward(slate) - mean);
            for action in slate {
                covariance[*action as usize] += weight;
            }
        }
        covariance
    }
}

impl Slate {
    /// This slate with one more action, for each that is left.
    fn extended(&self, scores: &[f64], excluded: &[u32]) -> Vec<Self> {
        let left: Vec<u32> = (0..scores.len() as u32)
            .filter(|action| !excluded.contains(action) && !self.actions.contains(action))
            .collect();
        let largest = left.iter().map(|a| scores[*a as usize]).fold(f64::NEG_INFINITY, f64::max);
        let weight = |action: u32| (scores[action as usize] - largest).exp();
        let total: f64 = left.iter().map(|action| weight(*action)).sum();
        let mut score = self.score.clone();
        for action in &left {
            score[*action as usize] -= weight(*action) / total;
        }
        let extended = left.iter().map(|&action| {
            let mut next = Self { score: score.clone(), ..self.clone() };
            next.actions.push(action);
            next.probability *= weight(action) / total;
            next.score[action as usize] += 1.0;
            next
        });
        extended.collect()
    }
}

/// `βᵀg`: what a gradient with respect to the scores `[P]` is with respect to h `[L]`.
pub(crate) fn latent(beta: &Matrix, gradient: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; beta.cols()];
    for (row, gradient) in beta.iter_rows().zip(gradient) {
        sums.iter_mut().zip(row).for_each(|(sum, beta)| *sum += gradient * f64::from(*beta));
    }
    sums
}
