#!/usr/bin/env bash
# Records docs/dash.svg: a private Redis, tasks that come in all the time, a worker that works them, a scheduler, and
# the dashboard, driven by keys. Needs a built queuectl and a redis-server.
set -euo pipefail
cd "$(dirname "$0")/.."
queuectl=$PWD/target/debug/queuectl
work=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$work"' EXIT

# A port, so that the picture shows no path of this machine.
port=${PORT:-6390}
redis-server --bind 127.0.0.1 --port "$port" --save '' --dir "$work" > /dev/null &
export REDIS_URL=redis://127.0.0.1:$port QUEUECTL_LOG=off
until redis-cli -p "$port" ping > /dev/null 2>&1; do sleep 0.1; done

printf '[[cron]]\nname = "nightly-report"\nspec = "30 2 * * *"\ntype = "report:build"\nqueue = "reports"\n' > "$work/cron.toml"
"$queuectl" scheduler --config "$work/cron.toml" &
"$queuectl" worker --queue mail=3 --queue media=1 --concurrency 20 \
  --exec 'email:welcome=sleep 0.2' --exec 'email:bounce=sh -c "echo mailbox is full >&2; exit 1"' \
  --exec 'image:resize=sleep 3' --exec 'email:digest=sleep 600' &
# There is always a task at work, so that the keys below find the same tabs each time.
"$queuectl" enqueue email:digest --queue mail --payload '{"edition": 12}' > /dev/null
for id in 1 2 3; do
  "$queuectl" enqueue report:build --queue reports --in 6h --payload "{\"month\": $id}" > /dev/null
done
while sleep 0.4; do
  for _ in $(seq $((RANDOM % 6))); do
    echo '{"type": "email:welcome", "queue": "mail", "payload": {"user": 7, "name": "Grace", "tags": ["new", "beta"]}}'
  done
  [ $((RANDOM % 3)) -ne 0 ] || echo '{"type": "email:bounce", "queue": "mail", "payload": {"user": 8, "name": "Ada", "tags": ["bounced"]}}'
  echo '{"type": "image:resize", "queue": "media", "payload": {"path": "/cat.png", "width": 640}}'
done | while read -r line; do echo "$line" | "$queuectl" enqueue --batch - > /dev/null; done &

sleep 8
docs/record.py docs/dash.svg --size 92x24 --title "queuectl dash" \
  --keys "9 j 1 k 2 Enter 1 l l l l 3 Enter 4 r 2 y 2 q 1 q 1 2 3 q 1 q" -- "$queuectl" dash --refresh 1s
