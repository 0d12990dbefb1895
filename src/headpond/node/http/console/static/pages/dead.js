// Dead letters: which messages did no consumer manage, why, and again.

import { useState } from "../vendor/hooks.js";
import { post, query } from "../lib/api.js";
import { ago, count, inPath, plural, short } from "../lib/format.js";
import { usePoll } from "../lib/live.js";
import { Dialog, Empty, Fault, html, Loading, Opens, Page, PAGE_ROWS, Pager, Panel, Search, Table, useListing } from "../lib/ui.js";
import { fullName } from "./subscriptions.js";

const SHOWN_MAX = 200;

export function Dead() {
  const listing = useListing();
  const { match, after, limit } = listing;
  const found = usePoll(`/subscriptions${query({ match, after, limit, dead: true })}`);
  const rows = (found.data || []).slice(0, PAGE_ROWS);
  return html`<${Page} title="Dead letters">
    <${Panel} note="subscriptions that have dead messages">
      <div class="bar"><${Search} listing=${listing} label="Search subscriptions and topics" /></div>
      <${Fault} error=${found.error} />
      ${!found.data ? !found.error && html`<${Loading} />` : rows.length === 0
        ? html`<${Empty} command=${match ? null : "headpond sub create TOPIC NAME --max-attempts 5"}>${match ? "No subscription or topic with dead messages has that in its name." : "Nothing is dead. A message dies after its last attempt, in a subscription with a maximum:"}</${Empty}>`
        : html`<${Table} label="Subscriptions with dead messages" rows=${rows} keyOf=${fullName} columns=${[
          ["Subscription", (each) => html`<a href=${`#/dead/${inPath(each.topic)}/${encodeURIComponent(each.subscription)}`}>${each.subscription}</a> <span class="muted">of ${short(each.topic)}</span>`, "name"],
          ["Dead", (each) => html`<span class="bad">${count(each.dead)}</span>`, "num"], ["Redriven", (each) => count(each.redriven), "num"],
          ["Dead-letter topic", (each) => short(each.policy.dead_letter) || "–", "name wide"],
        ]} />`}
      <${Pager} listing=${listing} rows=${found.data || []} nameOf=${fullName} />
    </${Panel}>
  </${Page}>`;
}

const position = (each) => `${each.shard}/${each.entry}`;
const text = (value) => (value === null ? "" : typeof value === "string" ? value : JSON.stringify(value)).slice(0, 160);

export function DeadOf({ names: [topic, name] }) {
  const path = `/topics/${inPath(topic.replaceAll(":", "/"))}/subscriptions/${encodeURIComponent(name)}`;
  const found = usePoll(`${path}/dead`, 10000);
  const [chosen, setChosen] = useState(new Set());
  const rows = (found.data || []).slice(0, SHOWN_MAX);
  const toggle = (each) => {
    const next = new Set(chosen);
    if (!next.delete(position(each))) next.add(position(each));
    setChosen(next);
  };
  const positions = rows.map(position).filter((each) => chosen.has(each));  // another person may have redriven some
  const redrive = (close) => html`<${Dialog} title=${positions.length ? `Redrive ${plural(positions.length, "message")}` : "Redrive all dead messages"} verb="Redrive" close=${close} act=${async () => {
    await post(`${path}/redrive`, positions.length ? { positions } : {});
    setChosen(new Set());
    found.reload();
  }}><p>The node delivers ${positions.length ? plural(positions.length, "chosen message") : found.data.length > SHOWN_MAX ? "every dead message, also those that are not shown," : plural(rows.length, "dead message")} again, to this subscription alone, with attempts counted from 1. A message whose fault remains dies again.</p></${Dialog}>`;
  const crumbs = html`<a href="#/dead">Dead letters</a> / <a href=${`#/topics/${inPath(topic)}`}>${topic.replaceAll(":", "/")}</a>`;
  return html`<${Page} title=${name} crumbs=${crumbs} actions=${rows.length > 0 && html`<${Opens} label=${positions.length ? `Redrive ${count(positions.length)}` : "Redrive all"} kind="primary" make=${redrive} />`}>
    <${Fault} error=${found.error} />
    <${Panel} note=${found.data?.length > SHOWN_MAX ? `the first ${SHOWN_MAX}` : null}>
      ${!found.data ? !found.error && html`<${Loading} />` : rows.length === 0 ? html`<${Empty}>Nothing is dead here.</${Empty}>`
        : html`<${Table} label="Dead messages" rows=${rows} keyOf=${position} columns=${[
          ["", (each) => html`<input type="checkbox" aria-label=${`Choose ${position(each)}`} checked=${chosen.has(position(each))} onChange=${() => toggle(each)} />`],
          ["Entry", (each) => html`<a href=${`#/topics/${inPath(topic)}/messages?shard=${each.shard}&entry=${each.entry}`}>${each.shard}/${count(each.entry)}</a>`],
          ["Reason", (each) => each.reason || "–", "wrap"], ["Attempts", (each) => count(each.attempts), "num wide"],
          ["Key", (each) => html`<code>${text(each.key)}</code>`, "clip wide"], ["Value", (each) => html`<span class="mono">${text(each.value)}</span>`, "clip grow"],
          ["Died", (each) => ago(each.died_at), "wide"],
        ]} />`}
    </${Panel}>
  </${Page}>`;
}
