// One task: what became of it, why it does not run, and what can be done.

import { early, get, page, seg, send, url } from "../api.js";
import { h, show } from "../dom.js";
import { bytes, duration, pretty, safe, short, time } from "../format.js";
import { reread, watch } from "../live.js";
import { settings } from "../settings.js";
import { act, facts, failure, into, queueLink, say, table } from "../ui.js";

export default async function task({ root, me, params, signal, go, again }) {
  const [queue, id] = [params.get("queue"), params.get("id") ?? ""];
  if (!queue) return everywhere({ root, id, signal, go });
  const path = `queues/${seg(queue)}/tasks/${seg(id)}`;
  const [now, body, failed, log, why] = ["", "Reading …", "", "", "Reading …"].map((text) => h("div", null, text));
  // What stands below is shown when the task is, which would move it.
  const below = h("div", { hidden: true }, failed, log, h("h2", null, "Why it is where it is"), why);
  show(root, h("h1", null, "Task ", h("span", { class: "mono" }, safe(id))), now, body, below);
  const [ended, written, explained] = ["attempts", "log", "explain"].map((what) => early(get(`${path}/${what}`, {}, signal)));
  let seen = null;
  // What has not changed stays as it is: somebody may be reading it.
  let [drawn, lines] = ["", ""];
  const follow = async (asked) => {
    const { progress } = seen;
    if (drawn !== JSON.stringify(progress)) show(now, progress && farther(progress));
    drawn = JSON.stringify(progress);
    const found = await (asked ?? get(`${path}/log`, {}, signal));
    if (lines !== JSON.stringify(found)) show(log, writtenDown(found));
    lines = JSON.stringify(found);
  };
  const read = () => into(body, () => get(path, {}, signal), (found) => {
    seen = found;
    return whole({ found, path, me, again, go });
  });
  const isThere = await read();
  below.hidden = false;
  if (isThere) {
    await into(failed, () => ended, attempts);
    await follow(written).catch((error) => error.name === "AbortError" || show(log, failure(error)));
  }
  await into(why, () => explained, explanation);
  // Neither progress nor log moves its queue.
  reread(null, async () => {
    if (seen?.state !== "active") return;
    try {
      seen = await get(path, {}, signal);
      await follow();
    } catch {
      // When it ends, its queue moves.
    }
  }, signal);
  // It is looked at again when its queue has moved, unless somebody writes in it.
  let before = null;
  watch((look) => {
    const row = look.queues.find((other) => other.queue === queue);
    const now = JSON.stringify(row && [row.pending, row.active, row.scheduled, row.retry, row.archived, row.completed, row.processed_total]);
    const isBusy = body.contains(document.activeElement) || document.querySelector("dialog[open]");
    if (before !== null && before !== now && !isBusy && seen) again();
    before = now;
  }, signal);
}

const explanation = (found) => h("ul", null, found.reasons.map((reason) => h("li", null, safe(reason.text))));

/** How far it is. */
function farther({ percent, note, at }) {
  const told = `${percent} % ${safe(note)}`;
  return h("p", null, h("progress", { max: 100, value: percent, "aria-label": "Progress" }), ` ${told} `, h("span", { class: "dim" }, time(at)));
}

function attempts({ failed, items }) {
  if (!items.length) return null;
  const { backtrace } = items.at(-1);
  return [table(`Attempts that failed at servers that remember it, the last ${items.length} of ${failed}`, [
    { head: "Ended", cell: (row) => time(row.at) }, { head: "Took", n: true, cell: (row) => duration(row.took_ms) }, { head: "End", cell: (row) => row.end },
    { head: "Server", cell: (row) => h("span", { class: "mono" }, short(row.server, 80)) }, { head: "Error", cell: (row) => safe(row.error) },
  ], items), backtrace && h("details", null, h("summary", null, "Backtrace of the last"), h("pre", null, backtrace.split("\n").map((line) => `${safe(line)}\n`)))];
}

function writtenDown({ left_out: before, items }) {
  if (!items.length && !before) return null;
  const told = before ? `, the last ${items.length} of ${before + items.length} lines` : "";
  return [h("h2", null, "Log", h("span", { class: "dim" }, told)), h("pre", { "data-log": true }, items.map((line) => [time(line.at), ` #${line.attempt} ${safe(line.text)}\n`]))];
}

