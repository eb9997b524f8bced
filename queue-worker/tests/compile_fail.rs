//! Mistakes that do not compile, and what the compiler says about them: each file of `tests/ui`, beside it the messages.
//! `QUEUE_UI_WRITE=1` writes these anew.
//!
//! The compiler is given the crates that cargo has built for this test. trybuild, which others use for this, has all of them
//! checked once more in a folder of its own: 180 s of CPU, a tenth of what all tests took.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The crates that the files name.
const NAMED: [&str; 2] = ["queue_worker", "serde"];

/// How to call the compiler.
struct Compiler {
    /// Where cargo puts what it builds.
    built: PathBuf,
    /// One for each of [`NAMED`].
    crates: [PathBuf; 2],
}

impl Compiler {
    /// Cargo may have built a crate more than once, for programs and for macros, or with other features. Those are taken, the
    /// youngest first, with which a file without a mistake compiles.
    fn find() -> Self {
        let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let [workers, serdes] = NAMED.map(|name| youngest_first(&built, &format!("lib{name}-")));
        for worker in &workers {
            for serde in &serdes {
                let compiler = Self { built: built.clone(), crates: [worker.clone(), serde.clone()] };
                if compiler.compile(Path::new("tests/ui/right.rs")).status.success() {
                    return compiler;
                }
            }
        }
        panic!("tests/ui/right.rs compiles with none of {workers:?} and {serdes:?}");
    }

    fn compile(&self, file: &Path) -> Output {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.current_dir(env!("CARGO_MANIFEST_DIR")).arg(file);
        rustc.args(["--edition=2024", "--emit=metadata", "--color=never", "--diagnostic-width=140", "-Awarnings"]);
        rustc.arg("--out-dir").arg(env!("CARGO_TARGET_TMPDIR"));
        rustc.arg("-L").arg(format!("dependency={}", self.built.display()));
        for (name, path) in NAMED.iter().zip(&self.crates) {
            rustc.arg("--extern").arg(format!("{name}={}", path.display()));
        }
        rustc.output().expect("there is a compiler, since it has built this test")
    }

    /// What the compiler says, without what depends on the machine or on lines of other files.
    fn complaint(&self, file: &Path) -> String {
        let output = self.compile(file);
        assert!(!output.status.success(), "{} compiles", file.display());
        let text = String::from_utf8(output.stderr).unwrap();
        let end = text.find("error: aborting due to").unwrap_or(text.len());
        let text = text[..end].trim_end().lines().map(|line| match line.split_once("--> ") {
            Some((before, place)) if !place.starts_with("tests/ui") => {
                let file = place.split(':').next().unwrap_or_default();
                let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
                let file = Path::new(file).strip_prefix(workspace).unwrap_or(Path::new(file));
                format!("{before}--> {}\n", file.display())
            }
            _ => format!("{line}\n"),
        });
        text.collect()
    }
}

fn youngest_first(folder: &Path, beginning: &str) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(beginning) && name.ends_with(".rlib")
    };
    let mut found: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(is_one).collect();
    found.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().modified().unwrap()));
    found
}

#[test]
fn mistakes_do_not_compile() {
    let compiler = Compiler::find();
    let mut wrong = Vec::new();
    for entry in fs::read_dir("tests/ui").unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "rs") || file.ends_with("right.rs") {
            continue;
        }
        let (said, expected) = (compiler.complaint(&file), file.with_extension("stderr"));
        if std::env::var_os("QUEUE_UI_WRITE").is_some() {
            fs::write(expected, said).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != said {
            wrong.push(format!("{}\n{said}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "the compiler says something else:\n{}", wrong.join("\n"));
}
