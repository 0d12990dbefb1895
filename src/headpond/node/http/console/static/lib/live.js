// Data that stays current: a stream of events where every reader sees the same, polling where the answer
// depends on what a person looks at (a page of a list, a search, one subscription).

import { useEffect, useReducer, useRef, useState } from "../vendor/hooks.js";
import { get, onChange, stream } from "./api.js";

const AGAIN_MS = 1000;
const POLL_MS = 3000;

// Asks for `path` now and every few seconds while the page is visible. `previous` is the answer before.
export function usePoll(path, everyMs = POLL_MS, ask = get) {
  const [found, setFound] = useState({ path: null, data: null, previous: null, error: null });
  const again = useRef(() => {});
  useEffect(() => {
    if (path == null) return undefined;
    const ending = new AbortController();
    let timer = 0;
    const look = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        try {
          const data = await ask(path, ending.signal);
          const at = performance.now();
          setFound((old) => ({ path, data, at, error: null, previous: old.path === path ? old : null }));
        } catch (error) {
          if (ending.signal.aborted) return;
          setFound((old) => (old.path === path ? { ...old, error } : { path, data: null, previous: null, error }));
        }
      }
      if (!ending.signal.aborted) timer = setTimeout(look, everyMs);
    };
    again.current = look;
    look();
    return () => { ending.abort(); clearTimeout(timer); };
  }, [path, everyMs]);
  const current = found.path === path ? found : { data: null, previous: null, error: null };
  return { ...current, reload: () => again.current() };
}

// The rate of a total between the last two answers of usePoll.
export function rateOf(found, total) {
  const before = found.previous && found.previous.data != null ? total(found.previous.data) : null;
  const now = found.data != null ? total(found.data) : null;
  const seconds = found.previous ? (found.at - found.previous.at) / 1000 : 0;
  return before == null || now == null || now < before || seconds <= 0 ? null : (now - before) / seconds;
}

// Follows a stream of events, and connects again when it ends.
export function useStream(path, onEvent) {
  const [error, setError] = useState(null);
  useEffect(() => {
    if (path == null) return undefined;
    const ending = new AbortController();
    (async () => {
      while (!ending.signal.aborted) {
        try {
          setError(null);
          await stream(path, ending.signal, onEvent);
        } catch (fault) {
          if (ending.signal.aborted) return;
          setError(fault);
          if (fault.status === 401 || fault.status === 403) return;
        }
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    })();
    return () => ending.abort();
  }, [path]);
  return error;
}

// The last event of /v1/top/events.
export function useTop(path) {
  const [top, setTop] = useState(null);
  const error = useStream(path, (name, data) => name === "top" && setTop(data));
  return { top, error };
}

export function useApiState() {
  const [, redraw] = useReducer((number) => number + 1, 0);
  useEffect(() => onChange(redraw), []);
}
