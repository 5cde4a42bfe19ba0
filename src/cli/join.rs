//! `slate join`: the parts of a file of slates in, the file out.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::report::Report;
use crate::bundle;

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The files that `slate recommend --part I/N` wrote, all N of them, in any order.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    parts: Vec<PathBuf>,
    /// The file to write, which must not exist.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
}

#[derive(Debug, Serialize)]
struct Joined {
    rows: usize,
}

pub(super) fn run(args: &JoinArgs) -> Result<Report> {
    let out = args.out.display();
    ensure!(!args.out.exists(), "{out}: there is something here already; give another --out");
    let rows = bundle::join(&args.parts, &args.out)?;
    Report::new(&Joined { rows }, format!("{out}: {rows} rows of {} parts", args.parts.len()))
}
