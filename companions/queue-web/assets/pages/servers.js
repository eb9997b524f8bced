// Servers, Rust's and Go's, and what they work on.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { number, oneLine, safe, short, time } from "../format.js";
import { reread } from "../live.js";
import { settings } from "../settings.js";
import { into, table, taskLink } from "../ui.js";

export default async function servers({ root, signal }) {
  const list = h("div", null, "Reading …");
  show(root, h("h1", null, "Servers"), list);
  const read = () => into(list, () => get("servers", {}, signal), (answer) => [
    table(answer.total ? `${number(answer.total)} servers` : "No server is running", [
      { head: "Name", cell: (row) => short([row.name ?? "", ...row.labels.map((label) => `#${label}`)].join(" ").trim() || "–", 60) },
      { head: "Host", cell: (row) => safe(row.host) }, { head: "Process", n: true, cell: (row) => row.pid },
      { head: "Status", cell: (row) => h("span", { class: row.status === "active" ? "good" : "warn" }, safe(row.status)) },
      { head: "Started", cell: (row) => time(row.started) }, { head: "Busy", n: true, cell: (row) => `${row.workers.length} of ${row.concurrency}` },
      { head: "Queues", cell: (row) => short(Object.entries(row.queues).map(([name, weight]) => `${name}=${weight}`).join(" ") + (row.strict_priority ? " (strict)" : ""), 300) },
    ], answer.items),
    h("h2", null, "Tasks at work, the oldest first"),
    table("At most 100 are shown", [
      { head: "Task", cell: (row) => taskLink(row.queue, row.task_id, short(row.task_id, 60)) }, { head: "Type", cell: (row) => short(row.type, 60) },
      { head: "Queue", cell: (row) => safe(row.queue) }, { head: "Started", cell: (row) => time(row.started) }, { head: "Deadline", cell: (row) => time(row.deadline) },
      { head: "Payload", cell: (row) => (settings.payloads === "shown" ? h("code", null, oneLine(row.payload)) : "hidden") },
    ], answer.items.flatMap((server) => server.workers).sort((a, b) => String(a.started).localeCompare(String(b.started))).slice(0, 100)),
  ]);
  await read();
  reread(list, read, signal);
}
