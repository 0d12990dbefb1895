// The message browser: by entry, time or key; text, JSON, hex and columns; and a form to publish.
// A message is hostile input: all of it becomes text nodes.

import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { get, post, query, state } from "../lib/api.js";
import { clock, count, fromPath, inPath, isBytes, preview, quoted, short } from "../lib/format.js";
import { usePoll, useStream } from "../lib/live.js";
import { Choice, Copy, Dialog, Empty, Fault, Field, html, Live, Loading, Opens, Page, Panel, Table } from "../lib/ui.js";
import { topicCrumbs, topicTabs } from "./topic.js";

const ROWS = 50;
const FOLLOWED_MAX = 200;
const SEARCH_BYTES = 8 * 1024 * 1024;
const SHOWN_MAX = 20000;
const VIEWS = ["text", "JSON", "hex", "columns"];

const bytesOf = (value) => {
  if (isBytes(value)) return Uint8Array.from(atob(value.base64), (each) => each.charCodeAt(0));
  return new TextEncoder().encode(typeof value === "string" ? value : value === null ? "" : JSON.stringify(value));
};
const hex = (bytes) => {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, SHOWN_MAX / 4); at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const digits = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("")}`);
  }
  return lines.join("\n");
};
const cut = (text) => (text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}\n… ${count(text.length - SHOWN_MAX)} more characters` : text);

// The node does not see what is wrong in a form: these errors are of the page.
const refuse = (message, hint) => { throw Object.assign(new Error(message), { hint }); };

function parsedJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    return refuse("The value is not JSON.", error.message);
  }
}

function parsedHeaders(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(lines.map((line) => {
    const colon = line.indexOf(":");
    if (colon < 1) refuse(`The line ${line} is no header.`, "Write one per line, as name: text.");
    return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
  }));
}

function shown(value, view) {
  if (view === "hex") return hex(bytesOf(value)) || "(empty)";
  if (view === "JSON") {
    if (value !== null && typeof value === "object" && !isBytes(value)) return cut(JSON.stringify(value, null, 2));
    try {
      return cut(JSON.stringify(JSON.parse(value), null, 2));
    } catch {
      return "The value is not JSON.";
    }
  }
  if (typeof value === "string") return cut(value) || "(empty)";
  if (value === null) return "null: the message deletes its key";
  return isBytes(value) ? "The value is not text; see hex." : cut(JSON.stringify(value));
}

function Message({ message, topic, close, again }) {
  const typed = message.value !== null && typeof message.value === "object" && !isBytes(message.value);
  const [view, setView] = useState(typed ? "columns" : isBytes(message.value) ? "hex" : "text");
  const start = useRef(null);
  useEffect(() => { start.current.focus(); }, [message]);
  const headers = Object.entries(message.headers);
  const name = short(message.topic);
  return html`<${Panel} title=${`Message ${message.shard}/${count(message.entry)}`} actions=${html`
      <button type="button" class="small" onClick=${again}>Publish again…</button><button type="button" class="small" onClick=${close}>Close</button>`}>
    <dl class="facts" tabindex="-1" ref=${start}>
      <dt>Key</dt><dd>${message.key === null ? html`<span class="muted">none</span>` : html`<code>${preview(message.key)}</code>`}</dd>
      <dt>Id</dt><dd>${message.id ?? html`<span class="muted">none</span>`}</dd>
      <dt>Sent</dt><dd>${clock(message.sent_at)}</dd><dt>Stored</dt><dd>${clock(message.stored_at)}</dd>
      <dt>Identity</dt><dd><code>${message.identity}</code></dd>
      ${headers.map(([header, text]) => html`<dt key=${header}>Header <code>${preview(header)}</code></dt><dd>${preview(text)}</dd>`)}
    </dl>
    <div class="tabs" role="group" aria-label="View of the value">${VIEWS.filter((each) => each !== "columns" || typed).map((each) => html`<button type="button" key=${each} aria-pressed=${each === view} onClick=${() => setView(each)}>${each}</button>`)}</div>
    ${view === "columns" ? html`<${Table} label="Columns" rows=${Object.entries(message.value)} keyOf=${([column]) => column} columns=${[
        ["Column", ([column]) => html`<code>${column}</code>`], ["Value", ([, each]) => (each === null ? html`<span class="muted">null</span>` : preview(each))]]} />`
      : html`<pre class="value" tabindex="0" aria-label="Value">${shown(message.value, view)}</pre>`}
    <div class="actions">
      <${Copy} label="Copy value" text=${typeof message.value === "string" ? message.value : JSON.stringify(message.value)} />
      <${Copy} label="Copy as headpond command" text=${`headpond peek ${quoted(name)} --shard ${message.shard} --start ${message.entry} --count 1 --json`} />
      <${Copy} label="Copy as curl" text=${`curl -s ${state.signedIn ? '-H "Authorization: Bearer $HEADPOND_TOKEN" ' : ""}'${location.origin}/v1/topics/${topic}/messages?shard=${message.shard}&entry=${message.entry}&count=1'`} />
    </div>
  </${Panel}>`;
}

