// Overview: is the node well, how busy is it, what is furthest behind?

import { useRef } from "../vendor/hooks.js";
import { ago, bytes, count, inPath, plural, rate, seconds, short } from "../lib/format.js";
import { usePoll, useTop } from "../lib/live.js";
import { Badge, Empty, Fault, Hop, html, Loading, Page, Panel, Plot, Stats, Table } from "../lib/ui.js";

const POINTS_MAX = 1000;  // of two seconds each
const HISTORY_MS = 600000;

// The hour that the node has kept, continued by what the stream says since.
function useCurves(top) {
  const { data } = usePoll("/history", HISTORY_MS);
  const live = useRef({ at: [], stored: [], delivered: [], cpu: [] });
  const points = live.current;
  if (top && top.seconds && points.last !== top) {
    points.last = top;
    const { node } = top;
    for (const [list, value] of [[points.at, Date.now() / 1000], [points.stored, node.stored_s], [points.delivered, node.delivered_s], [points.cpu, node.cpu]]) {
      list.push(value);
      if (list.length > POINTS_MAX) list.shift();
    }
  }
  const past = data ? { at: data.at.map((each) => Date.parse(each) / 1000), ...data.node } : { at: [] };
  const known = points.at.findIndex((each) => each > (past.at[past.at.length - 1] || 0));
  const joined = (name, list) => [...(past[name] || past.at.map(() => null)), ...(known < 0 ? [] : list.slice(known))];
  return { at: joined("at", points.at), stored: joined("stored_s", points.stored), delivered: joined("delivered_s", points.delivered), cpu: joined("cpu", points.cpu) };
}

export function Overview() {
  const { top, error } = useTop("/top/events?limit=10&interval=2");
  const curves = useCurves(top);
  if (!top && error) return html`<${Page} title="Overview"><${Fault} error=${error} />
    ${error.status === 403 && html`<p>Rates of the whole node are for an admin of everything. <a href="#/topics">Topics</a> shows what this token reaches.</p>`}</${Page}>`;
  if (!top) return html`<${Page} title="Overview"><${Loading} /></${Page}>`;
  const { node } = top;
  const dead = top.subscriptions.reduce((sum, each) => sum + each.dead, 0);
  const state = error ? html`<${Badge} tone="warn">no answer</${Badge}>` : node.disk_full ? html`<${Badge} tone="bad">disk full: sends are refused</${Badge}>` : html`<${Badge} tone="ok">takes messages</${Badge}>`;
  return html`<${Page} title="Overview" actions=${state}>
    <${Fault} error=${error} />
    <${Stats} items=${[
      ["Stored", rate(node.stored_s), `${count(node.messages_stored)} since it started`],
      ["Delivered", rate(node.delivered_s), `${count(node.messages_delivered)} since it started`],
      ["Topics", count(node.topics), plural(node.subscriptions, "subscription")],
      ["Connections", count(node.connections), `${bytes(node.unacked_bytes)} unacknowledged`],
      ["Disk free", bytes(node.disk_free_bytes), null, node.disk_full ? "bad" : ""],
      ["Processor", node.cpu == null ? "–" : `${Math.round(node.cpu * 100)} %`, `of one core; ${bytes(node.rss_bytes)} of memory`],
      ["Up", seconds(node.uptime_us / 1e6), node.software],
    ]} />
    <div class="plots">
      <${Plot} title="Messages per second" at=${curves.at} format=${rate} series=${[["stored", curves.stored], ["delivered", curves.delivered]]} />
      <${Plot} title="Processor" at=${curves.at} format=${(value) => (value == null ? "–" : `${Math.round(value * 100)} %`)} series=${[["of one core", curves.cpu]]} />
    </div>
    <${Panel} title="Topics" note="the furthest behind, then the busiest" actions=${html`<a href="#/topics">All ${count(node.topics)}</a>`}>
      ${top.topics.length === 0 ? html`<${Empty} command="echo hello | headpond produce greetings">There is no topic yet. The first message makes one:</${Empty}>`
        : html`<${Table} label="Topics" rows=${top.topics} keyOf=${(each) => each.topic} columns=${[
          ["Topic", (each) => html`<a href=${`#/topics/${inPath(each.topic)}`}>${short(each.topic)}</a>`, "name"],
          ["In", (each) => rate(each.messages_s), "num"],
          ["Bytes in", (each) => (each.bytes_s == null ? "–" : `${bytes(each.bytes_s)}/s`), "num wide"],
          ["Stored", (each) => count(each.stored), "num"],
          ["Size", (each) => bytes(each.bytes), "num wide"],
          ["Lag", (each) => count(each.lag), "num"],
          ["Producers’ hop", (each) => html`<${Hop} r=${each.r} ur=${each.ur} />`, "wide"],
        ]} />`}
    </${Panel}>
    <${Panel} title="Subscriptions" note="the furthest behind" actions=${html`${dead > 0 && html`<a class="bad" href="#/dead">${count(dead)} dead</a>`}<a href="#/subscriptions">All ${count(node.subscriptions)}</a>`}>
      ${top.subscriptions.length === 0 ? html`<${Empty} command="headpond consume greetings --subscription hello">Nobody subscribes yet. A consumer makes a subscription:</${Empty}>`
        : html`<${Table} label="Subscriptions" rows=${top.subscriptions} keyOf=${(each) => `${each.topic}/${each.subscription}`} columns=${[
          ["Subscription", (each) => html`<a href=${`#/subscriptions/${inPath(each.topic)}/${encodeURIComponent(each.subscription)}`}>${each.subscription}</a> <span class="muted">of ${short(each.topic)}</span>${each.paused && html` <${Badge} tone="warn">paused</${Badge}>`}`, "name"],
          ["Lag", (each) => count(each.lag), "num"],
          ["Delivered", (each) => rate(each.delivered_s), "num"],
          ["Settled", (each) => rate(each.settled_s), "num wide"],
          ["In flight", (each) => count(each.in_flight), "num wide"],
          ["Dead", (each) => html`<span class=${each.dead ? "bad" : ""}>${count(each.dead)}</span>`, "num"],
          ["Consumers", (each) => count(each.consumers), "num wide"],
          ["Hop", (each) => html`<${Hop} r=${each.r} ur=${each.ur} />`, "wide"],
        ]} />`}
    </${Panel}>
    ${top.links.length > 0 && html`<${Panel} title="Links" actions=${html`<a href="#/links">All</a>`}>
      <${Table} label="Links" rows=${top.links} keyOf=${(each) => each.link} columns=${[
        ["Link", (each) => each.link, "name"], ["State", (each) => each.state], ["Lag", (each) => count(each.lag), "num"],
        ["Hop", (each) => html`<${Hop} r=${each.r} ur=${each.ur} />`],
      ]} /></${Panel}>`}
    <p class="muted">Node ${node.node}, read every two seconds. The plots show the last hour${curves.at.length ? `; the first reading was ${ago(new Date(curves.at[0] * 1000).toISOString())}` : ""}.</p>
  </${Page}>`;
}
