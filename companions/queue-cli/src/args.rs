//! What clap cannot say about the command line: values that may be left out.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

/// Writes `--embedded DIR` as `--embedded=DIR`, and `--watch 5` as `--watch=5`, so that clap sees a value there.
///
/// An option whose value may be left out, followed by a positional or a subcommand, is ambiguous:
/// `queuectl --embedded demo` must not keep its data in a directory named `demo`. So clap takes a value
/// after `=` only, and here a following word counts as DIR when it cannot be anything else: it begins with
/// `/`, `./` or `../`, or is `.` or `..`. The shell has turned `~` into the first of these already. After
/// `--watch`, a word that begins with a digit counts.
pub(crate) fn with_values_joined(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut options_end = false;
    for arg in args {
        match joined.last_mut() {
            Some(last) if !options_end && takes(last, &arg) => {
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

fn takes(option: &OsString, value: &OsString) -> bool {
    (option == "--embedded" && is_directory(value))
        || (option == "--watch" && value.as_bytes().first().is_some_and(u8::is_ascii_digit))
}

fn is_directory(arg: &OsString) -> bool {
    let bytes = arg.as_bytes();
    matches!(bytes, b"." | b"..") || [b"/".as_slice(), b"./", b"../"].iter().any(|start| bytes.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(line: &str) -> String {
        let args = with_values_joined(line.split(' ').map(OsString::from));
        args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_path_after_embedded_is_its_directory() {
        assert_eq!(joined("queuectl --embedded ./data stats"), "queuectl --embedded=./data stats");
        assert_eq!(joined("queuectl stats --embedded /var/q"), "queuectl stats --embedded=/var/q");
        assert_eq!(joined("queuectl stats --embedded .."), "queuectl stats --embedded=..");
    }

    #[test]
    fn a_number_after_watch_is_its_interval() {
        assert_eq!(joined("queuectl queue inspect --watch 5 mail"), "queuectl queue inspect --watch=5 mail");
        assert_eq!(joined("queuectl stats --watch 0.5"), "queuectl stats --watch=0.5");
    }

    #[test]
    fn other_arguments_stay_as_they_are() {
        for line in [
            "queuectl --embedded demo",
            "queuectl enqueue --embedded img/resize",
            "queuectl --embedded --json stats",
            "queuectl --embedded=x ./y",
            "queuectl enqueue -- --embedded ./type",
            "queuectl queue inspect --watch mail",
            "queuectl queue inspect --watch -- 5",
            "queuectl enqueue 5",
        ] {
            assert_eq!(joined(line), line);
        }
    }
}
