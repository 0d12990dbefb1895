// Topics: which are there, how large, how busy? Paged and searched by the node.

import { post, query } from "../lib/api.js";
import { bytes, count, inPath, rate, short } from "../lib/format.js";
import { usePoll, useSpeeds } from "../lib/live.js";
import { Badge, Dialog, Empty, Fault, Field, html, Loading, Opens, Page, PAGE_ROWS, Pager, Panel, Search, Table, useListing } from "../lib/ui.js";

export const entriesIn = (topic) => (topic.shard_list || []).reduce((sum, shard) => sum + shard.entry_next, 0);

const CreateTopic = ({ close, done }) => html`<${Dialog} title="Create a topic" verb="Create" close=${close} act=${async (form) => {
  const [name, shards, state] = [form.get("topic"), Number(form.get("shards")), form.get("state") === "on"];
  await post("/topics", { topic: name, shards, state });
  done(name);
}}>
  <${Field} label="Name" hint="NAME, or tenant/product/component/NAME"><input name="topic" required autocomplete="off" /></${Field}>
  <${Field} label="Shards" hint="A power of 2. It cannot be changed later."><input name="shards" type="number" min="1" value="1" required /></${Field}>
  <label class="check"><input type="checkbox" name="state" /> Keep only the latest message of each key</label>
</${Dialog}>`;

export function Topics() {
  const listing = useListing();
  const { match, after, limit } = listing;
  const found = usePoll(`/topics${query({ match, after, limit })}`);
  const rows = (found.data || []).slice(0, PAGE_ROWS);
  const speed = useSpeeds(found.data, (topics) => topics, (topic) => topic.topic, entriesIn);
  const create = html`<${Opens} label="Create topic" kind="primary" make=${(close) => html`<${CreateTopic} close=${close} done=${(name) => { location.hash = `#/topics/${inPath(name)}`; }} />`} />`;
  return html`<${Page} title="Topics" actions=${create}>
    <${Panel}>
      <div class="bar"><${Search} listing=${listing} label="Search topics" /></div>
      <${Fault} error=${found.error} />
      ${!found.data ? !found.error && html`<${Loading} />` : rows.length === 0
        ? html`<${Empty} command=${match ? null : "headpond topic create orders"}>${match ? "No topic has that in its name." : "There is no topic yet. Create one here, or:"}</${Empty}>`
        : html`<${Table} label="Topics" rows=${rows} keyOf=${(topic) => topic.topic} columns=${[
          ["Topic", (topic) => html`<a href=${`#/topics/${inPath(topic.topic)}`}>${short(topic.topic)}</a>${topic.state && html` <${Badge}>state</${Badge}>`}${topic.schema && html` <${Badge}>typed</${Badge}>`}`, "name"],
          ["In", (topic) => rate(speed(topic)), "num"],
          ["Stored", (topic) => count(topic.entries), "num"],
          ["Size", (topic) => bytes(topic.bytes), "num"],
          ["Shards", (topic) => count(topic.shards), "num wide"],
          ["Durability", (topic) => topic.durability, "wide"],
          ["", (topic) => html`<a href=${`#/topics/${inPath(topic.topic)}/messages`}>Messages</a>`, "wide"],
        ]} />`}
      <${Pager} listing=${listing} rows=${found.data || []} nameOf=${(topic) => topic.topic} />
    </${Panel}>
  </${Page}>`;
}
