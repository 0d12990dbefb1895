// Subscriptions: who is behind, who is stuck? Paged and searched by the node.

import { query } from "../lib/api.js";
import { count, inPath, rate, short } from "../lib/format.js";
import { RECENT_S, usePoll, useSpeeds } from "../lib/live.js";
import { Badge, Empty, html, List, number, Page, Panel, useList } from "../lib/ui.js";

export const fullName = (each) => `${each.topic}/${each.subscription}`;
const inAddress = (each) => `${inPath(each.topic)}/${encodeURIComponent(each.subscription)}`;
export const subscriptionHref = (each) => `#/subscriptions/${inAddress(each)}`;
export const deadHref = (each) => `#/dead/${inAddress(each)}`;
// In the API.
export const pathOf = (topic, name) => `/topics/${inPath(topic)}/subscriptions/${encodeURIComponent(name)}`;

export const SubscriptionName = ({ each, withTopic = true }) => html`<a href=${subscriptionHref(each)}>${each.subscription}</a>${withTopic && html` <span class="muted">of ${short(each.topic)}</span>`}
  ${each.paused && html` <${Badge} tone="warn">paused</${Badge}>`}${each.passive && html` <${Badge}>copy</${Badge}>`}`;

export const DeadCount = ({ dead }) => html`<span class=${dead ? "bad" : ""}>${count(dead)}</span>`;

// The names of the subscriptions that queries of Spark move by position.
export function useSources(match) {
  const { data } = usePoll(`/subscriptions${query({ match, advanced: true, limit: 1000 })}`, 5000);
  return new Set((data || []).map(fullName));
}

// Of a row: what consumers get per second. A query of Spark gets nothing delivered; it moves the position, by batches.
export function useDelivered(data, rowsOf = (rows) => rows) {
  const delivered = useSpeeds(data, rowsOf, fullName, (each) => each.delivered);
  const read = useSpeeds(data, rowsOf, fullName, (each) => each.positions.reduce((sum, entry) => sum + entry, 0), RECENT_S);
  return (each) => (each.advanced_at ? read(each) : delivered(each));
}

export function useSubscriptionColumns(data, withTopic = true) {
  const delivered = useDelivered(data);
  return [
    ["Subscription", (each) => html`<${SubscriptionName} each=${each} withTopic=${withTopic} />`, "name"],
    ["Kind", (each) => each.kind, "wide"],
    number("Backlog", "unsettled"),
    ["Delivered", (each) => rate(delivered(each)), "num"],
    number("In flight", "in_flight", "wide"),
    number("Unacked", "unacked", "wide"),
    ["Dead", DeadCount, "num"],
    ["Consumers", (each) => (each.advanced_at ? "a query" : count(each.consumers.length)), "num wide"],
  ];
}

export function Subscriptions() {
  const list = useList("/subscriptions");
  const columns = useSubscriptionColumns(list.found.data);
  return html`<${Page} title="Subscriptions">
    <${Panel}>
      <${List} list=${list} of="subscriptions and topics" label="Subscriptions" keyOf=${fullName} columns=${columns}
        empty=${html`<${Empty} command="headpond consume TOPIC --subscription NAME">There is no subscription yet. A consumer makes one:</${Empty}>`} />
    </${Panel}>
  </${Page}>`;
}
