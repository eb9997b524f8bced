//! A bar that shows how far something long has come.

use std::io::IsTerminal as _;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

/// A bar on standard error, if that is a terminal and nobody wants it plain; else nothing. It goes away when it is
/// finished.
pub(crate) fn bar(what: &'static str, total: u64, unit: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return ProgressBar::hidden();
    }
    let counts = if unit == "bytes" { "{bytes}/{total_bytes}" } else { "{human_pos}/{human_len}" };
    let bar = ProgressBar::new(total).with_message(what);
    match ProgressStyle::with_template(&format!("{{msg}} [{{bar:30}}] {counts} {unit}, {{eta}} left")) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

/// A number with its thousands apart: `1,204`.
pub(crate) fn thousands(number: u64) -> String {
    HumanCount(number).to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands_are_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_204, "1,204"), (1_000_000, "1,000,000")] {
            assert_eq!(super::thousands(number), text);
        }
    }
}
