//! The `slate` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    let program = std::env::current_exe().unwrap_or_else(|_| "slate".into());
    fast_slate::cli::run(std::env::args_os(), &program).into()
}
