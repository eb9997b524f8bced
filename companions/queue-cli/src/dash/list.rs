//! Lists with a selection that stays on its row while the rows move.

/// What can stand in a list.
pub(super) trait Row {
    /// What tells this row from the others, also when it has changed.
    fn key(&self) -> String;
    /// Whether it contains this text, which is in lower case.
    fn matches(&self, needle: &str) -> bool;
}

/// Rows, of which one is selected and some are on the screen.
#[derive(Debug, Clone)]
pub(super) struct List<T> {
    /// `None` until they have been read once.
    rows: Option<Vec<T>>,
    /// Shows only rows with this text in them, in whatever case.
    filter: String,
    selected: Option<String>,
    /// Where the selected row was last, among those that are shown.
    index: usize,
    /// The first row on the screen.
    top: usize,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { rows: None, filter: String::new(), selected: None, index: 0, top: 0 }
    }
}

impl<T: Row> List<T> {
    /// Whether the rows have been read.
    pub(super) fn is_loaded(&self) -> bool {
        self.rows.is_some()
    }

    /// All rows, also those that the filter hides.
    pub(super) fn all(&self) -> &[T] {
        self.rows.as_deref().unwrap_or_default()
    }

    /// The rows that the filter lets through.
    pub(super) fn shown(&self) -> Vec<&T> {
        let needle = self.filter.to_lowercase();
        self.all().iter().filter(|row| needle.is_empty() || row.matches(&needle)).collect()
    }

    /// The rows on the screen, each with whether it is the selected one.
    pub(super) fn on_screen(&self, height: usize) -> Vec<(&T, bool)> {
        let rows = self.shown().into_iter().enumerate().skip(self.top).take(height);
        rows.map(|(index, row)| (row, index == self.index)).collect()
    }

    /// The selected row.
    pub(super) fn selected(&self) -> Option<&T> {
        self.shown().get(self.index).copied()
    }

    /// Puts new rows in the place of the old ones; the selection goes where its row went.
    pub(super) fn replace(&mut self, rows: Vec<T>, height: usize) {
        self.rows = Some(rows);
        self.settle(height);
    }
}

/// What the keys do to a list, whatever its rows are.
pub(super) trait Moves {
    /// Moves the selection, up by a negative number.
    fn step(&mut self, by: isize, height: usize);
    /// Brings the selection back to its row, and the row onto the screen.
    fn settle(&mut self, height: usize);
    /// The text that rows must contain.
    fn filter(&self) -> &str;
    /// Changes it.
    fn set_filter(&mut self, text: String, height: usize);
    /// Forgets the rows, because others will come, and selects the first one.
    fn restart(&mut self);
}

impl<T: Row> Moves for List<T> {
    fn step(&mut self, by: isize, height: usize) {
        let shown = self.shown();
        let index = self.index.saturating_add_signed(by).min(shown.len().saturating_sub(1));
        let selected = shown.get(index).map(|row| row.key());
        (self.index, self.selected) = (index, selected);
        self.settle(height);
    }

    fn settle(&mut self, height: usize) {
        let shown = self.shown();
        let found = self.selected.as_ref().and_then(|key| shown.iter().position(|row| row.key() == *key));
        let (index, count) = (found.unwrap_or(self.index).min(shown.len().saturating_sub(1)), shown.len());
        let key = shown.get(index).map(|row| row.key());
        self.index = index;
        // While nothing is shown, the row may yet come back.
        if key.is_some() {
            self.selected = key;
        }
        let height = height.max(1);
        self.top = self.top.min(index).max((index + 1).saturating_sub(height)).min(count.saturating_sub(height));
    }

    fn filter(&self) -> &str {
        &self.filter
    }

    fn set_filter(&mut self, text: String, height: usize) {
        self.filter = text;
        self.settle(height);
    }

    fn restart(&mut self) {
        (self.rows, self.selected, self.index, self.top) = (None, None, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Row for &'static str {
        fn key(&self) -> String {
            (*self).to_owned()
        }

        fn matches(&self, needle: &str) -> bool {
            self.contains(needle)
        }
    }

    fn list(rows: &[&'static str]) -> List<&'static str> {
        let mut list = List::default();
        list.replace(rows.to_vec(), 3);
        list
    }

    fn screen(list: &List<&'static str>) -> String {
        list.on_screen(3)
            .iter()
            .map(|(row, selected)| if *selected { row.to_uppercase() } else { row.to_string() })
            .collect()
    }

    #[test]
    fn the_selection_stays_on_its_row_when_rows_come_and_go_before_it() {
        let mut list = list(&["b", "c", "d"]);
        list.step(1, 3);
        list.replace(vec!["a", "b", "c", "d", "e"], 3);
        assert_eq!(screen(&list), "abC");
        list.replace(vec!["c", "d"], 3);
        assert_eq!(screen(&list), "Cd");
    }

    #[test]
    fn when_the_selected_row_goes_the_next_one_takes_its_place() {
        let mut list = list(&["a", "b", "c"]);
        list.step(1, 3);
        list.replace(vec!["a", "c"], 3);
        assert_eq!(list.selected(), Some(&"c"));
        list.replace(vec!["a"], 3);
        assert_eq!(list.selected(), Some(&"a"));
        list.replace(vec![], 3);
        assert_eq!(list.selected(), None);
        list.replace(vec!["z", "a"], 3);
        assert_eq!(list.selected(), Some(&"a"));
    }

    #[test]
    fn a_long_list_scrolls_with_the_selection() {
        let mut list = list(&["a", "b", "c", "d", "e"]);
        list.step(3, 3);
        assert_eq!(screen(&list), "bcD");
        list.step(-2, 3);
        assert_eq!(screen(&list), "Bcd");
        list.step(-9, 3);
        assert_eq!(screen(&list), "Abc");
        list.step(9, 3);
        assert_eq!(screen(&list), "cdE");
    }

    #[test]
    fn a_filter_hides_rows_and_gives_them_back() {
        let mut list = list(&["ab", "bc", "cd"]);
        list.step(2, 3);
        list.set_filter("B".to_owned(), 3);
        assert_eq!(screen(&list), "abBC");
        list.set_filter(String::new(), 3);
        assert_eq!(screen(&list), "abBCcd");
        list.set_filter("x".to_owned(), 3);
        assert_eq!((screen(&list), list.selected()), (String::new(), None));
        list.step(1, 3);
        list.set_filter(String::new(), 3);
        assert!(list.selected().is_some());
    }
}
