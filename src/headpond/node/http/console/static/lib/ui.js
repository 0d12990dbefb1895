// The parts that pages are made of. Data becomes text nodes and nothing else.

import { Fragment, h } from "../vendor/preact.js";
import { useEffect, useId, useRef, useState } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";
import uPlot from "../vendor/uplot.js";
import { query, state } from "./api.js";
import { count, hop, inPath, share, short, shortShare } from "./format.js";
import { useApiState, usePoll } from "./live.js";

export const html = htm.bind(h);

export const Page = ({ title, crumbs, actions, children }) => {
  useEffect(() => { document.title = `${title} · Headpond`; }, [title]);
  return html`<div class="page">
    <header class="head">
      <div>${crumbs && html`<nav class="crumbs" aria-label="Breadcrumb">${crumbs}</nav>`}<h1>${title}</h1></div>
      <div class="actions">${actions}</div>
    </header>
    ${children}
  </div>`;
};

export const Panel = ({ title, note, actions, children }) => html`<section class="panel">
  ${(title || note) && html`<header>${title && html`<h2>${title}</h2>`}${note && html`<p class="muted">${note}</p>`}<div class="actions">${actions}</div></header>`}
  ${children}
</section>`;

export const Stats = ({ items }) => html`<dl class="stats">${items.filter(Boolean).map(
  ([name, value, note, tone]) => html`<div key=${name}><dt>${name}</dt><dd class=${tone || ""}>${value}</dd>${note && html`<dd class="note">${note}</dd>`}</div>`)}</dl>`;

// A hint has its commands between backticks.
const withCode = (text) => (text || "").split("`").map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));

// Where the banner says that the node does not answer, the parts of the page do not repeat it.
export const Fault = ({ error, always }) => error && (always || error.code !== "unreachable") && html`<p class="fault" role="alert"><strong>${error.message}</strong><br />${withCode(error.hint)}</p>`;

export function Banner() {
  useApiState();
  return !state.reachable && html`<p class="fault banner" role="status">The node does not answer. The console keeps trying; what you see is old.</p>`;
}

// What to show while there is nothing: why, and the next command to type.
export const Empty = ({ children, command }) => html`<div class="empty"><p>${children}</p>${command && html`<${Command} text=${command} />`}</div>`;

export const Loading = () => html`<p class="muted loading">Loading…</p>`;

export const Badge = ({ tone, children }) => html`<span class=${`badge ${tone || ""}`}>${children}</span>`;

// Whether what a stream shows is current.
export const Live = ({ error }) => (error || !state.reachable ? html`<${Badge} tone="warn">not live</${Badge}>` : html`<${Badge} tone="ok">live</${Badge}>`);

export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${Copy} text=${text} /></div>`;
}

export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // a page without TLS has no clipboard: select the text instead
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="small" onClick=${copy}>${done ? "Copied" : label}</button>`;
}

// What an ellipsis hides is shown by pointing at the cell.
const showWhole = (event) => { event.currentTarget.title = event.currentTarget.textContent; };

// columns: [title, cell(row), class], or of a number that a row has: number(title, name, class); class "num" aligns right; on a phone "wide" leaves the column out, "narrow" breaks its lines.
export const number = (title, name, kind = "") => [title, (row) => count(row[name]), `num ${kind}`];

export const Table = ({ label, columns, rows, keyOf }) => html`<div class="table" role="region" aria-label=${label} tabindex="0"><table>
  <thead><tr>${columns.map(([title, , kind]) => html`<th scope="col" class=${kind || ""}>${title}</th>`)}</tr></thead>
  <tbody>${rows.map((row) => html`<tr key=${keyOf(row)}>${columns.map(([, cell, kind]) => html`<td class=${kind || ""} onMouseEnter=${/clip/.test(kind) ? showWhole : null}>${cell(row)}</td>`)}</tr>`)}</tbody>
</table></div>`;

// The rows of an answer, or what to say while there are none.
export const Rows = ({ found, rows = found.data, empty, ...table }) => html`<${Fault} error=${found.error} />
  ${!found.data ? !found.error && html`<${Loading} />` : rows.length ? html`<${Table} rows=${rows} ...${table} />` : empty}`;

