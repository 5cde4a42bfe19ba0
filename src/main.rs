//! The `slate` binary: sets up logging, runs the command line, prints an error once as a chain.

use std::io::Write as _;
use std::process::ExitCode;

/// Exit code of every error, as clap's own for a wrong command line.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SLATE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("fast_slate=info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_level(false)
        .without_time()
        // Telling stderr of errors in writing to stderr would panic.
        .log_internal_errors(false)
        .init();
    match fast_slate::cli::main() {
        Ok(code) => code,
        Err(error) => {
            // The one place where errors are printed; nobody may be reading.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}
