#!/usr/bin/env bash
# Records docs/web-*.png: a private Redis, tasks that succeed, fail, wait and run, a workflow, and pages of the web dashboard in
# Chromium. Needs a built queuectl, redis-server, chromium, chromium-driver, curl and pngquant.
#
# The same on each run, so that another picture is another page: ids and errors follow from the tasks, the order from when they
# fail, and whatever else differs is told to the page as below. Tells which pictures have changed, and fails if any has. Another
# Chromium and other fonts draw otherwise; so it is no test.
set -euo pipefail
cd "$(dirname "$0")/.."
queuectl=$PWD/target/debug/queuectl
work=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null; wait; rm -rf "$work"' EXIT

# A port, so that the pictures show no path of this machine.
port=${PORT:-6391}
redis-server --bind 127.0.0.1 --port "$port" --save '' --dir "$work" > /dev/null &
export REDIS_URL=redis://127.0.0.1:$port QUEUECTL_LOG=off
until redis-cli -p "$port" ping > /dev/null 2>&1; do sleep 0.1; done

"$queuectl" worker --queue mail=3 --queue media=1 --queue reports=1 --concurrency 20 --retry-delay 1h --name mail-1 \
  --exec 'email:welcome=true' --exec 'email:digest=sleep 600' --exec 'report:build=true' \
  --exec 'email:bounce=sh -c "echo dial tcp 10.0.0.\$((160 + \$(tr -cd 0-9 | tail -c 1))):25: connect: connection refused >&2; exit 1"' \
  --exec 'image:resize=sh -c "echo unexpected status 503 for image \$(tr -cd 0-9) >&2; exit 1"' \
  --exec 'report:send=sh -c "echo \"no such customer: 4711\" >&2; exit 1"' &
# An id that looks like others, and follows from what the task is.
id() { md5sum <<< "$*" | sed -E 's/(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-4\3-8\4-\5/'; }
line() { printf '{"type":"%s","queue":"%s","payload":{"to":"user%s@example.com","n":%s},"task_id":"%s"%s}\n' "$1" "$2" "$3" "$3" "${5:-$(id "$@")}" "$4"; }
{
  for n in $(seq 40); do line email:welcome mail "$n" ',"retention":"1d"'; done
  for n in $(seq 21); do line email:bounce mail "$n" ''; done
  for n in $(seq 9); do line email:bounce mail "1$n" ',"max_retry":0'; done
  for n in $(seq 7); do line image:resize media "$n" ',"max_retry":0'; done
  for n in $(seq 3); do line email:digest mail "$n" ''; line report:send reports "$n" ',"max_retry":0'; done
  for n in $(seq 12); do line report:build reports "$n" ',"in":"2h"'; done
  line email:bounce mail 1 ',"max_retry":0' bounce-ada
} > "$work/tasks.jsonl"
"$queuectl" enqueue --batch "$work/tasks.jsonl" > /dev/null
cat > "$work/flow.toml" <<'FLOW'
id = "release-42"
description = "release 42"

[[node]]
name = "build"
type = "report:build"
queue = "reports"

[[node]]
name = "test"
queue = "reports"
tasks = [{ type = "report:build", queue = "reports" }, { type = "report:send", queue = "reports", max_retry = 0 }]
after = ["build"]

[[node]]
name = "approve"
signal = true
after = ["build"]

[[node]]
name = "ship"
type = "report:build"
queue = "reports"
after = ["test", "approve"]

[[node]]
name = "roll-back"
type = "report:build"
queue = "reports"
after_failure = ["test"]
FLOW
# One in each second: those that failed last are always the same.
sleep 2
for n in 31 32 33; do
  line email:bounce mail "$n" '' > "$work/tasks.jsonl"
  "$queuectl" enqueue --batch "$work/tasks.jsonl" > /dev/null
  sleep 1.1
done
"$queuectl" workflow create --from "$work/flow.toml" > /dev/null
# Tries that are due at once are in the order of their ids.
redis-cli -p "$port" eval "for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('ZADD', KEYS[1], ARGV[1], id) end" \
  1 'asynq:{mail}:retry' "$(($(date +%s) + 3600))" > /dev/null
"$queuectl" web --addr "127.0.0.1:$((port + 1))" > /dev/null &
sleep 5
cat > "$work/fixed.js" <<'FIXED'
const now = Date.parse("2026-01-15T09:30:00Z"), before = Date.now;
Date.now = () => now;
const RealFetch = fetch;
// Of times, only what is far from another one is told apart: 40 seconds ago, in an hour.
const time = (text) => {
  const ms = Date.parse(text) - before();
  return new Date(now + (ms < 0 ? -40e3 : Math.round(ms / 600e3) * 600e3)).toISOString();
};
globalThis.fetch = async (...words) => {
  const answer = await RealFetch(...words);
  const text = (await answer.text()).replace(/\b20\d\d-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)/g, time)
    .replace(/[\w.-]+:\d+:[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}/g, "mail-1:4711:6ba7b810-9dad-41d1-80b4-00c04fd430c8")
    .replace(/"(took|duration)_ms":\d+/g, '"$1_ms":30');
  const { status, statusText, headers } = answer;
  return new Response([204, 304].includes(status) ? null : text, { status, statusText, headers });
};
FIXED

fingerprint=$("$queuectl" failures --queue mail --size 1 --json | grep -o 'v1-[0-9a-f]*')
chromedriver --port="$((port + 2))" > /dev/null &
driver=http://127.0.0.1:$((port + 2))
until curl -sf "$driver/status" > /dev/null; do sleep 0.1; done
# The text of a field of an answer.
field() { grep -o "\"$1\":\"[^\"]*\"" | head -1 | cut -d '"' -f 4; }
shoot() {
  local options session
  options="[\"--headless=new\", \"--no-sandbox\", \"--hide-scrollbars\", \"--window-size=$3\" ${4:-}]"
  session=$driver/session/$(curl -s -d "{\"capabilities\": {\"alwaysMatch\": {\"goog:chromeOptions\": {\"args\": $options}}}}" "$driver/session" | field sessionId)
  # What the page is told in the place of what differs from run to run.
  python3 -c 'import json, sys; print(json.dumps({"cmd": "Page.addScriptToEvaluateOnNewDocument", "params": {"source": sys.stdin.read()}}))' \
    < "$work/fixed.js" | curl -s -d @- "$session/goog/cdp/execute" > /dev/null
  curl -s -d "{\"url\": \"http://127.0.0.1:$((port + 1))/$2\"}" "$session/url" > /dev/null
  # Longer than a page takes to read all that it shows.
  sleep 5
  curl -s "$session/screenshot" | field value | base64 -d > "$work/shot.png"
  curl -s -X DELETE "$session" > /dev/null
  pngquant --force --strip --quality 40-90 --output "docs/web-$1.png" 48 "$work/shot.png"
}
shoot tasks 'tasks?queue=mail&state=retry' 1100,760
shoot task 'task?queue=mail&id=bounce-ada' 1100,980
shoot failures "failures?fp=$fingerprint" 1100,980 ', "--force-dark-mode"'
shoot workflow 'batch?id=release-42' 1100,900
git diff --exit-code --stat -- docs/web-*.png
