// Tasks that are read page by page: a list, or a search that says how much it looked at.

import { h, show } from "./dom.js";
import { number } from "./format.js";
import { failure, tr } from "./ui.js";

const LIMIT = 50;

/** `read({limit, cursor})` asks for tasks. `parts` are shown; `start` reads from the beginning. */
export function pager({ caption, columns, read, signal }) {
  const told = h("p", { class: "dim", role: "status" }, "Reading …");
  const body = h("tbody", null);
  const list = h("div", { class: "scroll" }, h("table", { class: "cards-small" },
    h("caption", null, caption), h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.n ? "n" : null }, column.head)))), body));
  const more = h("button", { type: "button", "data-next": true, hidden: true }, "Next page");
  const stop = h("button", { type: "button", hidden: true }, "Stop searching");

  let cursor = null;
  let found = 0;
  let isStopped = false;
  let turn = 0;
  const go = async () => {
    // What was asked for before is for nobody any more.
    const mine = ++turn;
    more.hidden = true;
    let room = LIMIT;
    isStopped = false;
    try {
      // Each answer is short; a search goes on by itself, and says how far it is.
      do {
        const answer = await read({ limit: room, cursor });
        if (mine !== turn) return;
        found += answer.items.length;
        room -= answer.items.length;
        cursor = answer.next;
        body.append(...answer.items.map((task) => tr(columns, task)));
        const { looked_at, of, complete } = answer.searched;
        const looked = complete ? `looked at all ${number(of)}` : `looked at ${number(looked_at)} of ${number(of)}`;
        const moved = answer.moved ? " Tasks have come or gone so fast that some may be missing here." : "";
        show(told, answer.total === null ? `Found ${number(found)}, ${looked}.${moved}` : `${number(found)} of ${number(answer.total)}.${moved}`);
        stop.hidden = !(cursor && room > 0);
      } while (cursor && room > 0 && !isStopped && !signal.aborted);
    } catch (error) {
      if (error.name === "AbortError" || mine !== turn) return;
      show(told, failure(error));
    }
    stop.hidden = true;
    more.hidden = !cursor;
    more.textContent = isStopped ? "Search on" : "Next page";
  };
  const clear = () => {
    body.replaceChildren();
    found = 0;
  };
  more.addEventListener("click", () => {
    if (!isStopped) clear();
    go();
  });
  stop.addEventListener("click", () => {
    isStopped = true;
  });
  const start = () => {
    clear();
    cursor = null;
    return go();
  };
  return { parts: [told, list, h("div", { class: "bar" }, more, stop)], start };
}
