// A member of a cluster that is not active: which it is, how far it is behind, and where the console is.

import { getRole } from "../lib/api.js";
import { count, plural, seconds } from "../lib/format.js";
import { usePoll } from "../lib/live.js";
import { Badge, Fault, html, Loading, Page, Panel, Stats } from "../lib/ui.js";
import { Members } from "./links.js";

export function Standby({ path }) {
  const role = usePoll("/readyz", 2000, (_, signal) => getRole(signal));
  const group = usePoll("/cluster", 2000);
  if (!role.data) return html`<${Page} title="Standby"><${Loading} /></${Page}>`;
  const { member, active, active_http: console } = role.data;
  const me = group.data?.members.find((each) => each.member === member);
  return html`<${Page} title=${member || "Standby"} actions=${html`<${Badge} tone="warn">${role.data.role}</${Badge}>`}>
    <${Panel}>
      <p>This member of the cluster keeps a copy and serves no clients. Topics, messages and everything else are at the active member${active ? html`, <b>${active}</b>` : ""}.</p>
      ${console ? html`<p><a class="button primary" href=${`${console}/#/${path}`}>Open the console of ${active}</a> <span class="muted">${console}</span></p>`
        : html`<p class="muted">${active ? "It has no console: start it with --http HOST:PORT." : "No member is active now; this page looks again every two seconds."}</p>`}
    </${Panel}>
    ${me && html`<${Stats} items=${[
      ["Behind by", plural(me.lag, "record"), me.lag_s == null ? null : `for ${seconds(me.lag_s)}`],
      ["Record", count(me.seq), `${count(me.durable_seq)} synced`], ["Epoch", count(me.epoch), "active members so far"], ["Software", `headpond ${me.version}`, me.url],
    ]} />`}
    <${Panel} title="Members" note=${group.data ? `group ${group.data.group}` : null}>
      <${Fault} error=${group.error} />
      ${group.data ? html`<${Members} group=${group.data} />` : !group.error && html`<${Loading} />`}
    </${Panel}>
  </${Page}>`;
}
