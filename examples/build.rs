//! Takes the code out of the README, so that the tests run what stands there.

use std::path::Path;
use std::{env, fs};

/// The heading of a section, the language of its first block, and the file that the block becomes.
const BLOCKS: [(&str, &str, &str); 5] = [
    ("Quick start", "rust,no_run", "quick_start.rs"),
    ("Add a Rust worker to your Go fleet", "rust,no_run", "go_fleet.rs"),
    ("Periodic tasks", "rust,no_run", "periodic_tasks.rs"),
    // Parts of a function; what they leave out stands where they are included.
    ("Groups", "rs", "groups.rs"),
    ("Test your own tasks", "rs", "testing.rs"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../README.md");
    let readme = fs::read_to_string("../README.md")?;
    for (heading, language, file) in BLOCKS {
        let section = readme.split(&format!("## {heading}\n")).nth(1).unwrap_or_default();
        let code = section.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
        let code = code.ok_or_else(|| format!("the README has no {language} block under {heading:?}"))?;
        let code = code.replace("\"redis://127.0.0.1:6379\"", "&std::env::var(\"REDIS_URL\")?");
        let code = if language == "rs" { format!("{{\n{code}}}\n") } else { code };
        fs::write(Path::new(&env::var("OUT_DIR")?).join(file), code)?;
    }
    Ok(())
}
