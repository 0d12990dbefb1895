// Dead letters: which messages did no consumer manage, why, and again.

import { useState } from "../vendor/hooks.js";
import { post } from "../lib/api.js";
import { ago, count, fromPath, plural, preview, short } from "../lib/format.js";
import { usePoll } from "../lib/live.js";
import { Action, Empty, EntryLink, html, List, number, Page, Panel, Rows, TopicLink, useList } from "../lib/ui.js";
import { deadHref, fullName, pathOf } from "./subscriptions.js";

const SHOWN_MAX = 200;

export function Dead() {
  const list = useList("/subscriptions", { dead: true });
  return html`<${Page} title="Dead letters">
    <${Panel} title="Subscriptions with dead messages">
      <${List} list=${list} of="subscriptions and topics" label="Subscriptions with dead messages" keyOf=${fullName}
        empty=${html`<${Empty} command="headpond sub create TOPIC NAME --max-attempts 5">Nothing is dead. A message dies after its last attempt, in a subscription with a maximum:</${Empty}>`} columns=${[
          ["Subscription", (each) => html`<a href=${deadHref(each)}>${each.subscription}</a> <span class="muted">of ${short(each.topic)}</span>`, "name"],
          ["Dead", (each) => html`<span class="bad">${count(each.dead)}</span>`, "num"], number("Redriven", "redriven"),
          ["Dead-letter topic", (each) => short(each.policy.dead_letter) || "–", "name wide"],
        ]} />
    </${Panel}>
  </${Page}>`;
}

// Delivers dead messages again: those at the positions, or all.
export const Redrive = ({ path, many, positions, label, kind, done }) => html`<${Action} label=${label} kind=${kind} title=${`Redrive ${many}`} verb="Redrive"
  act=${() => post(`${path}/redrive`, positions ? { positions } : {})} done=${done}>
  <p>The node delivers ${many} again, to this subscription alone, with attempts counted from 1. A message whose fault remains dies again.</p></${Action}>`;

const position = (each) => `${each.shard}/${each.entry}`;

export function DeadOf({ names: [inAddress, name] }) {
  const topic = fromPath(inAddress);
  const path = pathOf(topic, name);
  const found = usePoll(`${path}/dead`, 10000);
  const [chosen, setChosen] = useState(new Set());
  const rows = (found.data || []).slice(0, SHOWN_MAX);
  const toggle = (each) => {
    const next = new Set(chosen);
    if (!next.delete(position(each))) next.add(position(each));
    setChosen(next);
  };
  const positions = rows.map(position).filter((each) => chosen.has(each));  // another person may have redriven some
  const isCut = found.data?.length > SHOWN_MAX;
  const crumbs = html`<a href="#/dead">Dead letters</a> / <${TopicLink} topic=${topic} />`;
  const redrive = positions.length
    ? { label: `Redrive ${count(positions.length)}`, many: plural(positions.length, "chosen message"), positions }
    : { label: "Redrive all", many: isCut ? "every dead message, also those that are not shown," : `all dead messages (${count(rows.length)})` };
  return html`<${Page} title=${name} crumbs=${crumbs} actions=${rows.length > 0 && html`<${Redrive} ...${redrive} path=${path} kind="primary" done=${() => { setChosen(new Set()); found.reload(); }} />`}>
    <${Panel} note=${isCut ? `the first ${SHOWN_MAX}` : null}>
      <${Rows} found=${found} rows=${rows} label="Dead messages" keyOf=${position} empty=${html`<${Empty}>Nothing is dead here.</${Empty}>`} columns=${[
        ["", (each) => html`<input type="checkbox" aria-label=${`Choose ${position(each)}`} checked=${chosen.has(position(each))} onChange=${() => toggle(each)} />`],
        ["Entry", (each) => html`<${EntryLink} topic=${topic} shard=${each.shard} entry=${each.entry}>${each.shard}/${count(each.entry)}</${EntryLink}>`],
        ["Reason", (each) => each.reason || "–", "wrap"], number("Attempts", "attempts", "wide"),
        ["Key", (each) => each.key !== null && html`<code>${preview(each.key)}</code>`, "clip wide"], ["Value", (each) => html`<span class="mono">${preview(each.value)}</span>`, "clip grow"],
        ["Died", (each) => ago(each.died_at), "wide"],
      ]} />
    </${Panel}>
  </${Page}>`;
}
