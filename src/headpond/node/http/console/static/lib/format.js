// Numbers, sizes and times as people read them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const NONE = "–";

export const count = (value) => (value == null ? NONE : whole.format(value));

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function rate(value) {
  if (value == null) return NONE;
  if (value === 0) return "0/s";
  if (value < 0.1) return "< 0.1/s";
  return `${value < 10 ? value.toFixed(1) : whole.format(value)}/s`;
}

export function bytes(value) {
  if (value == null) return NONE;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(value) < 1000) return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1024;
  }
  return `${value < 10 ? value.toFixed(1) : count(value)} PiB`;
}

// A share below 1 must not read as 1.
export function share(value) {
  if (value == null) return NONE;
  if (value === 1 || value === 0) return String(value);
  return value > 0.9999 && value < 1 ? "0.9999+" : value.toFixed(4);
}

export const percent = (value) => (value == null ? NONE : `${Math.round(value * 100)} %`);

export function bounded(ratio) {
  if (!ratio) return NONE;
  const sign = { "at least": "≥ ", "at most": "≤ " }[ratio.bound] || "";
  return sign + share(ratio.value);
}

export function seconds(value) {
  if (value == null) return NONE;
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${Math.round(value / 3600)} h`;
  return `${count(value / 86400)} d`;
}

// The value of a setting or of a policy, with its unit.
export function setting(name, value) {
  if (value == null) return null;
  if (typeof value !== "number") return short(String(value));
  if (/_bytes_s$/.test(name)) return `${bytes(value)}/s`;
  if (/bytes/.test(name)) return bytes(value);
  if (/ttl$|^(expires_after|deadline|backoff|backoff_max|lease|producer_lease)$/.test(name)) return seconds(value);
  return /_s$/.test(name) ? `${count(value)}/s` : Number.isInteger(value) ? count(value) : String(value);
}

export function ago(time) {
  if (!time) return NONE;
  const passed = (Date.now() - Date.parse(time)) / 1000;
  return passed < 1 ? "now" : `${seconds(passed)} ago`;
}

export const clock = (time) => (time ? time.replace("T", " ").replace(/(\.\d{3})\d*/, "$1") : NONE);

// The bare name where the rest is default.
export const short = (topic) => (topic || "").replace(/^default\/default\/default\//, "");

// The query behind a writer, whose name begins with a topic: the last part.
export const queryOf = (writer) => writer.slice(writer.lastIndexOf("/") + 1);

// A topic in a path of the API and of the console.
export const inPath = (topic) => encodeURIComponent(short(topic).replaceAll("/", ":"));

// A word of a command line.
export const quoted = (word) => (/^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
