// A subscription: its backlog, what is in flight, attempts, consumers; and what a person can do about it.

import { post, remove } from "../lib/api.js";
import { ago, clock, count, inPath, plural, rate, setting, short } from "../lib/format.js";
import { usePoll, useSpeed } from "../lib/live.js";
import { Badge, Command, Dialog, Empty, Fault, Field, html, Loading, Opens, Page, Panel, Stats, Table } from "../lib/ui.js";

const UNACKED_SHOWN = 100;

function Actions({ path, info, reload }) {
  const act = (word, body = {}) => async () => { await post(`${path}/${word}`, body); reload(); };
  const held = info.in_flight + info.unacked;
  return html`
    ${info.paused
      ? html`<${Opens} label="Resume" kind="primary" make=${(close) => html`<${Dialog} title=${`Resume ${info.subscription}`} verb="Resume" close=${close} act=${act("resume", undefined)}>
          <p>The node delivers again. Unsettled: ${plural(info.unsettled, "message")}. Connected: ${plural(info.consumers.length, "consumer")}.</p></${Dialog}>`} />`
      : html`<${Opens} label="Pause" make=${(close) => html`<${Dialog} title=${`Pause ${info.subscription}`} verb="Pause" close=${close} act=${act("pause", undefined)}>
          <p>The node delivers nothing to its ${plural(info.consumers.length, "consumer")} until somebody resumes it. Messages are kept; what consumers hold they can still settle.</p></${Dialog}>`} />`}
    <${Opens} label="Seek" make=${(close) => html`<${Dialog} title=${`Seek ${info.subscription}`} verb="Seek" close=${close} act=${async (form) => {
      await post(`${path}/seek`, { to: form.get("to"), ...(form.get("shard") ? { shard: Number(form.get("shard")) } : {}) });
      reload();
    }}>
      <p>Messages before the position count as settled and are not delivered; the messages from it on are delivered, <b>again</b> if they were before. Now unsettled: ${plural(info.unsettled, "message")}, of which ${count(held)} with consumers or awaiting redelivery.</p>
      <${Field} label="Position" hint="earliest, latest, an entry, or a time such as 2026-01-31T12:00:00Z"><input name="to" required autocomplete="off" /></${Field}>
      <${Field} label="Shard" hint="empty: all shards"><input name="shard" type="number" min="0" max=${info.positions.length - 1} /></${Field}>
    </${Dialog}>`} />
    ${info.dead > 0 && html`<${Opens} label="Redrive" make=${(close) => html`<${Dialog} title=${`Redrive ${plural(info.dead, "dead message")}`} verb="Redrive all" close=${close} act=${act("redrive")}>
      <p>The node delivers ${plural(info.dead, "dead message")} again, to this subscription alone, with attempts counted from 1. A message whose fault remains dies again.</p></${Dialog}>`} />`}
    ${info.passive && html`<${Opens} label="Promote" make=${(close) => html`<${Dialog} title=${`Promote ${info.subscription}`} verb="Promote" tone="danger" close=${close} act=${act("promote", undefined)}>
      <p>The copy becomes active here. If the other node still delivers, consumers of both get the same messages.</p></${Dialog}>`} />`}
    <${Opens} label="Delete" kind="danger" make=${(close) => html`<${Dialog} title=${`Delete ${info.subscription}`} verb="Delete the subscription" tone="danger" type=${info.subscription} close=${close}
      act=${async () => { await remove(path); location.hash = "#/subscriptions"; }}>
      <p>The node forgets its position and counts, and no longer keeps ${plural(info.unsettled, "unsettled message")} for it. The topic keeps its messages. A consumer under this name begins a new subscription.</p>
      ${info.consumers.length > 0 && html`<p class="bad">The node refuses while a consumer is connected; now ${plural(info.consumers.length, "consumer")}.</p>`}
    </${Dialog}>`} />`;
}

const Policy = ({ policy }) => html`<${Table} label="Policy" rows=${Object.entries(policy)} keyOf=${([name]) => name} columns=${[
  ["Policy", ([name]) => html`<code>${name}</code>`], ["Value", ([name, value]) => setting(name, value) ?? html`<span class="muted">none</span>`],
]} />`;

