//! Whether modules import each other in rings.
//!
//! A folder directly below `src` counts as one module, and its files as its own affair as long as no ring of them has more
//! than three. An item that a module hands on (`pub use child::Item`) counts as one of the child. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 16] = [
    "queue-core",
    "queue-redis",
    "queue-worker",
    "companions/queue",
    "companions/queue-admin",
    "companions/queue-cli",
    "companions/queue-crypt",
    "companions/queue-macros",
    "companions/queue-metrics",
    "companions/queue-otel",
    "companions/queue-scheduler",
    "companions/queue-testing",
    "companions/queue-web",
    "bench",
    "tests/chaos",
    "tests/fuzz/targets",
];

/// How many files of a folder may need each other.
const MOST: usize = 3;

type Module = Vec<String>;

/// The files of a crate by the paths of their modules; `[]` is the root.
struct Sources(BTreeMap<Module, String>);

impl Sources {
    fn read(root: &Path) -> Self {
        let mut files = Vec::new();
        walk(root, &mut files);
        Self(files.iter().filter_map(|file| Some((module(file.strip_prefix(root).ok()?)?, code(file)))).collect())
    }

    /// The module that has the item of this path.
    fn owner(&self, path: &[String]) -> Option<Module> {
        let known = (0..=path.len()).rev().find(|length| self.0.contains_key(&path[..*length]))?;
        let (module, rest) = path.split_at(known);
        if let Some(name) = rest.first()
            && let Some(child) = self.handed_on(module).get(name)
        {
            return self.owner(child).or_else(|| Some(module.to_vec()));
        }
        Some(module.to_vec())
    }

    /// What a module hands on of its children, by name.
    fn handed_on(&self, module: &[String]) -> BTreeMap<String, Module> {
        let mut handed_on = BTreeMap::new();
        for statement in self.0[module].split(';') {
            let Some(at) = statement.rfind("pub use ").or_else(|| statement.rfind(") use ")) else { continue };
            let text = statement[at..].split_once("use ").map_or("", |(_, text)| text);
            for mut path in expand(text.trim_start_matches("self::").trim_start_matches("crate::")) {
                let name = path.last().cloned().unwrap_or_default();
                if path.len() > 1 {
                    path.splice(0..0, module.iter().cloned());
                    handed_on.insert(name, path);
                }
            }
        }
        handed_on
    }

    /// The modules that a module imports.
    fn imports(&self, module: &Module) -> BTreeSet<Module> {
        // What is handed on is no import.
        let text: String = self.0[module].split_inclusive(';').filter(|part| !is_hand_on(part)).collect();
        let mut found = BTreeSet::new();
        for (word, above) in [("crate::", None), ("super::", Some(1)), ("super::super::", Some(2)), ("self::", Some(0))]
        {
            for (at, _) in text.match_indices(word) {
                let before = &text[..at];
                if before.ends_with("super::")
                    || before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$')
                {
                    continue;
                }
                let base = match above {
                    None => &[][..],
                    Some(above) => &module[..module.len().saturating_sub(above)],
                };
                for path in expand(&text[at + word.len()..]) {
                    found.extend(self.owner(&[base, &path].concat()));
                }
            }
        }
        found.remove(module);
        found
    }

    /// All rings, each as a sorted line.
    fn rings(&self) -> Vec<String> {
        let top = |module: &Module| module.first().cloned();
        let (mut between, mut within) = (BTreeMap::new(), BTreeMap::new());
        for module in self.0.keys() {
            let Some(from) = top(module) else { continue };
            for import in self.imports(module) {
                let Some(to) = top(&import) else { continue };
                if from == to {
                    within.entry(module.join("/")).or_insert_with(BTreeSet::new).insert(import.join("/"));
                } else {
                    between.entry(from.clone()).or_insert_with(BTreeSet::new).insert(to);
                }
            }
        }
        let large = rings(&within).into_iter().filter(|ring| ring.len() > MOST);
        rings(&between).into_iter().chain(large).map(|ring| ring.join(" ")).collect()
    }
}

