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

/// The names in a section of the header: of all, and of what there is for each task.
fn section(header: &str, title: &str) -> (Vec<String>, Vec<String>) {
    let (mut of_all, mut of_each) = (Vec::new(), Vec::new());
    let mut inside = false;
    for line in header.lines() {
        if let Some(rest) = line.strip_prefix("-- ").filter(|rest| !rest.starts_with(' ')) {
            inside = rest.split_whitespace().next() == Some(title);
        } else if inside && let [number, name, ..] = line.split_whitespace().skip(1).collect::<Vec<_>>()[..] {
            let names = if number.starts_with('+') { &mut of_each } else { &mut of_all };
            if number.parse::<usize>().is_ok() {
                names.push(name.to_owned());
                assert_eq!(number.parse(), Ok(names.len()), "{title} are numbered one by one: {line}");
            }
        }
    }
    (of_all, of_each)
}

/// What stands between the commas of a list, but those within parentheses, and up to the one that closes it.
fn split(list: &str) -> Vec<String> {
    let mut depth = 0;
    let mut parts = vec![String::new()];
    for c in list.chars() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth -= 1,
            ',' if depth == 0 => parts.push(String::new()),
            _ => {}
        }
        if depth < 0 {
            break;
        }
        if c != ',' || depth > 0 {
            parts.last_mut().unwrap().push(c);
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

/// The names and the values of each `local` of a text.
fn locals(code: &str) -> impl Iterator<Item = (Vec<String>, &str)> {
    let locals = code.lines().filter_map(|line| line.trim_start().strip_prefix("local ")?.split_once(" = "));
    locals.map(|(names, values)| (split(names), values))
}

/// How far behind the id of a task a snippet reads which of its arguments.
fn columns(snippet: &str) -> Vec<(String, usize)> {
    let lines =
        snippet.lines().filter_map(|line| line.trim().strip_prefix("local ")?.strip_suffix(" -- behind the id"));
    let columns = lines.flat_map(|line| {
        let (names, numbers) = line.split_once(" = ").expect("names and numbers");
        split(&names.to_lowercase()).into_iter().zip(split(numbers).into_iter().map(|number| number.parse().unwrap()))
    });
    columns.collect()
}

/// The one-letter strings of a text; those that something is compared with left out, if that is asked for.
fn letters(code: &str, left_out: &[&str]) -> BTreeSet<char> {
    let mut found = BTreeSet::new();
    for line in code.lines() {
        let parts: Vec<&str> = line.split('\'').collect();
        for pair in parts.chunks_exact(2).filter(|pair| !left_out.iter().any(|before| pair[0].ends_with(before))) {
            found.extend(pair[1].chars().next().filter(|letter| pair[1].len() == 1 && letter.is_ascii_lowercase()));
        }
    }
    found
}

/// The letters that a header says are answers; those of another script, where it says "as" that one.
fn stated_letters(header: &str) -> BTreeSet<char> {
    let returns = header.split("RETURNS").nth(1).unwrap_or("");
    let first = returns.lines().next().unwrap_or("");
    let other = ALL.iter().find(|script| first.ends_with(&format!("as {}", script.name)));
    let lines = returns.lines().filter_map(|line| line.strip_prefix("--   ")?.split_once("  "));
    let mut stated: BTreeSet<char> =
        lines.filter(|(word, _)| word.len() == 1).filter_map(|(word, _)| word.chars().next()).collect();
    if let Some(other) = other {
        stated.extend(stated_letters(&self::header(other)));
    }
    stated.into_iter().filter(char::is_ascii_lowercase).collect()
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
        let stated: BTreeSet<&str> = text.lines().filter_map(needs).flatten().collect();
        assert_eq!(stated, calls, "what {name} says it needs, and what it calls");
    }
}

/// The scripts that need a snippet, or one that needs it.
fn users(snippet: &str) -> BTreeSet<&'static str> {
    let needing = every_text().filter(|(_, text)| text.lines().filter_map(needs).flatten().any(|name| name == snippet));
    let (mut scripts, mut snippets) = (BTreeSet::new(), Vec::new());
    for (name, _) in needing {
        if ALL.iter().any(|script| script.name == name) {
            scripts.insert(name);
        } else {
            snippets.push(name);
        }
    }
    scripts.extend(snippets.into_iter().flat_map(users));
    scripts
}

