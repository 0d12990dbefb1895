// Links to other nodes, and the cluster that the node is a member of.

import { post, remove } from "../lib/api.js";
import { ago, bytes, plural, seconds, short, words } from "../lib/format.js";
import { usePoll } from "../lib/live.js";
import { Action, Badge, Command, Empty, Fault, Field, html, number, Page, Panel, Rows, Stats, Table } from "../lib/ui.js";

export const linkTone = (state) => ({ connected: "ok", "catching up": "ok", refused: "bad" })[state] || "warn";
export const LinkState = ({ state }) => html`<${Badge} tone=${linkTone(state)}>${state}</${Badge}>`;

const AddLink = ({ done }) => html`<${Action} label="Link" kind="primary" title="Link to another node" verb="Link" done=${done}
  act=${(form) => post("/peers", { url: form.get("url"), topics: words(form.get("topics")), direction: form.get("direction"), token: form.get("token") || null })}>
  <p>The node copies these topics from the other node (pull), to it (push), or both, from now on. Messages keep their identity, so none is stored twice.</p>
  <${Field} label="Address" name="url" required placeholder="headpond://HOST:PORT" />
  <${Field} label="Topics" hint="names or patterns, with spaces between: acme/*" name="topics" required />
  <${Field} label="Direction" name="direction" options=${["pull", "push", "both"]} />
  <${Field} label="Token of the other node" name="token" type="password" />
</${Action}>`;

export const Members = ({ group }) => html`<${Table} label="Members" rows=${group.members} keyOf=${(each) => each.member} columns=${[
  ["Member", (each) => each.member, "name"], ["Role", (each) => html`<${Badge} tone=${each.role === "active" ? "ok" : ""}>${each.role}</${Badge}>`],
  ["Lag", (each) => plural(each.lag, "record"), "num"], ["Behind for", (each) => seconds(each.lag_s), "num wide"], number("Epoch", "epoch", "wide"), ["Address", (each) => each.url, "name wide"],
]} />`;

function Cluster() {
  const found = usePoll("/cluster", 5000);
  if (found.error?.status === 404) return html`<${Panel} title="Cluster"><${Empty} command="headpond node --cluster nats://HOST:4222 --group NAME --member NAME">This node is no member of a cluster. A member starts with:</${Empty}></${Panel}>`;
  const group = found.data;
  return html`<${Panel} title="Cluster" note=${group ? `group ${group.group}` : null}>
    <${Fault} error=${found.error} />
    ${group && html`<${Stats} items=${[
      ["Active", group.active || "nobody", null, group.active ? "ok" : "bad"], ["Stream leader", group.stream.leader || "none"],
      ["Stream", bytes(group.stream.bytes), `of ${bytes(group.stream.bytes_max)}`],
      ["Replicas", Object.entries(group.stream.replicas).map(([name, state]) => `${name} ${state}`).join(", ")],
    ]} />
    <${Members} group=${group} />`}
  </${Panel}>`;
}

export function Links() {
  const found = usePoll("/peers");
  return html`<${Page} title="Links and cluster" actions=${html`<${AddLink} done=${found.reload} />`}>
    <${Panel} title="Links">
      <${Rows} found=${found} label="Links" keyOf=${(each) => each.peer}
        empty=${html`<${Empty} command="headpond peer add headpond://HOST:PORT --topics 'acme/*'">The node has no link. A link copies topics between nodes:</${Empty}>`} columns=${[
          ["Link", (each) => each.peer, "name"], ["State", (each) => html`<${LinkState} state=${each.state} /> ${each.error && html`<span class="muted">${each.error}</span>`}`, "name"],
          ["Topics", (each) => each.topics.map(short).join(", "), "wide clip"], ["Direction", (each) => each.direction, "wide"], number("Lag", "lag"), number("Follows", "following", "wide"),
          ["Since", (each) => ago(each.since), "wide"],
          ["", (each) => html`<${Action} label="Remove" kind="small danger" title=${`Remove ${each.peer}`} verb="Remove the link" tone="danger"
            act=${() => remove(`/peers/${encodeURIComponent(each.peer)}`)} done=${found.reload}>
            <p>The node copies nothing more over it.${each.lag > 0 && ` One side lacks ${plural(each.lag, "message")} that it will not get.`} What was copied stays.</p></${Action}>`],
        ]} />
    </${Panel}>
    <${Cluster} />
    <${Command} text="headpond peer list" />
  </${Page}>`;
}
