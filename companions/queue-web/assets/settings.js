// What this browser remembers.

const DEFAULTS = { theme: "auto", zone: "relative", keys: "on", payloads: "shown", filters: [] };

function read() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem("queue-web") ?? "{}") };
  } catch {
    return { ...DEFAULTS };
  }
}

export const settings = read();

export function set(name, value) {
  settings[name] = value;
  try {
    localStorage.setItem("queue-web", JSON.stringify(settings));
  } catch {
    // A browser that keeps nothing forgets it with the page.
  }
  apply();
}

export function apply() {
  if (settings.theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = settings.theme;
}