async function everywhere({ root, id, signal, go }) {
  const box = h("input", { type: "search", value: id, "aria-label": "Task id", class: "wide" });
  const list = h("div", null);
  const form = h("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); go(page("task", { id: box.value.trim() })); } }, h("label", { class: "grow" }, "Task id", box), h("button", null, "Find"));
  show(root, h("h1", null, "Find a task"), form, list);
  if (!id) return;
  await into(list, () => get(`tasks/${seg(id)}`, {}, signal), (answer) => (answer.items.length
    ? table("Tasks of this id", [
      { head: "Queue", cell: (found) => h("a", { href: page("task", { queue: found.queue, id }) }, safe(found.queue)) },
      { head: "State", cell: (found) => found.state }, { head: "Type", cell: (found) => safe(found.type) },
    ], answer.items)
    : h("p", null, "No queue has a task of this id. One that succeeded without a retention leaves no trace.")));
}

/** How far a cancellation is. */
const cancelled = ({ outcome, server }) => ({
  done: "nobody worked on it; it is archived", told: `recorded, and told to ${safe(server)}, which works on it`, ended: "it had ended before",
  recorded: "recorded; no server that works on it listens now",
})[outcome];

function whole({ found, path, me, again, go }) {
  const { queue, id, state } = found;
  const button = (name, method, more, options) => act(me, name, {
    what: "this task", subject: id, done: again, work: () => send(method, path + more).then((answer) => (answer.changed ? undefined : "no server was there to hear it")), ...options,
  });
  const buttons = [
    state !== "active" && state !== "pending" && button("task.run", "POST", "/run"),
    !["active", "archived", "completed"].includes(state) && button("task.archive", "POST", "/archive"),
    state !== "active" && button("task.delete", "DELETE", "", { done: () => go(page("tasks", { queue, state })) }),
    state === "active" && button("task.cancel", "POST", "/cancel", { work: () => send("POST", `${path}/cancel`).then(cancelled) }),
    state === "active" && button("task.interrupt", "POST", "/interrupt"),
    me.permissions.includes("enqueue") && h("a", { href: page("enqueue", { queue, from: id }) }, "Enqueue another one like it"),
  ];
  return [
    h("div", { class: "bar" }, buttons.filter(Boolean)),
    life(found),
    facts([
      ["Queue", queueLink(queue)], ["Type", safe(found.type)], ["State", h("b", null, state, found.orphaned ? " (orphaned: its worker is gone or silent)" : "")],
      ["Retried", `${found.retried} of ${found.max_retry}`], found.group && ["Group", safe(found.group)],
      found.last_error && ["Last error", h("pre", null, safe(found.last_error))],
      ["Timeout", found.timeout_secs === null ? "none" : duration(found.timeout_secs * 1000)], found.deadline && ["Deadline", time(found.deadline)],
      ["Kept after success", found.retention_secs ? duration(found.retention_secs * 1000) : "not at all"],
    ]),
    Object.keys(found.headers).length ? [h("h2", null, "Headers"), facts(Object.entries(found.headers).map(([name, value]) => [safe(name), h("code", null, safe(value))]))] : null,
    content("Payload", found.payload, found.payload_bytes, `${path}/payload`),
    found.result_bytes === null ? null : content("Result", found.result, found.result_bytes, `${path}/result`),
    editor({ found, path, me, again }),
    h("details", null, h("summary", null, "The same on the command line"), h("pre", null,
      ["inspect", "run", "archive", "delete"].map((verb) => `queuectl task ${verb} -q ${quote(queue)} -i ${quote(id)}\n`), `queuectl explain -q ${quote(queue)} ${quote(id)}`)),
  ];
}

const quote = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${safe(text).replaceAll("'", "'\\''")}'`);

/** What is known of its life. When it was enqueued is recorded by nobody. */
function life(found) {
  const steps = [
    found.last_failed_at && ["bad", `failed, attempt ${Math.max(found.retried, 1)}`, found.last_failed_at],
    found.completed_at && ["", "succeeded", found.completed_at],
    found.state === "scheduled" && ["", "is due", found.next_process_at],
    found.state === "retry" && ["", "next attempt", found.next_process_at],
    found.state === "active" && ["", "a worker has it now", null],
    found.state === "pending" && ["", "waits for a worker", null],
  ].filter(Boolean);
  return h("ol", { class: "life", "aria-label": "What is known of its life" }, steps.map(([kind, what, at]) => h("li", { class: kind || null }, what, at ? [" ", time(at)] : null)));
}

function content(name, value, size, path) {
  const hidden = settings.payloads !== "shown";
  const pre = h("pre", null, hidden ? "hidden by the settings" : safe(pretty(value)));
  return [h("h2", null, name, h("span", { class: "dim" }, ` ${bytes(size)}${size > 65536 ? ", the beginning of it" : ""}`)), pre, h("a", { href: url(path), download: "" }, "Download")];
}

function editor({ found, path, me, again }) {
  if (!me.permissions.includes("update") || ["active", "completed"].includes(found.state) || typeof found.payload !== "string" || found.payload_bytes > 65536) return null;
  // Whoever has the key notices that it was changed, and archives it.
  if (found.headers?.["x-encrypted"]) return null;
  const text = h("textarea", { value: found.payload, "aria-label": "New payload", spellcheck: "false" });
  const save = async () => {
    try {
      await send("PUT", `${path}/payload`, { body: text.value, headers: { "if-match": found.etag, "content-type": "application/octet-stream" } });
      say("the payload is another one now");
      document.activeElement?.blur();
      again();
    } catch (error) {
      say(error.message, true);
    }
  };
  return h("details", null, h("summary", null, "Change the payload"), text, h("div", { class: "bar" }, h("button", { type: "button", onclick: save }, "Save")));
}
