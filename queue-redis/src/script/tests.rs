//! The scripts against their headers: a reader trusts the header, so it has to be right.

use std::collections::BTreeSet;

use super::*;

/// The names of the Lua files in a folder.
fn files(folder: &str) -> BTreeSet<String> {
    let folder = format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".lua").map(str::to_owned)).collect()
}

/// A text without its comments.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split("--").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// The comment on top of a script.
fn header(script: &Script) -> String {
    script.file.lines().take_while(|line| line.starts_with("--")).map(|line| format!("{line}\n")).collect()
}

/// The names that are followed by an opening parenthesis: what is called, and what is defined.
fn called(code: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let names = code.match_indices('(').map(|(at, _)| code[..at].rsplit(|c| !is_part(c)).next().unwrap_or(""));
    names.filter(|name| !name.is_empty()).collect()
}

fn every_text() -> impl Iterator<Item = Snippet> {
    SNIPPETS.iter().copied().chain(ALL.iter().map(|script| (script.name, script.file)))
}

/// The highest number in a section of the header, and whether the section says that more follow.
fn section(header: &str, title: &str) -> (usize, bool) {
    let mut inside = false;
    let (mut last, mut more) = (0, false);
    for line in header.lines() {
        if let Some(rest) = line.strip_prefix("-- ").filter(|rest| !rest.starts_with(' ')) {
            inside = rest.split_whitespace().next() == Some(title);
            continue;
        }
        if inside {
            let word = line.trim_start_matches("--").split_whitespace().next().unwrap_or("");
            // "+1" counts within one task, and parses as a number too.
            if let Some(number) = word.parse::<usize>().ok().filter(|_| !word.starts_with('+')) {
                assert_eq!(number, last + 1, "{title} are numbered one by one: {line}");
                last = number;
            }
            more |= word.starts_with('+');
        }
    }
    (last, more)
}

#[test]
fn every_file_is_in_its_table_and_begins_with_its_name() {
    assert_eq!(ALL.iter().map(|script| script.name.to_owned()).collect::<BTreeSet<_>>(), files("lua"));
    assert_eq!(SNIPPETS.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>(), files("lua/lib"));
    for (name, text) in every_text() {
        assert!(text.starts_with(&format!("-- {name}: ")), "{name} says what it is, first of all");
    }
}

#[test]
fn texts_need_the_snippets_that_they_call_and_no_others() {
    let snippets: BTreeSet<&str> = SNIPPETS.iter().map(|(name, _)| *name).collect();
    for (name, text) in SNIPPETS {
        assert!(text.contains(&format!("\nlocal function {name}(")), "{name} defines what it is named after");
    }
    for (name, text) in every_text() {
        let code = code(text);
        let mut calls: BTreeSet<&str> = called(&code).intersection(&snippets).copied().collect();
        if !ALL.iter().any(|script| script.name == name) {
            calls.remove(name);
        }
        let stated: BTreeSet<&str> = needs(text).collect();
        assert_eq!(stated, calls, "what {name} says it needs, and what it calls");
    }
}

#[test]
fn no_script_sees_what_a_snippet_keeps_to_itself() {
    for (name, text) in SNIPPETS {
        let own = text.lines().filter_map(|line| line.strip_prefix("local function ")?.split('(').next());
        for own in own.filter(|own| own != name) {
            for (other, text) in every_text().filter(|(other, _)| other != name) {
                assert!(!called(&code(text)).contains(own), "{other} uses {own} of {name}");
            }
        }
    }
}

#[test]
fn a_script_comes_after_the_snippets_it_needs_and_these_after_theirs() {
    for script in ALL {
        let text = script.text(Dialect::Guarded);
        assert!(text.starts_with(TAKE_GUARD_OFF) && text.ends_with(script.file), "{}", script.name);
        let mut known = BTreeSet::new();
        for line in text.lines() {
            if let Some(names) = line.strip_prefix("-- needs:") {
                for name in names.split_whitespace() {
                    assert!(known.contains(name), "{}: {name} is needed before it is there", script.name);
                }
            }
            known.extend(line.strip_prefix("local function ").and_then(|line| line.split('(').next()));
        }
    }
}

#[test]
fn headers_state_the_keys_and_arguments_that_bodies_read() {
    for script in ALL {
        let (header, code) = (header(script), code(script.file));
        for (title, name) in [("KEYS", "KEYS["), ("ARGV", "ARGV[")] {
            let (stated, more) = section(&header, title);
            let highest = code
                .match_indices(name)
                .filter_map(|(at, _)| code[at + name.len()..].split(']').next()?.parse::<usize>().ok())
                .max()
                .unwrap_or(0);
            assert!(
                highest == stated || (more && highest >= stated),
                "{}: the header states {stated} {title}, the body reads {highest}",
                script.name
            );
        }
        for word in ["Transition:", "RETURNS", "Go:"] {
            assert!(header.contains(word), "{}: the header lacks {word}", script.name);
        }
        assert!(!code.contains("'KEYS'"), "{}: KEYS blocks Redis", script.name);
    }
}

#[test]
fn only_bounded_lists_are_unpacked() {
    for script in ALL {
        if script.text(Dialect::Plain).contains("unpack(") {
            assert!(script.file.contains("100"), "{} unpacks without stating a bound", script.name);
        }
    }
}
