// The REST API. Its address follows from that of this file, so that all works under any path.

export const base = new URL("../../", import.meta.url);
const api = new URL("api/v1/", base);

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `the server answered ${status}`);
    this.status = status;
    this.code = problem.code ?? "unknown";
    this.problem = problem;
  }
}

/** A name in a path. Proxies change some characters even if they are escaped: such a name is written in base64. */
export function seg(name) {
  if (/^~|^\.{1,2}$|[/\\%\x00-\x1f\x7f]/.test(name)) {
    const bytes = new TextEncoder().encode(name);
    const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
    return "~" + btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  }
  return encodeURIComponent(name);
}

export const url = (path, params) => {
  const address = new URL(path, api);
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== undefined && value !== null && value !== "") address.searchParams.set(name, value);
  }
  return address;
};

async function ask(method, path, { params, body, headers, signal } = {}) {
  let response;
  try {
    response = await fetch(url(path, params), { method, body, headers, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "unreachable", detail: "the dashboard's server does not answer" });
  }
  const isJson = /json/.test(response.headers.get("content-type") ?? "");
  const value = isJson ? await response.json() : {};
  // Nobody has logged in, or the session is over.
  if (response.status === 401 && value.login) window.dispatchEvent(new Event("login"));
  if (!response.ok) throw new ApiError(response.status, value);
  if (value !== null && typeof value === "object") Object.defineProperty(value, "etag", { value: response.headers.get("etag") });
  return value;
}

export const get = (path, params, signal) => ask("GET", path, { params, signal });

/** What is asked for now and looked at later: until then, nobody needs to know that it failed. */
export function early(answer) {
  answer.catch(() => {});
  return answer;
}

export const send = (method, path, { params, json, body, headers } = {}) =>
  ask(method, path, {
    params,
    body: json === undefined ? body : JSON.stringify(json),
    headers: { ...(json === undefined ? {} : { "content-type": "application/json" }), ...headers },
  });

/** After a stream was refused: a browser does not tell why, but a request does, and has somebody log in if it is that. */
export const refused = () => get("me").catch(() => {});

/** The address of a page. Pages are one level deep, and names stand in the query. */
export function page(name, params) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params ?? {})) {
    if (value !== undefined && value !== null && value !== "") query.set(key, value);
  }
  const text = query.toString();
  return `./${name}${text ? "?" + text : ""}`;
}
