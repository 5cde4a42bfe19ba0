//! A document goes in; one HTML page comes out, which needs neither network nor script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::document::{Block, Column, Document, Figure, Kind, Table};

const STYLE: &str = include_str!("style.css");

/// The page.
pub(super) fn page(document: &Document) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (document.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (document.title) }
                    @for block in &document.lead { (self::block(block)) }
                    nav aria-label="Contents" {
                        @for section in &document.sections {
                            a href={ "#" (section.anchor()) } { (section.title) }
                        }
                    }
                }
                main {
                    @for section in &document.sections {
                        section {
                            h2 id=(section.anchor()) { (section.title) }
                            @for block in &section.blocks { (self::block(block)) }
                        }
                    }
                }
            }
        }
    };
    markup.into_string()
}

fn block(block: &Block) -> Markup {
    html! {
        @match block {
            Block::Text(text) => p { (text) },
            Block::Notice(text) => p.notice role="note" { (text) },
            Block::Table(table) => (self::table(table)),
            Block::Figure(figure) => (self::figure(figure)),
            Block::Code { text, .. } => pre tabindex="0" { code { (text) } },
            Block::Folded { summary, blocks } => details {
                summary { (summary) }
                @for block in blocks { (self::block(block)) }
            },
        }
    }
}

fn figure(figure: &Figure) -> Markup {
    html! {
        figure {
            div.panels {
                @for panel in &figure.panels {
                    div.panel {
                        div role="img" aria-label=(panel.title) { (PreEscaped(inline(&panel.svg))) }
                        @if !panel.note.is_empty() { p.note { (panel.note) } }
                    }
                }
            }
            figcaption { (figure.caption) }
        }
    }
}

/// An SVG document without its prologue, which a page must not hold.
fn inline(svg: &str) -> &str {
    svg.find("<svg").map_or("", |root| &svg[root..])
}

fn table(table: &Table) -> Markup {
    let grouped = table.columns.iter().any(|column| !column.group.is_empty());
    html! {
        figure.table {
            figcaption { (table.caption) }
            div.scroll tabindex="0" {
                table {
                    thead {
                        @if grouped { tr { @for (group, width) in groups(&table.columns) {
                            th.group[!group.is_empty()] colspan=(width)
                                scope=[(!group.is_empty()).then_some("colgroup")] { (group) }
                        } } }
                        tr { @for column in &table.columns {
                            th.number[column.kind == Kind::Number].pinned[column.kind == Kind::Group] scope="col" { (column.name) }
                        } }
                    }
                    tbody { @for (at, row) in table.rows.iter().enumerate() {
                        tr.start[starts(table, at)] {
                            @for place in 0..row.len() { (entry(table, at, place)) }
                        }
                    } }
                }
            }
            @if !table.notes.is_empty() { ol.notes { @for note in &table.notes { li { (note) } } } }
        }
    }
}

/// The columns' groups, and the width of each in columns.
fn groups(columns: &[Column]) -> impl Iterator<Item = (&str, usize)> {
    let chunks = columns.chunk_by(|a, b| a.group == b.group);
    chunks.map(|chunk| (chunk[0].group.as_str(), chunk.len()))
}

/// True if row `at` is the first of its group.
fn starts(table: &Table, at: usize) -> bool {
    table.columns.first().is_some_and(|column| column.kind == Kind::Group)
        && (at == 0 || table.rows[at][0].text != table.rows[at - 1][0].text)
}

fn entry(table: &Table, at: usize, place: usize) -> Markup {
    let entry = &table.rows[at][place];
    let kind = table.columns[place].kind;
    let content = html! {
        @if entry.best { strong { (entry.text) } } @else { (entry.text) }
        @if let Some(note) = entry.note { sup { (note + 1) } }
        @if let Some(paper) = &entry.paper { span.paper { "paper " (paper) } }
    };
    match kind {
        Kind::Group if !starts(table, at) => html! {},
        Kind::Group => {
            let same = table.rows[at..].iter().take_while(|row| row[0].text == entry.text);
            html! { th.pinned scope="rowgroup" rowspan=(same.count()) { (content) } }
        }
        Kind::Head => html! { th scope="row" { (content) } },
        Kind::Number => html! { td.number { (content) } },
    }
}
