//! `slate completions`: the name of a shell in, its completion script out.

use anyhow::Result;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell to complete for.
    shell: Shell,
}

/// Prints the shell's completion script to stdout.
pub(super) fn run(args: &CompletionsArgs) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "slate", &mut script);
    match std::io::Write::write_all(&mut std::io::stdout(), &script) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        result => result?,
    }
    Ok(0)
}