function Publish({ path, typed, from, close }) {
  const [receipt, setReceipt] = useState(null);
  const json = typed || (from && typeof from.value !== "string");  // null and bytes too
  const sameKey = from && isBytes(from.key);
  const act = async (form) => {
    setReceipt(null);
    const value = form.get("value");
    const body = { value: json ? parsedJson(value) : value, headers: parsedHeaders(form.get("headers")), ...(sameKey && { key: from.key }) };
    for (const name of ["key", "id"]) if (form.get(name)) body[name] = form.get(name);
    const answer = await post(`${path}/messages`, body);
    setReceipt(answer.receipts[0]);
    return false;
  };
  return html`<${Dialog} title="Publish a message" verb="Publish" close=${close} act=${act}>
    <p>The node stores it for every subscription of the topic; it cannot be taken back.</p>
    <${Field} label="Value" hint=${typed ? "a JSON object of the topic’s columns" : json ? "JSON: null deletes the key of a state topic, base64 is bytes" : null}><textarea name="value" rows="5" defaultValue=${json && from ? JSON.stringify(from.value) : from?.value}></textarea></${Field}>
    ${sameKey ? html`<p>Its key is bytes, and stays the same: <code>${preview(from.key)}</code></p>` : html`<${Field} label="Key" name="key" defaultValue=${from?.key} />`}
    <${Field} label="Id" hint="the program’s own name for the message" name="id" />
    <${Field} label="Headers" hint="one per line, name: text"><textarea name="headers" rows="2" defaultValue=${Object.entries(from?.headers || {}).map((pair) => pair.join(": ")).join("\n")}></textarea></${Field}>
    ${receipt && html`<p class="ok" role="status">${receipt.outcome} as entry ${receipt.shard}/${count(receipt.entry)} (${receipt.durability})</p>`}
  </${Dialog}>`;
}

