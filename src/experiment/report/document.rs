//! What a report says, before it is HTML or Markdown.

/// A report.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) title: String,
    /// What stands above the first section.
    pub(super) lead: Vec<Block>,
    pub(super) sections: Vec<Section>,
}

/// What a heading stands above.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) blocks: Vec<Block>,
}

/// A part of a section. Texts are plain: they are escaped where they are written.
#[derive(Clone, Debug)]
pub(super) enum Block {
    Text(String),
    /// What a reader must not miss.
    Notice(String),
    Table(Table),
    Figure(Figure),
    Code {
        language: &'static str,
        text: String,
    },
    /// Blocks that a reader opens.
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
    /// That of its file, without the extension.
    pub(super) name: String,
    /// What it shows, for who does not see it.
    pub(super) title: String,
    pub(super) svg: String,
    /// What it lacks, or nothing.
    pub(super) note: String,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
    /// As wide as there are columns.
    pub(super) rows: Vec<Vec<Entry>>,
    /// What the entries refer to, counted from 1.
    pub(super) notes: Vec<String>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// What it shares with its neighbours, or nothing.
    pub(super) group: String,
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// What stands in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A row's name; equal ones below each other are one.
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
    /// Its place among the table's notes.
    pub(super) note: Option<usize>,
    /// What the paper has here.
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
    /// `entry`, with a note below the table.
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
    /// All figures, in sections and out.
    pub(super) fn figures(&self) -> impl Iterator<Item = &Figure> {
        let blocks = self.sections.iter().flat_map(|section| &section.blocks);
        blocks.filter_map(|block| match block {
            Block::Figure(figure) => Some(figure),
            _ => None,
        })
    }
}

impl Section {
    /// Its place in a page, by GitHub's rule, so that a link holds in both formats.
    pub(super) fn anchor(&self) -> String {
        let kept = self.title.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-');
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
    }
}
