// Data that stays current: a stream of events where every reader sees the same, polling where the answer
// depends on what a person looks at (a page of a list, a search, one subscription).

import { useEffect, useReducer, useRef, useState } from "../vendor/hooks.js";
import { get, onChange, stream } from "./api.js";

const AGAIN_MS = 1000;
const POLL_MS = 3000;

// Asks for `path` now and every few seconds while the page is visible.
export function usePoll(path, everyMs = POLL_MS, ask = get) {
  const [found, setFound] = useState({ path: null, data: null, error: null });
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
          setFound({ path, data, error: null });
        } catch (error) {
          if (ending.signal.aborted) return;
          setFound((old) => (old.path === path ? { ...old, error } : { path, data: null, error }));
        }
      }
      clearTimeout(timer);  // of another look, which may have run beside this one
      if (!ending.signal.aborted) timer = setTimeout(look, everyMs);
    };
    again.current = look;
    document.addEventListener("visibilitychange", look);  // a page that was opened behind another one has nothing yet
    look();
    return () => { ending.abort(); clearTimeout(timer); document.removeEventListener("visibilitychange", look); };
  }, [path, everyMs]);
  const current = found.path === path ? found : { data: null, error: null };
  return { ...current, reload: () => again.current() };
}

// Follows a stream of events, and connects again where it ended.
export function useStream(path, onEvent) {
  const [error, setError] = useState(null);
  useEffect(() => {
    if (path == null) return undefined;
    const ending = new AbortController();
    let last = null;
    (async () => {
      while (!ending.signal.aborted) {
        try {
          await stream(path, ending.signal, (name, data, id) => { setError(null); last = id || last; onEvent(name, data); }, last);
        } catch (fault) {
          if (ending.signal.aborted) return;
          setError(fault);
          if (fault.status) last = null;  // what it names may be gone
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

// By kind: the name of a hop, and its parts and wholes of R and UR, the messages that arrived, and of topics their bytes.
const HOPS = {
  topics: [(each) => each.topic, (each) => [each.segments, each.announced, each.segments, each.segments + each.duplicates, each.messages_in, each.bytes_in]],
  subscriptions: [(each) => `${each.topic}/${each.subscription}`, (each) => [each.reached, each.entries, each.first_copies, each.copies, each.reached]],
  links: [(each) => each.link, (each) => [each.messages, each.messages + each.lag, each.records, each.records + each.duplicates, each.messages]],
};
export const RECENT_S = 30;

const SPEED_S = 10;

// By key: the first and the newest of the readings of the last `seconds`, as `collect` makes a Map of them.
function useReadings(data, collect, seconds) {
  const readings = useRef([]);
  if (data && readings.current[readings.current.length - 1]?.data !== data) {
    const now = performance.now();
    readings.current = [...readings.current.filter((each) => now - each.at <= seconds * 1000), { at: now, data, counts: collect(data) }];
  }
  return (key) => {
    const known = readings.current.filter((each) => each.counts.has(key));
    if (known.length < 2) return null;
    const [first, last] = [known[0], known[known.length - 1]];
    return { before: first.counts.get(key), now: last.counts.get(key), seconds: (last.at - first.at) / 1000 };
  };
}

// Of a row of an answer: how much a total grew per second, in the last seconds; null while that is not known.
export function useSpeeds(data, rowsOf, nameOf, totalOf, seconds = SPEED_S) {
  const found = useReadings(data, (answer) => new Map(rowsOf(answer).map((row) => [nameOf(row), totalOf(row)])), seconds);
  return (row) => {
    const reading = found(nameOf(row));
    return reading && reading.now >= reading.before ? (reading.now - reading.before) / reading.seconds : null;  // less: the node was restarted
  };
}

// The same of an answer that is one thing.
export const useSpeed = (data, totalOf) => {
  const speed = useSpeeds(data, (answer) => [answer], () => "", totalOf);
  return data ? speed(data) : null;
};

// R, UR, speed (of what arrived) and bytes per second in the last half minute: `recent(kind, row)` of a row of the newest event of /v1/top/events.
export function useRecent(top) {
  const found = useReadings(top, (answer) => new Map(Object.entries(HOPS).flatMap(([kind, [nameOf, hop]]) => answer[kind].map((row) => [`${kind} ${nameOf(row)}`, hop(row)]))), RECENT_S);
  return (kind, row) => {
    const reading = found(`${kind} ${HOPS[kind][0](row)}`);
    if (!reading) return { r: null, ur: null, speed: null, bytes_s: null };
    const share = (part, whole) => grown(reading.before, reading.now, (each) => each[part], (each) => each[whole]);
    const speed = (part) => Math.max(0, (reading.now[part] - reading.before[part]) / reading.seconds);
    return { r: share(0, 1), ur: share(2, 3), speed: speed(4), bytes_s: speed(5) };
  };
}

export function useApiState() {
  const [, redraw] = useReducer((number) => number + 1, 0);
  useEffect(() => onChange(redraw), []);
}
