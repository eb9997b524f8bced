//! Metrics, compared with what happened.

mod endpoint;
mod queues;
mod worker;

use std::collections::BTreeMap;

/// The samples of a text, by name and labels as they stand there.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let samples = lines.map(|line| {
        let (sample, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        (sample.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
    });
    samples.collect()
}

/// Checks that these samples are there.
#[track_caller]
fn assert_samples(text: &str, expected: &[(&str, f64)]) {
    let samples = samples(text);
    for (sample, value) in expected {
        assert_eq!(samples.get(*sample), Some(value), "{sample} in:\n{text}");
    }
}
