// Delivery: every hop of the node with its R and UR, live: producer → topic → subscription, and node → link.

import { useState } from "../vendor/hooks.js";
import { query } from "../lib/api.js";
import { ago, count, inPath, plural, queryOf, rate, short } from "../lib/format.js";
import { RECENT_S, usePoll, useRecent, useTop } from "../lib/live.js";
import { Empty, Fault, Hop, html, Live, Loading, Page, Panel, Search } from "../lib/ui.js";
import { linkTone } from "./links.js";
import { LossyLink } from "./lossy_link.js";
import { fullName, subscriptionHref, useSources } from "./subscriptions.js";

const TOPICS_SHOWN = 20;
const SINKS_SHOWN = 3;
const UUID = /([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f-]{22}/;  // Spark gives one to a query without a name
const byName = (nameOf) => (one, other) => (nameOf(one) < nameOf(other) ? -1 : 1);  // what is busiest changes all the time

// How thick an edge is: 0 without messages, up to 4.
export const weight = (messages) => (messages > 0 ? Math.min(4, 1 + Math.floor(Math.log10(messages + 1))) : 0);

export const Edge = ({ speed, r, ur, note }) => html`<div class=${`edge w${weight(speed)}`}><span class="label"><b>${rate(speed)}</b> <${Hop} r=${r} ur=${ur} />${note && html` <span class="muted">${note}</span>`}</span></div>`;

export const Box = ({ kind, title, about = title, href, note, tone }) => html`<div class=${`box ${tone || ""}`}><span class="kind">${kind}</span>${href ? html`<a class="title" href=${href} title=${about}>${title}</a>` : html`<b class="title" title=${about}>${title}</b>`}${note && html`<span class="muted">${note}</span>`}</div>`;

export function Delivery() {
  const [match, setMatch] = useState("");
  const { top, error } = useTop(`/top/events${query({ topic: match ? `*${match}*` : "", limit: 50, interval: 2 })}`);
  const { data: writers } = usePoll("/writers", 5000);
  const sources = useSources();
  const { data: node } = usePoll("/node", 3600000);
  const [shown, setShown] = useState("total");
  const recent = useRecent(top);
  const hop = (kind, row) => (shown === "total" ? { r: row.r, ur: row.ur } : recent(kind, row));
  const bySpark = (each) => sources.has(fullName(each));
  const body = () => {
    if (!top && error) return html`<${Fault} error=${error} />${error.status === 403 && html`<p>The map of the whole node is for an admin of everything. Each <a href="#/topics">topic</a> has its own.</p>`}`;
    if (!top) return html`<${Loading} />`;
    if (!top.topics.length) return html`<${Empty} command=${match ? null : "headpond up"}>${match ? "No topic has that in its name." : "Nothing was delivered yet. This makes something to look at:"}</${Empty}>`;
    const leftOut = top.topics_left_out + Math.max(0, top.topics.length - TOPICS_SHOWN);
    return html`<${Fault} error=${error} /><div class="map">${top.topics.slice(0, TOPICS_SHOWN).sort(byName((each) => each.topic)).map((topic) => {
      const readers = top.subscriptions.filter((each) => each.topic === topic.topic).sort(byName((each) => each.subscription));
      const sinks = (writers || []).filter((each) => each.topics.includes(topic.topic));
      return html`<div class="lane" key=${topic.topic}>
        <div class="from">${sinks.slice(0, SINKS_SHOWN).map((each) => html`<${Box} key=${each.writer} kind="Spark sink" title=${queryOf(each.writer).replace(UUID, "$1…")} about=${each.writer} href="#/spark" note=${`batch ${count(each.batch)}, ${ago(each.committed_at)}`} />`)}
          ${sinks.length > SINKS_SHOWN ? html`<p class="muted">and ${plural(sinks.length - SINKS_SHOWN, "Spark sink")}</p>` : sinks.length === 0 && html`<${Box} kind="from" title="producers" />`}</div>
        <${Edge} speed=${sinks.length ? recent("topics", topic).speed : topic.messages_s} ...${hop("topics", topic)} />
        <${Box} kind="topic" title=${short(topic.topic)} href=${`#/topics/${inPath(topic.topic)}/delivery`} note=${`${count(topic.stored)} stored`} />
        <div class="to">${readers.length === 0 ? html`<p class="muted">${top.subscriptions_left_out ? "no subscription among the furthest behind" : "no subscription"}</p>` : readers.map((each) => html`<div class="branch" key=${each.subscription}>
          <${Edge} speed=${bySpark(each) ? recent("subscriptions", each).speed : each.delivered_s} ...${hop("subscriptions", each)} note=${each.lag ? `${count(each.lag)} behind` : null} />
          <${Box} kind=${bySpark(each) ? "Spark source" : "subscription"} title=${each.subscription} href=${subscriptionHref(each)} tone=${each.dead ? "bad" : ""}
            note=${each.dead ? plural(each.dead, "dead message") : each.paused ? "paused" : bySpark(each) ? "a query" : plural(each.consumers, "consumer")} /></div>`)}
        </div></div>`;
    })}
    ${top.links.map((link) => html`<div class="lane" key=${`link ${link.link}`}><div class="from"><${Box} kind="node" title="this node" /></div>
      <${Edge} speed=${recent("links", link).speed} ...${hop("links", link)} note=${link.lag ? `${count(link.lag)} behind` : null} />
      <${Box} kind="link" title=${link.link} href="#/links" tone=${linkTone(link.state).replace("ok", "")} note=${link.state} /><div class="to"></div></div>`)}</div>
    ${leftOut > 0 && html`<p class="muted">Not shown: ${plural(leftOut, "topic")} with less lag or fewer messages. Search finds them.</p>`}`;
  };
  const choices = [["total", "Since the start"], ["recent", `Last ${RECENT_S} s`]];
  return html`<${Page} title="Delivery" actions=${html`<${Live} error=${error} />`}>
    <p class="muted">R is the share that arrived, UR the share of arrivals that was no repeat. A line is as thick as it is busy.</p>
    ${node?.lossy_link && html`<${LossyLink} />`}
    <${Panel}><div class="bar"><${Search} label="Search topics" onText=${setMatch} />
      <div class="choice" role="group" aria-label="R and UR of">${choices.map(([name, label]) => html`<button type="button" key=${name} aria-pressed=${shown === name} onClick=${() => setShown(name)}>${label}</button>`)}</div></div>${body()}</${Panel}>
  </${Page}>`;
}
