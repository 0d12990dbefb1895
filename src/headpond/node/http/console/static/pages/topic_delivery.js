// The delivery of a topic: a map of its hops, their history, and the ledger that must balance.

import { count, fromPath, inPath, plural, quoted, rate, short } from "../lib/format.js";
import { RECENT_S, usePoll, useSpeeds } from "../lib/live.js";
import { Badge, Command, Empty, Fault, html, Loading, number, Page, Panel, Plot, PlotsBegin, Rows } from "../lib/ui.js";
import { Box, Edge } from "./delivery.js";
import { DeadCount, fullName, subscriptionHref, useSources } from "./subscriptions.js";
import { topicCrumbs, topicTabs } from "./topic.js";

const ROWS = 50;
const HOPS_PLOTTED = 5;
const LABEL_MAX = 40;
const brief = (name) => (name.length > LABEL_MAX ? `${name.slice(0, LABEL_MAX)}…` : name);
const sum = (counts) => Object.values(counts).reduce((total, each) => total + each, 0);
const reasons = (counts) => Object.entries(counts).map(([reason, each]) => `${reason} ${count(each)}`).join(", ");
const Balance = ({ account }) => html`<${Badge} tone=${account.balance === "balances" ? "ok" : "bad"}>${account.balance}</${Badge}>`;

const History = ({ topic, history }) => {
  const at = history.at.map((each) => Date.parse(each) / 1000);
  const own = history.topics[topic] || {};
  const readers = Object.entries(history.subscriptions);
  const none = at.map(() => null);
  const delivered = at.map((_, place) => readers.reduce((sum, [, each]) => (each.delivered_s?.[place] == null ? sum : (sum || 0) + each.delivered_s[place]), null));
  if (at.length < 2) return html`<${PlotsBegin} step_s=${history.step_s} />`;
  if (!own.lag && !readers.length) return html`<p class="muted">The node keeps the history of its 50 busiest topics, and this was none of them.</p>`;
  return html`<div class="plots">
    <${Plot} title="Messages per second" at=${at} format=${rate} series=${[["stored", own.messages_s || none], ["delivered to all", delivered]]} />
    <${Plot} title="Backlog of the subscription furthest behind" at=${at} format=${count} series=${[["messages", own.lag || none]]} />
    <${Plot} title="Producers’ hop" at=${at} shares series=${[["R", own.r || none], ["UR", own.ur || none]]} />
    ${readers.slice(0, HOPS_PLOTTED).map(([name, each]) => html`<${Plot} key=${name} title=${`Hop to ${brief(name.slice(topic.length + 1))}`} at=${at} shares series=${[["R", each.r || none], ["UR", each.ur || none]]} />`)}
  </div>
  ${readers.length > HOPS_PLOTTED && html`<p class="muted">The hops of the first ${HOPS_PLOTTED} subscriptions by name.</p>`}`;
};

