// Whether all queues are in order.

import { get, send } from "../api.js";
import { h, show } from "../dom.js";
import { number, safe, short, time } from "../format.js";
import { failure, into, table } from "../ui.js";

export default async function doctor({ root, signal }) {
  const list = h("div", null, "Reading …");
  const begin = h("button", { type: "button" }, "Examine all queues");
  show(root, h("h1", null, "Doctor"), h("p", null, "An examination reads every task once, in small steps, and changes nothing. ",
    h("code", null, "queuectl doctor --fix --dump FILE"), " repairs what can be repaired."), h("div", { class: "bar" }, begin), list);
  const read = async () => {
    let isRunning = false;
    await into(list, () => get("doctor", {}, signal), (answer) => {
      isRunning = answer.running;
      begin.disabled = answer.running;
      return report(answer);
    });
    if (isRunning && !signal.aborted) setTimeout(() => !signal.aborted && read(), 1000);
  };
  begin.addEventListener("click", async () => {
    begin.disabled = true;
    try {
      await send("POST", "doctor");
      await read();
    } catch (error) {
      begin.disabled = false;
      show(list, failure(error));
    }
  });
  await read();
}

function report(answer) {
  if (!answer.started) return h("p", null, "Nothing was examined since this dashboard was started.");
  const state = answer.running ? "It goes on: " : answer.error ? `It broke off: ${safe(answer.error)}. ` : ["It ended ", time(answer.ended), ": "];
  return [
    h("p", { role: "status" }, state, `${number(answer.tasks)} tasks, ${number(answer.findings)} findings.`),
    answer.items.length ? table(answer.findings > answer.items.length ? `The first ${number(answer.items.length)}` : "Findings", [
      { head: "Severity", cell: (row) => h("span", { class: row.severity === "note" ? "dim" : "bad" }, row.severity) }, { head: "Fault", cell: (row) => h("code", null, row.fault) },
      { head: "Where", cell: (row) => short([row.queue, row.subject].filter(Boolean).join(": "), 160) },
      { head: "What", cell: (row) => [safe(row.meaning), row.detail ? `: ${short(row.detail, 300)}` : ""] }, { head: "What to do", cell: (row) => safe(row.advice) },
    ], answer.items) : null,
  ];
}
