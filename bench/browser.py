#!/usr/bin/env python3
"""The dashboard as a browser has it: on a slow phone, and open for a long time.

    bench/browser.py [--queuectl target/release/queuectl] [--rounds 9] [--minutes 30]

Starts a Redis, `queuectl web`, and Debian's chromium by its chromedriver, all of its own, and prints two tables. Needs only
Python's standard library, since a driver is asked by plain HTTP.
"""

import argparse
import json
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import median

QUEUES = 20
TASKS = 1_000  # of each queue
PHONE = {"width": 375, "height": 667, "deviceScaleFactor": 2, "mobile": True}
LINK = {"offline": False, "latency": 400, "downloadThroughput": 400_000, "uploadThroughput": 400_000}
SLOWER = 4
PAGES = {
    "overview": ("", "tbody tr"),
    "queue": ("queue?queue=queue-00", "main dl, main table"),
    "tasks": ("tasks?queue=queue-00&state=scheduled", "tbody tr"),
    "task": ("task?queue=queue-00&id=task-0", "main dl, main table"),
    "servers": ("servers", "tbody tr"),
}

# How much a page moves what it has shown, its longest task, and when its first rows stand there.
PROBE = """
window.seen = {rows: null, shift: 0, longest: 0};
new PerformanceObserver((list) => { for (const entry of list.getEntries()) if (!entry.hadRecentInput) seen.shift += entry.value; })
    .observe({type: 'layout-shift', buffered: true});
new PerformanceObserver((list) => { for (const entry of list.getEntries()) seen.longest = Math.max(seen.longest, entry.duration); })
    .observe({type: 'longtask', buffered: true});
new MutationObserver(() => { if (seen.rows === null && document.querySelector('%s')) seen.rows = performance.now(); })
    .observe(document, {childList: true, subtree: true});
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, look, seconds=30):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            if found := look():
                return found
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.05)
    raise SystemExit(f"not within {seconds} s: {what}")


class Window:
    """A browser. Its commands are those of WebDriver, and of Chromium itself."""

    def __init__(self, driver):
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}}
        self.driver = driver
        self.session = ""
        self.session = "/session/" + self.ask("/session", wanted)["sessionId"]

    def ask(self, path, body):
        request = urllib.request.Request(self.driver + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def devtools(self, command, **parameters):
        return self.ask(self.session + "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def go(self, address):
        self.ask(self.session + "/url", {"url": address})

    def script(self, text):
        return self.ask(self.session + "/execute/sync", {"script": text, "args": []})

    def close(self):
        urllib.request.urlopen(urllib.request.Request(self.driver + self.session, method="DELETE"), timeout=60)


def phone(driver, site, rounds):
    print(f"\nA slow phone: {LINK['latency']} ms more for each answer, {LINK['downloadThroughput'] // 1000} KB/s, "
          f"a processor {SLOWER} times slower; {PHONE['width']} x {PHONE['height']}; nothing in the cache; {rounds} rounds.\n")
    print("| page | first rows, s: median; longest (wanted 3) | layout shift, most (0.05) | longest task, ms: median; longest (200) | requests |")
    print("| --- | --- | --- | --- | --- |")
    for name, (path, selector) in PAGES.items():
        seen = []
        for _ in range(rounds):
            window = Window(driver)
            window.devtools("Emulation.setDeviceMetricsOverride", **PHONE)
            window.devtools("Network.enable")
            window.devtools("Network.emulateNetworkConditions", **LINK)
            window.devtools("Emulation.setCPUThrottlingRate", rate=SLOWER)
            window.devtools("Page.addScriptToEvaluateOnNewDocument", source=PROBE % selector)
            window.go(site + path)
            until(f"rows on {name}", lambda: window.script("return seen.rows"))
            time.sleep(3)
            seen.append(window.script("return {...seen, requests: performance.getEntriesByType('resource').length + 1}"))
            window.close()
        rows = [one["rows"] / 1000 for one in seen]
        tasks = [one["longest"] for one in seen]
        print(f"| {name} | {median(rows):.2f}; {max(rows):.2f} | {max(one['shift'] for one in seen):.3f} | "
              f"{median(tasks):.0f}; {max(tasks):.0f} | {max(one['requests'] for one in seen)} |", flush=True)


def resident(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def open_for(driver, site, web, minutes):
    window = Window(driver)
    window.devtools("HeapProfiler.enable")
    window.devtools("Performance.enable")
    window.go(site)
    print(f"\nThe overview open for {minutes} minutes, while a worker has a task each second.\n")
    print("| minute | heap after a collection, MB | nodes | web process, MB |")
    print("| --- | --- | --- | --- |")
    steps = sorted({1, 2, *range(5, minutes, 5), minutes})
    begun = time.monotonic()
    for minute in steps:
        time.sleep(max(0, begun + 60 * minute - time.monotonic()))
        window.devtools("HeapProfiler.collectGarbage")
        metrics = {one["name"]: one["value"] for one in window.devtools("Performance.getMetrics")["metrics"]}
        print(f"| {minute} | {metrics['JSHeapUsedSize'] / 2**20:.2f} | {metrics['Nodes']:.0f} | {resident(web):.1f} |", flush=True)
    window.close()


def tasks():
    for queue in range(QUEUES):
        for number in range(TASKS):
            task = {"type": f"type:{number % 10}", "queue": f"queue-{queue:02}", "task_id": f"task-{number}", "payload": "x" * 200}
            yield json.dumps({**task, "in": "1h"} if number % 2 == 0 else task)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queuectl", default="target/release/queuectl")
    parser.add_argument("--rounds", type=int, default=9, help="0 leaves the phone out")
    parser.add_argument("--minutes", type=int, default=30, help="0 leaves the long time out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        started = []

        def start(*command, **how):
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, **{"stdout": subprocess.DEVNULL, **how}))
            return started[-1]

        try:
            redis = f"{place}/redis.sock"
            start("redis-server", "--port", "0", "--unixsocket", redis, "--save", "", "--dir", place)
            until("Redis answers", lambda: Path(redis).exists())
            redis = ["--redis", f"redis+unix://{redis}"]
            batch = Path(place, "tasks")
            batch.write_text("\n".join(tasks()) + "\n")
            subprocess.run([options.queuectl, *redis, "enqueue", "--batch", str(batch)], check=True, stdout=subprocess.DEVNULL)
            port = free_port()
            web = start(options.queuectl, *redis, "web", "--addr", f"127.0.0.1:{port}", stderr=subprocess.DEVNULL)
            site = f"http://127.0.0.1:{port}/"
            until("the dashboard answers", lambda: urllib.request.urlopen(site, timeout=5))
            driver = free_port()
            start("chromedriver", f"--port={driver}")
            driver = f"http://127.0.0.1:{driver}"
            until("chromedriver answers", lambda: urllib.request.urlopen(driver + "/status", timeout=5))
            # The pending tasks, one a second: more than two hours.
            start(options.queuectl, *redis, "worker", "--queue", "queue-*", "--concurrency", "1", "--exec", "*=sleep 1", stderr=subprocess.DEVNULL)
            until("the worker is seen", lambda: json.load(urllib.request.urlopen(site + "api/v1/servers", timeout=5)).get("items"))
            if options.rounds:
                phone(driver, site, options.rounds)
            if options.minutes:
                open_for(driver, site, web, options.minutes)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(60)


main()