export function TopicDelivery({ names: [inAddress] }) {
  const name = fromPath(inAddress);
  const found = usePoll(`/topics/${inPath(name)}/ledger`, 2000);
  const sources = useSources(`${name}/`);
  const history = usePoll(`/history?topic=${inPath(name)}`, 10000);
  const ledger = found.data;
  const sent = useSpeeds(ledger, (all) => all.producers, (each) => each.producer, (each) => each.messages);
  const delivered = useSpeeds(ledger, (all) => all.subscriptions, (each) => each.subscription, (each) => each.delivered);
  const read = useSpeeds(ledger, (all) => all.subscriptions, (each) => each.subscription, (each) => each.acknowledged, RECENT_S);
  const frame = (children) => html`<${Page} title=${name} crumbs=${topicCrumbs} actions=${ledger && html`<${Badge} tone=${ledger.balanced ? "ok" : "bad"}>${ledger.balanced ? "the ledger balances" : "the ledger does not balance"}</${Badge}>`}>
    ${topicTabs(name, "Delivery")}<${Fault} error=${found.error} />${children}</${Page}>`;
  if (!ledger) return frame(!found.error && html`<${Loading} />`);
  const title = (each) => each.producer.replace(/^.*\/(?=spark-)/, "") || "without a name";
  const topicWord = quoted(short(ledger.topic));
  const isSink = (each) => /(^|\/)spark-/.test(each.producer);
  const readers = ledger.subscriptions.map((each) => ({ ...each, topic: ledger.topic }));
  const bySpark = (each) => sources.has(fullName(each));
  return frame(html`
    <${Panel} title="Hops">
      <div class="map"><div class="lane">
        <div class="from many">${ledger.producers.length === 0 ? html`<p class="muted">no producer yet</p>` : ledger.producers.slice(0, ROWS).map((each) => html`<div class="branch" key=${each.producer}>
          <${Box} kind=${isSink(each) ? "Spark sink" : "producer"} title=${title(each)} note=${each.open ? "connected" : "not connected"} />
          <${Edge} speed=${sent(each)} r=${each.r} ur=${each.ur} note=${each.pending ? `${count(each.pending)} pending` : null} /></div>`)}</div>
        <${Box} kind="topic" title=${short(ledger.topic)} note=${`${count(ledger.log.entries)} entries`} />
        <div class="to">${readers.length === 0 ? html`<p class="muted">no subscription</p>` : readers.slice(0, ROWS).map((each) => html`<div class="branch" key=${each.subscription}>
          <${Edge} speed=${bySpark(each) ? read(each) : delivered(each)} r=${each.r} ur=${each.ur} note=${each.available ? `${count(each.available)} waiting` : null} />
          <${Box} kind=${bySpark(each) ? "Spark source" : "subscription"} title=${each.subscription} href=${subscriptionHref(each)} note=${bySpark(each) ? "a query" : plural(each.consumers, "consumer")} /></div>`)}</div>
      </div></div>
    </${Panel}>
    <${Panel} title="The last hour" note="while the topic is among the 50 busiest">
      ${history.data ? html`<${History} topic=${ledger.topic} history=${history.data} />` : html`<${Fault} error=${history.error} />`}
    </${Panel}>
    <${Panel} title="Ledger: segments of producers" note="announced = stored + refused + pending + holes">
      <${Rows} found=${{ data: ledger }} rows=${ledger.producers.slice(0, ROWS)} label="Accounts of producers" keyOf=${(each) => each.producer}
        empty=${html`<${Empty} command=${`echo hello | headpond produce ${topicWord}`}>Nobody has sent to it. To send a line:</${Empty}>`} columns=${[
          ["Producer", title, "clip"], ["Balance", (each) => html`<${Balance} account=${each} />`], number("Announced", "announced", "wide"), number("Stored", "stored"),
          ["Refused", (each) => html`<span title=${reasons(each.refused)}>${count(sum(each.refused))}</span>`, "num wide"], number("Pending", "pending"),
          number("Holes", "holes", "wide"), number("Repeats", "duplicates", "wide"), number("Messages", "messages", "wide"),
        ]} />
    </${Panel}>
    <${Panel} title="Ledger: entries of subscriptions" note="stored = settled in some way + in flight + available + unacked + dying">
      <${Rows} found=${{ data: ledger }} rows=${readers.slice(0, ROWS)} label="Accounts of subscriptions" keyOf=${(each) => each.subscription}
        empty=${html`<${Empty} command=${`headpond sub create ${topicWord} NAME`}>It has no subscription.</${Empty}>`} columns=${[
          ["Subscription", (each) => each.subscription, "clip"], ["Balance", (each) => html`<${Balance} account=${each} />`], number("Stored", "stored", "wide"), number("Acked", "acknowledged"),
          number("Skipped", "skipped", "wide"), ["Dead", DeadCount, "num wide"],
          ["Lost", (each) => count(each.retention + each.damaged + each.expired), "num wide"], ["Passed", (each) => count(each.passed + each.compacted + each.unknown), "num wide"],
          number("In flight", "in_flight", "wide"), number("Available", "available"), ["Unacked", (each) => count(each.unacked + each.dying), "num wide"],
        ]} />
    </${Panel}>
    <p>The log: ${count(ledger.log.entries)} entries, ${count(ledger.log.messages)} messages of producers, ${count(ledger.log.lost)} lost. <${Balance} account=${ledger.log} /></p>
    <${Command} text=${`headpond ledger ${topicWord}`} />`);
}
