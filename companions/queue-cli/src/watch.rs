//! `--watch`: a listing that is shown again and again.

use std::time::Duration;

use clap::Args;
use queue_core::{Clock as _, SystemClock};

use crate::error::{CliError, complain};
use crate::output::Output;
use crate::when;

/// Whether to show a listing once or again and again.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(crate) struct WatchArgs {
    /// Show it again every so many seconds, until Ctrl-C [default with --watch: 2]
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = interval
    )]
    watch: Option<Duration>,
}

/// Reads `2`, `0.5` or `1m`. An interval below 0.1 s would only keep Redis busy.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match seconds.map_or_else(|| when::duration(text).map_err(|error| error.to_string()), Ok)? {
        short if short < Duration::from_millis(100) => Err("at least 0.1 seconds".to_owned()),
        interval => Ok(interval),
    }
}

/// Shows what `look` gives; with `--watch`, again and again: in a terminal at the same place, elsewhere one
/// below the other. A failure of Redis that can pass is told and waited out, but for the first time.
pub(crate) async fn show(
    watch: &WatchArgs,
    out: &Output,
    mut look: impl AsyncFnMut(&Output) -> Result<String, CliError>,
) -> Result<(), CliError> {
    let (text, missing) = parts(look(&view(out, watch)).await)?;
    let Some(interval) = watch.watch else {
        out.text(&text)?;
        return missing.map_or(Ok(()), |missing| Err(CliError::failed(missing)));
    };
    let warn = |missing: Option<String>| {
        if let Some(missing) = missing {
            complain(&format!("warning: {missing}"));
        }
    };
    draw(&text, interval, out)?;
    warn(missing);
    loop {
        tokio::time::sleep(interval).await;
        // The terminal may have another size by now.
        let out = Output::new(out.json);
        match parts(look(&view(&out, watch)).await) {
            Ok((text, missing)) => {
                draw(&text, interval, &out)?;
                warn(missing);
            }
            Err(CliError::Transient(message)) => warn(Some(message)),
            Err(error) => return Err(error),
        }
    }
}

/// What there is to show, and what is missing.
fn parts(look: Result<String, CliError>) -> Result<(String, Option<String>), CliError> {
    match look {
        Ok(text) => Ok((text, None)),
        Err(CliError::Partly { shown, missing }) => Ok((shown, Some(missing))),
        Err(error) => Err(error),
    }
}

/// JSON that is shown again and again stands on one line each time, in a terminal too.
fn view(out: &Output, watch: &WatchArgs) -> Output {
    let terminal = if out.json && watch.watch.is_some() { None } else { out.terminal };
    Output { terminal, ..*out }
}

fn draw(text: &str, interval: Duration, out: &Output) -> Result<(), CliError> {
    match out.terminal {
        Some((_, height)) if !out.json => out.text(&screen(text, interval, usize::from(height))),
        _ if out.json => out.text(text),
        _ => out.text(&format!("{text}\n")),
    }
}

/// Overwrites the screen line by line, which flickers less than to clear it first.
fn screen(text: &str, interval: Duration, height: usize) -> String {
    let now = SystemClock.now().format("%Y-%m-%d %H:%M:%SZ");
    let mut screen = format!("\x1b[Hevery {}, {now}; Ctrl-C ends\x1b[K\n\x1b[K\n", when::rough(interval));
    let room = height.saturating_sub(3).max(1);
    for line in text.lines().take(room) {
        screen.push_str(&format!("{line}\x1b[K\n"));
    }
    screen + "\x1b[J"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_seconds_or_durations() {
        assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("1m"), Ok(Duration::from_secs(60)));
        for text in ["0", "0.01", "-1", "soon", "inf", "NaN", ""] {
            assert!(interval(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_screen_is_overwritten_and_not_longer_than_the_terminal() {
        let screen = screen("a\nb\nc\nd\n", Duration::from_secs(2), 6);
        assert!(screen.starts_with("\x1b[Hevery 2s, ") && screen.ends_with("c\x1b[K\n\x1b[J"), "{screen:?}");
        assert!(screen.lines().count() <= 6 && !screen.contains("\x1b[2J"));
    }
}
