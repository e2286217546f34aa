// Branches of a conversation.

import type { Message } from "../types";

export type Messages = ReadonlyMap<string, Message>;

const byAge = (a: Message, b: Message) => a.created - b.created || (a.id < b.id ? -1 : 1);

// From the first message to the leaf. A parent that is missing ends it, and so does a cycle, which only a file made by
// hand could hold.
export function pathTo(all: Messages, leaf: string | null): Message[] {
  const path: Message[] = [];
  const seen = new Set<string>();
  for (let id = leaf; id && !seen.has(id); ) {
    const m = all.get(id);
    if (!m) break;
    seen.add(id);
    path.push(m);
    id = m.parent;
  }
  return path.reverse();
}

export function childrenOf(all: Messages, parent: string | null): Message[] {
  return [...all.values()].filter((m) => m.parent === parent).sort(byAge);
}

// The end of the newest branch below a message.
export function newestLeaf(all: Messages, from: string): string {
  const seen = new Set<string>();
  for (let id = from; ; ) {
    seen.add(id);
    const next = childrenOf(all, id).pop();
    if (!next || seen.has(next.id)) return id;
    id = next.id;
  }
}

export function isBelow(all: Messages, id: string | null, ancestor: string | null): boolean {
  return ancestor === null || pathTo(all, id).some((m) => m.id === ancestor);
}
