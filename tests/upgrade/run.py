#!/usr/bin/env python3
"""A rolling upgrade: producers, workers and schedulers of an earlier revision and of this one share a Redis.

    make test-upgrade [REVISION=…] [SEED=…]

The earlier revision is the previous commit, unless it is named. Builds queuectl of both, starts a private Redis, and
lets both work on the same queues while workers are killed and replaced by those of the other revision. A ledger
outside Redis, one file per attempt, says what has run. At the end every task has to be where it was planned to
end, and to have run as often as it should, more often only where a worker was killed; doctor has to find nothing, and
both revisions have to read the same.
"""

import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
BATCHES, BATCH = 20, 60
KILLS = 12
SLOTS = 4
# A lease, the margin after it, and the recoverer's interval; then the attempt itself, on a busy machine.
PATIENCE = 240

# How each type ends, and how many attempts it takes.
WORK = """
attempt="$LEDGER/$TASK_ID.$TASK_RETRIED.$$"
: > "$attempt"
case $TASK_TYPE in
  flaky) [ "$TASK_RETRIED" -gt 0 ] || exit 1 ;;
  bad) exit 65 ;;
  slow) sleep 0.5 ;;
esac
echo "$VERSION"
"""

CRON = """
[[cron]]
name = "beat"
spec = "@every 2s"
type = "tick"
queue = "ticks"
retention = "1h"
"""


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def build(place, target, **settings):
    """The queuectl of the files in a folder."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target), **settings}
    subprocess.run(["cargo", "build", "--quiet", "-p", "queue-cli"], cwd=place, env=environment, check=True)
    return target / "debug" / "queuectl"


def build_revision(revision):
    """Apart from what is built here: to cargo, files at the same place in two workspaces are the same files."""
    place = TARGET / "upgrade" / "files"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    # -m: they are newer than what was built of another revision.
    subprocess.run(["tar", "-xm", "-C", place], input=archive, check=True)
    return build(place, TARGET / "upgrade" / "target", CARGO_INCREMENTAL="0", CARGO_PROFILE_DEV_DEBUG="0")


class Fleet:
    """A Redis, and processes of both versions on it."""

    def __init__(self, old, new, home):
        self.binaries = {"old": old, "new": new}
        self.home = home
        self.ledger = home / "ledger"
        self.ledger.mkdir()
        (home / "work").write_text(WORK)
        (home / "cron.toml").write_text(CRON)
        self.url = f"redis+unix://{home}/redis.sock"
        self.processes, self.schedulers = [], []
        program = os.environ.get("QUEUE_REDIS_SERVER") or shutil.which("redis-server") or shutil.which("valkey-server")
        where = ["--port", "0", "--unixsocket", home / "redis.sock", "--dir", home]
        self.spawn([program, *where, "--save", "", "--appendonly", "yes"])
        wait("Redis answers", lambda: self.queuectl("new", "queue", "ls", check=False).returncode == 0)

    def spawn(self, command, version=""):
        environment = {**os.environ, "LEDGER": str(self.ledger), "VERSION": version}
        environment.pop("REDIS_URL", None)
        words = [str(word) for word in command]
        with open(self.home / "log", "ab") as log:
            process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def queuectl(self, version, *words, text=None, check=True):
        command = [self.binaries[version], "--redis", self.url, *words]
        return subprocess.run(command, input=text, text=True, capture_output=True, check=check)

    def json(self, *words, version="new"):
        return json.loads(self.queuectl(version, *words, "--json").stdout)

    def tasks(self, queue, state, version="new"):
        return self.json("task", "ls", "-q", queue, "-s", state, "--size", "10000", version=version)

    def worker(self, version):
        words = ["worker", "--queue", "default", "--queue", "ticks", "--concurrency", str(SLOTS)]
        words += ["--exec", f"*=sh {self.home}/work"]
        return self.spawn([self.binaries[version], "--redis", self.url, *words], version)

    def scheduler(self, version):
        words = ["scheduler", "--config", self.home / "cron.toml"]
        return self.spawn([self.binaries[version], "--redis", self.url, *words], version)

    def stop(self, processes):
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def wait(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"gave up after {PATIENCE} s waiting until {what}")
        time.sleep(0.2)


def plan():
    """Ids and types; the same number of each in every batch."""
    types = ["ok"] * 12 + ["slow"] * 4 + ["flaky"] * 2 + ["bad"] + ["later"]
    return [[(f"{batch:02}-{n:03}", types[n % len(types)]) for n in range(BATCH)] for batch in range(BATCHES)]


def line(task_id, kind):
    task = {"type": kind, "task_id": task_id, "retention": "1h", "payload": "x" * 100}
    return json.dumps({**task, "in": "3s"} if kind == "later" else task)


def load(fleet, seed):
    """Everything at once; returns the planned tasks and how many workers were killed."""
    choose = random.Random(seed)
    workers = [(version, fleet.worker(version)) for version in ("old", "new")]
    fleet.schedulers = [fleet.scheduler(version) for version in ("old", "new")]
    planned, kills = {}, 0
    for number, batch in enumerate(plan()):
        planned.update(batch)
        text = "\n".join(line(*task) for task in batch)
        # The producer, and who runs the failed ones again, are of either version.
        fleet.queuectl(choose.choice(["old", "new"]), "enqueue", "--batch", "-", text=text)
        run_failed(fleet, choose.choice(["old", "new"]))
        if kills < KILLS:
            place = choose.randrange(len(workers))
            version, victim = workers[place]
            victim.kill()
            victim.wait()
            kills += 1
            other = "new" if version == "old" else "old"
            workers[place] = (other, fleet.worker(other))
        if number == BATCHES // 2:
            # The schedulers change over too: the old one ends, a new one begins.
            fleet.stop(fleet.schedulers[:1])
            fleet.schedulers[0] = fleet.scheduler("new")
        time.sleep(0.5)
    return planned, kills


def run_failed(fleet, version):
    """Nobody waits for a retry here."""
    fleet.queuectl(version, "task", "run", "-q", "default", "-s", "retry", "--yes", check=False)


def settled(fleet, planned):
    run_failed(fleet, "new")
    queue = next(queue for queue in fleet.json("queue", "ls") if queue["queue"] == "default")
    return queue["completed"] + queue["archived"] == len(planned) and not left(fleet, ["default"])


def left(fleet, names=("default", "ticks")):
    """The queues with tasks that have not ended."""
    states = ("active", "pending", "scheduled", "retry", "aggregating")
    return [queue for queue in fleet.json("queue", "ls") if queue["queue"] in names and any(queue[state] for state in states)]


def check(fleet, planned, kills):
    """What is wrong, in sentences, and what there is to tell."""
    wrong = []
    for state, kinds in (("completed", {"ok", "slow", "flaky", "later"}), ("archived", {"bad"})):
        expected = {task for task, kind in planned.items() if kind in kinds}
        for version in ("old", "new"):
            found = {task["id"] for task in fleet.tasks("default", state, version)}
            if found != expected:
                lacking, strange = len(expected - found), len(found - expected)
                wrong.append(f"{state}, as the {version} version sees it: {lacking} are missing, {strange} should not be there")
    runs = collections.Counter(file.name.split(".")[0] for file in fleet.ledger.iterdir())
    again = 0
    for task, kind in planned.items():
        least = 2 if kind == "flaky" else 1
        if runs[task] < least:
            wrong.append(f"{task} ({kind}) ran {runs[task]} times")
        again += max(0, runs[task] - least)
    if again > kills * SLOTS:
        wrong.append(f"{again} runs too many; {kills} kills explain {kills * SLOTS} at the most")
    by = collections.Counter(task["result"].strip() for task in fleet.tasks("default", "completed"))
    if set(by) != {"old", "new"}:
        wrong.append(f"not both versions have worked: {by}")
    ticks = sorted(int(task["id"].rsplit(":", 1)[1]) for task in fleet.tasks("ticks", "completed"))
    gaps = [later - tick for tick, later in zip(ticks, ticks[1:]) if later - tick != 2]
    if len(ticks) < 5 or gaps:
        wrong.append(f"{len(ticks)} ticks, {gaps} s apart where it should be 2")
    doctor = fleet.queuectl("new", "doctor", check=False)
    if doctor.returncode != 0:
        wrong.append(f"doctor: {doctor.stdout}{doctor.stderr}")
    by = ", ".join(f"{count} by the {version} version" for version, count in sorted(by.items()))
    return wrong, f"{len(planned)} tasks have ended as planned ({by}), {len(ticks)} ticks; {kills} kills, {again} attempts repeated"


def main():
    # What is not committed is new, too: its previous commit is the last one.
    changed = git("status", "--porcelain", "--untracked-files=no").stdout
    revision = os.environ.get("REVISION") or ("HEAD" if changed else "HEAD~1")
    known = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").stdout.strip()
    if not known:
        sys.exit(f"!!! the revision {revision} is not in this clone (it may be a shallow one): upgrades are NOT TESTED")
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"seed {seed}; from {known[:12]} to the files here", flush=True)
    old, new = build_revision(known), build(ROOT, TARGET)
    with tempfile.TemporaryDirectory(prefix="queue-upgrade-") as home:
        fleet = Fleet(old, new, pathlib.Path(home))
        try:
            planned, kills = load(fleet, seed)
            wait("all tasks have ended", lambda: settled(fleet, planned))
            fleet.stop(fleet.schedulers)
            wait("the last ticks have ended", lambda: not left(fleet))
            wrong, told = check(fleet, planned, kills)
        finally:
            fleet.end()
        if wrong:
            log = (pathlib.Path(home) / "log").read_text(errors="replace").splitlines()
            sys.exit("\n".join([*wrong, "the last words of the fleet:", *log[-40:]]))
        print(told)


main()
