//! What the documents say of tests and keys, and what they count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use queue_core::flow::MemberState;
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
    let ends = ["_bucket", "_count"];
    metrics.map(|word| ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word)).collect()
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
fn systemd_never_gives_up_a_unit_that_is_always_to_be_started_again() {
    let units = texts(&["deploy/systemd"], "service");
    assert!(units.len() > 2, "only {} units", units.len());
    for unit in units {
        let head = unit.split("[Unit]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
        assert!(unit.contains("Restart=always") && head.contains("\nStartLimitIntervalSec=0\n"), "{unit}");
    }
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
        ("state-machine", format!("up to {CHANGE_BATCH} tasks have been changed")),
        ("state-machine", format!("up to {SHORT_BATCH} where they were pending")),
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

/// The names of the loops in these files: what stands behind `const NAME` of a service.
fn loops(files: &[PathBuf]) -> BTreeSet<String> {
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let names = texts.flat_map(|text| {
        let after = text.split("const NAME: &'static str = \"").skip(1);
        after.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect::<Vec<_>>()
    });
    names.collect()
}

#[test]
fn the_loops_of_a_server_stand_in_the_table_of_parts_and_in_the_order_of_the_end() {
    let mut files = Vec::new();
    sources(&root().join("queue-worker/src/server"), &mut files);
    files.extend(["queue-redis/src/leader.rs", "queue-redis/src/flow/record.rs"].map(|file| root().join(file)));
    let loops = loops(&files);
    assert!(loops.len() > 15, "only {loops:?}");

    let architecture = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let parts: BTreeSet<&str> = architecture
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|part| part.split(", "))
        .collect();
    let missing: Vec<_> = loops.iter().filter(|name| !parts.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/architecture.md leaves out {missing:?}");

    let shutdown = fs::read_to_string(root().join("docs/shutdown.md")).unwrap().replace("\n   ", " ");
    let step = shutdown.lines().find(|line| line.contains("**The other loops end**")).unwrap();
    let told: BTreeSet<&str> = step.split([':', ',', ';', '.']).map(str::trim).collect();
    let begins_work = ["processor", "aggregator"];
    let ended = loops.iter().filter(|name| !begins_work.contains(&name.as_str()));
    let missing: Vec<_> = ended.filter(|name| !told.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/shutdown.md leaves out {missing:?}");
}

#[test]
fn links_that_are_named_after_a_file_lead_to_it() {
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|page| page.unwrap().path());
    let pages: Vec<_> = pages.filter(|page| page.extension().is_some_and(|end| end == "md")).collect();
    let mut links = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("[`").skip(1) {
            let Some((name, rest)) = link.split_once("`](") else { continue };
            let target = rest.split([')', '#']).next().unwrap_or_default();
            if name.ends_with(".rs") {
                assert!(target.ends_with(name), "{}: {name} leads to {target}", page.display());
                links += 1;
            }
        }
    }
    assert!(links > 50, "only {links} links");
}

#[test]
fn the_page_for_beginners_lists_all_features_and_examples() {
    let page = fs::read_to_string(root().join("docs/start.md")).unwrap();
    let manifest = fs::read_to_string(root().join("companions/queue/Cargo.toml")).unwrap();
    let features = manifest.split("[features]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    let features = features.lines().filter_map(|line| line.split_once(" = ")).map(|(feature, _)| feature);
    let features: Vec<_> = features.filter(|name| *name != "default").collect();
    assert!(features.len() > 8, "only {features:?}");
    let missing: Vec<_> = features.iter().filter(|name| !page.contains(&format!("\n| `{name}`"))).collect();
    assert!(missing.is_empty(), "docs/start.md leaves out the features {missing:?}");

    let files = fs::read_dir(root().join("examples/examples")).unwrap();
    let examples: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert!(examples.len() > 20, "only {examples:?}");
    let missing: Vec<_> = examples.iter().filter(|name| !page.contains(&format!("/examples/{name})"))).collect();
    assert!(missing.is_empty(), "docs/start.md leaves out the examples {missing:?}");
}

/// Of a bound like "≤ 12 MB", the number that is not to be exceeded.
fn at_most(bound: &str) -> Option<f64> {
    bound.strip_prefix("≤ ")?.split(' ').next()?.parse().ok()
}

#[test]
fn the_bounds_that_were_missed_are_told() {
    let results = fs::read_to_string(root().join("bench/results/results.md")).unwrap();
    let page = fs::read_to_string(root().join("bench/README.md")).unwrap();
    let rows: Vec<Vec<&str>> = results.lines().map(|row| row.trim_matches(['|', ' ']).split(" | ").collect()).collect();
    let judged: Vec<&Vec<&str>> = rows.iter().filter(|row| row.len() > 5 && row[5].contains(['✓', '✗'])).collect();
    let reached = judged.iter().filter(|row| row[5].ends_with('✓')).count();
    let sentence = format!("Of the {} figures that are compared with Go, {reached} reach their goals", judged.len());
    assert!(page.contains(&sentence), "bench/README.md does not say {sentence:?}");

    let beside_go = judged.iter().filter(|row| row[4].ends_with('✗')).map(|row| row[2].split(' ').next().unwrap());
    let alone = rows.iter().filter(|row| {
        let measured = row.get(1).and_then(|cell| cell.split(' ').next()?.parse::<f64>().ok());
        row.get(2).and_then(|bound| at_most(bound)).zip(measured).is_some_and(|(most, is)| is > most)
    });
    let missed: Vec<&str> = beside_go.chain(alone.map(|row| row[1].split(' ').next().unwrap())).collect();
    let table = page.split("| figure | measured | bound |\n").nth(1).unwrap();
    let told: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    let all =
        missed.len() == told.len() && missed.iter().all(|is| told.iter().any(|row| row.contains(&format!("| {is} "))));
    assert!(all, "missed are {missed:?}, and bench/README.md tells of {told:?}");
}

#[test]
fn the_rounds_and_the_commands_of_an_idle_server_are_those_of_the_results() {
    let results = fs::read_to_string(root().join("bench/results/results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    let idle = results.as_array().unwrap().iter().find(|row| row["name"] == "an idle server with 4 queues").unwrap();
    let mut values: Vec<f64> = idle["ours"]["values"].as_array().unwrap().iter().filter_map(|it| it.as_f64()).collect();
    values.sort_by(f64::total_cmp);
    let rounds = ["one", "two", "three", "four", "five", "six", "seven"][values.len() - 1];
    for (file, sentence) in [
        ("README.md", format!("Medians of {rounds} rounds")),
        ("docs/compare.md", format!("Medians of {rounds} rounds")),
        ("docs/tune.md", format!("gives Redis {:.2} commands per second", values[values.len() / 2])),
    ] {
        let text = fs::read_to_string(root().join(file)).unwrap().replace('\n', " ");
        assert!(text.contains(&sentence), "{file} does not say {sentence:?}");
    }
}

/// The texts of all files below these folders with such an end.
fn texts(folders: &[&str], end: &str) -> Vec<String> {
    let mut left: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    let mut texts = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|found| found == end) {
            texts.push(fs::read_to_string(path).unwrap());
        }
    }
    texts
}

/// What stands in such quotes and begins so, of small letters.
fn quoted(texts: &[String], quote: char, begins: &str) -> BTreeSet<String> {
    let words = texts.iter().flat_map(|text| text.split(quote));
    let words = words.filter(|word| word.len() > begins.len() && word.starts_with(begins));
    let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-' || c == '_');
    words.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn the_wire_format_has_all_fields_and_headers_of_ours() {
    let page = fs::read_to_string(root().join("docs/wire-format.md")).unwrap();
    let fields = quoted(&texts(&["lua"], "lua"), '\'', "x_");
    assert!(fields.len() > 8, "only {fields:?}");
    let table = page.split("## 3 The task hash").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let missing: Vec<_> = fields.iter().filter(|name| !table.contains(&format!("`{name}"))).collect();
    assert!(missing.is_empty(), "the table of the task hash in docs/wire-format.md leaves out {missing:?}");

    let headers = quoted(&texts(&["queue-core/src", "queue-redis/src", "queue-worker/src"], "rs"), '"', "x-");
    assert!(headers.len() > 8, "only {headers:?}");
    let missing: Vec<_> = headers.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/wire-format.md leaves out the headers {missing:?}");
}

#[test]
fn the_wire_format_has_the_fields_of_batches_and_the_states_of_their_members() {
    let page = fs::read_to_string(root().join("docs/wire-format.md")).unwrap();
    let section = |heading: &str| page.split(heading).nth(1).and_then(|rest| rest.split("\n#").next()).unwrap();
    let scripts = texts(&["lua"], "lua");
    let set = scripts.iter().flat_map(|text| text.split("flow_set(").skip(1));
    let fields: BTreeSet<&str> = set.filter_map(|call| call.split_once(", \'")?.1.split('\'').next()).collect();
    let fields: Vec<_> = fields.into_iter().filter(|name| !name.contains(char::is_whitespace)).collect();
    assert!(fields.len() > 25, "only {fields:?}");
    let table = section("#### The fields of a batch\n");
    let missing: Vec<_> = fields.iter().filter(|name| !table.contains(&format!("`{name}"))).collect();
    assert!(missing.is_empty(), "docs/wire-format.md leaves out the fields {missing:?}");

    let rows: Vec<&str> =
        section("#### The states of members\n").lines().filter(|row| row.starts_with('|')).skip(2).collect();
    let begins = MemberState::ALL.map(|state| (state as u8, state.as_str()));
    let mut begins: Vec<String> = begins.iter().map(|(bits, name)| format!("| {bits} | `{name}` | ")).collect();
    begins.sort_by_key(|row| row.split(' ').nth(1).unwrap().parse::<u8>().unwrap());
    let are_equal = rows.len() == begins.len() && rows.iter().zip(&begins).all(|(row, begins)| row.starts_with(begins));
    assert!(are_equal, "docs/wire-format.md has {rows:?}, and the code {begins:?}");
}
