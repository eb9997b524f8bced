//! The one thing about the command line that clap cannot say.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

/// Writes `--embedded DIR` as `--embedded=DIR`, so that clap sees a value there.
///
/// An option whose value may be left out, followed by a positional or a subcommand, is ambiguous:
/// `queuectl --embedded demo` must not keep its data in a directory named `demo`. So clap takes a value
/// after `=` only, and here a following word counts as DIR when it cannot be anything else: it begins with
/// `/`, `./` or `../`, or is `.` or `..`. The shell has turned `~` into the first of these already.
pub(crate) fn with_directory_joined(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut options_end = false;
    for arg in args {
        match joined.last_mut() {
            Some(last) if !options_end && last == "--embedded" && is_directory(&arg) => {
                last.push("=");
                last.push(arg);
            }
            _ => {
                options_end |= arg == "--";
                joined.push(arg);
            }
        }
    }
    joined
}

fn is_directory(arg: &OsString) -> bool {
    let bytes = arg.as_bytes();
    matches!(bytes, b"." | b"..") || [b"/".as_slice(), b"./", b"../"].iter().any(|start| bytes.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(line: &str) -> String {
        let args = with_directory_joined(line.split(' ').map(OsString::from));
        args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_path_after_embedded_is_its_directory() {
        assert_eq!(joined("queuectl --embedded ./data stats"), "queuectl --embedded=./data stats");
        assert_eq!(joined("queuectl stats --embedded /var/q"), "queuectl stats --embedded=/var/q");
        assert_eq!(joined("queuectl stats --embedded .."), "queuectl stats --embedded=..");
    }

    #[test]
    fn everything_else_is_left_alone() {
        for line in [
            "queuectl --embedded demo",
            "queuectl enqueue --embedded img/resize",
            "queuectl --embedded --json stats",
            "queuectl --embedded=x ./y",
            "queuectl enqueue -- --embedded ./type",
        ] {
            assert_eq!(joined(line), line);
        }
    }
}
