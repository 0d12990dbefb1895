// Tokens: who may do what; and the log of administration.

import { useState } from "../vendor/hooks.js";
import { post, remove } from "../lib/api.js";
import { ago, clock, count, plural, short } from "../lib/format.js";
import { usePoll } from "../lib/live.js";
import { Badge, Command, Dialog, Empty, Fault, Field, html, Loading, Opens, Page, Panel, Table } from "../lib/ui.js";

const SHOWN_MAX = 500;

function CreateToken({ close, done, isFirst }) {
  const [made, setMade] = useState(null);
  const act = async (form) => {
    setMade(await post("/tokens", { name: form.get("name"), rights: form.getAll("right"), scopes: form.get("scopes").split(/\s+/).filter(Boolean), ...(form.get("lasts") ? { lasts: Number(form.get("lasts")) * 86400 } : {}) }));
    done();
    return false;
  };
  if (made) return html`<${Dialog} title=${`Token ${made.name}`} verb="Done" close=${close} act=${async () => {}}>
    <p>Copy it now: the node does not show it again.</p><${Command} text=${made.secret} /></${Dialog}>`;
  return html`<${Dialog} title="Create a token" verb="Create" close=${close} act=${act}>
    ${isFirst && html`<p class="bad">This is the first token. From then on the node refuses every client without one, and this console asks for one too: give this one the right admin on *.</p>`}
    <${Field} label="Name"><input name="name" required autocomplete="off" /></${Field}>
    <fieldset><legend>Rights</legend>${["produce", "consume", "admin"].map((right) => html`<label class="check" key=${right}><input type="checkbox" name="right" value=${right} /> ${right}</label>`)}</fieldset>
    <${Field} label="Scopes" hint="places with spaces between: acme/shop; * is everything"><input name="scopes" required defaultValue="*" autocomplete="off" /></${Field}>
    <${Field} label="Days until it expires" hint="empty: until it is revoked"><input name="lasts" type="number" min="1" /></${Field}>
  </${Dialog}>`;
}

const State = ({ token }) => {
  if (token.revoked_at) return html`<${Badge} tone="bad">revoked</${Badge}>`;
  if (token.expires_at && Date.parse(token.expires_at) < Date.now()) return html`<${Badge} tone="warn">expired</${Badge}>`;
  return html`<${Badge} tone="ok">good</${Badge}>`;
};

export function Tokens() {
  const found = usePoll("/tokens", 5000);
  const access = usePoll("/access", 30000);
  const log = usePoll("/log?count=50", 10000);
  const rows = (found.data || []).slice(0, SHOWN_MAX);
  const create = html`<${Opens} label="Create token" kind="primary" make=${(close) => html`<${CreateToken} close=${close} done=${found.reload} isFirst=${access.data && !access.data.guarded} />`} />`;
  return html`<${Page} title="Tokens" actions=${create}>
    ${access.data && html`<p class="muted">${access.data.guarded ? `You are ${access.data.name || access.data.token}: ${access.data.rights.join(", ")} on ${access.data.scopes.join(" ")}.` : "This node has no tokens: everybody who reaches it may do everything."}</p>`}
    <${Panel}>
      <${Fault} error=${found.error} />
      ${!found.data ? !found.error && html`<${Loading} />` : rows.length === 0
        ? html`<${Empty} command="headpond token create admin --admin --scope '*'">There is no token. The first one closes the node to all who have none:</${Empty}>`
        : html`<${Table} label="Tokens" rows=${rows} keyOf=${(each) => each.token} columns=${[
          ["Name", (each) => html`<bdi>${each.name}</bdi> <code class="muted">${each.token}</code>`, "name"], ["State", (each) => html`<${State} token=${each} />`],
          ["Rights", (each) => each.rights.join(", ")], ["Scopes", (each) => each.scopes.join(" "), "wide clip"],
          ["Connections", (each) => count(each.connections), "num wide"], ["Used", (each) => ago(each.used_at), "wide"], ["Expires", (each) => clock(each.expires_at).slice(0, 10), "wide"],
          ["", (each) => !each.revoked_at && html`<${Opens} label="Revoke" kind="small danger" make=${(close) => html`<${Dialog} title=${`Revoke ${each.name}`} verb="Revoke" tone="danger" close=${close}
            act=${async () => { await remove(`/tokens/${encodeURIComponent(each.token)}`); found.reload(); }}>
            <p>The node refuses it from now on and ends its ${plural(each.connections, "connection")}. It cannot be made good again.</p></${Dialog}>`} />`],
        ]} />`}
    </${Panel}>
    <${Panel} title="Log of administration" note="the newest first">
      <${Fault} error=${log.error} />
      ${log.data && (log.data.length === 0 ? html`<${Empty}>Nothing was administered yet.</${Empty}>`
        : html`<${Table} label="Log of administration" rows=${[...log.data].reverse()} keyOf=${(each) => `${each.at} ${each.operation} ${each.what}`} columns=${[
          ["At (UTC)", (each) => clock(each.at).slice(0, 19), "narrow"], ["Operation", (each) => each.operation, "narrow"], ["What", (each) => short(each.what), "name"], ["Who", (each) => each.name || each.token || each.client, "wide"],
          ["Result", (each) => html`<span class=${each.result === "done" || each.result === "ok" ? "" : "bad"}>${each.result}</span>`],
        ]} />`)}
    </${Panel}>
  </${Page}>`;
}
