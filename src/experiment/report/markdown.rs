//! A document goes in; a page of Markdown as GitHub shows it comes out.

use super::document::{Block, Column, Document, Entry, Figure, Kind, Table};

/// The folder of the pictures, next to the page.
pub(super) const FIGURES: &str = "figures";

/// The page.
pub(super) fn page(document: &Document) -> String {
    let mut page = format!("# {}\n\n", escaped(&document.title));
    document.lead.iter().for_each(|block| page += &self::block(block));
    let link = |section: &super::document::Section| {
        format!("[{}](#{})", escaped(&section.title), section.anchor())
    };
    page += &document.sections.iter().map(link).collect::<Vec<_>>().join(" · ");
    page += "\n\n";
    for section in &document.sections {
        page += &format!("## {}\n\n", escaped(&section.title));
        section.blocks.iter().for_each(|block| page += &self::block(block));
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

/// A block, with an empty line below.
fn block(block: &Block) -> String {
    match block {
        Block::Text(text) => format!("{}\n\n", escaped(text)),
        Block::Notice(text) => format!("> **{}**\n\n", escaped(text)),
        Block::Table(table) => self::table(table),
        Block::Figure(figure) => self::figure(figure),
        Block::Code { language, text } => {
            let fence = fence(text);
            format!("{fence}{language}\n{}\n{fence}\n\n", text.trim_end())
        }
        Block::Folded { summary, blocks } => {
            let blocks: String = blocks.iter().map(self::block).collect();
            format!("<details>\n<summary>{}</summary>\n\n{blocks}</details>\n\n", escaped(summary))
        }
    }
}

fn figure(figure: &Figure) -> String {
    let mut text = String::new();
    for panel in &figure.panels {
        text += &format!("![{}]({FIGURES}/{}.svg)\n", escaped(&panel.title), panel.name);
        if !panel.note.is_empty() {
            text += &format!("{}\n", escaped(&panel.note));
        }
    }
    format!("{text}\n{}\n\n", escaped(&figure.caption))
}

fn table(table: &Table) -> String {
    let line = |entries: Vec<String>| format!("| {} |\n", entries.join(" | "));
    let name = |column: &Column| match column.group.as_str() {
        "" => escaped(&column.name),
        group => format!("{}, {}", escaped(group), escaped(&column.name)),
    };
    let rule = |column: &Column| if column.kind == Kind::Number { "--:" } else { "---" };
    let mut text = format!("{}\n\n", escaped(&table.caption));
    text += &line(table.columns.iter().map(name).collect());
    text += &line(table.columns.iter().map(|column| rule(column).to_owned()).collect());
    for row in &table.rows {
        text += &line(row.iter().map(entry).collect());
    }
    text.push('\n');
    for (at, note) in table.notes.iter().enumerate() {
        text += &format!("{}. {}\n", at + 1, escaped(note));
    }
    if !table.notes.is_empty() {
        text.push('\n');
    }
    text
}

fn entry(entry: &Entry) -> String {
    let mut text = escaped(&entry.text);
    if entry.best {
        text = format!("**{text}**");
    }
    if let Some(note) = entry.note {
        text += &format!("<sup>{}</sup>", note + 1);
    }
    if let Some(paper) = &entry.paper {
        text += &format!("<br><sub>paper {}</sub>", escaped(paper));
    }
    text
}

/// `text` on one line, with the characters escaped that Markdown or HTML would interpret.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '\n' | '\r' => out.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '$' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

/// A fence of more backticks than `text` has in a row.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}
