#!/usr/bin/env bash
# Records docs/web-*.png: a private Redis, tasks that succeed, fail, wait and run, a workflow, and pages of the web dashboard in
# Chromium. Needs a built queuectl, redis-server, chromium, chromium-driver, curl and pngquant.
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
  --exec 'email:bounce=sh -c "echo dial tcp 10.0.0.\$((\$\$ % 250)):25: connect: connection refused >&2; exit 1"' \
  --exec 'image:resize=sh -c "echo unexpected status 503 for image \$\$ >&2; exit 1"' \
  --exec 'report:send=sh -c "echo \"no such customer: 4711\" >&2; exit 1"' &
line() { printf '{"type":"%s","queue":"%s","payload":{"to":"user%s@example.com","n":%s}%s}\n' "$1" "$2" "$3" "$3" "$4"; }
{
  for n in $(seq 40); do line email:welcome mail "$n" ',"retention":"1d"'; done
  for n in $(seq 24); do line email:bounce mail "$n" ''; done
  for n in $(seq 9); do line email:bounce mail "1$n" ',"max_retry":0'; done
  for n in $(seq 7); do line image:resize media "$n" ',"max_retry":0'; done
  for n in $(seq 3); do line email:digest mail "$n" ''; line report:send reports "$n" ',"max_retry":0'; done
  for n in $(seq 12); do line report:build reports "$n" ',"in":"2h"'; done
  line email:bounce mail 1 ',"task_id":"bounce-ada","max_retry":0'
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
"$queuectl" workflow create --from "$work/flow.toml" > /dev/null
"$queuectl" web --addr "127.0.0.1:$((port + 1))" > /dev/null &
sleep 10

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
