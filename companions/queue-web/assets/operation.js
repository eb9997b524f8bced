// Operations: changes of many tasks that go on although nobody looks.

import { get, seg, send } from "./api.js";
import { number } from "./format.js";
import { allowed, say } from "./ui.js";

const FIRST_MS = 200;
const SLOWEST_MS = 2000;

export const isOver = (operation) => !["queued", "running", "paused"].includes(operation.state);

/** What an operation has come to, in words. */
export function told(operation, action) {
  const left = operation.action === "restore" ? "stay in the bin" : "had moved on";
  const skipped = operation.skipped ? `; ${number(operation.skipped)} ${left}` : "";
  return `${number(operation.changed)} tasks ${action.past}${skipped}${operation.state === "done" ? "" : `; it is ${operation.state}${operation.error ? `: ${operation.error}` : ""}`}`;
}

/** Asks again and again until the operation ends or rests. */
async function ended(id) {
  for (let pause = FIRST_MS; ; pause = Math.min(pause * 1.5, SLOWEST_MS)) {
    const operation = await get(`operations/${seg(id)}`);
    if (isOver(operation) || operation.state === "paused") return operation;
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

const actionOf = (me, work) => allowed(me, work === "restore" ? "bin.restore" : `tasks.${work}`);

/** Has an operation carried out, says what has come of it, and offers to undo a deletion. */
export async function carryOut(me, wish, done) {
  try {
    const begun = await send("POST", "operations", { json: wish });
    if (begun.rate) {
      say(`It has begun, ${begun.rate} at the most. The page of operations tells how far it is.`);
      done?.();
      return;
    }
    const operation = await ended(begun.id);
    const canUndo = wish.action === "delete" && operation.changed > 0 && actionOf(me, "restore");
    const undo = { word: "Undo", work: () => carryOut(me, { action: "restore", operation: begun.id }, done) };
    say(told(operation, actionOf(me, wish.action)), operation.state === "failed" || operation.state === "stopped", canUndo ? undo : null);
    done?.();
  } catch (error) {
    say(error.message, true);
  }
}
