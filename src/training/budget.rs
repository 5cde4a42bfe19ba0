//! How far a run has come: when it ends, when it is evaluated, what its learning rate is.

use super::batches::Batches;
use crate::reward::SlateReward;
use crate::run::Refit;
use crate::settings::{BudgetUnit, OptimizerSettings, Schedule, Settings};

/// The most that the learning rate grows by in all.
const MOST_GROWTH: f64 = 10.0;

/// Where a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Clock {
    /// Optimiser steps taken.
    pub(super) step: u64,
    /// Seconds spent in them; the clock stops during evaluations.
    pub(super) seconds: f64,
}

/// All that the settings allow: a number of steps, or of seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    steps: Option<u64>,
    seconds: f64,
}

impl Whole {
    /// Epochs are steps once the batches are known.
    pub(super) fn new(settings: &Settings, batches: &Batches) -> Self {
        let amount = settings.budget.amount;
        let steps = match settings.budget.unit {
            BudgetUnit::Steps => Some(amount),
            BudgetUnit::Epochs => Some(batches.steps(amount)),
            BudgetUnit::Seconds => None,
        };
        Self { steps, seconds: amount as f64 }
    }

    /// The share that is spent, from 0 to 1.
    pub(super) fn spent(&self, clock: Clock) -> f64 {
        match self.steps {
            Some(steps) => (clock.step as f64 / steps as f64).min(1.0),
            None => (clock.seconds / self.seconds).min(1.0),
        }
    }

    /// The steps of a share, unless time is what is spent.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0..=steps")]
    fn steps_of(&self, share: f64) -> Option<u64> {
        // All of them, however many; a share in floating point may fall short of a whole step.
        self.steps.map(|all| if share < 1.0 { (share * all as f64).round() as u64 } else { all })
    }

    fn has_spent(&self, clock: Clock, share: f64) -> bool {
        match self.steps_of(share) {
            Some(steps) => clock.step >= steps,
            None => clock.seconds >= share * self.seconds,
        }
    }
}

/// What a run may spend, and what comes when.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    whole: Whole,
    evaluations: u64,
    /// The run that is done again, if one is.
    refit: Option<Refit>,
    optimizer: OptimizerSettings,
}

impl Budget {
    /// The budget of a run for `reward`, or as much of it as the run that is done again took. Under a linear one the rate never grows: the vectors were fitted
    /// to it, so there is little to find, and going faster overfits.
    pub(super) fn new(
        settings: &Settings,
        batches: &Batches,
        reward: &dyn SlateReward,
        refit: Option<Refit>,
    ) -> Self {
        let whole = Whole::new(settings, batches);
        let growth = if reward.as_linear().is_some() { 1.0 } else { settings.optimizer.growth };
        Self {
            whole,
            evaluations: settings.evaluation.count.min(whole.steps.unwrap_or(u64::MAX)),
            refit,
            optimizer: OptimizerSettings { growth, ..settings.optimizer.clone() },
        }
    }

    /// The last step, unless the budget is in seconds.
    pub(super) fn steps(&self) -> Option<u64> {
        self.whole.steps_of(self.end())
    }

    /// Share of what is to be done that is done, from 0 to 1.
    pub(super) fn done(&self, clock: Clock) -> f64 {
        let end = self.end();
        if end > 0.0 { (self.whole.spent(clock) / end).min(1.0) } else { 1.0 }
    }

    /// True if nothing is left to be done.
    pub(super) fn is_spent(&self, clock: Clock) -> bool {
        self.whole.has_spent(clock, self.end())
    }

    /// The share of the whole at which the run ends.
    fn end(&self) -> f64 {
        self.refit.as_ref().map_or(1.0, |refit| refit.share.clamp(0.0, 1.0))
    }

    /// True if an evaluation falls between `before` and `now`; the end of the budget is one.
    pub(super) fn evaluation_due(&self, before: Clock, now: Clock) -> bool {
        let is_last = self.is_spent(now) && !self.is_spent(before);
        is_last || self.interval(now) > self.interval(before)
    }

    /// The rate of the step at `clock`, after as many `growths`, or those of the run that is done again.
    pub(super) fn learning_rate(&self, clock: Clock, growths: u32) -> f64 {
        let OptimizerSettings { learning_rate, schedule, growth, weight_decay, .. } =
            self.optimizer;
        // Decay takes this rate's part of a parameter: beyond all of it, it would turn its sign.
        let most = (1.0 / (learning_rate * f64::from(weight_decay))).clamp(1.0, MOST_GROWTH);
        let before = |refit: &Refit| {
            let growths = refit.growths.iter();
            growths.filter(|share| self.whole.has_spent(clock, **share)).count()
        };
        let growths = self.refit.as_ref().map_or(growths as usize, before);
        let growths = i32::try_from(growths).unwrap_or(i32::MAX);
        let rate = learning_rate * growth.powi(growths).min(most);
        match schedule {
            Schedule::Constant => rate,
            Schedule::Linear => rate * (1.0 - self.whole.spent(clock)),
        }
    }