#[test]
fn the_table_of_verbs_names_the_scripts_that_use_them() {
    for verb in ["store", "leave_active", "finish"] {
        let row = format!("| [{verb}](lib/{verb}.lua) | ");
        let row = include_str!("../../lua/README.md").lines().find_map(|line| line.strip_prefix(&row)).unwrap();
        let named = row.rsplit(" | ").next().unwrap().trim_end_matches(" |");
        assert_eq!(named.split(", ").collect::<BTreeSet<_>>(), users(verb), "{verb}");
    }
    for free in ["requeue_run", "list_expired", "mend_task", "move_task"] {
        assert!(["store", "leave_active", "finish"].iter().all(|verb| !users(verb).contains(free)), "{free}");
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
fn the_text_that_tries_a_connection_is_short_and_snippets_are_defined_before_they_are_needed() {
    // Of a connection without a password, Redis reads no argument above 16 KiB.
    assert!(ENQUEUE.text(Dialect::Guarded).len() <= 16 * 1024);
    for script in ALL {
        assert!(script.text(Dialect::Guarded).starts_with(TAKE_GUARD_OFF), "{}", script.name);
        let mut known: BTreeSet<String> = BTreeSet::new();
        for line in script.joined().lines() {
            for name in line.trim_start().strip_prefix("-- needs:").unwrap_or_default().split_whitespace() {
                assert!(known.contains(name), "{}: {name} is needed before it is there", script.name);
            }
            known.extend(
                line.strip_prefix("local function ").and_then(|line| line.split('(').next()).map(str::to_owned),
            );
        }
    }
}

#[test]
fn bodies_give_keys_and_arguments_the_names_and_numbers_of_their_headers() {
    for script in ALL {
        let (name, header, code) = (script.name, header(script), code(script.file));
        for title in ["KEYS", "ARGV"] {
            let (of_all, of_each) = section(&header, title);
            let indexed = |text: &str| -> Option<String> {
                text.split_once(&format!("{title}["))?.1.split(']').next().map(str::to_owned)
            };
            let mut named = BTreeSet::new();
            for (names, values) in locals(&code) {
                let values = split(values);
                for (local, value) in names.iter().zip(&values) {
                    let Some(number) = indexed(value) else { continue };
                    let number: usize = number.parse().unwrap_or_else(|_| panic!("{name}: {title}[{number}]"));
                    assert_eq!(of_all.get(number - 1), Some(local), "{name}: {title}[{number}]");
                    named.insert(number);
                }
                // of each task
                if ["nth", "unpack"].iter().any(|reader| values[0].starts_with(&format!("{reader}({title}, "))) {
                    for (local, stated) in names.iter().zip(&of_each).filter(|(local, _)| *local != "_") {
                        assert_eq!(local, stated, "{name}: {values:?}");
                    }
                }
            }
            let read = code.matches(&format!("{title}[")).count();
            assert_eq!(read, named.len(), "{name} reads {title} without naming them");
            assert_eq!(named.len(), of_all.len(), "{name} states {of_all:?} as {title}, and reads {named:?}");
            // The rest begins after those.
            for rest in code.split(&format!("unpack({title}, ")).skip(1) {
                let first = split(rest)[0].split(' ').next().unwrap().to_owned();
                assert_eq!(first, (of_all.len() + 1).to_string(), "{name}: unpack({title}, {first}");
            }
        }
        for word in ["Transition:", "RETURNS", "Go:"] {
            assert!(header.contains(word), "{name}: the header lacks {word}");
        }
        assert!(!code.contains("'KEYS'"), "{name}: KEYS blocks Redis");
    }
}

#[test]
fn batches_begin_where_the_header_says_and_have_as_many_arguments() {
    for script in ALL {
        let code = code(script.file);
        let of = |title| section(&header(script), title);
        for (snippet, text) in SNIPPETS {
            let definition = text.split_once(&format!("local function {snippet}(")).unwrap().1;
            let parameters = split(definition);
            let position = |name| parameters.iter().position(|parameter| parameter == name);
            let (Some(first), Some(each)) = (position("first"), position("each")) else { continue };
            for call in code.split(&format!("{snippet}(")).skip(1) {
                let arguments = split(call);
                let (of_all, of_each) = of(if arguments[0] == "KEYS" { "KEYS" } else { "ARGV" });
                // What has no number is read one by one.
                let Ok(number) = arguments[first].parse::<usize>() else { continue };
                assert_eq!(number, of_all.len() + 1, "{}: {snippet}({}", script.name, arguments.join(", "));
                let Ok(number) = arguments[each].parse::<usize>() else { continue };
                assert_eq!(number, of_each.len(), "{}: {snippet}({}", script.name, arguments.join(", "));
                for (column, number) in columns(text) {
                    let stated = of_each.get(number).unwrap_or(&column);
                    assert_eq!(*stated, column, "{}: what {snippet} reads behind the id, at {number}", script.name);
                }
            }
        }
    }
}

#[test]
fn a_letter_means_the_same_in_every_script_and_stands_in_the_table() {
    let rows = include_str!("../../lua/README.md").lines().filter_map(|line| {
        let (letter, meaning) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        Some((letter.parse::<char>().ok()?, meaning))
    });
    assert_eq!(rows.collect::<Vec<_>>(), Word::TABLE, "lua/README.md and words.rs");
    let known: BTreeSet<char> = Word::TABLE.iter().map(|(letter, _)| *letter).collect();
    assert_eq!(known.len(), Word::TABLE.len());
    for script in ALL {
        let stated = stated_letters(&header(script));
        let own = letters(&code(script.file), &["== ", "~= "]);
        let all = letters(&code(&script.text(Dialect::Plain)), &[]);
        assert!(own.is_subset(&stated), "{} answers {own:?} and states {stated:?}", script.name);
        assert!(stated.is_subset(&all), "{} states {stated:?} and can answer {all:?}", script.name);
        for letter in stated {
            assert!(known.contains(&letter), "{}: {letter}", script.name);
        }
    }
}

#[test]
fn headers_state_the_bounds_that_the_callers_keep() {
    for script in ALL {
        let header = header(script).replace("\n-- ", " ");
        for (before, _) in header.match_indices("per call").map(|(at, _)| header.split_at(at)) {
            let sentence = &before[before.rfind(['.', ';', ':']).map_or(0, |at| at + 1)..];
            let number = sentence.split(|c: char| !c.is_ascii_digit()).rfind(|word| !word.is_empty());
            let Some(number) = number else { continue };
            let constants = [crate::broker::MAX_BATCH, crate::broker::SHORT_BATCH, queue_core::limits::LANE_BATCH];
            let constants = constants.map(|constant| constant.to_string());
            assert!(constants.contains(&number.to_owned()), "{}: {number} per call", script.name);
        }
        if header.contains("then for each task") || code(script.file).contains("unpack(") {
            let is_bounded = ["per call", "at most", "limit"].iter().any(|bound| header.contains(bound));
            assert!(is_bounded, "{} takes several tasks without stating a bound", script.name);
        }
    }
}

/// A bound that a script has of its own, with the file in which it stands.
const OWN_NUMBERS: [(&str, usize); 32] = [
    ("varint", 128),              // varints of protobuf
    ("message_field", 128),       // likewise
    ("lanes_of", 128),            // likewise
    ("lanes_of", 191),            // the last byte that only goes on with a character of UTF-8
    ("lanes_of", 4_096),          // bytes of JSON that are looked into
    ("lanes_of", 40),             // letters of a SHA-1
    ("first_ms", 40),             // bits below the milliseconds of our time
    ("lanes_of", 53),             // bits of a whole number that Lua holds exactly
    ("read_rules", 53),           // likewise
    ("dequeue_lanes", 1_000),     // milliseconds of a second
    ("dequeue_lanes", 5_000),     // a tenth more or less, by the microsecond
    ("dequeue_lanes", 31),        // as many as nobody takes
    ("free_slots", 1_000),        // milliseconds of a second
    ("spend", 1_000),             // likewise
    ("free_slots", 86_400_000),   // milliseconds of a day
    ("read_rules", 31),           // as many as nobody takes
    ("choose_type", 1_000),       // how far a task may have moved since it was seen
    ("find_pending", 50),         // likewise, towards the head
    ("find_pending", 349),        // likewise, towards the tail
    ("remove_active", 300),       // the window in which several ids are searched together
    ("stage", 500),               // tasks moved at a time: twice as many words, of which Lua unpacks thousands
    ("examine_task", 999),        // sets in which a task is looked for, less one
    ("finish", 52),               // bits of a whole number that Lua holds exactly
    ("store_once", 86_400),       // seconds for which an id is remembered
    ("store_once", 3_600),        // and where there are too many
    ("flow_claim", 1_800),        // seconds for which what was claimed may be stored
    ("flow_move", 32),            // members that lie between two which are read together
    ("flow_move", 100_000),       // how far beyond its last member a flow believes in one whose reservation was lost
    ("flow_may_grow", 1_000),     // generations of flows that are looked through
    ("flow_reserve_numbers", 60), // seconds for which members may be on their way
    ("flow_walk", 250),           // what one call may look at, in edges
    ("flow_tend", 3_600),         // seconds between two looks at the most
];

#[test]
fn bounds_in_scripts_are_those_of_queue_core() {
    use queue_core::limits::{
        BIN_PIECE, HISTORY_EVENTS, HISTORY_TTL_SECS, LANE_FALLBACK_SECS, LANE_FARTHEST_MS, LANE_LOOK_MS, MAX_BATCH,
        MAX_BATCH_BYTES, MAX_LANE_KEY_BYTES, MAX_TAKE_BYTES, SCHEDULER_AHEAD_SECS, SHORT_BATCH,
    };
    let [history_ttl, ahead] = [HISTORY_TTL_SECS, SCHEDULER_AHEAD_SECS].map(|secs| usize::try_from(secs).unwrap());
    // A range up to the hundredth ends at 99, counted from 0.
    let [look, farthest, fallback] =
        [LANE_LOOK_MS, LANE_FARTHEST_MS, LANE_FALLBACK_SECS].map(|number| usize::try_from(number).unwrap());
    let of_tasks = [BIN_PIECE, MAX_BATCH, MAX_BATCH - 1, SHORT_BATCH, MAX_BATCH_BYTES, MAX_TAKE_BYTES];
    let shared =
        [&of_tasks[..], &[history_ttl, HISTORY_EVENTS - 1, ahead, look, farthest, fallback, MAX_LANE_KEY_BYTES]]
            .concat();
    let mut unused: BTreeSet<_> = OWN_NUMBERS.into_iter().collect();
    for (name, text) in every_text() {
        let code = code(text);
        for word in code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '%') {
            // Smaller ones are positions of arguments.
            let Some(number) = word.parse().ok().filter(|number| *number > 20) else { continue };
            let is_own = OWN_NUMBERS.contains(&(name, number));
            assert!(is_own || shared.contains(&number), "{name}: {number} is no limit of queue-core");
            unused.remove(&(name, number));
        }
    }
    assert_eq!(unused, BTreeSet::new(), "no script has these");
    // Those that are as small as positions of arguments.
    use queue_core::limits::{
        FLOW_CLAIM, FLOW_STORED_WITHIN, LANE_BATCH, LANE_WINDOW, STORED_ONCE_AT_LEAST, STORED_ONCE_FOR,
    };
    let text = |name: &str| code(every_text().find(|(other, _)| *other == name).unwrap().1);
    let states = |name, expected: String| assert!(text(name).contains(&expected), "{name} has to say {expected:?}");
    states("dequeue_lanes", format!("math.min(tonumber(ARGV[4]), {LANE_BATCH})"));
    states(
        "dequeue_lanes",
        format!("local WINDOW, LANES, PAGE, HOLDERS, LOOK_AGAIN, FARTHEST, FALLBACK = {LANE_WINDOW}, "),
    );
    states("flow_claim", format!("now + {})", FLOW_CLAIM.as_secs()));
    states("flow_signal", format!("> now + {} then", FLOW_CLAIM.as_secs()));
    states("flow_claim", format!("now + {} }}", FLOW_STORED_WITHIN.as_secs()));
    let (day, hour) = (STORED_ONCE_FOR.as_secs(), STORED_ONCE_AT_LEAST.as_secs());
    states("store_once", format!("local DAY, HOUR = {day}, {hour}"));
    assert_eq!(hour, 2 * FLOW_STORED_WITHIN.as_secs());
}

#[test]
fn the_guard_is_another_key_in_the_slot_of_the_first_and_of_our_own_names() {
    use queue_core::keys::slot_of;
    let names =
        ["asynq:{q}:pending", "asynq:{a}b}:pending", "asynq:{a{b}:pending", "asynq:x:op:{7}:lease", "asynq:servers"];
    let odd = [
        "asynq:servers:{host:1:id}",
        "asynq:sema:a b",
        "asynq:sema:a{b",
        "asynq:sema:{",
        "asynq:sema:{{",
        "asynq:x:leader",
    ];
    for name in names.into_iter().chain(odd) {
        let guard = guard_beside(name.as_bytes());
        let shown = String::from_utf8_lossy(&guard).into_owned();
        assert_eq!(slot_of(&guard), slot_of(name.as_bytes()), "{name}: {shown}");
        assert!(shown.starts_with("asynq:") && shown.contains("x:guard") && shown != name, "{name}: {shown}");
    }
    // No name of this form is in their slot.
    for name in ["asynq:{}:pending", "asynq:{}x}:pending", "asynq:sema:a}b", "asynq:sema:a}{b"] {
        assert_eq!(guard_beside(name.as_bytes()), name.as_bytes());
    }
}
