// Producers: which names are registered, who sends under them, who holds a lease?

import { post, query, remove } from "../lib/api.js";
import { ago, count, inPath, seconds, short } from "../lib/format.js";
import { usePoll } from "../lib/live.js";
import { Dialog, Empty, Fault, Field, html, Loading, Opens, Page, PAGE_ROWS, Pager, Panel, Search, Table, useListing } from "../lib/ui.js";

const Register = ({ close, done }) => html`<${Dialog} title="Register a producer" verb="Register" close=${close} act=${async (form) => {
  await post(`/topics/${inPath(form.get("topic"))}/producers`, { producer: form.get("name"), access: form.get("access") });
  done();
}}>
  <p>With single access one program at a time may send under the name: the node gives it a lease.</p>
  <${Field} label="Topic"><input name="topic" required autocomplete="off" /></${Field}>
  <${Field} label="Name"><input name="name" required autocomplete="off" /></${Field}>
  <${Field} label="Access"><select name="access"><option>multiple</option><option>single</option></select></${Field}>
</${Dialog}>`;

export function Producers() {
  const listing = useListing();
  const { match, after, limit } = listing;
  const found = usePoll(`/producers${query({ match, after, limit })}`);
  const rows = (found.data || []).slice(0, PAGE_ROWS);
  const nameOf = (each) => `${each.topic}/${each.producer}`;
  return html`<${Page} title="Producers" actions=${html`<${Opens} label="Register" kind="primary" make=${(close) => html`<${Register} close=${close} done=${found.reload} />`} />`}>
    <${Panel} note="registered">
      <div class="bar"><${Search} listing=${listing} label="Search producers and topics" /></div>
      <${Fault} error=${found.error} />
      ${!found.data ? !found.error && html`<${Loading} />` : rows.length === 0
        ? html`<${Empty} command=${match ? null : "headpond producer create TOPIC NAME --access single"}>${match ? "No producer or topic has that in its name." : "No producer is registered. Producers need no registration; it gives a name single access:"}</${Empty}>`
        : html`<${Table} label="Producers" rows=${rows} keyOf=${nameOf} columns=${[
          ["Producer", (each) => html`<bdi>${each.producer}</bdi> <span class="muted">of <a href=${`#/topics/${inPath(each.topic)}/delivery`}>${short(each.topic)}</a></span>`, "name"],
          ["Access", (each) => each.access, "wide"],
          ["Connected", (each) => (each.clients.length ? each.clients.join(", ") : html`<span class="muted">no</span>`), "name"],
          ["Lease", (each) => (each.holder ? html`<bdi>${each.holder}</bdi>${each.lapses_in_s != null ? html` <span class="muted">lapses in ${seconds(each.lapses_in_s)}</span>` : ""}` : "–"), "name wide"],
          ["Epoch", (each) => count(each.epoch), "num wide"],
          ["Last seen", (each) => ago(each.seen_at), "wide"],
          ["", (each) => html`<${Opens} label="Delete" kind="small danger" make=${(close) => html`<${Dialog} title=${`Delete ${each.producer}`} verb="Delete the registration" tone="danger" close=${close}
            act=${async () => { await remove(`/topics/${inPath(each.topic)}/producers/${encodeURIComponent(each.producer)}`); found.reload(); }}>
            <p>The node forgets the name and its lease. Its messages stay. It refuses while a program sends under the name.</p></${Dialog}>`} />`],
        ]} />`}
      <${Pager} listing=${listing} rows=${found.data || []} nameOf=${nameOf} />
    </${Panel}>
    <p class="muted">The accounts of all producers, unregistered ones too, are in the delivery of each topic.</p>
  </${Page}>`;
}
