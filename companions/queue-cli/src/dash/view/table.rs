//! Tables whose columns hold whatever is in them.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::palette::Palette;
use crate::dash::text::{fit, fit_right, width};

/// A column: its name, and how wide it may be.
#[derive(Debug, Clone)]
pub(super) struct Column {
    title: &'static str,
    least: usize,
    most: usize,
    right: bool,
}

impl Column {
    /// A column of text, between these widths.
    pub(super) fn text(title: &'static str, least: usize, most: usize) -> Self {
        Self { title, least, most: most.max(least), right: false }
    }

    /// A column of numbers, of this width.
    pub(super) fn number(title: &'static str, width: usize) -> Self {
        Self { title, least: width, most: width, right: true }
    }
}

/// What stands in a cell.
pub(super) enum Cell {
    /// Text and its look.
    Text(String, Style),
    /// Something drawn, just as wide as its column.
    Drawn(Vec<Span<'static>>),
}

impl Cell {
    pub(super) fn new(text: impl Into<String>, style: Style) -> Self {
        Self::Text(text.into(), style)
    }
}

/// Columns that share a line.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<(Column, usize)>,
    palette: Palette,
}

impl Table {
    /// Shares the cells of a line out: to all what they need at least, then what is left from the first on.
    pub(super) fn new(columns: Vec<Column>, cells: usize, palette: Palette) -> Self {
        // A mark at the beginning, and a blank before each column but the first.
        let needed: usize = columns.iter().map(|column| column.least + 1).sum();
        let mut left = cells.saturating_sub(needed);
        let share = |column: Column| {
            let more = left.min(column.most - column.least);
            left -= more;
            let width = column.least + more;
            (column, width)
        };
        Self { columns: columns.into_iter().map(share).collect(), palette }
    }

    /// The width that a column got.
    pub(super) fn width(&self, index: usize) -> usize {
        self.columns.get(index).map_or(0, |(_, width)| *width)
    }

    /// The names of the columns.
    pub(super) fn header(&self) -> Line<'static> {
        let cells = self.columns.iter().map(|(column, _)| Cell::new(column.title, self.palette.label()));
        self.line(cells.collect(), " ", None)
    }

    /// A row; the selected one has a mark besides its look.
    pub(super) fn row(&self, cells: Vec<Cell>, selected: bool) -> Line<'static> {
        match selected {
            true => self.line(cells, ">", Some(self.palette.selected())),
            false => self.line(cells, " ", None),
        }
    }

    fn line(&self, cells: Vec<Cell>, mark: &'static str, look: Option<Style>) -> Line<'static> {
        let mut spans = vec![Span::styled(mark, look.unwrap_or_default())];
        for (index, (cell, (column, width))) in cells.into_iter().zip(&self.columns).enumerate() {
            if index > 0 {
                spans.push(Span::styled(" ", look.unwrap_or_default()));
            }
            match cell {
                Cell::Text(text, style) => {
                    let text = if column.right { fit_right(&text, *width) } else { fit(&text, *width) };
                    spans.push(Span::styled(text, look.unwrap_or(style)));
                }
                Cell::Drawn(drawn) => spans.extend(drawn),
            }
        }
        Line::from(spans)
    }
}

/// The widest of some texts, for a column that should hold them; a glance at each is enough.
pub(super) fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| width(&crate::dash::text::cut(text, 60))).max().unwrap_or(0)
}
