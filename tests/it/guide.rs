//! README and guide: every page can be reached, every link leads somewhere, every figure is a measured one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use queue_core::limits::LEASE_SECS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn read(file: impl AsRef<Path>) -> String {
    let file = root().join(file);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// All pages of the repository that are written, by their path from its top.
fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
            pages(&path, found);
        } else if name.ends_with(".md") {
            found.push(path.strip_prefix(root()).unwrap().to_owned());
        }
    }
}

/// A page without its blocks of code.
fn prose(page: &str) -> String {
    let mut in_code = false;
    let lines = page.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The targets of the links and pictures in a text, but for those in code.
fn links(text: &str) -> Vec<String> {
    let plain: String = text.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let after = plain.split("](").skip(1);
    after.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// The anchors that the headings of a page get, by GitHub's rule and mdBook's.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for heading in prose(page).lines().filter(|line| line.starts_with('#')) {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let count = seen.entry(name.clone()).or_default();
        anchors.insert(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    anchors
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(normal.pop(), "{} leads out of the repository", path.display()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// What is wrong with the links of a page.
fn broken(page: &Path, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for link in links(&prose(text)) {
        if link.starts_with("http://") || link.starts_with("https://") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let target = if file.is_empty() { page.to_owned() } else { normal(&page.parent().unwrap().join(file)) };
        if !root().join(&target).exists() {
            broken.push(format!("{}: {link}: no such file", page.display()));
        } else if !anchor.is_empty() && !anchors(&read(&target)).contains(anchor) {
            broken.push(format!("{}: {link}: no such heading", page.display()));
        }
    }
    broken
}

#[test]
fn every_link_of_every_page_leads_to_a_file_and_a_heading() {
    let mut found = Vec::new();
    pages(&root(), &mut found);
    assert!(found.len() > 40, "only {} pages", found.len());
    let broken: Vec<String> = found.iter().flat_map(|page| broken(page, &read(page))).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = Path::new("docs/README.md");
    let good =
        "[a](cli.md) [b](cli.md#json) [c](../README.md#quick-start) `[d](nowhere.md)`\n```text\n[e](nowhere.md)\n```";
    assert!(broken(page, good).is_empty());
    assert_eq!(broken(page, "[a](nowhere.md) and\n![b](cli.md#nothing)").len(), 2);
}

#[test]
fn the_guide_lists_every_page_once() {
    let summary = links(&read("docs/SUMMARY.md"));
    let mut listed = BTreeSet::new();
    for page in &summary {
        assert!(listed.insert(page.clone()), "docs/SUMMARY.md lists {page} twice");
    }
    let mut found = Vec::new();
    pages(&root().join("docs"), &mut found);
    let names = found.iter().map(|page| page.strip_prefix("docs").unwrap().to_str().unwrap().to_owned());
    assert_eq!(listed, names.filter(|name| name != "SUMMARY.md").collect());
    // The first page leads to all others too.
    let first: BTreeSet<String> = links(&read("docs/README.md")).into_iter().collect();
    let missing: Vec<_> = listed.iter().filter(|page| *page != "README.md" && !first.contains(*page)).collect();
    assert!(missing.is_empty(), "docs/README.md does not lead to {missing:?}");
}

/// The Rust of pages that nothing compiles, and why.
const NOT_COMPILED: [(&str, &str); 1] = [("docs/mutants.md", "a piece of a program with a mistake in it")];

/// What compiles the code of pages: the pages that are documentation tests, and of `build.rs` the page, heading and language of
/// each block that becomes a file.
fn compiled() -> (BTreeSet<String>, BTreeSet<[String; 3]>) {
    let (library, build) = (read("examples/lib.rs"), read("examples/build.rs"));
    let whole = library.split("include_str!(\"../").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    let blocks = build.lines().filter_map(|line| line.trim_start().strip_prefix("(\""));
    let blocks = blocks.map(|row| {
        let mut cells = row.split("\", \"").map(str::to_owned);
        [(); 3].map(|()| cells.next().unwrap_or_else(|| panic!("examples/build.rs: {row}")))
    });
    (whole.collect(), blocks.collect())
}

/// The blocks of Rust in a page that nothing compiles, by their line.
fn not_compiled(page: &str, text: &str) -> Vec<String> {
    let (whole, blocks) = compiled();
    let (mut heading, mut in_code, mut seen, mut found) = ("", false, BTreeSet::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            if !in_code && line.starts_with('#') {
                heading = line.trim_start_matches('#').trim();
            }
            continue;
        };
        in_code = !in_code;
        let mut words = language.split(',');
        if !in_code || !matches!(words.next(), Some("rust" | "rs")) {
            continue;
        }
        // The documentation tests take "rs" for another language, build.rs takes the first block of its section.
        let in_whole = whole.contains(page) && language.starts_with("rust") && words.all(|word| word != "ignore");
        let block = [page, heading, language].map(str::to_owned);
        let is_first = seen.insert(block.clone());
        if !(in_whole || is_first && blocks.contains(&block)) {
            found.push(format!("{page}:{}", number + 1));
        }
    }
    found
}

#[test]
fn the_rust_of_every_page_is_compiled() {
    let mut found = vec![PathBuf::from("README.md")];
    pages(&root().join("docs"), &mut found);
    let mut missing = BTreeMap::new();
    for page in found.iter().map(|page| page.to_str().unwrap()) {
        missing.insert(page, not_compiled(page, &read(page)));
    }
    for (page, reason) in NOT_COMPILED {
        assert!(!missing.remove(page).unwrap().is_empty(), "{page} is no exception any more: {reason}");
    }
    let missing: Vec<String> = missing.into_values().flatten().collect();
    assert!(missing.is_empty(), "neither examples/lib.rs nor examples/build.rs has {missing:?}");
}

#[test]
fn rust_that_nothing_compiles_is_found() {
    let good = "## A first test\n```rs\n# let a = 1;\n```\n```rust,no_run\n```\n```sh\n```";
    assert!(not_compiled("docs/testing.md", good).is_empty());
    let bad = "## A first test\n```rs\n```\n```rs\n```\n## Else\n```rs\n```\n```rust,ignore\n```";
    assert_eq!(not_compiled("docs/testing.md", bad), [4, 7, 9].map(|line| format!("docs/testing.md:{line}")));
    assert_eq!(not_compiled("docs/nowhere.md", "```rust\n```"), ["docs/nowhere.md:1"]);
}

#[test]
fn the_readme_is_short() {
    let words = read("README.md").split_whitespace().count();
    assert!(words <= 1_200, "the README has {words} words");
}

fn median(values: &serde_json::Value) -> f64 {
    let mut values: Vec<f64> = values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A figure as a table shows it, without its unit.
fn number(cell: &str) -> f64 {
    let number = cell.split_whitespace().next().unwrap().replace(',', "");
    number.parse().unwrap_or_else(|_| panic!("no figure: {cell}"))
}

/// How many rows the table of figures in a page has, and which of them differ from what was measured.
fn compare_figures(page: &str) -> (usize, Vec<String>) {
    let results: serde_json::Value = serde_json::from_str(&read("bench/results/results.json")).unwrap();
    let rows = page.split("| figure | Go asynq | here |\n").nth(1).expect("a table of figures");
    let rows: Vec<&str> = rows.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    let mut wrong = Vec::new();
    for row in &rows {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let (name, field) = match cells[0].split_once(" per task: ") {
            Some(("CPU of Redis", name)) => (name, "redis_cpu"),
            Some((_, name)) => (name, "own_cpu"),
            None => (cells[0], "values"),
        };
        let measured = results.as_array().unwrap().iter().find(|result| result["name"] == name);
        let measured = measured.unwrap_or_else(|| panic!("{name:?} was not measured"));
        for (side, cell) in [("go", cells[1]), ("ours", cells[2])] {
            let (is, shown) = (median(&measured[side][field]), number(cell));
            if (is - shown).abs() > is * 0.01 {
                wrong.push(format!("{}: {shown} of {side}, measured {is}", cells[0]));
            }
        }
    }
    (rows.len(), wrong)
}

#[test]
fn the_figures_of_readme_and_comparison_are_the_measured_ones() {
    for (page, least) in [("README.md", 5), ("docs/compare.md", 12)] {
        let (rows, wrong) = compare_figures(&read(page));
        assert!(rows >= least, "{page} has {rows} figures");
        assert!(wrong.is_empty(), "{page}; docs/figures.py writes what was measured: {wrong:?}");
    }
}

#[test]
fn a_figure_that_was_not_measured_is_found() {
    let page = read("README.md").replacen("| drain, concurrency 50 | ", "| drain, concurrency 50 | 9", 1);
    assert_eq!(compare_figures(&page).1.len(), 1);
}

#[test]
fn the_figures_of_what_falls_short_are_the_measured_ones() {
    let (results, limits) = (read("bench/results/results.md"), read("docs/limits.md").replace('\n', " "));
    // "0.82x [0.78–1.01] (…); 0.90x while Redis' tables grow" in the row that begins so.
    let row = |name: &str| results.lines().find(|line| line.starts_with(&format!("| {name}"))).unwrap().to_owned();
    let ratio = |text: &str| text.split('x').next().unwrap().rsplit([' ', '|']).next().unwrap().to_owned();
    let beside = |name: &str| row(&format!("{name} beside 10,000,000"));
    for (name, sentence) in [
        ("enqueuing tasks", "enqueuing runs at {} of the rate"),
        ("scheduling tasks", "scheduling more at {},"),
        ("forwarding due tasks", "forwarding at {},"),
        ("draining", "draining at {}."),
    ] {
        let sentence = sentence.replace("{}", &ratio(&beside(name)));
        assert!(limits.contains(&sentence), "docs/limits.md does not say {sentence:?}");
    }
    let growing = ratio(beside("scheduling tasks").split("; ").nth(1).unwrap());
    assert!(limits.contains(&format!("scheduling runs at {growing}")), "docs/limits.md: {growing} while tables grow");
    let longest = row("how long a script holds Redis up");
    let longest = longest.split(" | ").nth(1).unwrap().split(" at most").next().unwrap().to_owned();
    assert!(limits.contains(&format!("for {longest} where a table")), "docs/limits.md: {longest}");
}

#[test]
fn the_durations_in_the_table_of_options_are_the_defaults_of_the_code() {
    let (page, code) = (read("docs/options.md"), read("queue-worker/src/server/options.rs"));
    let code = code.split("impl Default for Options").nth(1).unwrap();
    for (option, field) in [
        ("shutdown_timeout", "shutdown_timeout"),
        ("cancel_grace", "cancel_grace"),
        ("poll_interval", "poll_interval"),
        ("reconcile_interval", "reconcile"),
        ("group_grace_period", "grace_period"),
    ] {
        let told = code.split(&format!("{field}: Duration::from_secs(")).nth(1).and_then(|rest| rest.split(')').next());
        let seconds = match told.unwrap_or_else(|| panic!("{field}")) {
            "LEASE_SECS.unsigned_abs(" => LEASE_SECS.unsigned_abs(),
            seconds => seconds.parse().unwrap(),
        };
        let row = page.lines().find(|line| line.starts_with(&format!("| `{option}`"))).unwrap();
        let told = row.split(" | ").nth(1).unwrap().split(", ").next().unwrap();
        let is = if seconds >= 60 { format!("{} min", seconds / 60) } else { format!("{seconds} s") };
        assert_eq!(told, is, "{option} in docs/options.md");
    }
}

#[test]
fn the_weaknesses_are_counted_right() {
    let page = read("docs/weaknesses.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| W")).collect();
    for status in ["cured", "partly", "avoided by design", "remains"] {
        let count = rows.iter().filter(|row| row.contains(&format!("| **{status}**"))).count();
        let told = page.lines().find(|line| line.starts_with(&format!("| {status} |"))).unwrap();
        assert!(told.ends_with(&format!("| {count} |")), "{count} rows, and the page says {told}");
    }
    for (file, sentence) in
        [("docs/weaknesses.md", "We know of {} weaknesses"), ("docs/promises.md", "lists {} weaknesses")]
    {
        let sentence = sentence.replace("{}", &rows.len().to_string());
        assert!(read(file).contains(&sentence), "{file} does not say {sentence:?}");
    }
}

#[test]
fn the_kinds_of_faults_are_counted_right() {
    let plan = read("tests/chaos/src/plan.rs");
    let kinds = plan.split("const ALL: [Kind; ").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    for (file, sentence) in [("docs/chaos.md", "all {} kinds"), ("docs/promises.md", "with {} kinds of faults")] {
        let sentence = sentence.replace("{}", kinds);
        assert!(read(file).contains(&sentence), "{file} does not say {sentence:?}");
    }
}
