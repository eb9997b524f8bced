// What an operation has deleted, as long as it can be restored.

import { get, page, seg, send } from "../api.js";
import { h, show } from "../dom.js";
import { number, safe, short, time } from "../format.js";
import { carryOut } from "../operation.js";
import { pager } from "../pager.js";
import { act, facts } from "../ui.js";
import { which } from "./operations.js";

export default async function bin({ root, me, params, signal, go }) {
  const [operation, q] = [params.get("id"), params.get("q") ?? ""];
  const path = `bin/${seg(operation)}`;
  const head = h("div", null);
  const box = h("input", { type: "search", name: "q", value: q, class: "wide", placeholder: "state:archived type:email:* word", maxlength: 4096 });
  const search = (event) => {
    event.preventDefault();
    go(page("bin", { id: operation, q: box.value.trim() }));
  };
  const restore = (more, again) => async () => {
    await carryOut(me, { action: "restore", operation, ...more }, again);
    return "";
  };
  const columns = [
    { head: "Id", cell: (task) => h("span", { class: "mono" }, short(task.id, 60)) }, { head: "Queue", cell: (task) => safe(task.queue) }, { head: "Type", cell: (task) => short(task.type, 60) },
    { head: "State", cell: (task) => task.state }, { head: "Last error", cell: (task) => short(task.last_error ?? "–") },
    { head: "", cell: (task) => act(me, "bin.restore", { what: "this task", subject: task.id, work: restore({ queues: [task.queue], ids: [task.id] }, start) }) },
  ];
  const about = (answer) => {
    const left = Object.values(answer.tasks).reduce((sum, count) => sum + count, 0);
    const [what, subject] = [`${number(left)} tasks`, operation];
    show(head, facts([
      ["Deleted", [time(answer.operation.started_at), " by ", safe(answer.operation.actor)]], ["Which", which(answer.operation)],
      ["In the bin", number(left)], ["All kept until", time(answer.until)],
    ]), h("div", { class: "bar" },
      act(me, "bin.restore", { what, subject, word: "Restore all", work: restore({}, start) }),
      act(me, "bin.empty", { what, subject, before: () => ({ count: left }), work: () => send("DELETE", path).then(() => null), done: start })));
  };
  const read = async (at) => {
    try {
      const answer = await get(path, { q, ...at }, signal);
      about(answer);
      return answer;
    } catch (error) {
      show(head);
      throw error;
    }
  };
  const { parts, start } = pager({ caption: "In the order in which they were deleted", columns, read, signal });
  show(root, h("h1", null, "Bin of ", h("span", { class: "mono" }, safe(operation))), head,
    h("form", { class: "bar", role: "search", onsubmit: search }, h("label", { class: "grow" }, "Filter", box), h("button", null, "Search")), parts);
  await start();
}
