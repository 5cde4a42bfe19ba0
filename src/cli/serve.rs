//! `slate serve`: a bundle in, answers over HTTP until the process is told to stop.

use std::env::VarError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueHint};
use serde::Serialize;

use super::flags::DeviceArgs;
use super::report::Report;
use crate::files::read_text;
use crate::log::Key;
use crate::serving::{Access, Addresses, Limits, ServeOptions, Shards, Token, serve};

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The bundle (see `slate export`), or a link to it.
    #[arg(value_hint = ValueHint::DirPath)]
    bundle: PathBuf,
    /// Leave vectors and index on disk, for a folder that nobody writes to: ready before they are read.
    #[arg(long)]
    mmap: bool,
    /// Search for items in the shards of the bundle (`slate export --shards`), served elsewhere: a comma
    /// between shards, | between replicas of one, as in 'http://a:8080|http://b:8080,http://c:8080'.
    #[arg(long, value_name = "ADDRESSES")]
    shards: Option<Addresses>,
    /// Answer with so many shards where the others are late, and say so [default: all].
    #[arg(long, value_name = "N", requires = "shards")]
    min_shards: Option<usize>,
    /// The time in which a shard answers, in milliseconds.
    #[arg(long, value_name = "MS", requires = "shards", default_value_t = 500,
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    shard_timeout: u64,
    /// A file with the admin token of the shards; or FAST_SLATE_SHARD_TOKEN.
    #[arg(long, value_name = "FILE", requires = "shards", value_hint = ValueHint::FilePath)]
    shard_token_file: Option<PathBuf>,
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The folder to log in what was shown and what happened; one server at a time may have it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    log: Option<PathBuf>,
    /// The share of the requests that are answered by the policy itself, to learn from.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, requires = "log")]
    explore_share: f32,
    /// A file with the token that opens slates, items and feedback; or FAST_SLATE_READ_TOKEN.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    read_token_file: Option<PathBuf>,
    /// A file with the token that opens reload, metrics and exploration on demand too; or
    /// FAST_SLATE_ADMIN_TOKEN.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    admin_token_file: Option<PathBuf>,
    /// Listen where others reach it, without tokens.
    #[arg(long)]
    insecure: bool,
    /// Values of `Host` beside the address itself, as in slates.example:8080.
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    allowed_hosts: Vec<String>,
    /// The origin whose pages may ask, as in https://shop.example.
    #[arg(long, value_name = "URL")]
    cors_origin: Option<String>,
    /// Reload when the link leads elsewhere, or the folder has another bundle.
    #[arg(long)]
    watch: bool,
    /// Requests that search or wait to search; more are told to come back [default: 32 for each
    /// core].
    #[arg(long, value_name = "N", value_parser = counted())]
    max_concurrent: Option<usize>,
    /// Open connections; more are turned away.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections, value_parser = counted())]
    max_connections: usize,
    /// The time for a request's head, for the rest of it, and for a client that stops reading, in
    /// seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().request.as_secs(),
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, Serialize)]
struct Served {
    bundle: PathBuf,
}

/// A number of requests or connections, which nobody means to be 0 or beyond any machine.
fn counted() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1_000_000)
}

/// The environment variable whose file holds the key of request ids.
const KEY_FILE: &str = "FAST_SLATE_KEY_FILE";

pub(super) fn run(args: &ServeArgs) -> Result<Report> {
    let timeout = Duration::from_secs(args.timeout);
    let limits = Limits {
        head: timeout,
        request: timeout,
        connections: args.max_connections,
        searches: args.max_concurrent.unwrap_or(Limits::default().searches),
        stop: timeout.max(Limits::default().stop),
        ..Limits::default()
    };
    let key = std::env::var_os(KEY_FILE).map(|path| Key::from_file(Path::new(&path)));
    let key = key.transpose().context(KEY_FILE)?;
    let origin = args.cors_origin.as_deref().map(str::parse).transpose();
    let shards = match &args.shards {
        None => None,
        Some(addresses) => Some(Shards {
            addresses: addresses.clone(),
            least: args.min_shards,
            timeout: Duration::from_millis(args.shard_timeout),
            token: secret(args.shard_token_file.as_deref(), "FAST_SLATE_SHARD_TOKEN")?
                .map(|(text, _)| text),
        }),
    };
    let options = ServeOptions {
        shards,
        bundle: args.bundle.clone(),
        map: args.mmap,
        listen: args.listen,
        device: args.device.name().map(ToOwned::to_owned),
        log: args.log.clone(),
        explore_share: args.explore_share,
        access: Access {
            read: token(args.read_token_file.as_deref(), "FAST_SLATE_READ_TOKEN")?,
            admin: token(args.admin_token_file.as_deref(), "FAST_SLATE_ADMIN_TOKEN")?,
            hosts: args.allowed_hosts.clone(),
            cors_origin: origin.context("--cors-origin")?,
        },
        insecure: args.insecure,
        watch: args.watch,
        limits,
        key,
    };
    serve(options, |address| {
        tracing::info!("serving {} on http://{address}", args.bundle.display());
    })?;
    let text = format!("{}: stopped", args.bundle.display());
    Report::new(&Served { bundle: args.bundle.clone() }, text)
}

/// The token in `file`, or in the environment.
fn token(file: Option<&Path>, variable: &str) -> Result<Option<Token>> {
    let Some((text, from)) = secret(file, variable)? else { return Ok(None) };
    Token::new(&text).with_context(|| from).map(Some)
}

/// The text in `file`, or in the environment, and where it is.
fn secret(file: Option<&Path>, variable: &str) -> Result<Option<(String, String)>> {
    Ok(match (file, std::env::var(variable)) {
        (Some(path), _) => Some((read_text(path)?, path.display().to_string())),
        (None, Ok(text)) => Some((text, variable.to_owned())),
        (None, Err(VarError::NotPresent)) => None,
        (None, Err(error)) => return Err(error).context(variable.to_owned()),
    })
}
