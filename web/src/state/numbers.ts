// Short histories for the panel's curves: a point at most every half second.

import { signal } from "@preact/signals";

export interface Histories {
  rate: number[];
  hits: number[];
  reads: number[];
  memory: number[];
}

const LENGTH = 120;
export const histories = signal<Histories>({ rate: [], hits: [], reads: [], memory: [] });

export function sample(s: Partial<Record<keyof Histories, number>>): void {
  const next = { ...histories.value };
  for (const [name, value] of Object.entries(s) as [keyof Histories, number][])
    if (value >= 0) next[name] = [...next[name], value].slice(-LENGTH);
  histories.value = next;
}
