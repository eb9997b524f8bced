//! A terminal to run a command in.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::{Child, Command};

use crate::support::{eventually, signal};

/// A command whose standard input, output and error are a terminal of 80 columns and 24 lines.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: std::thread::JoinHandle<()>,
}

impl Terminal {
    pub(crate) fn run(mut command: Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(ours.as_fd(), size).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let theirs: OwnedFd = File::options().read(true).write(true).open(path).unwrap().into();
        let stdio = || Stdio::from(theirs.try_clone().unwrap());
        let child = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap();
        drop((theirs, command));
        let keyboard = File::from(ours);
        let (mut output, screen) = (keyboard.try_clone().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let seen = screen.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails once nobody has the other end any more.
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                seen.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self { child, keyboard, screen, reader }
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// Waits until this has appeared; gives all that has.
    pub(crate) async fn wait_for(&mut self, part: &str) -> String {
        eventually(part, || self.seen().contains(part)).await;
        self.seen()
    }

    /// Types this.
    pub(crate) fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Interrupts the command, as Ctrl-C does.
    pub(crate) async fn interrupt(mut self) {
        signal(self.child.id().unwrap(), Signal::INT);
        assert_eq!(self.child.wait().await.unwrap().code(), Some(130));
    }

    /// Waits for the end; gives the exit code and all that has appeared.
    pub(crate) async fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().await.unwrap().code();
        eventually("the terminal is read to its end", || self.reader.is_finished()).await;
        let seen = self.seen();
        (code, seen)
    }
}