export function Subscription({ names: [topic, name] }) {
  const path = `/topics/${inPath(topic.replaceAll(":", "/"))}/subscriptions/${encodeURIComponent(name)}`;
  const found = usePoll(path, 2000);
  const unacked = usePoll(found.data?.unacked ? `${path}/unacked?limit=${UNACKED_SHOWN}` : null);
  const info = found.data;
  const [delivered, settled] = [useSpeed(info, (each) => each.delivered), useSpeed(info, (each) => each.settled)];
  const crumbs = html`<a href="#/subscriptions">Subscriptions</a> / <a href=${`#/topics/${inPath(topic)}`}>${topic.replaceAll(":", "/")}</a>`;
  if (!info) return html`<${Page} title=${name} crumbs=${crumbs}>${found.error ? html`<${Fault} error=${found.error} />` : html`<${Loading} />`}</${Page}>`;
  return html`<${Page} title=${info.subscription} crumbs=${crumbs} actions=${html`<${Actions} path=${path} info=${info} reload=${found.reload} />`}>
    <${Fault} error=${found.error} />
    <p>${info.paused && html`<${Badge} tone="warn">paused</${Badge}> `}${info.passive && html`<${Badge}>copy of another node’s</${Badge}> `}
      ${info.kind}, ${info.mode}, created ${ago(info.created_at)}. ${info.bury_fault && html`<span class="bad">Dead messages cannot be copied: ${info.bury_fault}</span>`}</p>
    <${Stats} items=${[
      ["Backlog", count(info.unsettled), "unsettled messages"],
      ["Delivered", rate(delivered), `${count(info.redelivered)} redelivered`],
      ["Settled", rate(settled), `${count(info.acked)} acked, ${count(info.skipped)} skipped`],
      ["In flight", count(info.in_flight), "with consumers"],
      ["Unacked", count(info.unacked), "await redelivery"],
      ["Dead", info.dead ? html`<a href=${`#/dead/${inPath(info.topic)}/${encodeURIComponent(info.subscription)}`}>${count(info.dead)}</a>` : "0", `${count(info.redriven)} redriven`, info.dead ? "bad" : ""],
      ["Lost", count(info.lost), `${count(info.expired)} expired`, info.lost ? "bad" : ""],
    ]} />
    <${Panel} title="Consumers" note=${info.consumers.length ? `${count(info.consumers.length)} connected` : null}>
      ${info.consumers.length === 0 ? html`<${Empty} command=${`headpond consume ${short(info.topic)} --subscription ${info.subscription}`}>No consumer is connected${info.seen_at ? `; the last one was ${ago(info.seen_at)}` : ""}. To read from it here:</${Empty}>`
        : html`<ul class="names">${info.consumers.slice(0, 200).map((each) => html`<li>${each}</li>`)}</ul>`}
    </${Panel}>
    ${info.unacked > 0 && html`<${Panel} title="Awaiting redelivery" note=${info.unacked > UNACKED_SHOWN ? `the first ${UNACKED_SHOWN} of ${count(info.unacked)}` : null}>
      <${Fault} error=${unacked.error} />
      <${Table} label="Awaiting redelivery" rows=${unacked.data || []} keyOf=${(each) => `${each.shard}/${each.entry}`} columns=${[
        ["Entry", (each) => html`<a href=${`#/topics/${inPath(info.topic)}/messages?shard=${each.shard}&entry=${each.entry}`}>${each.shard}/${count(each.entry)}</a>`],
        ["Attempts", (each) => count(each.attempts), "num"], ["Waits for", (each) => each.waits_for], ["Due", (each) => clock(each.due_at), "wide"],
      ]} /></${Panel}>`}
    <${Panel} title="Positions"><${Table} label="Positions" rows=${info.positions.slice(0, 64).map((entry, shard) => ({ shard, entry }))} keyOf=${(each) => each.shard} columns=${[
      ["Shard", (each) => each.shard], ["First unsettled entry", (each) => html`<a href=${`#/topics/${inPath(info.topic)}/messages?shard=${each.shard}&entry=${each.entry}`}>${count(each.entry)}</a>`, "num"],
    ]} /></${Panel}>
    <${Panel} title="Policy"><${Policy} policy=${info.policy} /></${Panel}>
    <${Command} text=${`headpond sub show ${short(info.topic)} ${info.subscription}`} />
  </${Page}>`;
}
