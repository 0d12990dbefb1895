// The lossy link of `headpond up`: how much it loses and delays, and the R and UR that come of it.

import { useRef, useState } from "../vendor/hooks.js";
import { patch } from "../lib/api.js";
import { count, inPath, percent, share, short } from "../lib/format.js";
import { grown, usePoll } from "../lib/live.js";
import { Fault, html, Panel, Plot, Table } from "../lib/ui.js";

const WINDOW_S = 15;
const POINTS_MAX = 300;
const SETTLED_MS = 120;
const SLIDERS = [
  ["loss", "Loss", "messages that do not arrive", 0.5, 0.01, percent],
  ["duplicates", "Duplicates", "lost answers: messages come again", 0.5, 0.01, percent],
  ["delay_s", "Delay", "how long everything is on its way", 0.5, 0.01, (value) => `${Math.round(value * 1000)} ms`],
];

function Slider({ name, label, hint, max, step, shown, value, reload }) {
  const [own, setOwn] = useState(null);  // what the person chose, until the node has it
  const [error, setError] = useState(null);
  const timer = useRef(0);
  const choose = (event) => {
    const chosen = Number(event.target.value);
    setOwn(chosen);
    clearTimeout(timer.current);
    timer.current = setTimeout(async () => {
      try {
        await patch("/lossy-link", { [name]: chosen });
        setError(null);
        await reload();
      } catch (fault) {
        setError(fault);
      }
      setOwn(null);
    }, SETTLED_MS);
  };
  const now = own ?? value;
  return html`<label class="slider"><span><b>${label}</b> <output>${shown(now)}</output></span>
    <input type="range" min="0" max=${max} step=${step} value=${now} aria-label=${label} aria-valuetext=${shown(now)} onInput=${choose} />
    <small class="muted">${hint}</small><${Fault} error=${error} /></label>`;
}

// What the two hops over the link were in the last seconds.
function hopsOf(before, now) {
  return ["segments", "deliveries"].map((kind) => {
    const account = (reading) => ({ link: reading.link[kind], ...reading.hops[kind] });
    const [first, last] = [account(before), account(now)];
    return {
      kind,
      given: last.link.given - first.link.given,
      passed: grown(first, last, (each) => each.link.given - each.link.lost, (each) => each.link.given),
      r: grown(first, last, (each) => each.r.part, (each) => each.r.whole),
      ur: grown(first, last, (each) => each.ur.part, (each) => each.ur.whole),
      total: last,
    };
  });
}

const HOPS = { segments: "producer → node", deliveries: "node → consumer" };

export function LossyLink() {
  const found = usePoll("/lossy-link", 1000);
  const topic = found.data?.topic;
  const ledger = usePoll(topic ? `/topics/${inPath(topic)}/ledger` : null, 1000);
  const kept = useRef({ readings: [], at: [], curves: { segments: [[], [], []], deliveries: [[], [], []] } });
  const producers = ledger.data?.producers[0];
  const consumer = ledger.data?.subscriptions.find((each) => each.subscription === found.data?.subscription);
  const { readings, at, curves } = kept.current;
  if (producers && consumer && readings[readings.length - 1]?.link !== found.data) {
    const now = { at: performance.now(), link: found.data, hops: { segments: producers, deliveries: consumer } };
    readings.push(now);
    while (readings.length > 2 && readings[0].at < now.at - WINDOW_S * 1000) readings.shift();
    at.push(Date.now() / 1000);
    for (const hop of hopsOf(readings[0], now)) [hop.passed, hop.r, hop.ur].forEach((value, place) => curves[hop.kind][place].push(value));
    if (at.length > POINTS_MAX) for (const list of [at, ...Object.values(curves).flat()]) list.shift();
  }
  if (!found.data) return html`<${Fault} error=${found.error} />`;
  const last = readings.length > 1 ? hopsOf(readings[0], readings[readings.length - 1]) : [];
  return html`<${Panel} title="A lossy link" note=${`between this node and the producer and consumer of ${short(topic)}`}>
    <div class="sliders">${SLIDERS.map(([name, label, hint, max, step, shown]) => html`<${Slider} key=${name} ...${{ name, label, hint, max, step, shown }} value=${found.data.faults[name]} reload=${found.reload} />`)}</div>
    <${Fault} error=${found.error || ledger.error} />
    ${last.length > 0 && html`<${Table} label="Hops over the lossy link" rows=${last} keyOf=${(hop) => hop.kind} columns=${[
      [`Last ${WINDOW_S} s`, (hop) => HOPS[hop.kind]],
      ["Sent", (hop) => `${count(hop.given)} ${hop.kind}`, "num wide"],
      ["Link passed", (hop) => (hop.passed == null ? "–" : percent(hop.passed)), "num"],
      ["R", (hop) => html`<b class=${hop.r === 1 ? "ok" : ""}>${share(hop.r)}</b>`, "num"], ["UR", (hop) => html`<b>${share(hop.ur)}</b>`, "num"],
      ["R in all", (hop) => share(hop.total.r.value), "num wide"], ["UR in all", (hop) => share(hop.total.ur.value), "num wide"],
    ]} />`}
    <p class="muted">What the link loses is sent again, so R returns to 1; segments that come again lower UR, and the log holds each message once all the same. A consumer that connects again keeps what it has in hand.</p>
    ${at.length > 1 && html`<div class="plots">${Object.entries(HOPS).map(([kind, name]) => html`<${Plot} key=${kind} title=${name} at=${at} shares
      series=${[["link passed", curves[kind][0]], ["R", curves[kind][1]], ["UR", curves[kind][2]]]} />`)}</div>`}
  </${Panel}>`;
}
