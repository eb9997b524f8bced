//! A real terminal, in which the real program runs: a private tmux.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long anything may take. Far longer than it takes, for machines that are busy with other things.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether there is a tmux. Without one the tests of the terminal are left out, loudly; never in CI.
pub(crate) fn is_there() -> bool {
    if Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "tmux is missing; scripts/setup installs it");
    eprintln!("!!! tmux is not installed: the dashboard was NOT TESTED in a terminal; `make setup` installs it");
    false
}

/// A terminal with the dashboard in it, ended with the test.
pub(crate) struct Terminal {
    directory: tempfile::TempDir,
}

impl Terminal {
    /// Starts `queuectl dash` on this Redis in a terminal of this size.
    pub(crate) fn start(url: &str, size: (u16, u16), arguments: &str, environment: &[(&str, &str)]) -> Self {
        let terminal = Self { directory: tempfile::tempdir().unwrap() };
        // The shell outlives the program, and tells what it left behind.
        let script = format!(
            "stty -g > before\nsh -c 'echo $$ > pid; exec \"$QUEUECTL\" --redis \"$URL\" dash --refresh 250ms {arguments}'\n\
             echo $? > code\nstty -g > after\nexec sleep 1000\n"
        );
        std::fs::write(terminal.path("script"), script).unwrap();
        let mut command = terminal.tmux();
        for name in ["REDIS_URL", "QUEUECTL_LOG", "NO_COLOR", "TMUX"] {
            command.env_remove(name);
        }
        command.envs(environment.iter().copied());
        command.env("QUEUECTL", env!("CARGO_BIN_EXE_queuectl")).env("URL", url).env("LC_ALL", "C.UTF-8");
        command.current_dir(terminal.directory.path());
        command.args(["-f", "/dev/null", "new-session", "-d", "-x", &size.0.to_string(), "-y", &size.1.to_string()]);
        let output = command.args(["sh", "script"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        terminal
    }

    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        // -u: it is UTF-8, whatever the environment of the test says.
        command.arg("-u").arg("-S").arg(self.path("tmux"));
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output = self.tmux().args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    }

    /// Presses keys, by the names that tmux has for them.
    pub(crate) fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(&self, (columns, lines): (u16, u16)) {
        self.run(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]);
    }

    /// The screen, without blanks at the ends of lines.
    pub(crate) fn screen(&self) -> Vec<String> {
        let output = self.run(&["capture-pane", "-p"]);
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// The screen with its colours, as escape sequences.
    pub(crate) fn colours(&self) -> String {
        String::from_utf8(self.run(&["capture-pane", "-p", "-e"]).stdout).unwrap()
    }

    /// One of tmux's variables.
    pub(crate) fn variable(&self, name: &str) -> String {
        let output = self.run(&["display-message", "-p", &format!("#{{{name}}}")]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Waits until the screen is like this.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}; the screen is\n{}", screen.join("\n"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this text is somewhere on the screen.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> Vec<String> {
        self.wait(text, |screen| screen.iter().any(|line| line.contains(text)))
    }

    /// Waits until this text is nowhere on the screen.
    #[track_caller]
    pub(crate) fn wait_without(&self, text: &str) -> Vec<String> {
        self.wait(&format!("no {text}"), |screen| !screen.iter().any(|line| line.contains(text)))
    }

    /// Waits until the screen is this one, line by line; `*` stands for anything, and lines at the end may be blank.
    #[track_caller]
    pub(crate) fn wait_for_screen(&self, expected: &str) {
        let expected: Vec<&str> = expected.trim_matches('\n').lines().collect();
        let same = |screen: &[String]| {
            screen.len() >= expected.len()
                && screen
                    .iter()
                    .enumerate()
                    .all(|(at, line)| matches(line, expected.get(at).copied().unwrap_or_default()))
        };
        self.wait(&format!("the screen\n{}\n", expected.join("\n")), same);
    }

    /// The process id of the dashboard.
    pub(crate) fn pid(&self) -> u32 {
        self.file("pid").parse().unwrap()
    }

    /// Waits until the dashboard has ended and checks that the terminal is as it was; returns the exit code.
    #[track_caller]
    pub(crate) fn ended(&self) -> i32 {
        let (before, after) = (self.file("before"), self.file("after"));
        assert_eq!(before, after, "the terminal's modes are not what they were");
        self.wait("the normal screen", |_| self.variable("alternate_on") == "0");
        assert_eq!(self.variable("cursor_flag"), "1", "the cursor is hidden");
        self.file("code").parse().unwrap()
    }

    /// The content of a file that the shell writes, once it is there.
    #[track_caller]
    fn file(&self, name: &str) -> String {
        let (path, end) = (self.path(name), Instant::now() + PATIENCE);
        loop {
            match std::fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                _ if Instant::now() > end => panic!("no {name}; the screen is\n{}", self.screen().join("\n")),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux().arg("kill-server").output();
    }
}

/// Whether a line is like a pattern, in which `*` stands for anything.
fn matches(line: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => line == pattern,
        Some((start, rest)) => {
            let Some(line) = line.strip_prefix(start) else { return false };
            let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
            ends.into_iter().any(|at| matches(&line[at..], rest))
        }
    }
}
