// The frame of all pages: which one is shown follows from the address.

import { base, get } from "./api.js";
import { h, show } from "./dom.js";
import { safe } from "./format.js";
import { listen } from "./keys.js";
import { watch } from "./live.js";
import { apply } from "./settings.js";
import { failure, say } from "./ui.js";
import login, { logout } from "./pages/login.js";

/** The pages by their addresses. Each has a file of its own, which is loaded when it is first shown. */
const PAGES = ["", "queue", "tasks", "task", "failures", "groups", "batches", "batch", "limits", "operations", "bin", "events", "servers", "cron", "redis", "doctor", "audit", "enqueue", "settings"];
const MENU = [
  ["", "Overview"], ["tasks", "Tasks"], ["failures", "Failures"], ["batches", "Batches"], ["limits", "Limits"], ["operations", "Operations"], ["servers", "Servers"], ["events", "Events"], ["cron", "Cron"], ["redis", "Redis"], ["doctor", "Doctor"], ["audit", "Audit"],
  ["enqueue", "Enqueue"], ["settings", "Settings"],
];
/** What a page is about: where the address says it, what that is, and the page on which one is chosen. */
const ABOUT = { queue: ["queue", "queue", ""], groups: ["queue", "queue", ""], task: ["id", "task", "tasks"], batch: ["id", "batch", "batches"], bin: ["id", "operation that has deleted tasks", "operations"] };

let me = null;
let shown = null;
/** Whether somebody is asked to log in: the document is loaded anew after that. */
let asks = false;

const nameOf = (address) => address.pathname.slice(base.pathname.length);

function top(current) {
  const needs = { audit: me.permissions.includes("audit"), enqueue: me.permissions.includes("enqueue"), batches: me.queues.length === 0, redis: me.queues.length === 0 };
  const may = (name) => needs[name] ?? true;
  const links = MENU.filter(([name]) => may(name)).map(([name, label]) =>
    h("a", { href: `./${name}`, "aria-current": name === current ? "page" : null }, label));
  const who = me.login ? `${me.name}, ${me.role}` : "no login";
  show(document.getElementById("top"), h("strong", null, "Queues"), h("nav", { "aria-label": "Pages" }, links),
    h("span", { class: "who" }, safe(who), me.read_only ? ", read-only" : ""), me.session && h("button", { type: "button", onclick: () => logout().catch(({ message }) => say(message, true)) }, "Log out"));
}

/** Asks for a name and a password, in the place of the page. */
function ask() {
  if (asks) return;
  asks = true;
  shown?.abort();
  shown = new AbortController();
  const root = h("div", null);
  document.querySelectorAll("dialog").forEach((dialog) => dialog.remove());
  show(document.getElementById("top"), h("strong", null, "Queues"));
  show(document.getElementById("main"), root);
  login({ root, signal: shown.signal });
}

/** Shows the page of the address. */
async function draw(focus) {
  if (asks) return;
  shown?.abort();
  shown = new AbortController();
  const { signal } = shown;
  const main = document.getElementById("main");
  let shows = null;
  try {
    const name = nameOf(location);
    const file = import(`./pages/${name || "overview"}.js`);
    // Both are on their way; that one of them fails is told below.
    const [who, page] = await Promise.all([me ?? get("me"), file]);
    if (signal.aborted) return;
    [me, shows] = [who, page.default];
    top(name);
    const root = h("div", null);
    show(main, root);
    document.title = "Queues";
    if (focus) main.focus();
    watch(() => {}, signal);
    const params = new URLSearchParams(location.search);
    const [named, what, where] = ABOUT[name] ?? [];
    if (named && !params.get(named)) {
      show(root, h("h1", null, "Which one?"), h("p", null, `This page is about one ${what}, and its address names none. `, h("a", { href: `./${where}` }, "Choose one"), "."));
      return;
    }
    await shows({ root, me, params, signal, go, again: () => draw(false) });
  } catch (error) {
    if (signal.aborted) return;
    // A file that is missing, or fits no more, is one of another version.
    show(main, failure(error), h("p", null, h("button", { onclick: () => (shows ? draw(false) : location.reload()) }, "Try again")));
  }
}

/** Goes to another page without leaving the document. */
export function go(address, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", new URL(address, base));
  return draw(!replace);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  // Of a link in a drawing, href is no text.
  const address = new URL(link.getAttribute("href"), document.baseURI);
  const ours = address.origin === base.origin && address.pathname.startsWith(base.pathname) && PAGES.includes(nameOf(address));
  if (!ours || link.hasAttribute("download") || address.hash) return;
  event.preventDefault();
  go(address);
});
window.addEventListener("popstate", () => draw(true));
window.addEventListener("login", ask);

apply();
listen(() => draw(false));
draw(false);
