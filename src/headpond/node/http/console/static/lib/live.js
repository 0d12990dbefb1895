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
          setFound((old) => ({ path, data, at, error: null, previous: old.path === path ? { data: old.data, at: old.at } : null }));
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

// The share by which `part` grew of that by which `whole` did, between two readings; null where nothing grew.
export const grown = (before, now, part, whole) => {
  const more = before && now ? whole(now) - whole(before) : 0;
  return more > 0 ? Math.min(1, Math.max(0, (part(now) - part(before)) / more)) : null;
};

const HOPS = {
  topics: [(each) => each.topic, (each) => [each.segments, each.announced, each.segments, each.segments + each.duplicates]],
  subscriptions: [(each) => `${each.topic}/${each.subscription}`, (each) => [each.reached, each.entries, each.first_copies, each.copies]],
  links: [(each) => each.link, (each) => [each.messages, each.messages + each.lag, each.records, each.records + each.duplicates]],
};
export const RECENT_S = 30;

// R, UR and speed (of what arrived) in the last half minute: `recent(kind, row)` of a row of the newest event of /v1/top/events.
export function useRecent(top) {
  const readings = useRef([]);
  const last = readings.current[readings.current.length - 1];
  if (top && last?.top !== top) {
    const counts = {};
    for (const [kind, [nameOf, hop]] of Object.entries(HOPS)) counts[kind] = new Map(top[kind].map((row) => [nameOf(row), hop(row)]));
    const now = performance.now();
    readings.current = [...readings.current.filter((each) => now - each.at <= RECENT_S * 1000).map(({ at, counts }) => ({ at, counts })), { at: now, counts, top }];
  }
  return (kind, row) => {
    const name = HOPS[kind][0](row);
    const known = readings.current.filter((each) => each.counts[kind].has(name));
    if (known.length < 2) return { r: null, ur: null, speed: null };
    const [first, now] = [known[0], known[known.length - 1]];
    const share = (part, whole) => grown(first.counts[kind].get(name), now.counts[kind].get(name), (each) => each[part], (each) => each[whole]);
    const speed = (now.counts[kind].get(name)[0] - first.counts[kind].get(name)[0]) * 1000 / (now.at - first.at);
    return { r: share(0, 1), ur: share(2, 3), speed: Math.max(0, speed) };
  };
}

export function useApiState() {
  const [, redraw] = useReducer((number) => number + 1, 0);
  useEffect(() => onChange(redraw), []);
}
