// Numbers for people.

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const plain = new Intl.NumberFormat("en");

export const count = (n) => (n == null ? "–" : Math.abs(n) < 10000 ? plain.format(n) : compact.format(n));
export const exact = (n) => (n == null ? "–" : plain.format(n));
export const percent = (share, digits = 0) => (share == null || Number.isNaN(share) ? "–" : `${(100 * share).toFixed(digits)} %`);

export function rate(n) {
  if (n == null || !Number.isFinite(n)) return "–";
  return n >= 100 ? count(Math.round(n)) : n.toFixed(n >= 10 ? 1 : n === 0 ? 0 : 2);
}

export function bytes(n) {
  if (n == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; ++i) n /= 1000;
  return `${n.toFixed(i === 0 || n >= 100 ? 0 : 1)} ${units[i]}`;
}

// From milliseconds.
export function duration(ms) {
  if (ms == null || !Number.isFinite(ms)) return "–";
  if (ms < 0.0995) return `${(ms * 1000).toFixed(0)} µs`;
  if (ms < 9.95) return `${ms.toFixed(2)} ms`;
  if (ms < 99.5) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${ms.toFixed(0)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 9995 ? 2 : 1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

export const micros = (us) => duration(us / 1000);

// The value below which a share of a sorted list lies.
export function quantile(sorted, q) {
  if (sorted.length === 0) return null;
  const at = (sorted.length - 1) * q;
  const low = Math.floor(at);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
}

export function ago(date) {
  const s = (Date.now() - date) / 1000;
  if (s < 60) return "now";
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return new Date(date).toLocaleDateString("en", { month: "short", day: "numeric" });
}
