//! Made-up users for the tests of decompositions, and what these tests share.

use std::fmt::Debug;

use faer::Mat;

use crate::dataset::ActionSets;
use crate::matrix::Matrix;
use crate::seed::{Purpose, Seed};

/// Users of as many `tastes`, in turn, each with so many `draws` among the items `of_each` taste; item i is one of
/// taste i modulo `tastes`. Another user, the last, did nothing.
pub(super) fn users_of(tastes: u32, users: u32, of_each: u32, draws: usize) -> ActionSets {
    let pairs = (0..users).flat_map(|user| {
        let mut stream = Seed(4).stream(Purpose::Synthetic, 0, user.into());
        let mut draw = || tastes * stream.below(of_each) + user % tastes;
        let items: Vec<u32> = (0..draws).map(|_| draw()).collect();
        items.into_iter().map(move |item| (user, item))
    });
    ActionSets::from_pairs(users as usize + 1, pairs)
}

/// The same numbers in f64.
pub(super) fn wide(matrix: &Matrix) -> Mat<f64> {
    Mat::from_fn(matrix.rows(), matrix.cols(), |i, j| f64::from(matrix.row(i)[j]))
}

/// What `run` gives on one thread, it gives on two and on three.
pub(super) fn assert_same_on_any_threads<T: Debug + PartialEq + Send>(run: impl Fn() -> T + Sync) {
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(&run)
    };
    let one = on(1);
    assert_eq!(one, on(2));
    assert_eq!(one, on(3));
}
