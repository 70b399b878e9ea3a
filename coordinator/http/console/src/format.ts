// Numbers, sizes and times as texts.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export const count = (value: number): string => whole.format(value);

export const rate = (value: number): string =>
  value === 0 ? "0" : value < 10 ? String(Number(value.toPrecision(2))) : value < 10_000 ? whole.format(value) : short.format(value);

export const plural = (value: number, noun: string): string => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];
export function bytes(value: number): string {
  let at = 0;
  let size = value;
  while (size >= 1024 && at < SIZES.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${at === 0 || size >= 100 ? whole.format(size) : Number(size.toPrecision(3))} ${SIZES[at]}`;
}

export function seconds(value: number): string {
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Number((value * 1000).toPrecision(3))} ms`;
  if (value < 60) return `${Number(value.toPrecision(3))} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(value % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export const percent = (share: number): string => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const clock = (unix: number): string => CLOCK.format(unix * 1000);

export function time(at: string | null): string {
  if (!at) return "";
  const moment = new Date(at);
  return (Date.now() - moment.getTime() < 20 * 3600_000 ? CLOCK : DAY).format(moment);
}

export const value = (found: unknown): string =>
  found === null || found === undefined ? "" : typeof found === "object" ? JSON.stringify(found) : String(found);
