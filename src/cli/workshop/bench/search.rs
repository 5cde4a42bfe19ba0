//! `slate bench search`: sizes in, the speed of exact search on a device out, on standard normal
//! embeddings and queries. A search is a matrix product and a selection, so a plain product on the same
//! device bounds its speed. Some answers of a GPU are compared with the host's; other ones are told when
//! all is measured.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use burn::tensor::Tensor;
use clap::Args;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Par};
use rayon::prelude::*;
use serde::Serialize;

use super::{MannerArgs, Searcher};
use crate::cli::flags::DeviceArgs;
use crate::cli::report::{OTHER_SLATES, Report};
use crate::device::Chosen;
use crate::embedding::ActionEmbeddings;
use crate::matrix::Matrix;
use crate::retrieval::{Exact, Queries, Retriever, Slates, exact_on};
use crate::seed::{Purpose, Seed};

#[derive(Debug, Args)]
pub(crate) struct BenchSearchArgs {
    /// The values of P, the number of actions, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "41000,750000,2230000")]
    actions: Vec<NonZeroUsize>,
    /// L, the length of an embedding.
    #[arg(long, default_value = "100")]
    latent_dim: NonZeroUsize,
    /// The numbers of queries in a search, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "320,3200")]
    queries: Vec<NonZeroUsize>,
    /// The values of K, the number of items on a slate, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "5,100")]
    slate_size: Vec<NonZeroUsize>,
    /// Keep so many random actions off each slate.
    #[arg(long, default_value = "0")]
    excluded: usize,
    /// The number of times to measure everything; a search that takes longer than 0.3 s, at most 5 times.
    #[arg(long, default_value = "3")]
    repetitions: NonZeroUsize,
    /// Rows and columns of the plain product [default: 4096, on a GPU 8192]. Larger products are not
    /// faster per operation.
    #[arg(long)]
    product: Option<NonZeroUsize>,
    #[command(flatten)]
    manner: MannerArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Queries whose answers are compared with the host's.
const COMPARED: usize = 64;

/// A search is repeated for at least this long, because small searches begin with cold caches.
const LEAST: Duration = Duration::from_millis(100);

/// A search that takes so many seconds is measured so often at most, and so is the plain product.
const LONG: (f64, usize) = (0.3, 5);

/// The result of the benchmark.
#[derive(Debug, Serialize)]
struct Measured {
    device: &'static str,
    /// Threads of the host.
    threads: usize,
    latent_dim: usize,
    /// Speed of the plain product, the best repetition.
    product_gflops: f64,
    searches: Vec<Search>,
}

/// The median repetition of a search.
#[derive(Debug, Serialize)]
struct Search {
    actions: usize,
    queries: usize,
    slate_size: usize,
    #[serde(flatten)]
    searcher: Searcher,
    /// Whether some of the slates of a GPU are those of the host; none on a CPU.
    same: Option<bool>,
    repetitions: usize,
    milliseconds: f64,
    gflops: f64,
    /// Speed as a share of the plain product's.
    share: f64,
}

/// A search to be measured.
struct Cell {
    retriever: Arc<dyn Retriever>,
    actions: usize,
    latent: Matrix,
    slate_size: usize,
    excluded: Vec<Vec<u32>>,
    /// Whether some of its slates are those of the host, where it has been asked.
    same: Option<bool>,
    seconds: Vec<f64>,
}

pub(super) fn run(args: &BenchSearchArgs) -> Result<Report> {
    let most = args.slate_size.iter().max();
    if let Some(fewest) = args.actions.iter().min().filter(|fewest| most > Some(fewest)) {
        bail!("--slate-size: at most the {fewest} of --actions");
    }
    let latent_dim = args.latent_dim.get();
    anyhow::ensure!(
        args.actions
            .iter()
            .all(|actions| args.excluded + most.map_or(0, |k| k.get()) <= actions.get()),
        "--excluded: leaves fewer actions than --slate-size asks for"
    );
    let chosen = args.manner.of(args.device.choose(None)?)?;
    let mut cells = Vec::new();
    for actions in args.actions.iter().map(|actions| actions.get()) {
        let beta = Arc::new(ActionEmbeddings::new(normals(0, actions, latent_dim))?);
        let (host, retriever) = (Exact::new(Arc::clone(&beta)), exact_on(&beta, &chosen)?);
        for rows in args.queries.iter().map(|rows| rows.get()) {
            let latent = normals(1, rows, latent_dim);
            let excluded: Vec<Vec<u32>> =
                (0..rows).map(|row| sample(row, args.excluded, actions)).collect();
            for slate_size in args.slate_size.iter().map(|k| k.get()) {
                let mut cell = Cell {
                    retriever: Arc::clone(&retriever),
                    actions,
                    latent: latent.clone(),
                    slate_size,
                    excluded: excluded.clone(),
                    same: None,
                    seconds: Vec::new(),
                };
                // The first search also compiles what it runs.
                cell.search()?;
                if chosen.memory.is_some() {
                    cell.same = Some(cell.agrees(&host)?);
                }
                cells.push(cell);
            }
        }
    }

    // Each repetition measures all searches, so that a slow minute of the machine slows all alike.
    let size =
        args.product.map_or(if chosen.memory.is_some() { 8192 } else { 4096 }, NonZeroUsize::get);
    let mut product: f64 = 0.0;
    for repetition in 0..args.repetitions.get() {
        let (long, few) = LONG;
        if repetition < few {
            product = product.max(plain_product(&chosen, size)?);
        }
        let wanted = |cell: &&mut Cell| repetition < few || cell.median() < long;
        for cell in cells.iter_mut().filter(wanted) {
            let (started, mut searches) = (Instant::now(), 0);
            while searches == 0 || started.elapsed() < LEAST {
                cell.search()?;
                searches += 1;
            }
            cell.seconds.push(started.elapsed().as_secs_f64() / f64::from(searches));
        }
    }
    let measured = Measured {
        device: chosen.name,
        threads: rayon::current_num_threads(),
        latent_dim,
        product_gflops: product,
        searches: cells.into_iter().map(|cell| cell.measured(&chosen, product)).collect(),
    };
    let mut report = Report::new(&measured, measured.text())?;
    if measured.searches.iter().any(|search| search.same == Some(false)) {
        report.exit = OTHER_SLATES;
    }
    Ok(report)
}

impl Cell {
    fn ask(&self, retriever: &dyn Retriever, rows: usize) -> Result<Slates> {
        let first: Vec<u32> = (0_u32..).take(rows).collect();
        let latent = self.latent.select(&first);
        let lists: Vec<&[u32]> = self.excluded[..rows].iter().map(Vec::as_slice).collect();
        let excluded = Some(lists.as_slice());
        Ok(retriever.search(Queries { latent: &latent, slate_size: self.slate_size, excluded })?)
    }

