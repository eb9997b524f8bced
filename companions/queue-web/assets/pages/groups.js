// Groups of a queue: tasks that wait to be aggregated.

import { get, page, seg } from "../api.js";
import { h, show } from "../dom.js";
import { number, safe } from "../format.js";
import { into, queueLink, table } from "../ui.js";

export default async function groups({ root, params, signal }) {
  const queue = params.get("queue") ?? "";
  const list = h("div", null, "Reading …");
  show(root, h("h1", null, "Groups of ", queueLink(queue)), list);
  const quoted = (group) => `group:"${group.replace(/["\\]/g, "\\$&")}"`;
  await into(list, () => get(`queues/${seg(queue)}/groups`, {}, signal), (answer) => table(`${number(answer.total)} groups`, [
    { head: "Group", cell: (row) => h("a", { href: page("tasks", { queue, state: "aggregating", q: quoted(row.group) }) }, safe(row.group) || "(no name)") },
    { head: "Tasks", n: true, cell: (row) => number(row.size) },
  ], answer.items));
}
