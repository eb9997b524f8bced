//! What the end of a program means for its task.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use queue_worker::Failure;

/// `EX_DATAERR` of `sysexits.h`: the input is bad, and will be bad the next time.
const ARCHIVE: i32 = 65;
/// `EX_TEMPFAIL`: not now, try later.
const SNOOZE: i32 = 75;

/// Whether the program succeeded, and if not, what happens to the task. `last_line` is the last line on
/// standard error.
pub(super) fn judge(status: ExitStatus, last_line: Option<String>) -> Result<(), Failure> {
    match status.code() {
        Some(0) => Ok(()),
        Some(ARCHIVE) => Err(Failure::archive(last_line.unwrap_or_else(|| "exit code 65: archive".to_owned()))),
        Some(SNOOZE) => {
            Err(Failure::Snooze(None, last_line.unwrap_or_else(|| "exit code 75: snoozed".to_owned()).into()))
        }
        Some(code) => Err(Failure::Retry(last_line.unwrap_or_else(|| format!("exit code {code}")).into())),
        None => {
            let killed = format!("killed by {}", signal_name(status.signal().unwrap_or(0)));
            Err(Failure::Retry(last_line.map_or_else(|| killed.clone(), |line| format!("{killed}: {line}")).into()))
        }
    }
}

/// The name of a signal. The numbers of these are the same on all systems we run on; others stay numbers.
fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL, perhaps because the machine ran out of memory",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return format!("signal {number}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(raw: i32, line: Option<&str>) -> String {
        match judge(ExitStatus::from_raw(raw), line.map(str::to_owned)) {
            Ok(()) => "done".to_owned(),
            Err(Failure::Archive(error)) => format!("archive: {error}"),
            Err(Failure::Snooze(None, error)) => format!("snoozed: {error}"),
            Err(Failure::Retry(error)) => format!("retry: {error}"),
            Err(other) => format!("unexpected: {other:?}"),
        }
    }

    #[test]
    fn exit_codes_mean_what_the_help_says() {
        let exit = |code: i32, line| judged(code << 8, line);
        assert_eq!(exit(0, Some("a warning")), "done");
        assert_eq!(exit(65, Some("no such user")), "archive: no such user");
        assert_eq!(exit(75, None), "snoozed: exit code 75: snoozed");
        assert_eq!(exit(1, Some("boom")), "retry: boom");
        assert_eq!(exit(3, None), "retry: exit code 3");
        assert_eq!(judged(11, None), "retry: killed by SIGSEGV");
        assert_eq!(judged(15, Some("bye")), "retry: killed by SIGTERM: bye");
        assert_eq!(judged(64, None), "retry: killed by signal 64");
    }
}