export function Messages({ names: [name], asked }) {
  const topic = inPath(name);
  const path = `/topics/${topic}`;
  const about = usePoll(path, 5000);
  const [shard, setShard] = useState(Number(asked.get("shard") || 0));
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [selected, setSelected] = useState(null);
  const [searching, setSearching] = useState(null);
  const [follow, setFollow] = useState(false);
  const [again, setAgain] = useState(null);
  const work = useRef(null);
  const opener = useRef(null);

  // One reading: `at` is {entry} or {start}; with a filter it goes on until there is a page, or the end.
  const read = async (at, filter = "", number = shard) => {
    work.current?.abort();
    const ending = (work.current = new AbortController());
    setError(null);
    setSelected(null);
    const rows = [];
    let where = at;
    try {
      for (;;) {
        const part = await get(`${path}/messages${query({ shard: number, ...where, count: ROWS - rows.length, filter, bytes_max: filter ? SEARCH_BYTES : "" })}`, ending.signal);
        rows.push(...part.messages);
        const more = part.entry_next < part.entry_end;
        setFound({ rows: [...rows], lost: part.lost, next: part.entry_next, end: part.entry_end, more, filter });
        where = { entry: part.entry_next };
        if (!filter || !more || rows.length >= ROWS) break;
        setSearching({ at: part.entry_next, end: part.entry_end });
      }
    } catch (fault) {
      if (!ending.signal.aborted) setError(fault);
    }
    if (work.current === ending) setSearching(null);
  };
  const readLast = async (number = shard) => {
    try {
      const { shards } = await get(`${path}/ends`);
      const ends = shards[number];
      await read({ entry: Math.max(ends.entry_first, ends.entry_next - ROWS) }, "", number);
    } catch (fault) {
      setError(fault);
    }
  };
  useEffect(() => {
    if (asked.has("entry")) read({ entry: Number(asked.get("entry")) });
    else readLast();
    return () => work.current?.abort();
  }, []);
  const followError = useStream(follow ? `${path}/events?start=latest` : null, (event, data) => event === "message" && setFound((old) => ({
    ...old, rows: [data, ...(old?.live ? old.rows : [])].slice(0, FOLLOWED_MAX), live: true, more: false })));

  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const [by, text] = [form.get("by"), form.get("text").trim()];
    setFollow(false);
    if (by === "entry" && !/^[\d,]+$/.test(text)) setError({ message: `An entry is a number, and ${text} is none.`, hint: "To find a key, choose key." });
    else if (by === "entry") read({ entry: Number(text.replaceAll(",", "")) });
    else if (by === "time") read({ start: text });
    else if (by === "key") read({ start: "earliest" }, `key = '${text.replaceAll("'", "''")}'`);
    else read({ start: "earliest" }, text);
  };
  const first = found?.rows.length && !found.live ? found.rows[0].entry : null;
  const actions = html`<${Opens} label="Publish" kind="primary" make=${(close) => html`<${Publish} path=${path} typed=${Boolean(about.data?.schema)} close=${close} />`} />
    ${again && html`<${Publish} path=${path} typed=${Boolean(about.data?.schema)} from=${again} close=${() => setAgain(null)} />`}`;
  return html`<${Page} title=${fromPath(name)} crumbs=${topicCrumbs} actions=${actions}>
    ${topicTabs(fromPath(name), "Messages")}
    ${selected && html`<${Message} key=${selected.identity} message=${selected} topic=${topic} close=${() => { opener.current.focus(); setSelected(null); }} again=${() => setAgain(selected)} />`}
    <${Panel}>
      <form class="bar" onSubmit=${submit}>
        ${(about.data?.shards || 1) > 1 && html`<label>Shard <input type="number" name="shard" required min="0" max=${about.data.shards - 1} defaultValue=${shard} onChange=${(event) => { if (event.target.reportValidity()) { setShard(Number(event.target.value)); readLast(Number(event.target.value)); } }} /></label>`}
        <${Choice} name="by" label="Find by" options=${["entry", "time", "key", "filter"]} />
        <input type="search" name="text" class="search" required aria-label="Entry, time, key or filter" placeholder="17 · 2026-01-31T12:00:00Z · table-4 · key = 'a'" />
        <button type="submit">Find</button>
        <button type="button" onClick=${() => { setFollow(false); readLast(); }}>Newest</button>
        <button type="button" aria-pressed=${follow} onClick=${() => setFollow(!follow)}>Follow</button>
      </form>
      <${Fault} error=${error || about.error || followError} />
      ${searching && html`<p role="status">Searched up to entry ${count(searching.at)} of ${count(searching.end)}. <button type="button" class="small" onClick=${() => { work.current.abort(); setSearching(null); }}>Stop</button></p>`}
      ${found?.lost?.length > 0 && html`<p class="warn">Not readable: ${found.lost.slice(0, 5).map((each) => `${count(each.first)} to ${count(each.end - 1)} (${each.reason})`).join(", ")}</p>`}
      ${!found ? !error && html`<${Loading} />` : found.rows.length === 0
        ? !searching && html`<${Empty} command=${found.filter || found.end ? null : `echo hello | headpond produce ${quoted(fromPath(name))}`}>${found.filter ? `No message${about.data?.shards > 1 ? ` of shard ${shard}` : ""} fits.` : found.end ? `There is no message from here on: the log ends before entry ${count(found.end)}.` : "There is no message here. To send one:"}</${Empty}>`
        : html`<${Table} label="Messages" rows=${found.rows} keyOf=${(each) => `${each.shard}/${each.entry}`} columns=${[
          ["Entry", (each) => html`<button type="button" class="link" onClick=${(event) => { opener.current = event.currentTarget; setSelected(each); window.scrollTo(0, 0); }}>${found.live && about.data?.shards > 1 ? `${each.shard}/` : ""}${count(each.entry)}</button>`, "num"],
          ["Key", (each) => (each.key === null ? "" : html`<code>${preview(each.key)}</code>`), "clip"],
          ["Value", (each) => html`<span class="mono">${preview(each.value)}</span>`, "clip grow"],
          ["Headers", (each) => Object.keys(each.headers).length || "", "num wide"],
          ["Stored", (each) => clock(each.stored_at), "wide"],
        ]} />`}
      ${found && !found.live && html`<div class="pager">
        <button type="button" disabled=${!first || found.filter} onClick=${() => read({ entry: Math.max(0, first - ROWS) })}>Older</button>
        <span class="muted">${found.rows.length ? `${count(first)} to ${count(found.rows[found.rows.length - 1].entry)} of ${count(found.end)}` : ""}</span>
        <button type="button" disabled=${!found.more} onClick=${() => read({ entry: found.next }, found.filter)}>Newer</button>
      </div>`}
      ${follow && html`<p class="muted"><${Live} error=${followError} /> New messages come first; the last ${FOLLOWED_MAX} are shown.</p>`}
    </${Panel}>
  </${Page}>`;
}
