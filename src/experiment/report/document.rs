//! The content of a report, before it becomes HTML or Markdown.

/// A report.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) title: String,
    /// The blocks above the first section.
    pub(super) lead: Vec<Block>,
    pub(super) sections: Vec<Section>,
}

/// A heading and the blocks below it.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) blocks: Vec<Block>,
}

/// A part of a section. Texts are plain: they are escaped where they are written.
#[derive(Clone, Debug)]
pub(super) enum Block {
    Text(String),
    /// A warning that stands out.
    Notice(String),
    Table(Table),
    Figure(Figure),
    Code {
        language: &'static str,
        text: String,
    },
    /// Blocks that open on a click.
    Folded {
        summary: String,
        blocks: Vec<Block>,
    },
}

/// Pictures beside each other.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) caption: String,
    pub(super) panels: Vec<Panel>,
}

/// A picture.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    /// The name of its file, without the extension.
    pub(super) name: String,
    /// A description for readers who do not see it.
    pub(super) title: String,
    pub(super) svg: String,
    /// What is missing in it, if anything.
    pub(super) note: String,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
    /// Rows, with an entry for each column.
    pub(super) rows: Vec<Vec<Entry>>,
    /// Footnotes, counted from 1.
    pub(super) notes: Vec<String>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// A heading that it shares with its neighbours, if any.
    pub(super) group: String,
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A row's name; equal names below each other are merged.
    Group,
    /// A row's name.
    Head,
    Number,
}

/// An entry of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) text: String,
    pub(super) best: bool,
    /// Its note's place among the table's notes.
    pub(super) note: Option<usize>,
    /// The paper's number.
    pub(super) paper: Option<String>,
}

impl Column {
    pub(super) fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self { group: String::new(), name: name.into(), kind }
    }

    pub(super) fn of(self, group: impl Into<String>) -> Self {
        Self { group: group.into(), ..self }
    }
}

impl<T: ToString> From<T> for Entry {
    fn from(text: T) -> Self {
        Self { text: text.to_string(), ..Self::default() }
    }
}

impl Table {
    /// Adds a note below the table and refers to it from `entry`.
    pub(super) fn noted(&mut self, entry: impl Into<Entry>, note: &str) -> Entry {
        let known = self.notes.iter().position(|known| known == note);
        let place = known.unwrap_or_else(|| {
            self.notes.push(note.to_owned());
            self.notes.len() - 1
        });
        Entry { note: Some(place), ..entry.into() }
    }
}

impl Document {
    /// All figures.
    pub(super) fn figures(&self) -> impl Iterator<Item = &Figure> {
        let blocks = self.sections.iter().flat_map(|section| &section.blocks);
        blocks.filter_map(|block| match block {
            Block::Figure(figure) => Some(figure),
            _ => None,
        })
    }
}

impl Section {
    /// The target of links to it, by GitHub's rule, so that a link holds in both formats.
    pub(super) fn anchor(&self) -> String {
        let kept = self.title.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-');
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
    }
}
