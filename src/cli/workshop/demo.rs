//! `slate demo`: synthetic sessions in, a slate out; prepares, trains and recommends.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueHint};
use fs_err as fs;
use serde::Serialize;

#[cfg(feature = "serve")]
use super::folders::typed;
use super::prologue::SettingsArgs;
use super::train::{Ready, Trained};
use crate::cli::report::{self, Report};
use crate::dataset::SyntheticSettings;
use crate::facade::{Policy, Recommendation};
use crate::prepared::{EmbeddingSource, Input, Judge, PrepareSettings, Prepared};
use crate::run::{RunFolder, Which};

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The folder to write to. An earlier demo there is replaced, and nothing else.
    #[arg(long, default_value = "artifacts/demo", value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Serve the bundle of this policy afterwards, with a page to look at, until Ctrl-C.
    #[cfg(feature = "serve")]
    #[arg(long)]
    serve: bool,
    /// The address to serve on.
    #[cfg(feature = "serve")]
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", requires = "serve")]
    listen: std::net::SocketAddr,
    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Debug, Serialize)]
struct Demo {
    trained: Trained,
    user: String,
    slate: Vec<Recommendation>,
}

/// Fails if there is data, or beside it a run, that no demo made.
fn require_earlier_demo(data: &Path, run: &RunFolder) -> Result<()> {
    let other = |folder: &Path, why: &str| {
        bail!("{}: no demo made what is here{why}; give another --out", folder.display())
    };
    let mut digest = String::new();
    if data.exists() {
        match Prepared::open(data) {
            Ok(prepared) if prepared.manifest.is_synthetic() => {
                prepared.digest().clone_into(&mut digest);
            }
            Ok(_) => return other(data, ""),
            Err(error) => return other(data, &format!(" ({error})")),
        }
    }
    let trained_here = || run.read_settings().is_ok_and(|(_, it)| it.data_digest == digest);
    if run.exists() && !trained_here() {
        return other(run.path(), "");
    }
    let bundle = data.with_file_name("bundle");
    if bundle.exists() && !run.exists() {
        return other(&bundle, "");
    }
    Ok(())
}

/// The time in which the demo looks for embeddings.
const SECONDS: u64 = 5;

pub(super) fn run(args: &DemoArgs) -> Result<Report> {
    let (data, run) = (args.out.join("data"), RunFolder::new(args.out.join("run")));
    // Settings that no data can make valid are refused before anything is written.
    args.settings.resolve(&args.settings.preset.unwrap_or_default().settings())?;
    require_earlier_demo(&data, &run)?;
    #[cfg(feature = "serve")]
    if args.serve {
        require_address(args)?;
    }
    let input = Input::Synthetic(SyntheticSettings::default());
    let judge = Judge { within: SECONDS, ..Judge::default() };
    let embedding = EmbeddingSource::Auto(judge);
    let settings = PrepareSettings { embedding, ..PrepareSettings::default() };
    let prepared = Prepared::create(&input, &settings, &data, true)?;
    tracing::info!("{}", prepared.manifest.statistics);
    let ready = Ready::new(args.settings.open(&data)?)?;
    if run.exists() {
        let _lock = run.lock()?;
        fs::remove_dir_all(run.path())?;
    }
    let trained = ready.start(&run, None)?;

    let device = args.settings.device.name();
    let policy = Policy::open(run.path(), Which::Best, device)?;
    let user = policy.user_ids()?.next().context("the demo has users")?.to_owned();
    let slate = policy.recommend(&user)?.slate;
    let text = format!("{}\n\nslate for user {user}\n{}", trained.text(), report::slate(&slate));
    let interrupted = trained.is_interrupted();
    #[cfg(feature = "serve")]
    if args.serve && !interrupted {
        serve_page(args, &policy)?;
    }
    Ok(Report::new(&Demo { trained, user, slate }, text)?.interrupted_if(interrupted))
}

#[cfg(feature = "serve")]
fn bundle(args: &DemoArgs) -> PathBuf {
    args.out.join("bundle")
}

/// Fails, before anything is trained, if the page cannot be served where it is to be.
#[cfg(feature = "serve")]
fn require_address(args: &DemoArgs) -> Result<()> {
    let listen = args.listen;
    if !listen.ip().is_loopback() {
        bail!(
            "--listen {listen}: others reach this address, and a demo has no tokens; once it has served \
             here, `slate serve {} --listen {listen}` takes them (--read-token-file, --admin-token-file)",
            typed(&bundle(args))
        );
    }
    std::net::TcpListener::bind(listen).with_context(|| format!("listening on {listen}"))?;
    Ok(())
}

/// Exports the policy beside its run and serves it.
#[cfg(feature = "serve")]
fn serve_page(args: &DemoArgs, policy: &Policy) -> Result<()> {
    use crate::bundle::VectorScalar;
    use crate::serving::{Access, Limits, ServeOptions, serve};

    let bundle = bundle(args);
    policy.bundle(true)?.write(&bundle, VectorScalar::F32, true)?;
    let options = ServeOptions {
        bundle,
        map: false,
        shards: None,
        listen: args.listen,
        device: args.settings.device.name().map(ToOwned::to_owned),
        log: Some(args.out.join("log")),
        explore_share: 0.0,
        access: Access::default(),
        insecure: false,
        watch: false,
        limits: Limits::default(),
        key: None,
    };
    serve(options, |address| tracing::info!("look at http://{address}; Ctrl-C stops"))?;
    Ok(())
}
