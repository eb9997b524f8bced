// All queues at a glance.

import { send, page, seg } from "../api.js";
import { h, show, text } from "../dom.js";
import { duration, number, safe, short } from "../format.js";
import { watch } from "../live.js";
import { STATES, act, queueLink, spark, stateBar, tr } from "../ui.js";

const KEPT = 60;

export default function overview({ root, me, signal }) {
  const cards = h("div", { class: "cards" }, "Reading …");
  const filter = h("input", { type: "search", "aria-label": "Queues whose name contains", placeholder: "Queue name" });
  const caption = h("caption", null);
  const body = h("tbody", null);
  const rates = new Map();
  let latest = null;

  const columns = [
    { head: "Queue", cell: (row) => [queueLink(row.queue), row.paused ? h("span", { class: "warn" }, " paused") : null, row.error ? h("div", { class: "bad" }, short(row.error)) : serving(row)] },
    { head: "Tasks", cell: (row) => stateBar(row) },
    ...STATES.map((state) => ({
      head: state, n: true,
      cell: (row) => h("a", { href: page("tasks", { queue: row.queue, state }) }, (state === "aggregating" && !row.aggregating_exact ? "≥ " : "") + number(row[state])),
    })),
    { head: "overdue", n: true, cell: (row) => h("span", { class: row.overdue ? "warn" : null }, number(row.overdue)) },
    { head: "Latency", n: true, cell: (row) => duration(row.latency_ms) },
    { head: "Per second", n: true, cell: (row) => [rate(row.processed_per_s), row.failed_per_s ? h("span", { class: "bad" }, `, ${rate(row.failed_per_s)} failed`) : null] },
    { head: "Last minutes", cell: (row) => spark(rates.get(row.queue) ?? []) },
    { head: "", cell: (row) => pauseButton(me, row) },
  ];

  const draw = (look) => {
    latest = look;
    const sum = (of) => look.queues.reduce((total, row) => total + (of(row) ?? 0), 0);
    show(cards, [
      [number(look.queues.length), "queues"], [number(sum((row) => row.size)), "tasks"], [number(sum((row) => row.pending)), "pending"],
      [`${number(look.servers.busy)} of ${number(look.servers.concurrency)}`, `slots busy on ${number(look.servers.count)} servers`],
      [rate(sum((row) => row.processed_per_s)), "done a second"], [number(sum((row) => row.failed_today)), "failed today (UTC)"],
    ].map(([value, name]) => h("div", { class: "card" }, h("b", null, value), name)));
    for (const row of look.queues) {
      const past = rates.get(row.queue) ?? [];
      past.push(row.processed_per_s ?? 0);
      rates.set(row.queue, past.slice(-KEPT));
    }
    rows();
    below.hidden = false;
  };

  const rows = () => {
    const wanted = filter.value.trim().toLowerCase();
    const visible = latest.queues.filter((row) => row.queue.toLowerCase().includes(wanted));
    text(caption, visible.length ? `${number(visible.length)} queues, as of ${new Date(latest.at).toLocaleTimeString()}; Redis at ${latest.target}` : "No queues; one comes into being with its first task");
    const old = new Map([...body.rows].map((row) => [row.dataset.queue, row]));
    visible.forEach((row, at) => {
      const before = old.get(row.queue);
      old.delete(row.queue);
      // What the keyboard is in stays where it is; the numbers beside it change.
      const held = before?.contains(document.activeElement) ? [...before.cells].findIndex((cell) => cell.contains(document.activeElement)) : -1;
      const next = tr(columns, row, { "data-queue": row.queue });
      if (!before) {
        body.insertBefore(next, body.rows[at] ?? null);
        return;
      }
      [...next.cells].forEach((cell, n) => n !== held && before.cells[n].replaceChildren(...cell.childNodes));
      if (body.rows[at] !== before) body.insertBefore(before, body.rows[at] ?? null);
    });
    old.forEach((row) => row.remove());
  };

  filter.addEventListener("input", () => latest && rows());
  const head = h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.n ? "n" : null }, column.head)));
  // Shown with the first look, whose cards would move it.
  const below = h("div", { hidden: true }, h("div", { class: "bar" }, filter),
    h("div", { class: "scroll" }, h("table", { class: "cards-small" }, caption, h("thead", null, head), body)));
  show(root, h("h1", null, "Overview"), cards, below);
  watch(draw, signal);
}

const rate = (value) => (value === null || value === undefined ? "–" : value.toFixed(value < 10 ? 1 : 0));

function serving(row) {
  if (row.servers !== 0 || !(row.pending || row.scheduled || row.retry)) return null;
  return h("div", { class: "warn" }, "no server works it");
}

export function pauseButton(me, row, done) {
  const path = `queues/${seg(row.queue)}/pause`;
  const options = { what: "this queue", subject: row.queue, done };
  return row.paused
    ? act(me, "queue.resume", { ...options, quiet: true, work: async () => { await send("DELETE", path); return `queue ${safe(row.queue)} is running`; } })
    : act(me, "queue.pause", { ...options, work: async () => { await send("PUT", path); return `queue ${safe(row.queue)} is paused`; } });
}
