// The keyboard: as in `queuectl dash`.

import { h } from "./dom.js";
import { set, settings } from "./settings.js";

const HELP = [
  ["1 … 9", "the pages in their order"], ["j, k", "next, previous row"], ["g, G", "first, last row"], ["Enter", "open"],
  ["/", "filter"], ["r a d c i", "run, archive, delete, cancel the task, or interrupt its attempt"], ["s", "pause or resume"], ["n", "next page"],
  ["z", "relative, local or UTC times"], ["t", "theme"], ["Esc", "close"], ["?", "this help"],
];

const rows = () => [...document.querySelectorAll("main tbody tr a, main tbody tr button[data-row]")].filter((link, at, all) =>
  all.findIndex((other) => other.closest("tr") === link.closest("tr")) === at);

function step(by) {
  const all = rows();
  if (all.length === 0) return;
  const at = all.findIndex((link) => link.closest("tr").contains(document.activeElement));
  const next = by === Infinity ? all.length - 1 : by === -Infinity ? 0 : Math.min(Math.max(at + by, 0), all.length - 1);
  all[next].focus();
}

function press(selector) {
  const row = document.activeElement?.closest?.("tr");
  const found = [...(row ?? document).querySelectorAll(row ? selector : `main :is(${selector})`)];
  // Of several, none is meant more than another.
  if (found.length === 1) found[0].click();
}

function help() {
  const dialog = h("dialog", { "aria-labelledby": "help" },
    h("h2", { id: "help" }, "Keys"),
    h("dl", { class: "facts" }, HELP.map(([key, what]) => [h("dt", { class: "mono" }, key), h("dd", null, what)])),
    h("form", { method: "dialog" }, h("button", null, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

export function listen(redraw) {
  document.addEventListener("keydown", (event) => {
    const typing = /^(input|textarea|select)$/i.test(event.target.tagName) || document.querySelector("dialog[open]");
    if (settings.keys !== "on" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key;
    const next = (name, values) => {
      set(name, values[(values.indexOf(settings[name]) + 1) % values.length]);
      redraw();
    };
    const actions = { r: "run", a: "archive", d: "delete", c: "cancel", i: "interrupt" };
    if (key === "?") help();
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "g") step(-Infinity);
    else if (key === "G") step(Infinity);
    else if (key === "/") document.querySelector("main input[type=search]")?.focus();
    else if (key === "n") document.querySelector("main [data-next]")?.click();
    else if (key === "s") press("[data-action$='pause'], [data-action$='resume']");
    else if (key === "z") next("zone", ["relative", "local", "utc"]);
    else if (key === "t") next("theme", ["auto", "light", "dark"]);
    else if (/^[1-9]$/.test(key)) document.querySelectorAll("header nav a")[Number(key) - 1]?.click();
    else if (actions[key]) press(`[data-action='task.${actions[key]}']`);
    else return;
    event.preventDefault();
  });
}
