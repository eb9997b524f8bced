// Limits of queues, and what runs and waits under each key of one.

import { get, page, seg, send } from "../api.js";
import { h, show } from "../dom.js";
import { duration, number, safe, short, time } from "../format.js";
import { reread } from "../live.js";
import { act, into, queueLink, table } from "../ui.js";

export default async function limits({ root, me, params, signal, go, again }) {
  const [queue, name] = [params.get("queue") ?? "", params.get("limit") ?? ""];
  const list = h("div", null, "Reading …");
  const lanes = h("div", null);
  show(root, h("h1", null, queue ? ["Limits of ", queueLink(queue)] : "Limits"), list, lanes, form({ me, queue, go }));
  const path = queue ? `queues/${seg(queue)}/limits` : "limits";
  const read = () => into(list, () => get(path, {}, signal), (answer) => [table(answer.total ? `${number(answer.total)} limits` : "No limits", columns({ me, again }), answer.items), ...unaware(answer.items), ...unreadable(answer)]);
  await read();
  reread(list, read, signal);
  if (queue && name) await keys({ lanes, me, queue, name, signal, again });
}

const rate = (row) => (row.rate === undefined ? "–" : `${number(row.rate)} in ${duration(row.per)}${row.burst > 1 ? `, ${number(row.burst)} at once after a rest` : ""}`);

const columns = ({ me, again }) => [
  { head: "Limit", cell: (row) => h("a", { href: page("limits", { queue: row.queue, limit: row.name }) }, safe(row.name)) }, { head: "Queue", cell: (row) => queueLink(row.queue) },
  { head: "By", cell: (row) => h("code", null, short(row.key, 60)) }, { head: "Types", cell: (row) => short((row.types ?? []).join(" ") || "all", 80) },
  { head: "At once", n: true, cell: (row) => (row.order === "strict" ? "in order" : row.fair && row.concurrency === undefined ? "in turn" : number(row.concurrency)) }, { head: "Starts", cell: rate },
  { head: "Running", n: true, cell: (row) => number(row.running) }, { head: "Waiting", n: true, cell: (row) => h("span", { class: row.waiting ? "warn" : null }, number(row.waiting)) },
  { head: "Parked, ever", n: true, cell: (row) => number(row.parked) }, { head: "Too many, ever", n: true, cell: (row) => number(row.too_many) },
  { head: "", cell: (row) => act(me, "limit.remove", { what: "this queue", word: "Remove the limit", subject: `${row.queue}: ${row.name}`, done: again, work: () => send("DELETE", `queues/${seg(row.queue)}/limits/${seg(row.name)}`).then(() => `limit ${row.name} is removed`) }) },
];

function unaware(items) {
  const queues = new Map(items.filter((row) => row.unaware_servers.length).map((row) => [row.queue, row.unaware_servers]));
  return [...queues].map(([queue, servers]) => h("p", { class: "warn" }, `Queue ${safe(queue)} is served without regard to its limits by ${short(servers.join(", "), 400)}`));
}

function unreadable(answer) {
  return (answer.unreadable ?? []).map((row) => h("p", { class: "bad" }, [queueLink(row.queue), ": ", short(row.detail, 400)]));
}

async function keys({ lanes, me, queue, name, signal, again }) {
  const path = `queues/${seg(queue)}/limits/${seg(name)}`;
  const rows = h("div", null, "Reading …");
  show(lanes, h("h2", null, "Keys of ", safe(name)), h("p", { class: "dim" }, "Keys under which tasks run or wait, or for which something is different. What has ended, or was run by another tool, is counted until somebody looks."), one({ me, path, name, again }), rows);
  let at;
  const read = (cursor) => {
    at = cursor;
    return into(rows, () => get(`${path}/lanes`, { cursor, limit: 50 }, signal), (answer) => [
      table(answer.items.length ? "By name" : "Nothing runs or waits under it", [
        { head: "Key", cell: (row) => h("b", null, short(row.key, 120) || "(all of the queue)") }, { head: "Running", n: true, cell: (row) => number(row.running) },
        { head: "Waiting", n: true, cell: (row) => h("span", { class: row.waiting ? "warn" : null }, number(row.waiting)) },
        { head: "Next look", cell: (row) => (row.waiting ? (row.next_look ? time(row.next_look) : "when a run ends") : "–") },
        { head: "At once", n: true, cell: (row) => (row.concurrency === null ? "as for all" : number(row.concurrency)) }, { head: "State", cell: (row) => (row.paused ? h("span", { class: "warn" }, "paused") : row.rests_until ? h("span", { class: "warn" }, "too much failed; one tries after ", time(row.rests_until)) : row.slowed ? h("span", { class: "warn" }, `it was too much: cut to ${row.slowed.percent} %, whole again `, time(row.slowed.until)) : row.weight === null ? "goes on" : `goes on, weight ${number(row.weight)}`) },
        { head: "", cell: (row) => change({ me, path, name, row, again }) },
      ], answer.items),
      answer.next && h("button", { type: "button", "data-next": true, onclick: () => read(answer.next) }, "Next page"),
    ]);
  };
  await read();
  reread(rows, () => read(at), signal);
}

