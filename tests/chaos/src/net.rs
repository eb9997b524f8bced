//! A network of its own for each process: a namespace and a link, on which the kernel loses what is sent.
//!
//! The run starts itself again in a user namespace, where it may do such things to a network that nobody else
//! sees. No privileges are needed, but `unshare` and `nsenter` (util-linux), `ip` and `tc` (iproute2).

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use crate::Failure;

/// Whether processes get networks of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Namespaces {
    /// All use the loopback of this host.
    Never,
    /// If this host allows it; the report says whether it did.
    IfPossible,
    /// Or the run fails.
    Always,
}

/// The argument of a run that is within its own network.
pub(crate) const WITHIN: &str = "--within";

/// Everything that will be needed, once.
const TRY: &str = "ip link set lo up && unshare --net true && ip link add try0 type veth peer name try1 \
                   && ip link set try0 up && tc qdisc add dev try0 root blackhole && nsenter -t $$ -n true";

const UNSHARE: [&str; 4] = ["--user", "--map-root-user", "--net", "--"];

/// Starts this program again within a network of its own; returns only if that cannot be, with the reason.
pub(crate) fn enter() -> Failure {
    let tried = std::process::Command::new("unshare").args(UNSHARE).args(["sh", "-c", TRY]).output();
    let reason = match tried {
        Ok(output) if output.status.success() => {
            let program = match std::env::current_exe() {
                Ok(program) => program,
                Err(error) => return error.into(),
            };
            let arguments = std::env::args_os().skip(1);
            let mut again = std::process::Command::new("unshare");
            again.args(UNSHARE).arg(program).args(arguments).arg(WITHIN).exec().to_string()
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
        Err(error) => format!("unshare: {error}"),
    };
    format!("no network namespaces here: {reason}").into()
}

async fn call(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().await;
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {}", arguments.join(" "), said.trim()).into())
}

/// Brings up the loopback of the network that the run is in.
pub(crate) async fn begin() -> Result<(), Failure> {
    call("ip", &["link", "set", "lo", "up"]).await.map(drop)
}

/// How many packets a qdisc has thrown away, as `tc -s` tells.
fn dropped(statistics: &str) -> u64 {
    let number = |rest: &str| rest.split(',').next()?.trim().parse::<u64>().ok();
    statistics.split("(dropped ").skip(1).filter_map(number).sum::<u64>()
}

/// What becomes of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// None arrive.
    All,
    /// Those to Redis do not arrive.
    Requests,
    /// Those from Redis do not arrive.
    Answers,
}

/// The link between a namespace and the network of the run.
#[derive(Debug)]
pub(crate) struct Link {
    /// Keeps the namespace alive while no process of the fleet is in it.
    _holder: Child,
    pid: String,
    /// The name of our end of the link.
    name: String,
    /// The address of our end.
    pub(crate) host: Ipv4Addr,
}

/// The name of the other end.
const PEER: &str = "redis0";

impl Link {
    pub(crate) async fn make(number: u8) -> Result<Self, Failure> {
        let mut holder = Command::new("unshare");
        // It ends with its input, as all others do.
        holder.args(["--net", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let holder = holder.kill_on_drop(true).spawn()?;
        let pid = holder.id().ok_or("unshare ended at once")?.to_string();
        let ours = std::fs::read_link("/proc/self/ns/net")?;
        let begun = Instant::now();
        while std::fs::read_link(format!("/proc/{pid}/ns/net")).map_or(true, |theirs| theirs == ours) {
            if begun.elapsed() > Duration::from_secs(30) {
                return Err("unshare --net does not come to an end".into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let link = Self { _holder: holder, pid, name: format!("to{number}"), host: Ipv4Addr::new(10, 77, number, 1) };
        let (here, there) = (format!("10.77.{number}.1/30"), format!("10.77.{number}.2/30"));
        call("ip", &["link", "add", &link.name, "type", "veth", "peer", "name", PEER, "netns", &link.pid]).await?;
        call("ip", &["address", "add", &here, "dev", &link.name]).await?;
        call("ip", &["link", "set", &link.name, "up"]).await?;
        link.within(&["ip", "link", "set", "lo", "up"]).await?;
        link.within(&["ip", "address", "add", &there, "dev", PEER]).await?;
        link.within(&["ip", "link", "set", PEER, "up"]).await?;
        Ok(link)
    }

    /// What is put before a command so that it runs in the namespace. `nsenter` becomes that command.
    pub(crate) fn prefix(&self) -> [&str; 5] {
        ["nsenter", "-t", &self.pid, "-n", "--"]
    }

    async fn within(&self, command: &[&str]) -> Result<String, Failure> {
        let prefix = self.prefix();
        call(prefix[0], &[&prefix[1..], command].concat()).await
    }

    /// The kernel throws packets away from now on, and tells nobody.
    pub(crate) async fn lose(&self, loss: Loss) -> Result<(), Failure> {
        if loss != Loss::Requests {
            call("tc", &["qdisc", "add", "dev", &self.name, "root", "blackhole"]).await?;
        }
        if loss != Loss::Answers {
            self.within(&["tc", "qdisc", "add", "dev", PEER, "root", "blackhole"]).await?;
        }
        Ok(())
    }

    /// As if a cable were pulled on the side of Redis.
    pub(crate) async fn down(&self) -> Result<(), Failure> {
        call("ip", &["link", "set", &self.name, "down"]).await.map(drop)
    }

    /// Ends whatever was done to the link; returns how many packets were thrown away.
    pub(crate) async fn heal(&self) -> Result<u64, Failure> {
        let ours = call("tc", &["-s", "qdisc", "show", "dev", &self.name]).await?;
        let theirs = self.within(&["tc", "-s", "qdisc", "show", "dev", PEER]).await?;
        // Whatever is not there cannot be deleted.
        let _ = call("tc", &["qdisc", "del", "dev", &self.name, "root"]).await;
        let _ = self.within(&["tc", "qdisc", "del", "dev", PEER, "root"]).await;
        call("ip", &["link", "set", &self.name, "up"]).await?;
        Ok(dropped(&ours) + dropped(&theirs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_packets_are_read_from_the_statistics() {
        let text = "qdisc blackhole 8005: root refcnt 3 \n Sent 0 bytes 0 pkt (dropped 13, overlimits 0 requeues 0) \n";
        assert_eq!(dropped(text), 13);
        assert_eq!(dropped("qdisc noqueue 0: root refcnt 2 \n"), 0);
    }
}
