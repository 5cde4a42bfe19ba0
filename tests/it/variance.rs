//! `slate variance`: flags that its table has no place for.

use crate::common::{assert_says, refused, slate};

#[test]
fn what_the_table_goes_through_is_not_set_for_all_of_it() {
    let flags = ["--method=lgp", "--samples=3", "--slate-size=3"];
    let sets = ["--set=method.kind=lgp", "--set=method.samples=3", "--set=slate_size = 3"];
    for flag in [flags, sets].concat() {
        let message = refused(slate().args(["variance", "nowhere", flag]));
        assert_says(&message, &["--methods, --sample-sizes and --slate-sizes"]);
    }
}
