// Requests to the node. The token is kept for this tab alone, and sent as a header.

const KEY = "headpond.token";
let token = sessionStorage.getItem(KEY) || "";
const listeners = new Set();
// standby: the node is a member of a cluster, and another member is active.
export const state = { refused: null, reachable: true, standby: false, signedIn: token !== "" };

export const onChange = (listener) => (listeners.add(listener), () => listeners.delete(listener));

function change(values) {
  if (Object.entries(values).every(([name, value]) => state[name] === value)) return;
  Object.assign(state, values);
  for (const listener of listeners) listener();
}

export function useToken(text) {
  token = text.trim();
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
  change({ refused: null, signedIn: token !== "" });
}

export class ApiError extends Error {
  constructor(status, body) {
    super(body.message || `the node answered with status ${status}`);
    this.status = status;
    this.code = body.code || "";
    this.hint = body.hint || "";
  }
}

function lost(error) {
  if (error.name === "AbortError") return error;
  change({ reachable: false });
  return new ApiError(0, { code: "unreachable", message: "the node does not answer", hint: "The console keeps trying." });
}

async function send(method, path, body, signal, headers = {}) {
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`/v1${path}`, {
      method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    throw lost(error);
  }
  change({ reachable: true });
  if (answer.ok) return answer;
  const error = new ApiError(answer.status, await answer.json().catch(() => ({})));
  if (error.status === 401) change({ refused: error });
  if (error.code === "not-active") change({ standby: true });
  throw error;
}

export const get = async (path, signal) => (await send("GET", path, undefined, signal)).json();
export const post = async (path, body) => (await send("POST", path, body)).json();
export const patch = async (path, body) => (await send("PATCH", path, body)).json();
export const remove = async (path) => (await send("DELETE", path)).json();

// The role of a member that is not active; null once it is.
export async function getRole(signal) {
  const answer = await fetch("/readyz", { signal, cache: "no-store" }).catch((error) => { throw lost(error); });
  const role = answer.ok ? {} : await answer.json();
  change({ reachable: true, standby: role.code === "not-active" });
  return role;
}

export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value != null && value !== false);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

// The node says something every 15 s at least; a connection that is silent for longer is lost.
const SILENT_MS = 40000;

// Server-sent events, read by fetch: EventSource sends no Authorization header.
// `last` is the id of the last event that is known. The first event, `open`, is the page's own: the node has answered.
export async function stream(path, signal, onEvent, last) {
  const answer = await send("GET", path, undefined, signal, { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) });
  onEvent("open");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const silent = setTimeout(() => { change({ reachable: false }); reader.cancel(); }, SILENT_MS);
    const { value, done } = await reader.read().catch((error) => { throw lost(error); }).finally(() => clearTimeout(silent));
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      if (data !== undefined) onEvent(field("event"), JSON.parse(data), field("id"));
    }
  }
}
