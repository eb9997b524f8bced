//! What is published, and what a package needs to be found and used.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The folders of the workspace, and the manifest in each.
fn members() -> Vec<(String, String)> {
    let workspace = read("Cargo.toml");
    let members = workspace.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    let folders = members.split('"').skip(1).step_by(2);
    folders.map(|folder| (folder.to_owned(), read(&format!("{folder}/Cargo.toml")))).collect()
}

/// The value of a key of a manifest, as it is written.
fn value<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    manifest.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))
}

fn is_published(manifest: &str) -> bool {
    value(manifest, "publish") != Some("false")
}

#[test]
fn every_crate_that_users_need_is_published() {
    let unpublished: Vec<_> = members().into_iter().filter(|(_, manifest)| !is_published(manifest)).collect();
    let tools: BTreeSet<&str> = ["tests", "examples", "bench", "tests/chaos", "tests/fuzz/targets"].into();
    let folders: BTreeSet<&str> = unpublished.iter().map(|(folder, _)| folder.as_str()).collect();
    assert_eq!(folders, tools);
    // `make package` leaves out the same.
    let makefile = read("Makefile");
    let left_out: BTreeSet<&str> = value(&makefile, "UNPUBLISHED").unwrap().split(' ').collect();
    let names = unpublished.iter().map(|(_, manifest)| value(manifest, "name").unwrap().trim_matches('"'));
    assert_eq!(left_out, names.collect());
}

#[test]
fn every_published_crate_has_a_readme_licences_and_what_a_registry_shows() {
    for (folder, manifest) in members().into_iter().filter(|(_, manifest)| is_published(manifest)) {
        for key in ["description", "keywords", "categories"] {
            assert!(value(&manifest, key).is_some_and(|text| text.len() > 10), "{folder}: no {key}");
        }
        assert_eq!(value(&manifest, "readme"), Some("\"README.md\""), "{folder}");
        for inherited in ["version", "rust-version", "license"] {
            assert_eq!(value(&manifest, &format!("{inherited}.workspace")), Some("true"), "{folder}: {inherited}");
        }
        let readme = read(&format!("{folder}/README.md"));
        let words = readme.split_whitespace().count();
        assert!((30..500).contains(&words), "{folder}/README.md has {words} words");
        assert!(readme.contains("Rust 1.91 or later"), "{folder}/README.md names no compiler");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert_eq!(read(&format!("{folder}/{licence}")), read(licence), "{folder}");
        }
        // The page of the documentation is the README, so that its code is compiled.
        if let Ok(page) = fs::read_to_string(root().join(&folder).join("src/lib.rs")) {
            let first = page.lines().next().unwrap();
            assert!(first.contains("include_str!(\"../README.md\")"), "{folder}/src/lib.rs: {first}");
        }
    }
}

#[test]
fn readmes_name_the_compiler_that_the_manifest_asks_for() {
    let workspace = read("Cargo.toml");
    let version = value(&workspace, "rust-version").unwrap().trim_matches('"');
    for file in ["README.md", "CONTRIBUTING.md", "companions/queue/README.md"] {
        assert!(read(file).contains(&format!("Rust {version}")), "{file} does not name Rust {version}");
    }
}
