// Spark: what the node knows of queries. A sink is a writer; a source with a subscription is that subscription.

import { useRef } from "../vendor/hooks.js";
import { query, remove } from "../lib/api.js";
import { ago, bytes, count, plural, queryOf, rate, seconds, short } from "../lib/format.js";
import { RECENT_S, usePoll, useSpeeds } from "../lib/live.js";
import { Action, Badge, Empty, html, number, Page, Panel, Rows, TopicLink } from "../lib/ui.js";
import { fullName, SubscriptionName, useDelivered } from "./subscriptions.js";

const SHOWN_MAX = 200;

// Seconds between the commits of a writer, on average since the page was opened.
function useBatchTimes(rows) {
  const firsts = useRef(new Map());
  for (const each of rows) if (!firsts.current.has(each.writer)) firsts.current.set(each.writer, each);
  const now = new Map(rows.map((each) => [each.writer, each]));
  return (writer) => {
    const [first, last] = [firsts.current.get(writer), now.get(writer)];
    const batches = last.batch - first.batch;
    return batches > 0 ? (Date.parse(last.committed_at) - Date.parse(first.committed_at)) / 1000 / batches : null;
  };
}

function Sources() {
  const found = usePoll(`/subscriptions${query({ advanced: true, limit: SHOWN_MAX })}`);
  const speed = useDelivered(found.data);
  return html`<${Panel} title="Sources" note="subscriptions that queries move by position">
    <${Rows} found=${found} label="Sources" keyOf=${fullName} empty=${html`<${Empty}>No query has moved a subscription since the node started.</${Empty}>`} columns=${[
      ["Subscription", (each) => html`<${SubscriptionName} each=${each} />`, "name"],
      number("Lag", "unsettled"), ["Read", (each) => rate(speed(each)), "num"],
      ["Last batch", (each) => ago(each.advanced_at), "num"], ["Read by", (each) => each.advanced_by, "wide clip"],
    ]} />
    <p class="muted">A source with the option <code>subscription</code> moves that subscription after each batch: its backlog is the lag of the query. A source without one is known to Spark alone: <code>headpond.spark.lag(query)</code>.</p>
  </${Panel}>`;
}

export function Spark() {
  const found = usePoll("/writers");
  const rows = (found.data || []).slice(0, SHOWN_MAX);
  const speed = useSpeeds(found.data, (all) => all, (each) => each.writer, (each) => each.rows, RECENT_S);
  const every = useBatchTimes(rows);
  return html`<${Page} title="Spark">
    <${Panel} title="Sinks" note="writers of staged batches">
      <${Rows} found=${found} rows=${rows} label="Writers" keyOf=${(each) => each.writer}
        empty=${html`<${Empty} command="headpond spark --help">No query has written through this node. To start with Spark:</${Empty}>`} columns=${[
          ["Writer", (each) => html`${queryOf(each.writer)}${each.publishing && html` <${Badge} tone="ok">publishing</${Badge}>`}`, "name"],
          ["Topics", (each) => each.topics.map((topic) => html`<${TopicLink} topic=${topic} view="/delivery" /> `), "name wide"],
          number("Batch", "batch", "wide"), ["Committed", (each) => ago(each.committed_at), "num"], ["A batch every", (each) => seconds(every(each.writer)), "num wide"],
          ["Rows", (each) => rate(speed(each)), "num"], ["Rows per batch", (each) => (each.batches ? count(each.rows / each.batches) : "–"), "num wide"],
          number("Rows in all", "rows", "wide"), ["Staged", (each) => `${bytes(each.staged_bytes)} in ${plural(each.stages, "stage")}`, "num wide"],
          ["", (each) => html`<${Action} label="Delete" kind="small danger" title=${`Delete ${short(each.writer)}`} verb="Delete the writer" tone="danger"
            act=${() => remove(`/writers/${each.writer.split("/").map(encodeURIComponent).join("/")}`)} done=${found.reload}>
            <p>The node forgets its batches (${count(each.batches)}) and drops ${plural(each.stages, "stage")}. Its messages stay. <b>A batch that the query sends again is stored again.</b></p></${Action}>`],
        ]} />
    </${Panel}>
    <${Sources} />
  </${Page}>`;
}
