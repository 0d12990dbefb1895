// Producers: which names are registered, who sends under them, who holds a lease?

import { post, remove } from "../lib/api.js";
import { ago, inPath, seconds } from "../lib/format.js";
import { Action, Empty, Field, html, List, number, Page, Panel, TopicLink, useList } from "../lib/ui.js";

const pathOf = (topic) => `/topics/${inPath(topic)}/producers`;

export function Producers() {
  const list = useList("/producers");
  const { reload } = list.found;
  const register = html`<${Action} label="Register" kind="primary" title="Register a producer" verb="Register" done=${reload}
    act=${(form) => post(pathOf(form.get("topic")), { producer: form.get("name"), access: form.get("access") })}>
    <p>With single access one program at a time may send under the name: the node gives it a lease.</p>
    <${Field} label="Topic" name="topic" required />
    <${Field} label="Name" name="name" required />
    <${Field} label="Access" name="access" options=${["multiple", "single"]} />
  </${Action}>`;
  return html`<${Page} title="Producers" actions=${register}>
    <${Panel} title="Registered producers">
      <${List} list=${list} of="producers and topics" label="Producers" keyOf=${(each) => `${each.topic}/${each.producer}`}
        empty=${html`<${Empty} command="headpond producer create TOPIC NAME --access single">No producer is registered. Producers need no registration; it gives a name single access:</${Empty}>`} columns=${[
          ["Producer", (each) => html`<bdi>${each.producer}</bdi> <span class="muted">of <${TopicLink} topic=${each.topic} view="/delivery" /></span>`, "name"],
          ["Access", (each) => each.access, "wide"],
          ["Connected", (each) => (each.clients.length ? each.clients.join(", ") : html`<span class="muted">no</span>`), "name"],
          ["Lease", (each) => (each.holder ? html`<bdi>${each.holder}</bdi>${each.lapses_in_s != null ? html` <span class="muted">lapses in ${seconds(each.lapses_in_s)}</span>` : ""}` : "–"), "name wide"],
          number("Epoch", "epoch", "wide"),
          ["Last seen", (each) => ago(each.seen_at), "wide"],
          ["", (each) => html`<${Action} label="Delete" kind="small danger" title=${`Delete ${each.producer}`} verb="Delete the registration" tone="danger"
            act=${() => remove(`${pathOf(each.topic)}/${encodeURIComponent(each.producer)}`)} done=${reload}>
            <p>The node forgets the name and its lease. Its messages stay. It refuses while a program sends under the name.</p></${Action}>`],
        ]} />
    </${Panel}>
    <p class="muted">The accounts of all producers, unregistered ones too, are in the delivery of each topic.</p>
  </${Page}>`;
}
