// The stream of overviews: one for the page, closed while nobody sees it.

import { refused, url } from "./api.js";

const listeners = new Set();
let source = null;
let last = null;
let again = null;
let pauses = 0;

/** Says above the page what is wrong; nothing, that all is well. */
export function trouble(message) {
  const bar = document.getElementById("trouble");
  bar.hidden = !message;
  if (bar.textContent !== message) bar.textContent = message;
}

function open() {
  if (source || pauses > 0 || document.hidden) return;
  clearTimeout(again);
  source = new EventSource(url("events"));
  source.addEventListener("overview", (event) => {
    trouble("");
    last = JSON.parse(event.data);
    listeners.forEach((listener) => listener(last));
  });
  source.addEventListener("notice", (event) => {
    const notice = JSON.parse(event.data);
    trouble(`Redis cannot be read: ${notice.error.replace(/[.?!]$/, "")}. What is shown is old; this page goes on by itself.`);
  });
  source.addEventListener("error", () => {
    trouble("The dashboard's server does not answer. What is shown is old; this page tries again.");
    // A browser tries again by itself, unless the answer was an error.
    if (source?.readyState === EventSource.CLOSED) {
      close();
      again = setTimeout(open, 5000);
      refused();
    }
  });
}

function close() {
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
window.addEventListener("pagehide", close);
window.addEventListener("pageshow", open);

/** Calls this with every overview, the last one at once, until the signal. */
export function watch(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener));
  open();
  if (last) listener(last);
}

const EVERY_MS = 4000;

/** Reads something again and again until the signal, while somebody looks at the page, and neither writes in it nor is asked something. */
export function reread(element, read, signal) {
  let last = Date.now();
  watch(() => {
    if (Date.now() - last < EVERY_MS || element?.contains(document.activeElement) || document.querySelector("dialog[open]")) return;
    last = Date.now();
    read();
  }, signal);
}

/** Closes the stream until the signal, for a page that has one of its own: a browser opens six connections to a server at the most. */
export function pause(signal) {
  pauses += 1;
  close();
  signal.addEventListener("abort", () => {
    pauses -= 1;
    open();
  });
}
