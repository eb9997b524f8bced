//! Takes the code out of README and documents, so that the tests run what stands there.

use std::path::Path;
use std::{env, fs};

/// A document, the heading of a section, the language of its first block, and the file that the block becomes. What is
/// part of a function becomes a block with this at its end, and what it leaves out stands where it is included.
const BLOCKS: [(&str, &str, &str, &str, Option<&str>); 11] = [
    ("README.md", "Quick start", "rust,no_run", "quick_start.rs", None),
    ("README.md", "Add a Rust worker to your Go fleet", "rust,no_run", "go_fleet.rs", None),
    ("docs/schedule.md", "Periodic tasks", "rust,no_run", "periodic_tasks.rs", None),
    ("docs/groups.md", "Groups", "rs", "groups.rs", Some("")),
    ("docs/testing.md", "A first test", "rs", "testing.rs", Some("")),
    ("docs/testing.md", "What has been enqueued", "rs", "enqueued.rs", Some("")),
    ("docs/testing.md", "What becomes of it", "rs", "drained.rs", Some("")),
    ("docs/doctor.md", "From Rust", "rust,no_run", "doctor.rs", None),
    ("docs/encryption.md", "Encrypted payloads", "rust", "encryption.rs", Some("(client, router)")),
    ("docs/observability.md", "Metrics over HTTP", "rs", "metrics.rs", Some("")),
    ("docs/observability.md", "Traces", "rs", "traces.rs", Some("(client, server)")),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (document, heading, language, file, end) in BLOCKS {
        println!("cargo::rerun-if-changed=../{document}");
        let text = fs::read_to_string(Path::new("..").join(document))?;
        let section = text.split(&format!("# {heading}\n")).nth(1).unwrap_or_default();
        let code = section.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
        let code = code.ok_or_else(|| format!("{document} has no {language} block under {heading:?}"))?;
        let code = code.replace("\"redis://127.0.0.1:6379\"", "&std::env::var(\"REDIS_URL\")?");
        let code = code.replace("&std::env::var(\"QUEUE_KEYS\")?", "KEYS").replace("127.0.0.1:9877", "127.0.0.1:0");
        let code = end.map(|end| format!("{{\n{code}{end}\n}}\n")).unwrap_or(code);
        fs::write(Path::new(&env::var("OUT_DIR")?).join(file), code)?;
    }
    Ok(())
}
