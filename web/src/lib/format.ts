// Numbers, sizes and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const count = (n: number): string => whole.format(n);
export const rate = (n: number): string => (n >= 100 ? whole : one).format(n);
export const percent = (part: number): string => `${Math.round(part * 100)} %`;

export function bytes(n: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) {
    n /= 1000;
    i++;
  }
  return `${i && n < 100 ? one.format(n) : whole.format(n)} ${units[i]}`;
}

export function seconds(s: number): string {
  if (s < 60) return `${Math.max(0, Math.round(s))} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
}

// Made once: making one takes as long as formatting hundreds of times.
const hours = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
export const clock = (t: number): string => hours.format(t);
export const dateTime = (t: number): string => dates.format(t);

// Whole days between a time and now, by the calendar.
export function daysAgo(t: number, now = Date.now()): number {
  const day = (x: number) => new Date(x).setHours(0, 0, 0, 0);
  return Math.round((day(now) - day(t)) / 86400000);
}

// A title from the first words of what was asked.
export function titleOf(text: string): string {
  const words = text.replace(/[`*_#>\[\]]/g, "").replace(/\s+/g, " ").trim();
  if (words.length <= 48) return words;
  const cut = words.slice(0, 48);
  const space = cut.lastIndexOf(" ");
  return (space > 24 ? cut.slice(0, space) : cut) + "…";
}

export function fileName(title: string): string {
  return title.replace(/[^\p{L}\p{N} _-]+/gu, "").trim().replace(/ +/g, "-").slice(0, 60) || "chat";
}
