// Short histories for the panel's curves: a point at most every half second.

import { signal } from "@preact/signals";
import { counters, type Counters } from "../lib/api";

export interface Histories {
  rate: number[];
  hits: number[];
  reads: number[];
}

const LENGTH = 120;
export const histories = signal<Histories>({ rate: [], hits: [], reads: [] });

export function sample(s: Partial<Record<keyof Histories, number>>): void {
  const next = { ...histories.value };
  for (const [name, value] of Object.entries(s) as [keyof Histories, number][])
    if (value >= 0) next[name] = [...next[name], value].slice(-LENGTH);
  histories.value = next;
}

const EVERY = 1000; // ms

// Rates from the server's own counters, for as long as an answer is written. Returns what ends it.
export function watchCounters(tell: (hits: number, reads: number) => void): () => void {
  let before: { c: Counters; at: number } | null = null;
  const look = async () => {
    const c = await counters();
    const at = performance.now();
    if (!c) return clearInterval(timer);
    const looked = before ? c.hits + c.misses - before.c.hits - before.c.misses : 0;
    if (before && looked > 0) tell((c.hits - before.c.hits) / looked, (1000 * (c.bytes - before.c.bytes)) / (at - before.at));
    before = { c, at };
  };
  const timer = setInterval(() => void look(), EVERY);
  void look();
  return () => clearInterval(timer);
}
