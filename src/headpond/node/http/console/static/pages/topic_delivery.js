// The delivery of a topic: a map of its hops, their history, and the ledger that must balance.

import { query } from "../lib/api.js";
import { count, inPath, plural, rate, share, short } from "../lib/format.js";
import { RECENT_S, usePoll, useSpeeds } from "../lib/live.js";
import { Badge, Command, Empty, Fault, html, Loading, Page, Panel, Plot, Table } from "../lib/ui.js";
import { Box, Edge } from "./delivery.js";
import { topicCrumbs, topicTabs } from "./topic.js";

const ROWS = 50;
const LABEL_MAX = 40;
const brief = (name) => (name.length > LABEL_MAX ? `${name.slice(0, LABEL_MAX)}…` : name);
const sum = (counts) => Object.values(counts).reduce((total, each) => total + each, 0);
const reasons = (counts) => Object.entries(counts).map(([reason, each]) => `${reason} ${count(each)}`).join(", ");
const Balance = ({ account }) => html`<${Badge} tone=${account.balance === "balances" ? "ok" : "bad"}>${account.balance}</${Badge}>`;

const History = ({ topic, history }) => {
  const at = history.at.map((each) => Date.parse(each) / 1000);
  const own = history.topics[topic] || {};
  const readers = Object.entries(history.subscriptions);
  const worst = readers[0]?.[1] || {};
  const none = at.map(() => null);
  if (at.length < 2) return html`<p class="muted">The node reads itself every ${history.step_s} s; plots begin after the second reading.</p>`;
  return html`<div class="plots">
    <${Plot} title="Messages per second" at=${at} format=${rate} series=${[["stored", own.messages_s || none], [`delivered to ${readers[0] ? brief(readers[0][0].slice(topic.length + 1)) : "nobody"}`, worst.delivered_s || none]]} />
    <${Plot} title="Backlog of the subscription furthest behind" at=${at} format=${count} series=${[["messages", own.lag || none]]} />
    <${Plot} title="Producers’ hop" at=${at} format=${share} shares series=${[["R", own.r || none], ["UR", own.ur || none]]} />
    ${readers.slice(0, 3).map(([name, each]) => html`<${Plot} key=${name} title=${`Hop to ${brief(name.slice(topic.length + 1))}`} at=${at} format=${share} shares series=${[["R", each.r || none], ["UR", each.ur || none]]} />`)}
  </div>`;
};

