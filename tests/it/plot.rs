//! `slate plot`: the curves of runs, in the terminal, as a picture and as numbers.

use serde_json::Value;

use crate::common::{assert_says, refused, slate, small, stdout};

#[test]
fn the_curves_of_two_runs_are_drawn_and_tabulated() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    small(&at("data"));
    for (run, seed) in [("first/run", "0"), ("second/run", "1")] {
        let mut train = slate();
        train.args(["train", "--steps", "20", "--samples", "4", "--seed", seed]);
        train.args(["--set", "evaluation.count=2", "--set", "evaluation.gradient_draws=4"]);
        stdout(train.arg("--data").arg(at("data")).arg("--out").arg(at(run)));
    }
    let plot = || {
        let mut plot = slate();
        plot.arg("plot").arg(at("first/run")).arg(at("second/run"));
        plot
    };

    let text = stdout(plot().args(["--over", "steps", "--out"]).arg(at("curves.svg")));
    // Named by what tells them apart; no colours, for nobody sees them.
    assert_says(
        &text,
        &["mean over validation users", "\na first/run ", "\nb second/run", "steps"],
    );
    assert!(!text.contains('\x1b'));
    let svg = fs_err::read_to_string(at("curves.svg")).unwrap();
    assert_says(&svg, &["<svg", "first/run", "second/run", "steps", "mean over validation users"]);

    let curves: Value = serde_json::from_str(&stdout(plot().arg("--json"))).unwrap();
    let points = curves[1]["measurements"].as_array().unwrap();
    let steps: Vec<_> = points.iter().map(|point| point["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [0, 10, 20]);
    let value = points[2]["value"].as_f64().unwrap();
    assert!(points[2]["standard_error"].as_f64().unwrap() > 0.0);
    // The table's last and the run's own report are the same number.
    let row = text.lines().find(|line| line.starts_with("second/run")).unwrap();
    assert_says(row, &["    20  ", &format!("  {value:.4}  ")]);

    let text = stdout(plot().args(["--what", "gradient-variance"]));
    assert_says(&text, &["Variance of the gradient", "seconds of training", "E‖G − E G‖²"]);
    let text = refused(plot().args(["--split", "test"]));
    assert_says(&text, &["no reward of test users"]);
    let text = refused(plot().arg(at("data")));
    assert_says(&text, &[at("data").to_str().unwrap(), "no run here"]);
    let text = refused(plot().arg("--out").arg(at("nowhere/curves.svg")));
    assert_says(&text, &["nowhere"]);
}
