// Changes of many tasks, and what they have deleted.

import { get, page, seg, send } from "../api.js";
import { h, show, text } from "../dom.js";
import { number, safe, short, time } from "../format.js";
import { reread, watch } from "../live.js";
import { carryOut, isOver } from "../operation.js";
import { act, into, table } from "../ui.js";

const BAD = ["failed", "stopped"];

export default async function operations({ root, me, signal }) {
  const list = h("div", null, "Reading …");
  const read = () => into(list, () => Promise.all([get("operations", {}, signal), get("bin", {}, signal)]), ([answer, bins]) => {
    const left = new Map(bins.items.map((bin) => [bin.operation.id, bin]));
    return table(answer.items.length ? "Newest first, of the last seven days" : "There were none in the last seven days", [
      { head: "At", cell: (row) => time(row.created_at) },
      { head: "Who", cell: (row) => [safe(row.actor), h("span", { class: "dim" }, ` ${safe(row.via)}`)] },
      { head: "What", cell: (row) => [h("strong", null, row.action), " ", which(row), row.rate ? `, ${row.rate} at the most` : null, row.reason ? h("div", { class: "dim" }, short(row.reason, 200)) : null] },
      { head: "State", cell: (row) => [h("span", { "data-state": row.id, class: BAD.includes(row.state) ? "bad" : null }, row.state), row.error ? h("div", { class: "bad" }, short(row.error, 200)) : null] },
      { head: "Progress", cell: (row) => h("span", { "data-progress": row.id }, progress(row)) },
      { head: "In the bin", cell: (row) => inBin(left.get(row.id)) },
      { head: "", cell: (row) => buttons(me, row, left.get(row.id), read) },
    ], answer.items);
  });
  show(root, h("h1", null, "Operations"),
    h("p", { class: "dim" }, "Changes of many tasks. They go on although their page is closed, and at another dashboard if this one ends. What was deleted into the bin can be restored for a day; its memory is free when the day is over, or the bin is emptied."), list);
  await read();
  let live = new Set();
  watch((overview) => {
    overview.operations.forEach((row) => {
      const at = (name) => list.querySelector(`[data-${name}="${CSS.escape(row.id)}"]`);
      if (at("state")) text(at("state"), row.state);
      if (at("progress")) text(at("progress"), progress(row));
    });
    // One that has come or ended has other buttons.
    const now = new Set(overview.operations.map((row) => row.id + isOver(row)));
    if ([...now].some((id) => !live.has(id))) read();
    live = now;
  }, signal);
  reread(list, read, signal);
}

const progress = (row) => `${number(row.changed)} changed, ${number(row.skipped)} skipped; looked at ${number(row.looked_at)} of ${number(row.of)}`;

/** Which tasks it is about. */
export const which = (row) => {
  const queues = safe(row.queues.join(", "));
  if (row.filter !== undefined) return [queues, ": ", h("code", null, short(row.filter, 200))];
  const some = row.ids?.length ? `${number(row.ids.length)} tasks of ` : "";
  return row.operation ? `${queues}: ${some}what ${safe(row.operation)} has deleted` : `${queues}: ${number(row.ids?.length ?? 0)} tasks by their ids`;
};

const inBin = (bin) => (bin ? [h("a", { href: page("bin", { id: bin.operation.id }) }, `${number(Object.values(bin.tasks).reduce((sum, count) => sum + count, 0))} tasks`), " until ", time(bin.until)] : "–");

function buttons(me, row, bin, again) {
  const what = "this operation";
  const subject = row.id;
  const steer = (state) => async () => {
    await send("PATCH", `operations/${seg(row.id)}`, { json: { state } });
  };
  if (!isOver(row)) {
    return [
      row.state === "paused"
        ? act(me, "operation.resume", { what, subject, quiet: true, work: steer("running"), done: again })
        : act(me, "operation.pause", { what, subject, quiet: true, work: steer("paused"), done: again }),
      act(me, "operation.cancel", { what, subject, work: steer("cancelled"), done: again }),
    ];
  }
  if (!bin) return null;
  const tasks = Object.values(bin.tasks).reduce((sum, count) => sum + count, 0);
  return [
    act(me, "bin.restore", { what: `${number(tasks)} tasks`, subject, word: "Undo", done: again, work: async () => {
      await carryOut(me, { action: "restore", operation: row.id }, again);
      return "";
    } }),
    act(me, "bin.empty", { what: `${number(tasks)} tasks`, subject, done: again, before: () => ({ count: tasks }), work: () => send("DELETE", `bin/${seg(row.id)}`).then(() => null) }),
  ];
}
