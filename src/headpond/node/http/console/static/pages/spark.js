// Spark: what the node knows of queries. A sink is a writer; a source with a subscription is that subscription.

import { remove } from "../lib/api.js";
import { ago, bytes, count, inPath, rate, short } from "../lib/format.js";
import { usePoll } from "../lib/live.js";
import { Badge, Dialog, Empty, Fault, html, Loading, Opens, Page, Panel, Table } from "../lib/ui.js";

const SHOWN_MAX = 200;

export function Spark() {
  const found = usePoll("/writers");
  const rows = (found.data || []).slice(0, SHOWN_MAX);
  const before = new Map((found.previous?.data || []).map((each) => [each.writer, each.rows]));
  const passed = found.previous ? (found.at - found.previous.at) / 1000 : 0;
  const speed = (each) => (before.has(each.writer) && passed ? Math.max(0, each.rows - before.get(each.writer)) / passed : null);
  return html`<${Page} title="Spark">
    <${Panel} title="Sinks" note="writers of staged batches">
      <${Fault} error=${found.error} />
      ${!found.data ? !found.error && html`<${Loading} />` : rows.length === 0
        ? html`<${Empty} command="headpond spark --help">No query has written through this node. To start with Spark:</${Empty}>`
        : html`<${Table} label="Writers" rows=${rows} keyOf=${(each) => each.writer} columns=${[
          ["Writer", (each) => html`${each.writer}${each.publishing && html` <${Badge} tone="ok">publishing</${Badge}>`}`, "clip"],
          ["Topics", (each) => each.topics.map((topic) => html`<a href=${`#/topics/${inPath(topic)}/delivery`}>${short(topic)}</a> `), "wide"],
          ["Batch", (each) => count(each.batch), "num"], ["Committed", (each) => ago(each.committed_at)], ["Rows", (each) => rate(speed(each)), "num"],
          ["All rows", (each) => count(each.rows), "num wide"], ["Staged", (each) => `${count(each.stages)}, ${bytes(each.staged_bytes)}`, "num wide"],
          ["", (each) => html`<${Opens} label="Delete" kind="small danger" make=${(close) => html`<${Dialog} title=${`Delete ${each.writer}`} verb="Delete the writer" tone="danger" close=${close}
            act=${async () => { await remove(`/writers/${each.writer.split("/").map(encodeURIComponent).join("/")}`); found.reload(); }}>
            <p>The node forgets its ${count(each.batches)} batches and drops ${count(each.stages)} stages. Its messages stay. <b>A batch that the query sends again is stored again.</b></p></${Dialog}>`} />`],
        ]} />`}
    </${Panel}>
    <${Panel} title="Sources">
      <p>A source with the option <code>subscription</code> moves that subscription after each batch: its backlog is the lag of the query, in <a href="#/subscriptions">Subscriptions</a>. A source without one is known to Spark alone: <code>headpond.spark.lag(query)</code>.</p>
    </${Panel}>
  </${Page}>`;
}
