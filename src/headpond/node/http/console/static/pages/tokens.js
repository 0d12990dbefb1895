// Tokens: who may do what; and the log of administration.

import { useState } from "../vendor/hooks.js";
import { post, remove, useToken } from "../lib/api.js";
import { ago, clock, count, plural, short, words } from "../lib/format.js";
import { usePoll } from "../lib/live.js";
import { Action, Badge, Command, Dialog, Empty, Field, html, number, Opens, Page, Panel, Rows } from "../lib/ui.js";

const SHOWN_MAX = 500;

function CreateToken({ close, done, isFirst: wasFirst }) {
  const [isFirst] = useState(wasFirst);  // what it was when a person began
  const [made, setMade] = useState(null);
  const act = async (form) => {
    const lasts = form.get("lasts");
    const rights = isFirst ? ["admin"] : form.getAll("right");
    const token = await post("/tokens", { name: form.get("name"), rights, scopes: words(form.get("scopes") || "*"), ...(lasts && { lasts: Number(lasts) * 86400 }) });
    if (isFirst) useToken(token.secret);  // from now on the node refuses a page without a token
    setMade(token);
    done();
    return false;
  };
  if (made) return html`<${Dialog} title=${`Token ${made.name}`} verb="Done" close=${close} act=${async () => {}}>
    <p>Copy it now: the node does not show it again.${isFirst && " This tab is signed in with it."}</p><${Command} text=${made.secret} /></${Dialog}>`;
  return html`<${Dialog} title="Create a token" verb="Create" close=${close} act=${act}>
    ${isFirst && html`<p class="bad">This is the first token, for an admin of everything. From then on the node refuses every client without a token. This tab signs in with the new one.</p>`}
    <${Field} label="Name" name="name" required />
    ${!isFirst && html`<fieldset><legend>Rights</legend>${["produce", "consume", "admin"].map((right) => html`<label class="check" key=${right}><input type="checkbox" name="right" value=${right} /> ${right}</label>`)}</fieldset>
    <${Field} label="Scopes" hint="places with spaces between: acme/shop; * is everything" name="scopes" required defaultValue="*" />
    <${Field} label="Days until it expires" hint="empty: until it is revoked" name="lasts" type="number" min="1" />`}
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
  const own = access.data?.token;
  const create = html`<${Opens} label="Create token" kind="primary" make=${(close) => html`<${CreateToken} close=${close} done=${() => { found.reload(); access.reload(); }} isFirst=${access.data && !access.data.guarded} />`} />`;
  return html`<${Page} title="Tokens" actions=${create}>
    ${access.data && html`<p class="muted">${access.data.guarded ? `You are ${access.data.name || access.data.token}: ${access.data.rights.join(", ")} on ${access.data.scopes.join(" ")}.` : "This node has no tokens: everybody who reaches it may do everything."}</p>`}
    <${Panel}>
      <${Rows} found=${found} rows=${rows} label="Tokens" keyOf=${(each) => each.token}
        empty=${html`<${Empty} command="headpond token create admin --admin --scope '*'">There is no token. The first one closes the node to all who have none:</${Empty}>`} columns=${[
          ["Name", (each) => html`<bdi>${each.name}</bdi> <code class="muted">${each.token}</code>`, "name"], ["State", (each) => html`<${State} token=${each} />`],
          ["Rights", (each) => each.rights.join(", ")], ["Scopes", (each) => each.scopes.join(" "), "wide clip"],
          number("Connections", "connections", "wide"), ["Used", (each) => ago(each.used_at), "wide"], ["Expires", (each) => clock(each.expires_at).slice(0, 10), "wide"],
          ["", (each) => !each.revoked_at && html`<${Action} label="Revoke" kind="small danger" title=${`Revoke ${each.name}`} verb="Revoke" tone="danger"
            act=${() => remove(`/tokens/${encodeURIComponent(each.token)}`)} done=${found.reload}>
            <p>The node refuses it from now on and ends its ${plural(each.connections, "connection")}. It cannot be made good again.</p>
            ${each.token === own && html`<p class="bad">This console uses it, and then asks for another one.</p>`}</${Action}>`],
        ]} />
    </${Panel}>
    <${Panel} title="Log of administration" note="the newest first">
      <${Rows} found=${log} rows=${[...(log.data || [])].reverse()} label="Log of administration" keyOf=${(each) => `${each.at} ${each.operation} ${each.what}`}
        empty=${html`<${Empty}>Nothing was administered yet.</${Empty}>`} columns=${[
          ["At (UTC)", (each) => clock(each.at).slice(0, 19), "narrow"], ["Operation", (each) => each.operation.split("_").map((word, place) => (place ? html`_<wbr />${word}` : word)), "narrow"], ["What", (each) => short(each.what), "name"], ["Who", (each) => each.name || each.token || each.client, "wide"],
          ["Result", (each) => html`<span class=${each.result === "done" || each.result === "ok" ? "" : "bad"}>${each.result}</span>`],
        ]} />
    </${Panel}>
  </${Page}>`;
}