function change({ me, path, name, row, again }) {
  const address = `${path}/keys/${row.key === "" ? "~" : seg(row.key)}`;
  const button = (word, wish, told) => act(me, "limit.key", {
    what: "this key", word, subject: `${name}: ${row.key}`, done: again,
    work: () => (wish ? send("PUT", address, { json: { ...(row.concurrency === null ? {} : { concurrency: row.concurrency }), ...(row.weight === null ? {} : { weight: row.weight }), paused: row.paused, ...wish() } }) : send("DELETE", address)).then(() => told),
  });
  const pause = row.paused ? button("Resume", () => ({ paused: false }), "the key goes on") : button("Pause", () => ({ paused: true }), "the key is paused");
  if (!pause) return null;
  const cap = h("input", { type: "number", min: 1, "aria-label": `How many of ${short(row.key, 40)} at once`, value: row.concurrency ?? "" });
  const isDifferent = row.paused || row.concurrency !== null || row.weight !== null;
  return [pause, " ", cap, " ", button("Allow at once", () => ({ concurrency: whole(cap.value) }), "the key has a cap of its own"), isDifferent && [" ", button("As for all", null, "for the key holds what holds for all")]];
}

function whole(text) {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new Error("Write a whole number of 1 or more.");
  return value;
}

/** For a key that is not in the list, because nothing of it runs or waits. */
function one({ me, path, name, again }) {
  const key = h("input", { autocomplete: "off", "aria-label": "A key that is not in the list", placeholder: "another key" });
  const button = act(me, "limit.key", {
    what: "a key", word: "Pause", subject: name, done: again,
    before: async () => {
      if (!key.value) throw new Error("Write the key.");
      return { told: `The key is ${safe(key.value)}.` };
    },
    work: () => send("PUT", `${path}/keys/${seg(key.value)}`, { json: { paused: true } }).then(() => `key ${safe(key.value)} is paused`),
  });
  return button && h("div", { class: "bar" }, key, button);
}

const FIELDS = [
  ["queue", "Queue", "default"], ["name", "Name", "tenant"], ["key", "By", "type, header:tenant, payload:/account/id, queue"], ["types", "Types", "email:* (all)"], ["concurrency", "At once", "2"],
  ["rate", "Starts", "100/1m"], ["burst", "At once after a rest", "1"], ["adapt", "Halved where it is too much, down to one in", "16"], ["breaker", "Rests when so much fails", "50%/20/1m"], ["order", "Order", ["free", "strict"]], ["fallback", "For other servers after, s", "3600"],
];
const UNITS = { ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000 };

/** `100/1m`, as on the command line. */
function starts(text) {
  const [, count, times, unit] = /^(\d+)\/(\d*)(ms|s|m|h|d)$/.exec(text.trim()) ?? [];
  if (!unit) throw new Error("Starts are a number, a slash and a time, such as 100/1m.");
  return { rate: Number(count), per: Number(times || 1) * UNITS[unit] };
}

/** `50%/20/1m`, as on the command line. */
function breaker(text) {
  const [, percent, of, times, unit] = /^(\d+)%\/(\d+)\/(\d*)(ms|s|m|h|d)$/.exec(text.trim()) ?? [];
  if (!unit) throw new Error("A breaker is a share of failures, a number of attempts and a time, such as 50%/20/1m.");
  return { breaker: { percent: Number(percent), of: Number(of), within: Number(times || 1) * UNITS[unit], rest: 30000, most: 600000 } };
}

function form({ me, queue, go }) {
  const inputs = Object.fromEntries(FIELDS.map(([name, , hint]) => [name, Array.isArray(hint) ? h("select", { name }, hint.map((value) => h("option", { value }, value))) : h("input", { name, placeholder: hint, autocomplete: "off" })]));
  inputs.queue.value = queue || "default";
  const wish = () => {
    const value = (name) => inputs[name].value.trim();
    const limit = { key: value("key"), order: value("order"), types: value("types").split(/\s+/).filter(Boolean), ...(value("rate") ? starts(value("rate")) : {}), ...(value("breaker") ? breaker(value("breaker")) : {}) };
    for (const name of ["concurrency", "burst", "adapt", "fallback"]) if (value(name)) limit[name] = whole(value(name));
    return limit;
  };
  const button = act(me, "limit.set", {
    what: "this queue", word: "Limit", subject: "",
    before: async () => ({ told: `Queue ${safe(inputs.queue.value)}, limit ${safe(inputs.name.value)}: ${JSON.stringify(wish())}.` }),
    work: async () => {
      const made = await send("PUT", `queues/${seg(inputs.queue.value)}/limits/${seg(inputs.name.value)}`, { json: wish() });
      go(page("limits", { queue: made.queue, limit: made.name }));
      return `limit ${made.name} is set`;
    },
  });
  if (!button) return null;
  const off = queue && act(me, "limit.remove", { what: "this queue", word: "Remove all limits of", subject: queue, done: () => go(page("limits", { queue })), work: async () => `${number((await send("DELETE", `queues/${seg(queue)}/limits`)).made_pending)} tasks are pending` });
  return [h("h2", null, "Set a limit"), h("div", { class: "bar" }, FIELDS.map(([name, label]) => h("label", null, label, inputs[name])), button, off)];
}
