//! The scripts against their headers: a reader trusts the header, so it has to be right.

use super::*;

/// The file of a script without the snippets in front of it.
fn body(script: &Script) -> &'static str {
    let start = script.source.find(&format!("-- {}:", script.name)).expect("the header names the script");
    &script.source[start..]
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
fn every_file_is_in_the_table_and_every_name_is_its_file() {
    let mut files: Vec<String> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".lua").map(str::to_owned))
        .collect();
    let mut names: Vec<String> = ALL.iter().map(|script| script.name.to_owned()).collect();
    files.sort();
    names.sort();
    assert_eq!(names, files);
}

#[test]
fn headers_state_the_keys_and_arguments_that_bodies_read() {
    for script in ALL {
        let body = body(script);
        let header: String =
            body.lines().take_while(|line| line.starts_with("--")).map(|line| format!("{line}\n")).collect();
        let code = &body[header.len()..];
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
        if script.source.contains("unpack(") {
            assert!(body(script).contains("100"), "{} unpacks without stating a bound", script.name);
        }
    }
}
