// Requests of the page to its server: JSON, and streams of events. All carry one key, which the page asks for when the server wants one.

const KEY = "hocket.key";
let key = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
const listeners = new Set();

export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error?.code ?? null;
    this.hint = error?.hint ?? null;
  }
}

export function hasKey() {
  return key !== "";
}

export function setKey(text, keep) {
  key = text.trim();
  sessionStorage.setItem(KEY, key);
  if (keep && key) localStorage.setItem(KEY, key);
  else localStorage.removeItem(KEY);
}

// Called when an answer says that a key is missing or wrong.
export function onKeyNeeded(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function headers(body) {
  const out = {};
  if (body !== undefined) out["Content-Type"] = "application/json";
  if (key) out.Authorization = `Bearer ${key}`;
  return out;
}

async function failure(answer) {
  let error = null;
  try {
    error = (await answer.json()).error;
  } catch {
    // not JSON: the status says enough
  }
  const failed = new ApiError(answer.status, error);
  if (answer.status === 401) listeners.forEach((tell) => tell(failed));
  return failed;
}

async function ask(path, body, signal) {
  let answer;
  try {
    answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers: headers(body),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "the server does not answer", hint: "is it still running?" });
  }
  if (!answer.ok) throw await failure(answer);
  return answer;
}

export const getJson = async (path, signal) => (await ask(path, undefined, signal)).json();
export const postJson = async (path, body, signal) => (await ask(path, body, signal)).json();
export const getBuffer = async (path) => (await ask(path)).arrayBuffer();

// Calls `take` with each event's JSON until [DONE]. An event that is an error is thrown.
export async function postEvents(path, body, take, signal) {
  const answer = await ask(path, body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    rest += value;
    const events = rest.split(/\r?\n\r?\n/);
    rest = events.pop();
    for (const event of events) {
      const data = event
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).replace(/^ /, ""))
        .join("\n");
      if (data === "" || data === "[DONE]") continue;
      const json = JSON.parse(data);
      if (json.error) throw new ApiError(json.error.status ?? 500, json.error);
      take(json);
    }
  }
}
