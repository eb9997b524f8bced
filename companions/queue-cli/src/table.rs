//! Tables, and lists of facts.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use queue_admin::payload;

use crate::output::Output;

/// A table under construction. In a terminal it is as wide as that at the most; in a pipe nothing is wrapped,
/// so that `grep` and `awk` see whole cells.
#[derive(Debug)]
pub(crate) struct Rows {
    table: Table,
    numbers: Vec<bool>,
    colour: bool,
    /// The rows that ask for attention, by their number.
    striking: Vec<usize>,
}

impl Rows {
    /// A table with these columns; a name that begins with `#` is a column of numbers, aligned to the right.
    pub(crate) fn new(out: &Output, columns: &[&str]) -> Self {
        let mut rows = Self::unwrapped(out, columns);
        if let Some((width, _)) = out.terminal {
            rows.table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        rows
    }

    /// The same, as wide as it is.
    pub(crate) fn unwrapped(out: &Output, columns: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let numbers: Vec<bool> = columns.iter().map(|name| name.starts_with('#')).collect();
        let mut rows = Self { table, numbers, colour: out.colour, striking: Vec::new() };
        rows.table.set_header(rows.cells(columns.iter().map(|name| name.trim_start_matches('#').to_owned())));
        for column in rows.table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        rows
    }

    fn cells(&self, values: impl IntoIterator<Item = String>) -> Vec<Cell> {
        let align = |(value, number): (String, &bool)| {
            let alignment = if *number { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(payload::one_line(&value)).set_alignment(alignment)
        };
        values.into_iter().zip(&self.numbers).map(align).collect()
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, values: impl IntoIterator<Item = String>) {
        let cells = self.cells(values);
        self.table.add_row(cells);
    }

    /// Adds a row that asks for attention, if `striking`.
    pub(crate) fn add_marked(&mut self, striking: bool, values: impl IntoIterator<Item = String>) {
        self.add(values);
        if striking {
            self.striking.push(self.table.row_count());
        }
    }

    /// The columns that the longest line takes.
    pub(crate) fn width(&self) -> usize {
        self.table.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0)
    }

    /// The table as text, without blanks at the ends of lines.
    pub(crate) fn render(&self) -> String {
        let lines: Vec<String> = self.table.lines().map(|line| line.trim_end().to_owned()).collect();
        // With wrapped cells a row is more than one line; then only the head has a style.
        let one_line_each = lines.len() == self.table.row_count() + 1;
        let style = |(number, line): (usize, &String)| match number {
            0 if self.colour => format!("\x1b[1m{line}\x1b[0m\n"),
            n if self.colour && one_line_each && self.striking.contains(&n) => format!("\x1b[33m{line}\x1b[0m\n"),
            _ => format!("{line}\n"),
        };
        lines.iter().enumerate().map(style).collect()
    }
}

/// Facts, one on a line, their names aligned.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("{name:<width$}  {}\n", payload::harmless(value))).collect()
}
