//! Tables, and lists of facts.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use crate::output::Output;

/// A table under construction. In a terminal it is as wide as that at the most; in a pipe nothing is wrapped,
/// so that `grep` and `awk` see whole cells.
#[derive(Debug)]
pub(crate) struct Rows {
    table: Table,
    numbers: Vec<bool>,
}

impl Rows {
    /// A table with these columns; a name that begins with `#` is a column of numbers, aligned to the right.
    pub(crate) fn new(out: &Output, columns: &[&str]) -> Self {
        let mut rows = Self::unwrapped(columns);
        if let Some((width, _)) = out.terminal {
            rows.table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        rows
    }

    /// The same, as wide as it is.
    pub(crate) fn unwrapped(columns: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let numbers: Vec<bool> = columns.iter().map(|name| name.starts_with('#')).collect();
        let mut rows = Self { table, numbers };
        rows.table.set_header(rows.cells(columns.iter().map(|name| name.trim_start_matches('#').to_owned())));
        for column in rows.table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        rows
    }

    fn cells(&self, values: impl IntoIterator<Item = String>) -> Vec<Cell> {
        let align = |(value, number): (String, &bool)| {
            let alignment = if *number { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(value).set_alignment(alignment)
        };
        values.into_iter().zip(&self.numbers).map(align).collect()
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, values: impl IntoIterator<Item = String>) {
        let cells = self.cells(values);
        self.table.add_row(cells);
    }

    /// The table as text, without blanks at the ends of lines.
    pub(crate) fn render(&self) -> String {
        self.table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// Facts, one on a line, their names aligned.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}
