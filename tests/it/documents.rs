//! What the documents say of tests and keys, and what they count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use queue_core::keys::{KeyFamily, KeyType, queue_families, shared_families};
use queue_core::limits;
use queue_redis::Fault;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") || name.ends_with(".go") {
            found.push(path);
        }
    }
}

/// The names of all functions, and of all modules.
fn functions() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.windows(2) {
            if matches!(pair[0], "fn" | "func" | "mod") {
                let end = pair[1].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(pair[1].len());
                names.insert(pair[1][..end].to_owned());
            }
        }
    }
    names
}

/// Such names in the last column of a table, but for those that are links.
fn named(row: &str) -> Vec<String> {
    let tests = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
    let mut parts = tests.split("[`");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    plain.extend(parts.filter_map(|link| link.split_once(')')).map(|(_, after)| after));
    let quoted = plain.split('`').skip(1).step_by(2);
    let names = quoted.filter(|name| name.len() > 12 && name.chars().all(|c| c.is_alphanumeric() || c == '_'));
    names.map(str::to_owned).collect()
}

#[test]
fn tests_that_the_documents_name_exist() {
    let functions = functions();
    for document in ["docs/weaknesses.md", "docs/peer-defects.md", "docs/compare.md", "docs/outside-trial.md"] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let rows = text.lines().filter(|line| line.starts_with('|'));
        let names: BTreeSet<String> = rows.flat_map(named).collect();
        assert!(names.len() > 15, "{document} names {} tests", names.len());
        let missing: Vec<_> = names.into_iter().filter(|name| !functions.contains(name)).collect();
        assert!(missing.is_empty(), "{document} names tests that do not exist: {missing:?}");
    }
}

/// The keys in the first column of the tables of keys, with what stands in the second.
fn documented_keys(document: &str) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    let mut lists_keys = false;
    for line in document.lines() {
        let cells: Vec<&str> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        match (line.starts_with('|'), cells[0]) {
            (true, "key") => lists_keys = cells.get(1) == Some(&"type"),
            (true, names) if lists_keys => {
                for name in names.split('`').skip(1).step_by(2) {
                    let name = name.strip_prefix("asynq:{<queue>}:").unwrap_or(name);
                    keys.insert(name.to_owned(), cells[1].to_owned());
                }
            }
            (true, _) => {}
            (false, _) => lists_keys = false,
        }
    }
    keys
}

fn word(key_type: KeyType) -> &'static str {
    match key_type {
        KeyType::SortedSet => "ZSET",
        KeyType::String => "STRING",
        KeyType::List => "LIST",
        KeyType::Set => "SET",
        KeyType::Hash => "HASH",
        KeyType::Stream => "STREAM",
    }
}

#[test]
fn the_wire_format_lists_all_families_of_keys_with_their_types() {
    let mut documented = documented_keys(&fs::read_to_string(root().join("docs/wire-format.md")).unwrap());
    assert_eq!(documented.remove("asynq:cancel").as_deref(), Some("channel"));
    documented.retain(|name, _| name != "---");
    let families = queue_families().iter().chain(shared_families());
    let known: BTreeMap<String, String> =
        families.map(|KeyFamily { name, key_type, .. }| ((*name).to_owned(), word(*key_type).to_owned())).collect();
    assert_eq!(documented, known);
}

#[test]
fn the_page_on_scripts_lists_every_script() {
    let page = fs::read_to_string(root().join("lua/README.md")).unwrap();
    let files = fs::read_dir(root().join("lua")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let scripts: Vec<_> = names.filter(|name| name.ends_with(".lua")).collect();
    assert!(scripts.len() > 40, "only {} scripts", scripts.len());
    let missing: Vec<_> = scripts.iter().filter(|name| !page.contains(&format!("]({name})"))).collect();
    assert!(missing.is_empty(), "lua/README.md leaves out {missing:?}");
}

#[test]
fn the_faults_that_the_doctor_finds_are_all_described_and_counted_right() {
    let text = fs::read_to_string(root().join("docs/doctor.md")).unwrap();
    for fault in Fault::ALL {
        let (name, severity) = (format!("`{}`", fault.as_str()), fault.severity().as_str());
        let row = text.lines().find(|row| row.starts_with("| `") && row.contains(&name));
        assert!(row.is_some_and(|row| row.contains(severity)), "docs/doctor.md: {name}, {severity}: {row:?}");
    }
    let page = fs::read_to_string(root().join("docs/operate.md")).unwrap();
    let count = format!("lists the {} faults it knows", Fault::ALL.len());
    assert!(page.contains(&count), "docs/operate.md does not say {count:?}");
}

#[test]
fn the_reasons_that_explain_gives_are_all_described() {
    let (page, code) = ("docs/doctor.md", "companions/queue-admin/src/explain/reason.rs");
    let [page, code] = [page, code].map(|file| fs::read_to_string(root().join(file)).unwrap());
    let words = code.split("fn as_str").nth(1).and_then(|rest| rest.split("    }\n\n").next()).unwrap();
    let reasons: Vec<&str> = words.split('"').skip(1).step_by(2).collect();
    assert!(reasons.len() > 20, "only {reasons:?}");
    let table = page.split("| `reason` | the task |").nth(1).unwrap();
    let missing: Vec<_> = reasons.iter().filter(|reason| !table.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "docs/doctor.md leaves out {missing:?}");
}

/// The words of a text that are named as metrics are, without what a histogram adds.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics = words.filter(|word| word.starts_with("asynq_"));
    metrics.map(|word| word.strip_suffix("_bucket").unwrap_or(word)).collect()
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_the_documents_list() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let document = read("docs/observability.md");
    let rows: String = document.lines().filter(|line| line.starts_with("| `asynq_")).collect();
    let known = metrics(&rows);
    for file in ["deploy/prometheus/alerts.yml", "deploy/grafana/dashboard.json"] {
        let text = read(file);
        let asked = metrics(&text);
        assert!(asked.len() > 10, "{file} asks for {} metrics", asked.len());
        let unknown: Vec<_> = asked.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} asks for metrics that nobody exports: {unknown:?}");
    }
    assert!(serde_json::from_str::<serde_json::Value>(&read("deploy/grafana/dashboard.json")).is_ok());
}

