//! A program and its arguments.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// A command line, split into words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
}

impl Command {
    /// Splits a command line as a shell would, without running one.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let words = shell_words::split(text).map_err(|_| format!("a quote in {text:?} is not closed"))?;
        let mut words = words.into_iter();
        match words.next().filter(|program| !program.is_empty()) {
            Some(program) => Ok(Self { program, arguments: words.collect() }),
            None => Err("the command is empty".to_owned()),
        }
    }

    /// Whether there is such a program. Said at the start, where somebody sees it, and not with the first
    /// task.
    pub(super) fn check(&self) -> Result<(), String> {
        let program = &self.program;
        if program.contains('/') {
            let path = Path::new(program);
            return match (path.is_file(), is_executable(path)) {
                (true, true) => Ok(()),
                (true, false) => Err(format!("{program} is not executable; chmod +x makes it so")),
                _ => Err(format!("there is no program {program}")),
            };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut candidates = std::env::split_paths(&path).map(|directory: PathBuf| directory.join(program));
        if candidates.any(|candidate| candidate.is_file() && is_executable(&candidate)) {
            return Ok(());
        }
        let here = if Path::new(program).is_file() {
            format!("; write ./{program} for the one in this directory")
        } else {
            String::new()
        };
        Err(format!("there is no program {program:?} on the PATH{here}"))
    }
}

fn is_executable(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        let command = Command::parse(r#"sh -c 'cat | wc -c' "a b" c\ d"#).unwrap();
        assert_eq!(command.program, "sh");
        assert_eq!(command.arguments, ["-c", "cat | wc -c", "a b", "c d"]);
        for text in ["", "  ", "'' x", "sh -c 'cat"] {
            assert!(Command::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_program_is_noticed() {
        let check = |text: &str| Command::parse(text).unwrap().check();
        assert_eq!(check("sh -c true"), Ok(()));
        assert_eq!(check("/bin/sh"), Ok(()));
        assert!(check("no-such-program-here x").unwrap_err().contains("on the PATH"));
        assert!(check("/no/such").unwrap_err().contains("there is no program /no/such"));
        assert!(check("/etc/passwd").unwrap_err().contains("not executable"));
        assert!(check("Cargo.toml").unwrap_err().contains("./Cargo.toml"));
    }
}