export function TopicDelivery({ names: [name] }) {
  const path = `/topics/${inPath(name)}`;
  const found = usePoll(`${path}/ledger`, 2000);
  const sources = usePoll(found.data ? `/subscriptions${query({ match: `${found.data.topic}/`, advanced: true, limit: 1000 })}` : null, 5000);
  const history = usePoll(`/history?topic=${inPath(name)}`, 10000);
  const ledger = found.data;
  const sent = useSpeeds(ledger, (all) => all.producers, (each) => each.producer, (each) => each.messages);
  const delivered = useSpeeds(ledger, (all) => all.subscriptions, (each) => each.subscription, (each) => each.delivered);
  const read = useSpeeds(ledger, (all) => all.subscriptions, (each) => each.subscription, (each) => each.acknowledged, RECENT_S);
  const frame = (children) => html`<${Page} title=${name.replaceAll(":", "/")} crumbs=${topicCrumbs} actions=${ledger && html`<${Badge} tone=${ledger.balanced ? "ok" : "bad"}>${ledger.balanced ? "the ledger balances" : "the ledger does not balance"}</${Badge}>`}>
    ${topicTabs(name.replaceAll(":", "/"), "Delivery")}<${Fault} error=${found.error} />${children}</${Page}>`;
  if (!ledger) return frame(!found.error && html`<${Loading} />`);
  const title = (each) => each.producer.replace(/^.*\/(?=spark-)/, "") || "without a name";
  const isSink = (each) => /(^|\/)spark-/.test(each.producer);
  const bySpark = (each) => (sources.data || []).some((source) => source.topic === ledger.topic && source.subscription === each.subscription);
  return frame(html`
    <${Panel} title="Hops">
      <div class="map"><div class="lane">
        <div class="from many">${ledger.producers.length === 0 ? html`<p class="muted">no producer yet</p>` : ledger.producers.slice(0, ROWS).map((each) => html`<div class="branch" key=${each.producer}>
          <${Box} kind=${isSink(each) ? "Spark sink" : "producer"} title=${title(each)} note=${each.open ? "connected" : "not connected"} />
          <${Edge} speed=${sent(each)} r=${each.r} ur=${each.ur} note=${each.pending ? `${count(each.pending)} pending` : null} /></div>`)}</div>
        <${Box} kind="topic" title=${short(ledger.topic)} note=${`${count(ledger.log.entries)} entries`} />
        <div class="to">${ledger.subscriptions.length === 0 ? html`<p class="muted">no subscription</p>` : ledger.subscriptions.slice(0, ROWS).map((each) => html`<div class="branch" key=${each.subscription}>
          <${Edge} speed=${bySpark(each) ? read(each) : delivered(each)} r=${each.r} ur=${each.ur} note=${each.available ? `${count(each.available)} waiting` : null} />
          <${Box} kind=${bySpark(each) ? "Spark source" : "subscription"} title=${each.subscription} href=${`#/subscriptions/${inPath(ledger.topic)}/${encodeURIComponent(each.subscription)}`} note=${bySpark(each) ? "a query" : plural(each.consumers, "consumer")} /></div>`)}</div>
      </div></div>
    </${Panel}>
    <${Panel} title="The last hour" note="while the topic is among the 50 busiest">
      ${history.data ? html`<${History} topic=${ledger.topic} history=${history.data} />` : html`<${Fault} error=${history.error} />`}
    </${Panel}>
    <${Panel} title="Ledger: segments of producers" note="announced = stored + refused + pending + holes">
      ${ledger.producers.length === 0 ? html`<${Empty} command=${`echo hello | headpond produce ${short(ledger.topic)}`}>Nobody has sent to it. To send a line:</${Empty}>`
        : html`<${Table} label="Accounts of producers" rows=${ledger.producers.slice(0, ROWS)} keyOf=${(each) => each.producer} columns=${[
          ["Producer", title, "clip"], ["Balance", (each) => html`<${Balance} account=${each} />`], ["Announced", (each) => count(each.announced), "num wide"], ["Stored", (each) => count(each.stored), "num"],
          ["Refused", (each) => html`<span title=${reasons(each.refused)}>${count(sum(each.refused))}</span>`, "num wide"], ["Pending", (each) => count(each.pending), "num"],
          ["Holes", (each) => count(each.holes), "num wide"], ["Repeats", (each) => count(each.duplicates), "num wide"], ["Messages", (each) => count(each.messages), "num wide"],
        ]} />`}
    </${Panel}>
    <${Panel} title="Ledger: entries of subscriptions" note="stored = settled in some way + in flight + available + unacked + dying">
      ${ledger.subscriptions.length === 0 ? html`<${Empty} command=${`headpond sub create ${short(ledger.topic)} NAME`}>It has no subscription.</${Empty}>`
        : html`<${Table} label="Accounts of subscriptions" rows=${ledger.subscriptions.slice(0, ROWS)} keyOf=${(each) => each.subscription} columns=${[
          ["Subscription", (each) => each.subscription, "clip"], ["Balance", (each) => html`<${Balance} account=${each} />`], ["Stored", (each) => count(each.stored), "num wide"], ["Acked", (each) => count(each.acknowledged), "num"],
          ["Skipped", (each) => count(each.skipped), "num wide"], ["Dead", (each) => html`<span class=${each.dead ? "bad" : ""}>${count(each.dead)}</span>`, "num wide"],
          ["Lost", (each) => count(each.retention + each.damaged + each.expired), "num wide"], ["Passed", (each) => count(each.passed + each.compacted + each.unknown), "num wide"],
          ["In flight", (each) => count(each.in_flight), "num wide"], ["Available", (each) => count(each.available), "num"], ["Unacked", (each) => count(each.unacked + each.dying), "num wide"],
        ]} />`}
    </${Panel}>
    <p>The log: ${count(ledger.log.entries)} entries, ${count(ledger.log.messages)} messages of producers, ${count(ledger.log.lost)} lost. <${Balance} account=${ledger.log} /></p>
    <${Command} text=${`headpond ledger ${short(ledger.topic)}`} />`);
}
