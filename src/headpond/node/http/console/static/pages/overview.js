// Overview: is the node well, how busy is it, what is furthest behind?

import { byteRate, bytes, count, percent, plural, rate, seconds } from "../lib/format.js";
import { usePoll, useRecent, useTop } from "../lib/live.js";
import { Badge, Empty, Fault, Hop, html, Loading, number, Page, Panel, Plot, PlotsBegin, Rows, Stats, Table, TopicLink } from "../lib/ui.js";
import { LinkState } from "./links.js";
import { DeadCount, fullName, SubscriptionName, useSources } from "./subscriptions.js";

const SHOWN = 10;
const KEEPS_UP = 100;  // a smaller lag comes and goes: rows that change places every two seconds cannot be read
const byLag = (rows, nameOf) => {
  const behind = (each) => (each.lag < Math.max(KEEPS_UP, each.delivered_s || each.messages_s || 0) ? 0 : each.lag);
  return [...rows].sort((one, other) => behind(other) - behind(one) || (nameOf(one) < nameOf(other) ? -1 : 1)).slice(0, SHOWN);
};
const topicOf = (each) => each.topic;

function History() {
  const { data } = usePoll("/history", 10000);
  if (!data) return null;
  const at = data.at.map((each) => Date.parse(each) / 1000);
  if (at.length < 2) return html`<${PlotsBegin} step_s=${data.step_s} />`;
  return html`<div class="plots">
    <${Plot} title="Messages per second" at=${at} format=${rate} series=${[["stored", data.node.stored_s], ["delivered", data.node.delivered_s]]} />
    <${Plot} title="Processor" at=${at} format=${percent} least=${0.1} series=${[["of one core", data.node.cpu]]} />
  </div>`;
}

// What is dead in the whole node: the rows that are shown, which are newer, and those that are not.
function Dead({ shown }) {
  const { data } = usePoll("/subscriptions?dead=true&limit=1000", 5000);
  const counts = new Map([...(data || []), ...shown].map((each) => [fullName(each), each.dead]));
  const dead = [...counts.values()].reduce((sum, each) => sum + each, 0);
  return dead > 0 && html`<a class="bad" href="#/dead">${count(dead)} dead</a>`;
}

export function Overview() {
  const { top, error } = useTop("/top/events?limit=50&interval=2");
  const sources = useSources();
  const { data: writers } = usePoll("/writers", 5000);
  const recent = useRecent(top);
  if (!top && error) return html`<${Page} title="Overview"><${Fault} error=${error} />
    ${error.status === 403 && html`<p>Rates of the whole node are for an admin of everything. <a href="#/topics">Topics</a> shows what this token reaches.</p>`}</${Page}>`;
  if (!top) return html`<${Page} title="Overview"><${Loading} /></${Page}>`;
  const { node } = top;
  const bySpark = (each) => sources.has(fullName(each));
  const bySink = (each) => (writers || []).some((writer) => writer.topics.includes(each.topic));
  // Queries write and read in batches: a rate of two seconds would jump.
  const speed = (each, own) => rate(bySpark(each) ? recent("subscriptions", each).speed : own);
  const state = error ? html`<${Badge} tone="warn">no answer</${Badge}>` : node.disk_full ? html`<${Badge} tone="bad">disk full: sends are refused</${Badge}>` : html`<${Badge} tone="ok">takes messages</${Badge}>`;
  return html`<${Page} title="Overview" actions=${state}>
    <${Fault} error=${error} />
    <${Stats} items=${[
      ["Stored", rate(node.stored_s), `${count(node.messages_stored)} since it started`],
      ["Delivered", rate(node.delivered_s), `${count(node.messages_delivered)} since it started`],
      ["Topics", count(node.topics), plural(node.subscriptions, "subscription")],
      ["Connections", count(node.connections), `${bytes(node.unacked_bytes)} unacknowledged`],
      ["Disk free", bytes(node.disk_free_bytes), null, node.disk_full ? "bad" : ""],
      ["Processor", percent(node.cpu), `of one core; ${bytes(node.rss_bytes)} of memory`],
      ["Up", seconds(node.uptime_us / 1e6), node.software],
    ]} />
    <${History} />
    <${Panel} title="Topics" note="the furthest behind first" actions=${html`<a href="#/topics">All ${count(node.topics)}</a>`}>
      <${Rows} found=${{ data: top }} rows=${byLag(top.topics, topicOf)} label="Topics" keyOf=${topicOf}
        empty=${html`<${Empty} command="echo hello | headpond produce greetings">There is no topic yet. The first message makes one:</${Empty}>`} columns=${[
          ["Topic", (each) => html`<${TopicLink} topic=${each.topic} />`, "name"],
          ["In", (each) => rate(bySink(each) ? recent("topics", each).speed : each.messages_s), "num"],
          ["Bytes in", (each) => byteRate(bySink(each) ? recent("topics", each).bytes_s : each.bytes_s), "num wide"],
          number("Stored", "stored"),
          ["Size", (each) => bytes(each.bytes), "num wide"],
          number("Lag", "lag"),
          ["Producers’ hop", (each) => html`<${Hop} r=${each.r} ur=${each.ur} />`, "wide"],
        ]} />
    </${Panel}>
    <${Panel} title="Subscriptions" note="the furthest behind first" actions=${html`<${Dead} shown=${top.subscriptions} /><a href="#/subscriptions">All ${count(node.subscriptions)}</a>`}>
      <${Rows} found=${{ data: top }} rows=${byLag(top.subscriptions, fullName)} label="Subscriptions" keyOf=${fullName}
        empty=${html`<${Empty} command="headpond consume greetings --subscription hello">Nobody subscribes yet. A consumer makes a subscription:</${Empty}>`} columns=${[
          ["Subscription", (each) => html`<${SubscriptionName} each=${each} />`, "name"],
          number("Lag", "lag"),
          ["Delivered", (each) => speed(each, each.delivered_s), "num"],
          ["Settled", (each) => speed(each, each.settled_s), "num wide"],
          number("In flight", "in_flight", "wide"),
          ["Dead", DeadCount, "num"],
          ["Consumers", (each) => (bySpark(each) ? "a query" : count(each.consumers)), "num wide"],
          ["Hop", (each) => html`<${Hop} r=${each.r} ur=${each.ur} />`, "wide"],
        ]} />
    </${Panel}>
    ${top.links.length > 0 && html`<${Panel} title="Links" actions=${html`<a href="#/links">All</a>`}>
      <${Table} label="Links" rows=${top.links} keyOf=${(each) => each.link} columns=${[
        ["Link", (each) => each.link, "name"], ["State", (each) => html`<${LinkState} state=${each.state} />`], number("Lag", "lag"),
        ["Hop", (each) => html`<${Hop} r=${each.r} ur=${each.ur} />`],
      ]} /></${Panel}>`}
    <p class="muted">Node ${node.node}, read every two seconds; the plots show its last hour.</p>
  </${Page}>`;
}
