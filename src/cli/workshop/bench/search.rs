//! `slate bench search`: sizes in, the speed of exact search out, on standard normal embeddings and
//! queries. A search is a matrix product and a selection, so a plain product bounds its speed.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Par};
use rayon::prelude::*;
use serde::Serialize;

use crate::cli::report::Report;
use crate::embedding::ActionEmbeddings;
use crate::matrix::Matrix;
use crate::retrieval::{Exact, Queries, Retriever as _};
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
    /// The number of times to measure everything.
    #[arg(long, default_value = "3")]
    repetitions: NonZeroUsize,
}

/// Rows and columns of the plain product. Larger products are not faster per operation.
const PRODUCT: usize = 4096;

/// A search is repeated for at least this long, because small searches begin with cold caches.
const LEAST: Duration = Duration::from_millis(100);

/// The result of the benchmark.
#[derive(Debug, Serialize)]
struct Measured {
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
    milliseconds: f64,
    gflops: f64,
    /// Speed as a share of the plain product's.
    share: f64,
}

pub(super) fn run(args: &BenchSearchArgs) -> Result<Report> {
    let most = args.slate_size.iter().max();
    if let Some(fewest) = args.actions.iter().min().filter(|fewest| most > Some(fewest)) {
        bail!("--slate-size: at most the {fewest} of --actions");
    }
    let latent_dim = args.latent_dim.get();
    let catalogues = args.actions.iter().map(|actions| {
        let beta = normals(0, actions.get(), latent_dim);
        Ok(Exact::new(Arc::new(ActionEmbeddings::new(beta)?)))
    });
    let catalogues = catalogues.collect::<Result<Vec<Exact>>>()?;
    let latent: Vec<Matrix> =
        args.queries.iter().map(|queries| normals(1, queries.get(), latent_dim)).collect();
    let mut cells = Vec::new();
    for exact in &catalogues {
        for latent in &latent {
            for slate_size in &args.slate_size {
                let slate_size = slate_size.get();
                cells.push((exact, Queries { latent, slate_size, excluded: None }, Vec::new()));
            }
        }
    }

    // Each repetition measures all searches, so that a slow minute of the machine slows all alike.
    let mut product = f64::INFINITY;
    for _ in 0..args.repetitions.get() {
        product = product.min(plain_product());
        for (exact, queries, seconds) in &mut cells {
            let (started, mut searches) = (Instant::now(), 0);
            while searches == 0 || started.elapsed() < LEAST {
                exact.search(*queries)?;
                searches += 1;
            }
            seconds.push(started.elapsed().as_secs_f64() / f64::from(searches));
        }
    }

    let product_gflops = 2e-9 * (PRODUCT as f64).powi(3) / product;
    let search = |(exact, queries, mut seconds): (&Exact, Queries<'_>, Vec<f64>)| {
        seconds.sort_unstable_by(f64::total_cmp);
        let seconds = seconds[seconds.len() / 2];
        let (actions, rows) = (exact.actions().num_actions(), queries.latent.rows());
        let gflops = 2e-9 * actions as f64 * latent_dim as f64 * rows as f64 / seconds;
        Search {
            actions,
            queries: rows,
            slate_size: queries.slate_size,
            milliseconds: 1e3 * seconds,
            gflops,
            share: gflops / product_gflops,
        }
    };
    let measured = Measured {
        threads: rayon::current_num_threads(),
        latent_dim,
        product_gflops,
        searches: cells.into_iter().map(search).collect(),
    };
    Report::new(&measured, measured.text())
}

/// Standard normals `[rows, cols]`; each row has a stream of its own.
fn normals(step: u64, rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    matrix.par_rows_mut().enumerate().for_each(|(at, row)| {
        Seed::default().stream(Purpose::Synthetic, step, at as u64).fill_normals(row);
    });
    matrix
}

/// Seconds of one product of two square matrices on all threads.
fn plain_product() -> f64 {
    let factor = Mat::<f32>::full(PRODUCT, PRODUCT, 1.0);
    let mut product = Mat::<f32>::zeros(PRODUCT, PRODUCT);
    let started = Instant::now();
    matmul(product.as_mut(), Accum::Replace, &factor, &factor, 1.0, Par::rayon(0));
    started.elapsed().as_secs_f64()
}

impl Measured {
    fn text(&self) -> String {
        let mut text = format!(
            "L = {}, {} threads; a plain product: {:.1} GFLOP/s\n",
            self.latent_dim, self.threads, self.product_gflops
        );
        text += "       P  queries     K          ms   GFLOP/s  of the product\n";
        for search in &self.searches {
            text += &format!(
                "{:>8}  {:>7}  {:>4}  {:>10.2}  {:>8.1}  {:>12.1} %\n",
                search.actions,
                search.queries,
                search.slate_size,
                search.milliseconds,
                search.gflops,
                100.0 * search.share
            );
        }
        text
    }
}
