// Redis itself: what is wrong with it, what to do, and the numbers behind that.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { bytes, duration, number, safe, short, time } from "../format.js";
import { facts, into, queueLink, table } from "../ui.js";

const SUBJECTS = { memory: "Memory", persistence: "Persistence", clients: "Clients", replication: "Replication", work: "Work" };
const BYTES = /^(used_memory.*|maxmemory|total_system_memory)$/;

export default async function redis({ root, signal }) {
  const list = h("div", null, "Reading …");
  const again = h("button", { type: "button" }, "Look again");
  show(root, h("h1", null, "Redis"), h("div", { class: "bar" }, again), list);
  const read = () => into(list, () => get("redis", {}, signal), report);
  again.addEventListener("click", read);
  await read();
}

function value(name, text) {
  if (name === "maxmemory" && text === "0") return "no limit";
  if (BYTES.test(name) && /^\d+$/.test(text)) return bytes(Number(text));
  if (name === "uptime_in_seconds") return duration(Number(text) * 1000);
  if (name === "rdb_last_save_time") return time(new Date(Number(text) * 1000).toISOString());
  return /^\d+$/.test(text) ? number(Number(text)) : safe(text);
}

function report(look) {
  const { median_us, longest_us, pings } = look.round_trips;
  const ms = (us) => `${(us / 1000).toFixed(us < 10000 ? 2 : 0)} ms`;
  const found = [
    ...look.findings.map((row) => ({ kind: row.severity, what: [safe(row.meaning), row.detail ? `: ${short(row.detail, 300)}` : ""], advice: row.advice })),
    ...look.advice.map((row) => ({ kind: "advice", what: `${row.about}: ${safe(row.seen)}`, advice: row.advice })),
  ];
  return [
    facts([["Address", safe(look.target)], ["Server", safe(look.server ?? "unknown")], ["Round trip", `half of ${pings} answers within ${ms(median_us)}, all within ${ms(longest_us)}`]]),
    found.length ? table("What to look at", [
      { head: "How bad", cell: (row) => h("span", { class: /error|warning/.test(row.kind) ? "bad" : "dim" }, row.kind) }, { head: "What", cell: (row) => row.what },
      { head: "What to do", cell: (row) => safe(row.advice) },
    ], found) : h("p", { class: "good" }, "Nothing is wrong with it."),
    Object.entries(SUBJECTS).filter(([subject]) => look.facts[subject]).map(([subject, title]) => [
      h("h2", null, title), facts(Object.entries(look.facts[subject]).map(([name, text]) => [h("code", null, name), value(name, text)])),
    ]),
    look.places.length ? table("Where the queues lie", [
      { head: "Queue", cell: (row) => queueLink(row.queue) }, { head: "Slot", n: true, cell: (row) => number(row.slot) }, { head: "Nodes", cell: (row) => safe(row.nodes.join(", ")) },
    ], look.places) : null,
  ];
}