#[test]
fn margins_intervals_and_bounds_are_listed_as_queue_core_has_them() {
    let rows = limits::table().into_iter().map(|(name, value, reason)| format!("| `{name}` | {value} | {reason} |"));
    let expected = rows.collect::<Vec<_>>().join("\n");
    let page = fs::read_to_string(root().join("docs/numbers.md")).unwrap();
    let listed: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(listed.join("\n") == expected, "docs/numbers.md has to have these rows:\n{expected}");
}

#[test]
fn documents_state_margins_intervals_and_bounds_as_queue_core_has_them() {
    use limits::*;
    let days = |secs: i64| secs / (24 * 60 * 60);
    let (renewal, heartbeat) = (LEASE_RENEWAL.as_secs(), HEARTBEAT.as_secs());
    let (aggregation, settles, renewed) =
        (AGGREGATION_RENEWAL.as_secs(), CLOCK_SETTLES.as_secs(), RENEWED_WITHIN.as_secs());
    let archive_max = format!("{},{:03}", ARCHIVE_MAX / 1_000, ARCHIVE_MAX % 1_000);
    let kept = days(ARCHIVE_MAX_AGE_SECS);
    for (document, sentence) in [
        ("promises", format!("a lease and {SILENT_MARGIN_SECS} to")),
        ("promises", format!("Recovery waits {RECOVERY_MARGIN_SECS} s instead of {SILENT_MARGIN_SECS} s if")),
        ("promises", format!("for the first {renewed} s")),
        ("retries", format!("stays for {kept} days, or until {archive_max} younger")),
        ("state-machine", format!("Its lease ends {LEASE_SECS} s (")),
        ("state-machine", format!("Then {SILENT_MARGIN_SECS} s must pass in")),
        ("state-machine", format!("every {heartbeat} s, and Redis forgets it after {SERVER_TTL_SECS} s")),
        ("state-machine", format!("in touch with Redis for {renewed} s")),
        ("state-machine", format!("The margin is {RECOVERY_MARGIN_SECS} s instead of {SILENT_MARGIN_SECS}")),
        ("state-machine", format!("aggregator, every {aggregation} s")),
        ("state-machine", format!("server, every {renewal} s")),
        ("state-machine", format!("tasks of a set with more than {MAX_BATCH}")),
        ("architecture", format!("| every {renewal} s; every sixth of a shorter lease")),
        ("architecture", format!("| every {heartbeat} s |")),
        (
            "architecture",
            format!("| {SILENT_MARGIN_SECS} s after the end of the next lease, {RECOVERY_MARGIN_SECS} s where"),
        ),
        ("architecture", format!("every {} s, archived ones every minute", CLEAN_UP_INTERVAL.as_secs())),
        ("architecture", format!("when a group changes and every {} s", GROUP_INTERVAL.as_secs())),
        ("architecture", format!("without client tracking {} s", FORWARD_INTERVAL.as_secs())),
        ("architecture", format!("Up to {SHORT_BATCH} `done` and {SET_BATCH} `complete`")),
        ("architecture", format!("after {kept} days, or when {archive_max} younger")),
        (
            "design",
            format!(
                "within {heartbeat} s and renews within another {renewal} s (aggregations {aggregation} s). So for {settles} s"
            ),
        ),
        ("design", format!("Why {archive_max} archived tasks?")),
        ("design", format!("### Why {SHORT_BATCH} tasks in a call, and never more than {MAX_BATCH}?")),
        ("design", format!("takes at most {CHANGE_BATCH} of them, or {SHORT_BATCH} pending ones")),
        ("compare", format!("{SHORT_BATCH} per call to Redis ({SET_BATCH} scheduled ones)")),
        ("compare", format!("steps of at most {CHANGE_BATCH},")),
        ("tune", format!("{SHORT_BATCH} tasks in a call to Redis")),
        ("weaknesses", format!("up to {SHORT_BATCH} tasks per call")),
        ("options", format!("| `lease` | {LEASE_SECS} s |")),
        ("options", format!("renewed every {renewal} s")),
        ("differences", format!("its deadline is moved every {aggregation} s")),
        ("wire-format", format!("expire {} days after the first count", days(STATS_TTL_SECS))),
    ] {
        let text = fs::read_to_string(root().join(format!("docs/{document}.md"))).unwrap().replace('\n', " ");
        assert!(text.contains(&sentence), "docs/{document}.md does not say {sentence:?}");
    }
}