fn is_hand_on(statement: &str) -> bool {
    let statement = statement.trim_start();
    let last = statement.rfind("\n").map_or(statement, |at| statement[at..].trim_start());
    [statement, last]
        .iter()
        .any(|text| text.starts_with("pub use ") || (text.starts_with("pub(") && text.contains(") use ")))
}

/// The paths of a `use`, or the one path that stands here.
fn expand(text: &str) -> Vec<Module> {
    let mut paths = Vec::new();
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    let names: Module = head.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if !(head.ends_with("::") || head.is_empty() && rest.starts_with('{')) {
        return vec![names];
    }
    let Some(inner) = rest.strip_prefix('{') else { return vec![names] };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices() {
        if depth == 0 && (c == ',' || c == '}') {
            let item = inner[start..at].trim();
            if !item.is_empty() {
                paths.extend(expand(item).into_iter().map(|path| [&names[..], &path].concat()));
            }
            start = at + 1;
        }
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            _ => {}
        }
    }
    paths
}

/// The sets of nodes that reach each other.
fn rings(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(node) = open.pop() {
            open.extend(edges.get(&node).into_iter().flatten().filter(|next| seen.insert((*next).clone())).cloned());
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = edges.keys().map(|node| (node, reach(node))).collect();
    let back = |a: &String, b: &String| reached.get(b).is_some_and(|reached| reached.contains(a));
    let ring = |(node, reached): (&&String, &BTreeSet<String>)| {
        reached.iter().filter(|other| back(node, other)).cloned().collect::<Vec<_>>()
    };
    let found: BTreeSet<Vec<String>> = reached.iter().map(ring).filter(|ring| ring.len() > 1).collect();
    found.into_iter().collect()
}

fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "bin"].contains(&&*name) {
            walk(&path, files);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            files.push(path);
        }
    }
}

/// The module of a file; `None` for what is none of the crate's modules.
fn module(file: &Path) -> Option<Module> {
    let mut parts: Module = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if ["mod", "lib", "main"].contains(&parts.last()?.as_str()) {
        parts.pop();
    }
    Some(parts)
}

/// The text without comments, and without the tests at its end.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[test]
fn modules_import_each_other_in_no_ring() {
    let mut found = Vec::new();
    for name in CRATES {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        found.extend(Sources::read(&root).rings().into_iter().map(|ring| format!("{name}: {ring}")));
    }
    assert_eq!(found, [""; 0], "modules that import each other");
}

#[test]
fn a_ring_is_found() {
    let sources = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(name, text)| (module(Path::new(name)).unwrap(), (*text).to_owned()));
        Sources(files.collect())
    };
    let ring = sources(&[
        ("lib.rs", "mod a; mod b; mod c; pub use b::{Item, Other as Another};"),
        ("a.rs", "use crate::{Item, c};"),
        ("b/mod.rs", "mod deep; pub use deep::Item;"),
        ("b/deep.rs", "fn f() { crate::a::g(super::h) }"),
        ("c.rs", "use std::fmt;"),
    ]);
    assert_eq!(ring.rings(), ["a b"]);
    let open = sources(&[("lib.rs", "pub use b::Item;"), ("a.rs", "use crate::Item;"), ("b.rs", "use std::fmt;")]);
    assert_eq!(open.rings(), [""; 0]);
    let folder = |names: &[&str]| {
        let mut files = vec![("lib.rs".to_owned(), String::new())];
        for (n, name) in names.iter().enumerate() {
            let next = names[(n + 1) % names.len()];
            files.push((format!("a/{name}.rs"), format!("use super::{next}::{{self, X}};")));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
        sources(&files).rings()
    };
    assert_eq!(folder(&["b", "c", "d"]), [""; 0], "three files may need each other");
    assert_eq!(folder(&["b", "c", "d", "e"]), ["a/b a/c a/d a/e"]);
}