    fn search(&self) -> Result<Slates> {
        let lists: Vec<&[u32]> = self.excluded.iter().map(Vec::as_slice).collect();
        let (latent, slate_size, excluded) = (&self.latent, self.slate_size, Some(&*lists));
        Ok(self.retriever.search(Queries { latent, slate_size, excluded })?)
    }

    /// True if the first queries have the host's answers.
    fn agrees(&self, host: &Exact) -> Result<bool> {
        let rows = self.latent.rows().min(COMPARED);
        Ok(self.ask(self.retriever.as_ref(), rows)? == self.ask(host, rows)?)
    }

    /// The median of the seconds.
    fn median(&self) -> f64 {
        let mut seconds = self.seconds.clone();
        seconds.sort_unstable_by(f64::total_cmp);
        seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The median repetition.
    fn measured(self, chosen: &Chosen, product_gflops: f64) -> Search {
        let seconds = self.median();
        let (queries, latent_dim) = (self.latent.rows(), self.latent.cols());
        let gflops = 2e-9 * self.actions as f64 * latent_dim as f64 * queries as f64 / seconds;
        Search {
            actions: self.actions,
            queries,
            slate_size: self.slate_size,
            searcher: Searcher::new(chosen, self.retriever.on_device()),
            same: self.same,
            repetitions: self.seconds.len(),
            milliseconds: 1e3 * seconds,
            gflops,
            share: gflops / product_gflops,
        }
    }
}

/// So many different ones of the actions, ascending.
fn sample(row: usize, count: usize, actions: usize) -> Vec<u32> {
    let mut stream = Seed::default().stream(Purpose::Synthetic, 2, row as u64);
    let mut chosen = BTreeSet::new();
    while chosen.len() < count {
        chosen.insert(stream.below(u32::try_from(actions).unwrap_or(u32::MAX)));
    }
    chosen.into_iter().collect()
}

/// Standard normals `[rows, cols]`; each row has a stream of its own.
fn normals(step: u64, rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    matrix.par_rows_mut().enumerate().for_each(|(at, row)| {
        Seed::default().stream(Purpose::Synthetic, step, at as u64).fill_normals(row);
    });
    matrix
}

/// Speed of one product of two square matrices, in GFLOP/s: of faer on all threads of a CPU, or of Burn on
/// a GPU, where the time of one comes from several.
fn plain_product(chosen: &Chosen, size: usize) -> Result<f64> {
    let gflops = |seconds: f64| 2e-9 * (size as f64).powi(3) / seconds;
    if chosen.memory.is_none() {
        let factor = Mat::<f32>::full(size, size, 1.0);
        let mut product = Mat::<f32>::zeros(size, size);
        let started = Instant::now();
        matmul(product.as_mut(), Accum::Replace, &factor, &factor, 1.0, Par::rayon(0));
        return Ok(gflops(started.elapsed().as_secs_f64()));
    }
    let factor = Tensor::<2>::ones([size, size], &chosen.device);
    let multiply = || -> Result<()> {
        drop(factor.clone().matmul(factor.clone()));
        chosen.device.sync().map_err(|error| anyhow::anyhow!("{error:?}"))
    };
    multiply()?;
    let (started, mut count) = (Instant::now(), 0);
    while count == 0 || started.elapsed() < LEAST {
        multiply()?;
        count += 1;
    }
    Ok(gflops(started.elapsed().as_secs_f64() / f64::from(count)))
}

impl Measured {
    fn text(&self) -> String {
        let mut text = format!(
            "L = {}, on {}, {} threads; a plain product: {:.1} GFLOP/s\n",
            self.latent_dim, self.device, self.threads, self.product_gflops
        );
        text += "       P  queries     K          ms   GFLOP/s  of the product\n";
        for search in &self.searches {
            text += &format!(
                "{:>8}  {:>7}  {:>4}  {:>10.2}  {:>8.1}  {:>12.1} %  {}{}\n",
                search.actions,
                search.queries,
                search.slate_size,
                search.milliseconds,
                search.gflops,
                100.0 * search.share,
                search.searcher.text(),
                if search.same == Some(false) { ": OTHER SLATES THAN THE HOST" } else { "" }
            );
        }
        text
    }
}
