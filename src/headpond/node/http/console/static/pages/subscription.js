// A subscription: its backlog, what is in flight, attempts, consumers; and what a person can do about it.

import { post, remove } from "../lib/api.js";
import { ago, clock, count, fromPath, plural, quoted, rate, setting, short } from "../lib/format.js";
import { usePoll, useSpeed } from "../lib/live.js";
import { Action, Badge, Command, Empty, EntryLink, Fault, Field, html, Loading, number, Page, Panel, Rows, Stats, Table, TopicLink } from "../lib/ui.js";
import { Redrive } from "./dead.js";
import { deadHref, pathOf, useDelivered } from "./subscriptions.js";

const UNACKED_SHOWN = 100;

function Actions({ path, info, reload }) {
  const { subscription } = info;
  const act = (word) => () => post(`${path}/${word}`);
  const consumers = plural(info.consumers.length, "consumer");
  return html`
    ${info.paused
      ? html`<${Action} label="Resume" kind="primary" title=${`Resume ${subscription}`} verb="Resume" act=${act("resume")} done=${reload}>
          <p>The node delivers again. Unsettled: ${plural(info.unsettled, "message")}. Connected: ${consumers}.</p></${Action}>`
      : html`<${Action} label="Pause" title=${`Pause ${subscription}`} verb="Pause" act=${act("pause")} done=${reload}>
          <p>The node delivers nothing to its ${consumers} until somebody resumes it. Messages are kept; what consumers hold they can still settle.</p></${Action}>`}
    <${Action} label="Seek" title=${`Seek ${subscription}`} verb="Seek" done=${reload}
      act=${(form) => post(`${path}/seek`, { to: form.get("to"), ...(form.get("shard") && { shard: Number(form.get("shard")) }) })}>
      <p>Messages before the position count as settled and are not delivered; the messages from it on are delivered, <b>again</b> if they were before. Now unsettled: ${plural(info.unsettled, "message")}, of which ${count(info.in_flight + info.unacked)} with consumers or awaiting redelivery.</p>
      <${Field} label="Position" hint="earliest, latest, an entry, or a time such as 2026-01-31T12:00:00Z" name="to" required />
      <${Field} label="Shard" hint="empty: all shards" name="shard" type="number" min="0" max=${info.positions.length - 1} />
    </${Action}>
    ${info.dead > 0 && html`<${Redrive} label="Redrive" path=${path} many=${plural(info.dead, "dead message")} done=${reload} />`}
    ${info.passive && html`<${Action} label="Promote" title=${`Promote ${subscription}`} verb="Promote" tone="danger" act=${act("promote")} done=${reload}>
      <p>The copy becomes active here. If the other node still delivers, consumers of both get the same messages.</p></${Action}>`}
    <${Action} label="Delete" kind="danger" title=${`Delete ${subscription}`} verb="Delete the subscription" tone="danger" type=${subscription}
      act=${() => remove(path)} done=${() => { location.hash = "#/subscriptions"; }}>
      <p>The node forgets its position and counts, and no longer keeps ${plural(info.unsettled, "unsettled message")} for it. The topic keeps its messages. A consumer under this name begins a new subscription.</p>
      ${info.consumers.length > 0 && html`<p class="bad">The node refuses while a consumer is connected; now ${consumers}.</p>`}
    </${Action}>`;
}

const Policy = ({ policy }) => html`<${Table} label="Policy" rows=${Object.entries(policy)} keyOf=${([name]) => name} columns=${[
  ["Policy", ([name]) => html`<code>${name}</code>`], ["Value", ([name, value]) => setting(name, value) ?? html`<span class="muted">none</span>`],
]} />`;

