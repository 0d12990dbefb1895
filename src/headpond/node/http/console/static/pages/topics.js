// Topics: which are there, how large, how busy? Paged and searched by the node.

import { post } from "../lib/api.js";
import { bytes, inPath, rate } from "../lib/format.js";
import { useSpeeds } from "../lib/live.js";
import { Action, Badge, Empty, Field, html, List, number, Page, Panel, TopicLink, useList } from "../lib/ui.js";

export const entriesIn = (topic) => (topic.shard_list || []).reduce((sum, shard) => sum + shard.entry_next, 0);

const createTopic = html`<${Action} label="Create topic" kind="primary" title="Create a topic" verb="Create" act=${async (form) => {
  await post("/topics", { topic: form.get("topic"), shards: Number(form.get("shards")), state: form.get("state") === "on" });
  location.hash = `#/topics/${inPath(form.get("topic"))}`;
}}>
  <${Field} label="Name" hint="NAME, or tenant/product/component/NAME" name="topic" required />
  <${Field} label="Shards" hint="A power of 2. It cannot be changed later." name="shards" type="number" min="1" defaultValue="1" required />
  <label class="check"><input type="checkbox" name="state" /> Keep only the latest message of each key</label>
</${Action}>`;

export function Topics() {
  const list = useList("/topics");
  const speed = useSpeeds(list.found.data, (topics) => topics, (topic) => topic.topic, entriesIn);
  return html`<${Page} title="Topics" actions=${createTopic}>
    <${Panel}>
      <${List} list=${list} of="topics" label="Topics" keyOf=${(topic) => topic.topic}
        empty=${html`<${Empty} command="headpond topic create orders">There is no topic yet. Create one here, or:</${Empty}>`} columns=${[
          ["Topic", ({ topic, state, schema }) => html`<${TopicLink} topic=${topic} />${state && html` <${Badge}>state</${Badge}>`}${schema && html` <${Badge}>typed</${Badge}>`}`, "name"],
          ["In", (topic) => rate(speed(topic)), "num"],
          number("Stored", "entries"),
          ["Size", (topic) => bytes(topic.bytes), "num"],
          number("Shards", "shards", "wide"),
          ["Durability", (topic) => topic.durability, "wide"],
          ["", ({ topic }) => html`<${TopicLink} topic=${topic} view="/messages">Messages</${TopicLink}>`, "wide"],
        ]} />
    </${Panel}>
  </${Page}>`;
}
