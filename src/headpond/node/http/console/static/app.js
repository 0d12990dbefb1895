// The frame around all pages: navigation, the token, the theme, and which page the address names.

import { render } from "./vendor/preact.js";
import { useEffect, useErrorBoundary, useState } from "./vendor/hooks.js";
import { get, state, useToken } from "./lib/api.js";
import { useApiState, usePoll } from "./lib/live.js";
import { Banner, Fault, Field, html } from "./lib/ui.js";
import { Dead, DeadOf } from "./pages/dead.js";
import { Delivery } from "./pages/delivery.js";
import { Links } from "./pages/links.js";
import { Messages } from "./pages/messages.js";
import { Overview } from "./pages/overview.js";
import { Producers } from "./pages/producers.js";
import { Spark } from "./pages/spark.js";
import { Standby } from "./pages/standby.js";
import { Subscription } from "./pages/subscription.js";
import { Subscriptions } from "./pages/subscriptions.js";
import { Tokens } from "./pages/tokens.js";
import { Topic } from "./pages/topic.js";
import { TopicDelivery } from "./pages/topic_delivery.js";
import { Topics } from "./pages/topics.js";

const ROUTES = [
  [/^$/, Overview],
  [/^topics$/, Topics],
  [/^topics\/([^/]+)$/, Topic],
  [/^topics\/([^/]+)\/messages$/, Messages],
  [/^topics\/([^/]+)\/delivery$/, TopicDelivery],
  [/^subscriptions$/, Subscriptions],
  [/^subscriptions\/([^/]+)\/([^/]+)$/, Subscription],
  [/^producers$/, Producers],
  [/^delivery$/, Delivery],
  [/^dead$/, Dead],
  [/^dead\/([^/]+)\/([^/]+)$/, DeadOf],
  [/^spark$/, Spark],
  [/^links$/, Links],
  [/^tokens$/, Tokens],
];
const NAVIGATION = [
  ["Overview", ""], ["Topics", "topics"], ["Subscriptions", "subscriptions"], ["Producers", "producers"],
  ["Delivery", "delivery"], ["Dead letters", "dead"], ["Spark", "spark"], ["Links", "links"], ["Tokens", "tokens"],
];
const THEMES = ["auto", "light", "dark"];

const place = () => location.hash.replace(/^#\/?/, "");

function usePlace() {
  const [current, setCurrent] = useState(place());
  useEffect(() => {
    const change = () => { setCurrent(place()); window.scrollTo(0, 0); };
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return current;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function Body({ path }) {
  const [error] = useErrorBoundary();
  if (error) return html`<div class="page"><${Fault} error=${error} /></div>`;
  const [page, asked] = path.split("?");
  for (const [pattern, Kind] of ROUTES) {
    const found = pattern.exec(page);
    if (found) return html`<${Kind} key=${path} names=${found.slice(1).map(decoded)} asked=${new URLSearchParams(asked)} />`;
  }
  return html`<div class="page"><h1>There is no such page</h1><p><a href="#/">Go to the overview</a></p></div>`;
}

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("headpond.theme") || "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("headpond.theme", theme);
  }, [theme]);
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`<button type="button" class="small" title=${`Use the ${next} theme`} onClick=${() => setTheme(next)}>Theme: ${theme}</button>`;
}

function Login({ refusal }) {
  const [error, setError] = useState(state.signedIn ? refusal : null);
  const submit = async (event) => {
    event.preventDefault();
    useToken(new FormData(event.target).get("token"));
    try {
      await get("/access");
    } catch (fault) {
      if (!state.standby) setError(fault);
    }
  };
  return html`<main class="login"><form class="panel" onSubmit=${submit}>
    <h1>Headpond</h1>
    <p>This node asks for a token. The console keeps it for this tab alone, and may do what the token may do.</p>
    <${Field} label="Token" name="token" type="password" required placeholder="hpd_…" />
    <${Fault} error=${error} always />
    <button type="submit" class="primary">Sign in</button>
    <p class="muted">An admin makes one: <code>headpond token create console --admin</code></p>
  </form></main>`;
}

function Who() {
  const { data } = usePoll("/access", 60000);
  if (!data) return null;
  if (!data.guarded) return html`<span class="muted">open node</span>`;
  return html`<span class="muted">${data.name || data.token}</span>
    <button type="button" class="small" onClick=${() => { useToken(""); location.reload(); }}>Sign out</button>`;
}

function App() {
  useApiState();
  const path = usePlace();
  const current = path.split(/[/?]/)[0];
  useEffect(() => { document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }); }, [current, state.refused, state.standby]);
  if (state.refused) return html`<${Login} refusal=${state.refused} />`;
  if (state.standby) return html`<main id="main" class="alone"><${Banner} /><${Standby} path=${path} /></main>`;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <aside class="side">
      <a class="brand" href="#/"><img src="/console/icon.svg" alt="" width="22" height="22" />Headpond</a>
      <nav aria-label="Pages">${NAVIGATION.map(([name, href]) => html`<a key=${href} href=${`#/${href}`} aria-current=${href === current ? "page" : null}>${name}</a>`)}</nav>
      <div class="who"><${Who} key=${state.signedIn} /><${Theme} /></div>
    </aside>
    <main id="main" tabindex="-1">
      <${Banner} />
      <${Body} key=${path} path=${path} />
    </main>`;
}

render(html`<${App} />`, document.getElementById("app"));
