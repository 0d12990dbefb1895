// Subscriptions: who is behind, who is stuck? Paged and searched by the node.

import { query } from "../lib/api.js";
import { count, inPath, rate, short } from "../lib/format.js";
import { usePoll, useSpeeds } from "../lib/live.js";
import { Badge, Empty, Fault, html, Loading, Page, PAGE_ROWS, Pager, Panel, Search, Table, useListing } from "../lib/ui.js";

export const fullName = (each) => `${each.topic}/${each.subscription}`;
export const subscriptionHref = (each) => `#/subscriptions/${inPath(each.topic)}/${encodeURIComponent(each.subscription)}`;

export function useSubscriptionColumns(data, withTopic = true) {
  const delivered = useSpeeds(data, (rows) => rows, fullName, (each) => each.delivered);
  return [
    ["Subscription", (each) => html`<a href=${subscriptionHref(each)}>${each.subscription}</a>${withTopic && html` <span class="muted">of ${short(each.topic)}</span>`}
      ${each.paused && html` <${Badge} tone="warn">paused</${Badge}>`}${each.passive && html` <${Badge}>copy</${Badge}>`}`, "name"],
    ["Kind", (each) => each.kind, "wide"],
    ["Backlog", (each) => count(each.unsettled), "num"],
    ["Delivered", (each) => rate(delivered(each)), "num"],
    ["In flight", (each) => count(each.in_flight), "num wide"],
    ["Unacked", (each) => count(each.unacked), "num wide"],
    ["Dead", (each) => html`<span class=${each.dead ? "bad" : ""}>${count(each.dead)}</span>`, "num"],
    ["Consumers", (each) => count(each.consumers.length), "num wide"],
  ];
}

export function Subscriptions() {
  const listing = useListing();
  const { match, after, limit } = listing;
  const found = usePoll(`/subscriptions${query({ match, after, limit })}`);
  const rows = (found.data || []).slice(0, PAGE_ROWS);
  const columns = useSubscriptionColumns(found.data);
  return html`<${Page} title="Subscriptions">
    <${Panel}>
      <div class="bar"><${Search} listing=${listing} label="Search subscriptions and topics" /></div>
      <${Fault} error=${found.error} />
      ${!found.data ? !found.error && html`<${Loading} />` : rows.length === 0
        ? html`<${Empty} command=${match ? null : "headpond consume TOPIC --subscription NAME"}>${match ? "No subscription or topic has that in its name." : "There is no subscription yet. A consumer makes one:"}</${Empty}>`
        : html`<${Table} label="Subscriptions" rows=${rows} keyOf=${fullName} columns=${columns} />`}
      <${Pager} listing=${listing} rows=${found.data || []} nameOf=${fullName} />
    </${Panel}>
  </${Page}>`;
}