export const TopicLink = ({ topic, view = "", children }) => html`<a href=${`#/topics/${inPath(topic)}${view}`}>${children || short(topic)}</a>`;
export const EntryLink = ({ topic, shard, entry, children }) => html`<${TopicLink} topic=${topic} view=${`/messages?shard=${shard}&entry=${entry}`}>${children}</${TopicLink}>`;

export const Tabs = ({ items, current }) => html`<nav class="tabs" aria-label="Views">${items.map(
  ([name, href]) => html`<a key=${href} href=${href} aria-current=${name === current ? "page" : null}>${name}</a>`)}</nav>`;

export const Hop = ({ r, ur }) => html`<span class="hop"><abbr title="R: the share that arrived">R</abbr> <b class=${r?.value === 1 || r === 1 ? "ok" : ""}>${hop(r)}</b>
  <abbr title="UR: the share of arrivals that was no repeat">UR</abbr> <b>${hop(ur)}</b></span>`;

// A labelled input with these attributes, a choice between `options`, or the children.
export const Field = ({ label, hint, options, children, ...input }) => html`<label class="field"><span>${label}</span>
  ${options ? html`<${Choice} options=${options} ...${input} />` : children || html`<input autocomplete="off" ...${input} />`}${hint && html`<small class="muted">${hint}</small>`}</label>`;

export const Choice = ({ name, label, options }) => html`<select name=${name} aria-label=${label}>${options.map(
  (each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>`;

// Says what a person typed once they pause.
export function Search({ label, onText }) {
  const timer = useRef(0);
  const type = (event) => {
    const text = event.target.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onText(text), 200);
  };
  return html`<input type="search" class="search" placeholder=${label} aria-label=${label} onInput=${type} />`;
}

// A list that the node searches, sorts by name and sends in pages; `asked` is what else to ask for.
export const PAGE_ROWS = 50;

export function useList(path, asked) {
  const [match, setMatch] = useState("");
  const [starts, setStarts] = useState([""]);
  const found = usePoll(path + query({ match, after: starts[starts.length - 1], limit: PAGE_ROWS + 1, ...asked }));
  const rows = (found.data || []).slice(0, PAGE_ROWS);
  return { found, rows, match, starts, setStarts, search: (text) => { setMatch(text); setStarts([""]); } };
}

export const List = ({ list: { found, rows, match, starts, setStarts, search }, of, empty, keyOf, ...table }) => {
  const isLast = (found.data || []).length <= PAGE_ROWS;
  return html`<div class="bar"><${Search} label=${`Search ${of}`} onText=${search} /></div>
  <${Rows} found=${found} rows=${rows} keyOf=${keyOf} ...${table} empty=${match ? html`<${Empty}>None of the ${of} has that in its name.</${Empty}>` : empty} />
  ${(starts.length > 1 || !isLast) && html`<div class="pager">
    <button type="button" disabled=${starts.length === 1} onClick=${() => setStarts(starts.slice(0, -1))}>Previous</button>
    <span class="muted">Page ${starts.length}</span>
    <button type="button" disabled=${isLast} onClick=${() => setStarts([...starts, keyOf(rows[rows.length - 1])])}>Next</button>
  </div>`}`;
};

// A dialog that says what will happen. `act` does it, and `done` comes after it; an error stays in the dialog.
export function Dialog({ title, verb, tone, type, act, done, close, children }) {
  const dialog = useRef(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [typed, setTyped] = useState("");
  const id = useId();
  useEffect(() => { dialog.current.showModal(); }, []);
  const leave = () => dialog.current?.close();  // the browser gives the keyboard back, and calls onClose
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      if ((await act(new FormData(event.target))) !== false) {
        done?.();
        leave();
      }
    } catch (fault) {
      setError(fault);
    }
    setBusy(false);
  };
  return html`<dialog ref=${dialog} aria-labelledby=${id} onClose=${close}>
    <form onSubmit=${submit}>
      <h2 id=${id}>${title}</h2>
      ${children}
      ${type && html`<${Field} label=${`Type ${type} to confirm`} value=${typed} onInput=${(event) => setTyped(event.target.value)} />`}
      <${Fault} error=${error} always />
      <div class="buttons">
        <button type="button" onClick=${leave}>Cancel</button>
        <button type="submit" class=${tone || "primary"} disabled=${busy || (type && typed !== type)}>${verb}</button>
      </div>
    </form>
  </dialog>`;
}