    fn interval(&self, clock: Clock) -> u64 {
        match self.whole.steps {
            // In integers: a share in floating point may fall short of a whole interval.
            Some(steps) => {
                let product = u128::from(clock.step.min(steps)) * u128::from(self.evaluations);
                u64::try_from(product / u128::from(steps)).unwrap_or(self.evaluations)
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0..=count")]
            None => (self.whole.spent(clock) * self.evaluations as f64) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dataset::{ActionSets, Sessions};
    use crate::reward::{AnyHit, LinearReward};
    use crate::seed::Seed;
    use crate::settings::Preset;

    fn budget(unit: BudgetUnit, amount: u64, evaluations: u64) -> Budget {
        budget_for(unit, amount, evaluations, &AnyHit::new(nobody()))
    }

    fn nobody() -> Arc<Sessions> {
        let none = ActionSets::from_pairs(0, std::iter::empty());
        Arc::new(Sessions { observed: none.clone(), hidden: none, split: vec![], num_actions: 1 })
    }

    fn budget_for(
        unit: BudgetUnit,
        amount: u64,
        evaluations: u64,
        reward: &dyn SlateReward,
    ) -> Budget {
        let mut settings = Preset::Default.settings();
        settings.budget.unit = unit;
        settings.budget.amount = amount;
        settings.evaluation.count = evaluations;
        let batches = Batches::new(vec![(0..100).collect()], 32, Seed(0));
        Budget::new(&settings, &batches, reward, None)
    }

    #[test]
    fn evaluations_are_equally_spaced_and_the_last_is_at_the_end() {
        let budget = budget(BudgetUnit::Steps, 101, 4);
        let clock = |step| Clock { step, seconds: 0.0 };
        let due: Vec<u64> =
            (1..=101).filter(|&s| budget.evaluation_due(clock(s - 1), clock(s))).collect();
        assert_eq!(due, [26, 51, 76, 101]);
        assert!(budget.is_spent(clock(101)) && !budget.is_spent(clock(100)));
    }

    #[test]
    fn more_evaluations_than_steps_means_one_a_step() {
        for evaluations in [10, u64::MAX] {
            let budget = budget(BudgetUnit::Steps, 3, evaluations);
            let clock = |step| Clock { step, seconds: 0.0 };
            assert!((1..=3).all(|step| budget.evaluation_due(clock(step - 1), clock(step))));
        }
    }

    #[test]
    fn epochs_are_steps() {
        assert_eq!(budget(BudgetUnit::Epochs, 2, 1).steps(), Some(7));
    }

    #[test]
    fn a_rate_grows_threefold_and_tenfold_at_most() {
        let budget = budget(BudgetUnit::Steps, 100, 5);
        let clock = Clock { step: 50, seconds: 0.0 };
        let grown = |growths| budget.learning_rate(clock, growths) / budget.learning_rate(clock, 0);
        for (growths, expected) in [(0, 1.0), (1, 3.0), (2, 9.0), (3, 10.0), (u32::MAX, 10.0)] {
            assert!((grown(growths) - expected).abs() < 1e-12, "{growths}: {}", grown(growths));
        }
    }

    #[test]
    fn a_rate_does_not_grow_under_a_linear_reward() {
        let hits = LinearReward::hits(5, nobody());
        let budget = budget_for(BudgetUnit::Steps, 100, 5, &hits);
        let clock = Clock { step: 50, seconds: 0.0 };
        assert_eq!(budget.learning_rate(clock, 3), budget.learning_rate(clock, 0));
    }

    #[test]
    fn a_run_that_is_done_again_ends_and_grows_where_the_other_did() {
        for unit in [BudgetUnit::Steps, BudgetUnit::Seconds] {
            let refit = Refit { run: "run".into(), step: 40, share: 0.4, growths: vec![0.2] };
            let mut settings = Preset::Default.settings();
            (settings.budget.unit, settings.budget.amount) = (unit, 100);
            settings.evaluation.count = 5;
            let batches = Batches::new(vec![(0..100).collect()], 32, Seed(0));
            let reward = AnyHit::new(nobody());
            let whole = Budget::new(&settings, &batches, &reward, None);
            let again = Budget::new(&settings, &batches, &reward, Some(refit));
            let clock = |at: u8| Clock { step: at.into(), seconds: at.into() };
            assert!(!again.is_spent(clock(39)) && again.is_spent(clock(40)));
            assert_eq!(again.steps(), (unit == BudgetUnit::Steps).then_some(40));
            assert!((again.done(clock(10)) - 0.25).abs() < 1e-12);
            // As the other had it after one growth, whatever is said here.
            let rate = |budget: &Budget, at, growths| budget.learning_rate(clock(at), growths);
            assert_eq!(rate(&again, 19, 9), rate(&whole, 19, 0));
            assert_eq!(rate(&again, 20, 9), rate(&whole, 20, 1));
        }
    }

    #[test]
    fn a_run_that_ended_at_its_start_does_nothing_again() {
        let refit = Refit { run: "run".into(), step: 0, share: 0.0, growths: vec![] };
        let mut again = budget(BudgetUnit::Steps, 100, 5);
        again.refit = Some(refit);
        let clock = Clock::default();
        assert!(again.is_spent(clock) && again.done(clock) == 1.0);
    }

    #[test]
    fn a_budget_in_seconds_goes_by_the_clock() {
        let budget = budget(BudgetUnit::Seconds, 10, 5);
        let clock = |seconds| Clock { step: 1, seconds };
        assert!(budget.evaluation_due(clock(1.9), clock(2.1)));
        assert!(!budget.evaluation_due(clock(2.1), clock(3.9)));
        assert!(budget.is_spent(clock(10.2)));
        let rate = Preset::Default.settings().optimizer.learning_rate;
        assert!((budget.learning_rate(clock(5.0), 0) - rate / 2.0).abs() < 1e-12);
    }
}
