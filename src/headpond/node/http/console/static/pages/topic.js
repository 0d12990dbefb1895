// A topic: its rate and size, its shards, its settings with their origins, its columns, its subscriptions.

import { patch, post, query, remove } from "../lib/api.js";
import { bytes, clock, count, fromPath, inPath, quoted, rate, setting, short } from "../lib/format.js";
import { usePoll, useSpeed } from "../lib/live.js";
import { Action, Empty, Fault, Field, html, Loading, number, Page, PAGE_ROWS, Panel, Rows, Stats, Table, Tabs } from "../lib/ui.js";
import { useSubscriptionColumns } from "./subscriptions.js";
import { entriesIn } from "./topics.js";

export const topicTabs = (name, current) => html`<${Tabs} current=${current} items=${[
  ["Topic", `#/topics/${inPath(name)}`], ["Messages", `#/topics/${inPath(name)}/messages`], ["Delivery", `#/topics/${inPath(name)}/delivery`],
]} />`;
export const topicCrumbs = html`<a href="#/topics">Topics</a>`;

const SHARDS_SHOWN = 64;
const QUOTA = /^(tenant|connection)_/;  // set at a tenant, not at a topic

// A setting as a person types it: none, true, a number, or text such as 7d.
const parsed = (text) => (text === "none" ? null : text === "true" ? true : text === "false" ? false : /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text);

const SetSetting = ({ path, name, value, done }) => html`<${Action} label="Set" kind="small" title=${`Set ${name}`} verb="Set" done=${done}
  act=${(form) => patch(`${path}/settings`, { set: { [name]: parsed(form.get("value")) } })}>
  <p>The value holds from the next write on, for this topic alone; it overrides what the places above say.</p>
  <${Field} label="Value" hint="none removes a limit; times as 30s, 12h, 7d; sizes as 10GiB; a number alone is seconds or bytes" name="value" required defaultValue=${value == null ? "none" : String(value)} />
</${Action}>`;

const CreateSubscription = ({ path, done }) => html`<${Action} label="Create" title="Create a subscription" verb="Create" done=${done}
  act=${(form) => post(`${path}/subscriptions`, { subscription: form.get("name"), kind: form.get("kind"), start: form.get("start") })}>
  <p>The node keeps messages for it from its start on, until consumers settle them.</p>
  <${Field} label="Name" name="name" required />
  <${Field} label="Kind" name="kind" options=${["unique", "shared", "failover", "key_shared"]} />
  <${Field} label="Start" hint="earliest, latest, an entry or a time" name="start" defaultValue="earliest" required />
</${Action}>`;

export function Topic({ names: [name] }) {
  const path = `/topics/${inPath(name)}`;
  const found = usePoll(path);
  const subscriptions = usePoll(found.data ? `/subscriptions${query({ match: `${found.data.topic}/`, limit: PAGE_ROWS + 1 })}` : null);
  const topic = found.data;
  const [speed, subscriptionColumns] = [useSpeed(topic, entriesIn), useSubscriptionColumns(subscriptions.data, false)];
  if (!topic) return html`<${Page} title=${fromPath(name)} crumbs=${topicCrumbs}>${found.error ? html`<${Fault} error=${found.error} />` : html`<${Loading} />`}</${Page}>`;
  const actions = html`<${Action} label="Delete" kind="danger" title=${`Delete ${short(topic.topic)}`} verb="Delete the topic" tone="danger" type=${short(topic.topic)}
    act=${() => remove(path)} done=${() => { location.hash = "#/topics"; }}>
    <p>The node deletes the topic, its <b>${count(topic.entries)}</b> stored messages (${bytes(topic.bytes)}) and its subscriptions with their positions. Producers and consumers get an error. This cannot be undone.</p>
  </${Action}>`;
  const columns = topic.schema || [];
  return html`<${Page} title=${short(topic.topic)} crumbs=${topicCrumbs} actions=${actions}>
    ${topicTabs(topic.topic, "Topic")}
    <${Fault} error=${found.error} />
    <${Stats} items=${[
      ["In", rate(speed), "messages"], ["Stored", count(topic.entries)], ["Size", bytes(topic.bytes)],
      ["Shards", count(topic.shards)], ["Durability", topic.durability], ["Created", clock(topic.created_at).slice(0, 10)],
    ]} />
    <${Panel} title="Subscriptions" note=${subscriptions.data?.length > PAGE_ROWS ? `the first ${PAGE_ROWS} by name` : null} actions=${html`<${CreateSubscription} path=${path} done=${subscriptions.reload} />`}>
      <${Rows} found=${subscriptions} rows=${(subscriptions.data || []).slice(0, PAGE_ROWS)} label="Subscriptions" keyOf=${(each) => each.subscription} columns=${subscriptionColumns}
        empty=${html`<${Empty} command=${`headpond consume ${quoted(short(topic.topic))} --subscription NAME`}>Nobody subscribes to it. A consumer makes a subscription:</${Empty}>`} />
    </${Panel}>
    <${Panel} title="Shards" note=${topic.shards > SHARDS_SHOWN ? `the first ${SHARDS_SHOWN} of ${topic.shards}` : null}>
      <${Table} label="Shards" rows=${topic.shard_list.slice(0, SHARDS_SHOWN)} keyOf=${(each) => each.shard} columns=${[
        ["Shard", (each) => each.shard], number("First entry", "entry_first"), number("Next entry", "entry_next"),
        ["Size", (each) => bytes(each.bytes), "num"], ["Damaged", (each) => html`<span class=${each.damaged.length ? "bad" : ""}>${each.damaged.length}</span>`, "num wide"],
        number("Compacted", "compacted", "wide"),
      ]} />
    </${Panel}>
    ${columns.length > 0 && html`<${Panel} title="Columns" note=${`version ${topic.schema_version}`}>
      <${Table} label="Columns" rows=${columns} keyOf=${(each) => each.name} columns=${[
        ["Name", (each) => html`<code>${each.name}</code>`], ["Type", (each) => html`<code>${each.type}</code>`], ["Null", (each) => (each.nullable ? "allowed" : "no")],
      ]} /></${Panel}>`}
    <${Panel} title="Settings">
      <${Table} label="Settings" rows=${Object.entries(topic.settings)} keyOf=${([name]) => name} columns=${[
        ["Setting", ([name]) => html`<code>${name}</code>`],
        ["Value", ([name, { value }]) => setting(name, value) ?? html`<span class="muted">none</span>`, "name"],
        ["From", ([, { origin, place }]) => html`${origin}${place && place !== topic.topic ? html` <span class="muted">${place}</span>` : ""}`, "wide"],
        ["", ([name, { value, origin }]) => html`<span class="actions">
          ${!QUOTA.test(name) && html`<${SetSetting} path=${path} name=${name} value=${value} done=${found.reload} />`}
          ${origin === "topic" && html`<${Action} label="Inherit" kind="small" title=${`Inherit ${name}`} verb="Inherit"
            act=${() => patch(`${path}/settings`, { unset: [name] })} done=${found.reload}><p>The topic drops its own value, and takes the one of the places above it.</p></${Action}>`}</span>`],
      ]} />
    </${Panel}>
  </${Page}>`;
}