// A button that opens a dialog made by `make(close)`.
export function Opens({ label, make, kind }) {
  const [open, setOpen] = useState(false);
  return html`<${Fragment}><button type="button" class=${kind || ""} aria-haspopup="dialog" onClick=${() => setOpen(true)}>${label}</button>${open && make(() => setOpen(false))}</${Fragment}>`;
}

// A button that asks: its dialog says what will happen, and `act` does it.
export const Action = ({ label, kind, ...dialog }) => html`<${Opens} label=${label} kind=${kind} make=${(close) => html`<${Dialog} ...${dialog} close=${close} />`} />`;

const TONES = ["--accent", "--second", "--warn"];
const DASHES = [[], [6, 3], [2, 3]];  // lines that lie on each other stay visible

const hours = (at, withSeconds) => new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(withSeconds && { second: "2-digit" }) });
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];  // so close that a narrow plot has two times at least
const times = (_, splits) => splits.map((at) => hours(at, splits.length > 1 && splits[1] - splits[0] < 60));
// Steps of an axis of values, so large that no two lines have the same label.
const STEPS = Array.from({ length: 20 }, (_, place) => [1, 2, 5].map((digit) => Number(`${digit}e${place - 4}`))).flat();
const stepsOf = (format) => STEPS.filter((step) => new Set([0, step, 2 * step].map(format)).size === 3);
const fromZero = (least) => (_, low, high) => [0, Math.max(least, (high ?? 0) * 1.1)];
const upToOne = (_, low) => [low >= 0.9 ? 0.9 : low >= 0.5 ? 0.5 : 0, 1.005];

// A plot of columns over time: at (seconds), series [name, values], from 0 to `least` at least. Shares are plotted up to 1,
// so that a loss is visible.
export function Plot({ title, at, series, format = share, shares, least = 1 }) {
  const place = useRef(null);
  const plot = useRef(null);
  const names = series.map(([name]) => name).join();
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const label = shares ? shortShare : format;
    const tone = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: tone("--muted"), grid: { stroke: tone("--line"), width: 1 }, ticks: { stroke: tone("--line") }, font: "11px system-ui" };
    plot.current = new uPlot({
      width: place.current.clientWidth || 300, height: 150, padding: [8, 30, 0, 0], cursor: { y: false },
      scales: { y: { range: shares ? upToOne : fromZero(least) } },
      axes: [{ ...axis, size: 30, space: 60, incrs: STEPS_S, values: times }, { ...axis, size: 58, incrs: stepsOf(label), values: (_, values) => values.map(label) }],
      series: [{ value: (plot, at) => hours(at ?? plot.data[0][plot.data[0].length - 1] ?? 0, true) },
        ...series.map(([name], index) => ({ label: name, stroke: tone(TONES[index]), dash: DASHES[index], width: 1.5, points: { show: false },
          value: (plot, value, place, at) => format(at == null ? plot.data[place][plot.data[place].length - 1] : value) }))],
    }, [at, ...series.map(([, values]) => values)], place.current);
    const resize = new ResizeObserver(([{ contentRect }]) => plot.current.setSize({ width: contentRect.width, height: 150 }));
    resize.observe(place.current);
    return () => { resize.disconnect(); plot.current.destroy(); };
  }, [names, document.documentElement.dataset.theme, matchMedia("(prefers-color-scheme: dark)").matches]);
  useEffect(() => { plot.current.setData([at, ...series.map(([, values]) => values)]); }, [at.length, at[at.length - 1]]);
  return html`<figure class="plot"><figcaption>${title}</figcaption><div ref=${place} role="img" aria-label=${title}></div></figure>`;
}

export const PlotsBegin = ({ step_s }) => html`<p class="muted">The node reads itself every ${step_s} s; plots begin after the second reading.</p>`;
