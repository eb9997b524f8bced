// Periodic entries.

import { get, page, seg, send } from "../api.js";
import { h, show } from "../dom.js";
import { number, oneLine, safe, short, time } from "../format.js";
import { act, into, queueLink, table, taskLink } from "../ui.js";

export default async function cron({ root, me, params, signal, again }) {
  const chosen = params.get("entry");
  const list = h("div", null, "Reading …");
  const history = h("div", null);
  show(root, h("h1", null, "Periodic entries"), list, history);
  await into(list, () => get("cron", {}, signal), (answer) => table(answer.total ? `${number(answer.total)} entries` : "No periodic entries", [
    { head: "Entry", cell: (row) => h("a", { href: page("cron", { entry: row.id }) }, safe(row.id)) },
    { head: "Spec", cell: (row) => [h("code", null, safe(row.spec)), row.timezone ? ` ${safe(row.timezone)}` : ""] },
    { head: "Type", cell: (row) => short(row.type, 50) }, { head: "Queue", cell: (row) => queueLink(row.queue) },
    { head: "State", cell: (row) => h("span", { class: row.state === "active" ? "good" : "warn" }, row.state) },
    { head: "Next", cell: (row) => time(row.next) }, { head: "Last", cell: (row) => (row.last_task ? [time(row.last), " ", taskLink(row.queue, row.last_task, "task")] : time(row.last)) },
    { head: "Payload", cell: (row) => h("code", null, oneLine(row.payload)) },
    { head: "", cell: (row) => (row.scheduler === "go" ? h("span", { class: "dim" }, "Go's: to look at") : buttons(me, row, again)) },
  ], answer.items));
  if (!chosen) return;
  show(history, h("p", null, "Reading …"));
  await into(history, () => get(`cron/${seg(chosen)}/history`, { limit: 100 }, signal), (answer) => [
    h("h2", null, "What became of the ticks of ", safe(chosen)),
    table("Newest first", [
      { head: "At", cell: (row) => time(row.enqueued_at) }, { head: "Outcome", cell: (row) => h("span", { class: row.outcome === "enqueued" ? "good" : "warn" }, safe(row.outcome)) },
      { head: "Why", cell: (row) => safe(row.why ?? "–") }, { head: "Tick", cell: (row) => time(row.tick) }, { head: "Task", cell: (row) => h("span", { class: "mono" }, short(row.task_id, 80)) },
    ], answer.items),
  ]);
}

function buttons(me, row, done) {
  const path = `cron/${seg(row.id)}`;
  const options = { what: "this periodic entry", subject: row.id, done };
  return [
    row.state === "paused" ? act(me, "cron.resume", { ...options, work: () => send("DELETE", `${path}/pause`).then(() => undefined) })
      : row.state === "active" && act(me, "cron.pause", { ...options, work: () => send("PUT", `${path}/pause`).then(() => undefined) }),
    " ",
    act(me, "cron.run", { ...options, work: async () => `task ${(await send("POST", `${path}/run`)).task_id} is enqueued` }),
    row.state === "stopped" && act(me, "cron.remove", { ...options, work: () => send("DELETE", path).then(() => undefined) }),
  ];
}