export function Subscription({ names: [inAddress, name] }) {
  const topic = fromPath(inAddress);
  const path = pathOf(topic, name);
  const found = usePoll(path, 2000);
  const unacked = usePoll(found.data?.unacked ? `${path}/unacked?limit=${UNACKED_SHOWN}` : null);
  const info = found.data;
  const delivered = useDelivered(info, (one) => [one]);
  const settled = useSpeed(info, (each) => each.settled);
  const crumbs = html`<a href="#/subscriptions">Subscriptions</a> / <${TopicLink} topic=${topic} />`;
  if (!info) return html`<${Page} title=${name} crumbs=${crumbs}>${found.error ? html`<${Fault} error=${found.error} />` : html`<${Loading} />`}</${Page}>`;
  return html`<${Page} title=${info.subscription} crumbs=${crumbs} actions=${html`<${Actions} path=${path} info=${info} reload=${found.reload} />`}>
    <${Fault} error=${found.error} />
    <p>${info.paused && html`<${Badge} tone="warn">paused</${Badge}> `}${info.passive && html`<${Badge}>copy of another node’s</${Badge}> `}
      ${info.kind}, ${info.mode}, created ${ago(info.created_at)}. ${info.bury_fault && html`<span class="bad">Dead messages cannot be copied: ${info.bury_fault}</span>`}</p>
    <${Stats} items=${[
      ["Backlog", count(info.unsettled), "unsettled messages"],
      ["Delivered", rate(delivered(info)), info.advanced_at ? "to a query, by position" : `${count(info.redelivered)} redelivered`],
      ["Settled", rate(settled), `${count(info.acked)} acked, ${count(info.skipped)} skipped`],
      ["In flight", count(info.in_flight), "with consumers"],
      ["Unacked", count(info.unacked), "await redelivery"],
      ["Dead", info.dead ? html`<a href=${deadHref(info)}>${count(info.dead)}</a>` : "0", `${count(info.redriven)} redriven`, info.dead ? "bad" : ""],
      ["Lost", count(info.lost), `${count(info.expired)} expired`, info.lost ? "bad" : ""],
    ]} />
    <${Panel} title="Consumers" note=${info.consumers.length ? `${count(info.consumers.length)} connected` : null}>
      ${info.advanced_at && html`<p>A query of Spark moves the position: ${info.advanced_by}. Last batch: ${ago(info.advanced_at)}.</p>`}
      ${info.consumers.length === 0 ? !info.advanced_at && html`<${Empty} command=${`headpond consume ${quoted(short(info.topic))} --subscription ${quoted(info.subscription)}`}>No consumer is connected${info.seen_at ? `; the last one was ${ago(info.seen_at)}` : ""}. To read from it here:</${Empty}>`
        : html`<ul class="names">${info.consumers.slice(0, 200).map((each) => html`<li>${each}</li>`)}</ul>`}
    </${Panel}>
    ${info.unacked > 0 && html`<${Panel} title="Awaiting redelivery" note=${info.unacked > UNACKED_SHOWN ? `the first ${UNACKED_SHOWN} of ${count(info.unacked)}` : null}>
      <${Rows} found=${unacked} label="Awaiting redelivery" keyOf=${(each) => `${each.shard}/${each.entry}`} columns=${[
        ["Entry", (each) => html`<${EntryLink} topic=${topic} shard=${each.shard} entry=${each.entry}>${each.shard}/${count(each.entry)}</${EntryLink}>`],
        number("Attempts", "attempts"), ["Waits for", (each) => each.waits_for], ["Due", (each) => clock(each.due_at), "wide"],
      ]} /></${Panel}>`}
    <${Panel} title="Positions"><${Table} label="Positions" rows=${info.positions.slice(0, 64).map((entry, shard) => ({ shard, entry }))} keyOf=${(each) => each.shard} columns=${[
      ["Shard", (each) => each.shard], ["First unsettled entry", (each) => html`<${EntryLink} topic=${topic} shard=${each.shard} entry=${each.entry}>${count(each.entry)}</${EntryLink}>`, "num"],
    ]} /></${Panel}>
    <${Panel} title="Policy"><${Policy} policy=${info.policy} /></${Panel}>
    <${Command} text=${`headpond sub show ${quoted(short(info.topic))} ${quoted(info.subscription)}`} />
  </${Page}>`;
}
