//! Foreign text, made fit for cells of a terminal, and numbers people can read at a glance.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Combining marks kept in a row; more would only pile up over other lines.
const MAX_MARKS: usize = 3;

/// What a terminal may be shown of one line: nothing that drives it, and nothing whose width is in dispute.
///
/// Joiners, variation selectors and skin tones go, because terminals disagree on how wide the sequences are that
/// they make, and one such cell would shift all columns after it. Marks that turn the direction of writing go
/// too: with them, a text could look like another.
pub(super) fn clean(text: &str) -> String {
    let mut marks = 0;
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' | '\n' | '\r' => cleaned.push(' '),
            c if c.is_control() => cleaned.push('\u{fffd}'),
            '\u{1f3fb}'..='\u{1f3ff}' => {}
            '\u{ad}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180b}'..='\u{180f}' => {}
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => {}
            '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => {}
            c if c.width() == Some(0) => {
                marks += 1;
                if marks <= MAX_MARKS {
                    cleaned.push(c);
                }
                continue;
            }
            c => cleaned.push(c),
        }
        marks = 0;
    }
    cleaned
}

/// The cells that a cleaned text takes.
pub(super) fn width(text: &str) -> usize {
    text.graphemes(true).map(|grapheme| grapheme.width()).sum()
}

/// Cleaned text in exactly `cells` cells: cut with an ellipsis, or filled with blanks.
pub(super) fn fit(text: &str, cells: usize) -> String {
    let mut fitted = cut(text, cells);
    let missing = cells.saturating_sub(width(&fitted));
    fitted.extend(std::iter::repeat_n(' ', missing));
    fitted
}

/// Text in exactly `cells` cells, at their right end.
pub(super) fn fit_right(text: &str, cells: usize) -> String {
    let cut = cut(text, cells);
    format!("{}{cut}", " ".repeat(cells.saturating_sub(width(&cut))))
}

/// Cleaned text in at most `cells` cells, with an ellipsis where something is left out.
pub(super) fn cut(text: &str, cells: usize) -> String {
    // A text of any length costs no more than what can be seen of it.
    let end = text.char_indices().nth(cells.saturating_mul(8).saturating_add(8)).map_or(text.len(), |(end, _)| end);
    let cleaned = clean(&text[..end]);
    if end == text.len() && width(&cleaned) <= cells {
        return cleaned;
    }
    let Some(room) = cells.checked_sub(1) else { return String::new() };
    let mut used = 0;
    let fits = |grapheme: &&str| {
        used += grapheme.width();
        used <= room
    };
    let mut kept: String = cleaned.graphemes(true).take_while(fits).collect();
    kept.push('…');
    kept
}

/// A line broken into pieces of at most `cells` cells.
pub(super) fn wrap(line: &str, cells: usize) -> Vec<String> {
    let (mut pieces, mut piece, mut used) = (Vec::new(), String::new(), 0);
    for grapheme in line.graphemes(true) {
        let wide = grapheme.width();
        if used + wide > cells && used > 0 {
            pieces.push(std::mem::take(&mut piece));
            used = 0;
        }
        piece.push_str(grapheme);
        used += wide;
    }
    pieces.push(piece);
    pieces
}

/// The same, between words where that can be.
pub(super) fn wrap_words(line: &str, cells: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        match lines.last_mut() {
            Some(last) if last.is_empty() => last.push_str(word),
            Some(last) if width(last) + 1 + width(word) <= cells => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().flat_map(|line| wrap(line, cells)).collect()
}

/// A count in at most five characters: `999`, `1.2k`, `45k`, `3.4M`.
pub(super) fn count(number: u64) -> String {
    scaled(number as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// A size in bytes: `999 B`, `1.2 KiB`, `45 MiB`.
pub(super) fn bytes(number: u64) -> String {
    scaled(number as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// Something per second: `0`, `0.25`, `3.1`, `1.2k`.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate < 0.005 => "0".to_owned(),
        rate if rate < 1.0 => format!("{rate:.2}"),
        rate if rate < 99.95 => format!("{rate:.1}"),
        rate => count(rate.round() as u64),
    }
}

/// A part of a whole in percent; nothing of nothing is nothing.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}%", 100.0 * part as f64 / whole as f64) }
}

fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (number, 0);
    // 999.6 would be shown as 1000.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && value < 9.95);
    format!("{value:.decimals$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_drives_the_terminal_is_left() {
        assert_eq!(clean("a\x1b[2Jb\u{9b}1m\x7f\0"), "a\u{fffd}[2Jb\u{fffd}1m\u{fffd}\u{fffd}");
        assert_eq!(clean("two\nlines\tand\u{202e}back"), "two lines andback");
    }

    #[test]
    fn graphemes_that_terminals_disagree_on_are_taken_apart() {
        assert_eq!(clean("👨\u{200d}👩\u{200d}👧 👍\u{1f3fd} ❤\u{fe0f}"), "👨👩👧 👍 ❤");
        assert_eq!(clean("e\u{301}\u{302}\u{303}\u{304}\u{305}"), "e\u{301}\u{302}\u{303}");
    }

    #[test]
    fn wide_characters_are_never_cut_in_half() {
        assert_eq!(
            (fit("日本語", 6), fit("日本語", 5), fit("日本語", 4)),
            ("日本語".into(), "日本…".into(), "日… ".into())
        );
        assert_eq!((fit("日本語", 1), fit("日本語", 0), fit("ab", 4)), ("…".into(), String::new(), "ab  ".into()));
        assert_eq!(fit_right("12", 4), "  12");
        assert_eq!(wrap("日本語ab", 5), ["日本", "語ab"]);
        assert_eq!(wrap("日本", 1), ["日", "本"]);
        assert_eq!(wrap_words("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap_words("a 日本語日本語 b", 5), ["a", "日本", "語日", "本語", "b"]);
        assert_eq!(wrap_words("", 5), [""]);
    }

    #[test]
    fn numbers_stay_short() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.0k"),
            (9_949, "9.9k"),
            (9_950, "10k"),
            (999_949, "1.0M"),
            (45_678_000, "46M"),
            (u64::MAX, "18E"),
        ] {
            assert_eq!(count(number), text, "{number}");
        }
        assert_eq!((bytes(1023), bytes(1024), bytes(1_600_000)), ("1023 B".into(), "1.0 KiB".into(), "1.5 MiB".into()));
        assert_eq!([0.0, 0.25, 3.04, 1234.0].map(rate), ["0", "0.25", "3.0", "1.2k"]);
        assert_eq!((percent(1, 8), percent(0, 0)), ("12.5%".into(), "-".into()));
    }
}
