//! A comparison's results go in; pages, pictures and a table for other programs come out.

mod document;
mod figures;
mod growth;
mod html;
mod markdown;
mod numbers;
mod parquet;
mod rewards;
mod summary;
mod tables;
mod words;

use std::io::Write as _;
use std::path::Path;

use fs_err as fs;

use self::document::{Block, Document, Section};
use self::growth::Quantity;
use super::grid::FigureKind;
use super::results::Results;
use crate::error::{Error, Result};
use crate::files::write_atomic;

pub use self::summary::{Across, OverSeeds, Place, Summary, Up};

/// Writes `report.html`, `report.md` with `figures/`, and `results.parquet` into `folder`. The same
/// results give the same bytes.
///
/// # Errors
/// Fails with an I/O error that names the file, or if the drawing library fails.
pub fn write(results: &Results, folder: &Path) -> Result<()> {
    let document = document(results)?;
    let text = |name: &Path, text: &str| {
        write_atomic(&folder.join(name), |file| Ok(file.write_all(text.as_bytes())?))
    };
    // The pages come last: they name the pictures.
    let figures = Path::new(markdown::FIGURES);
    fs::create_dir_all(folder.join(figures))?;
    for panel in document.figures().flat_map(|figure| &figure.panels) {
        text(&figures.join(format!("{}.svg", panel.name)), &panel.svg)?;
    }
    parquet::write(results, &folder.join("results.parquet"))?;
    text(Path::new("report.md"), &markdown::page(&document))?;
    text(Path::new("report.html"), &html::page(&document))
}

/// The content of the pages.
fn document(results: &Results) -> Result<Document> {
    let summary = Summary::new(results);
    let grid = &results.grid;
    let mut lead = Vec::new();
    let done = results.cells.len();
    if done < results.of {
        lead.push(Block::Notice(format!("{done} of {} cells so far.", results.of)));
    }
    let paragraphs = grid.about.split("\n\n").map(str::trim).filter(|text| !text.is_empty());
    lead.extend(paragraphs.map(|text| Block::Text(text.to_owned())));

    let section = |title: &str, blocks| Section { title: title.to_owned(), blocks };
    let mut sections = vec![section("Rewards", rewards::table(&summary))];
    for &kind in &grid.figures {
        let figure = figures::figure(&summary, kind)?;
        if figure.panels.is_empty() {
            continue;
        }
        let mut blocks = vec![Block::Figure(figure)];
        let quantity = match kind {
            FigureKind::StepTime => Some(Quantity::Time),
            FigureKind::Memory => Some(Quantity::Memory),
            _ => None,
        };
        let slopes = quantity.and_then(|quantity| growth::slopes(&summary, quantity));
        blocks.extend(slopes.map(Block::Table));
        sections.push(section(words::title(kind), blocks));
    }
    sections.push(section("Data sets", tables::data(&summary)));
    if !results.searches.is_empty() {
        sections.push(section("Learning rates", tables::searches(&summary)));
    }
    sections.push(section("Cells", tables::cells(&summary)));
    sections.push(section("Machine and settings", settings(results)?));
    Ok(Document { title: grid.title.clone(), lead, sections })
}

fn settings(results: &Results) -> Result<Vec<Block>> {
    let machine = &results.machine;
    let text = format!(
        "{} (cores used: {}), {:.1} GiB of memory, {}; device {}; fast-slate {}.",
        machine.processor,
        machine.cores,
        machine.memory as f64 / f64::from(1 << 30),
        machine.system,
        machine.device,
        machine.version
    );
    let grid = toml::to_string(&results.grid).map_err(|error| Error::library("the grid", error))?;
    let folded = Block::Folded {
        summary: "The grid".into(),
        blocks: vec![Block::Code { language: "toml", text: grid }],
    };
    Ok(vec![Block::Text(text), folded])
}
