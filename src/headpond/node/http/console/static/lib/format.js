// Numbers, sizes and times as people read them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const NONE = "–";

export const count = (value) => (value == null ? NONE : whole.format(value));

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

const brief = (value) => (value < 9.95 ? value.toFixed(1) : whole.format(value));

export function rate(value) {
  if (value == null) return NONE;
  if (value === 0) return "0/s";
  return value < 0.1 ? "< 0.1/s" : `${brief(value)}/s`;
}

export function bytes(value) {
  if (value == null) return NONE;
  if (value < 1000) return `${Math.round(value)} B`;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    value /= 1024;
    if (value < 1000) return `${brief(value)} ${unit}`;
  }
  return `${brief(value / 1024)} PiB`;
}

export const byteRate = (value) => (value == null ? NONE : `${bytes(value)}/s`);

// A share below 1 must not read as 1.
export function share(value) {
  if (value == null) return NONE;
  if (value === 1 || value === 0) return String(value);
  return value > 0.9999 && value < 1 ? "0.9999+" : value.toFixed(4);
}

export const percent = (value) => (value == null ? NONE : `${Math.round(value * 100)} %`);

// A line of a plot: 0.9, not 0.9000.
export const shortShare = (value) => (value == null ? NONE : String(Number(value.toFixed(4))));

// R or UR: a share, or one with its counts and how exact they are. What is at least 1 is 1.
export function hop(ratio) {
  if (ratio == null || typeof ratio === "number") return share(ratio);
  const sign = { "at least": "≥ ", "at most": "≤ " }[ratio.bound] || "";
  return (ratio.value === 1 && ratio.bound === "at least" ? "" : sign) + share(ratio.value);
}

export function seconds(value) {
  if (value == null) return NONE;
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${Math.round(value / 3600)} h`;
  return `${count(value / 86400)} d`;
}

// In the largest of the units of which it is a whole number, so that nothing is rounded.
function exact(value, units) {
  const [unit, size] = units.find(([, size]) => value >= size && value % size === 0) || units[units.length - 1];
  return `${(value / size).toLocaleString("en-US")} ${unit}`;
}
const TIMES = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000], ["ms", 1]];
const SIZES = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024], ["B", 1]];

// The value of a setting or of a policy, with its unit.
export function setting(name, value) {
  if (value == null) return null;
  if (typeof value !== "number") return short(String(value));
  if (/_bytes_s$/.test(name)) return `${exact(value, SIZES)}/s`;
  if (/bytes/.test(name)) return exact(value, SIZES);
  if (/ttl$|^(expires_after|deadline|backoff|backoff_max|lease|producer_lease)$/.test(name)) return exact(Math.round(value * 1e6) / 1e3, TIMES);
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

// A key or a value: JSON has bytes as base64.
export const isBytes = (value) => value !== null && typeof value === "object" && Object.keys(value).join() === "base64";
export const preview = (value) => {
  const text = value === null ? "null" : typeof value === "string" ? value : isBytes(value) ? `${value.base64.slice(0, 60)} (base64)` : JSON.stringify(value);
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
};

// A topic in a path of the API and of the console.
export const inPath = (topic) => encodeURIComponent(short(topic).replaceAll("/", ":"));

// A topic as an address names it.
export const fromPath = (name) => name.replaceAll(":", "/");

// What a person typed with spaces between.
export const words = (text) => text.split(/\s+/).filter(Boolean);

// A word of a command line.
export const quoted = (word) => (/^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
