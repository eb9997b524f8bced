// Who did what.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { number, safe, short, time } from "../format.js";
import { into, table, taskLink } from "../ui.js";

export default async function audit({ root, params, signal, go }) {
  const list = h("div", null, "Reading …");
  show(root, h("h1", null, "Audit"), h("p", { class: "dim" }, "What was done with queuectl, its dashboards and this API. Go's tools write nothing here, and whoever may write to Redis can change it."), list);
  await into(list, () => get("audit", { cursor: params.get("cursor") }, signal), (answer) => [
    table(answer.items.length ? "Newest first" : answer.next ? "Nothing here that you may see; there is more behind it" : "Nothing was done yet", [
      { head: "At", cell: (row) => time(row.at) }, { head: "Who", cell: (row) => [safe(row.actor), h("span", { class: "dim" }, ` ${safe(row.role)}, ${safe(row.via)}${row.address ? ` ${safe(row.address)}` : ""}`)] },
      { head: "What", cell: (row) => h("code", null, safe(row.action)) }, { head: "Where", cell: where },
      { head: "Outcome", cell: (row) => [h("span", { class: row.outcome === "done" ? "good" : "bad" }, row.outcome), row.changed === null ? "" : `, ${number(row.changed)} changed`, row.error ? h("div", null, short(row.error, 200)) : null] },
    ], answer.items),
    answer.next && h("button", { type: "button", "data-next": true, onclick: () => go(`./audit?cursor=${answer.next}`) }, "Older"),
  ]);
}

const where = (row) => [
  row.queue ? safe(row.queue) : "", row.entry ? safe(row.entry) : "", row.filter ? h("code", null, ` ${safe(row.filter)}`) : null,
  row.ids.map((id) => [" ", row.queue ? taskLink(row.queue, id, short(id, 40)) : safe(id)]),
];
