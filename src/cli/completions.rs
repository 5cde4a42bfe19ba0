//! `slate completions`.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory as _;

use super::args::{Cli, CompletionsArgs};

/// Prints the shell's completion script to stdout.
pub(super) fn run(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "slate", &mut script);
    match std::io::Write::write_all(&mut std::io::stdout(), &script) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        result => result?,
    }
    Ok(ExitCode::SUCCESS)
}
