// The list of conversations and the one that is shown. Every message has a signal of its own, so that an answer that
// grows draws itself and nothing else.

import { batch, computed, signal, type Signal } from "@preact/signals";
import type { Chat, Message, Options } from "../types";
import * as db from "../lib/db";
import { fromJson, toJson, toMarkdown } from "../lib/exchange";
import { fileName, titleOf } from "../lib/format";
import { save } from "../lib/files";
import { newId, TAB } from "../lib/id";
import { newestLeaf, pathTo, isBelow } from "../lib/tree";
import { T } from "../strings";
import { hideToast, showToast } from "./say";

export const chats = signal<Chat[]>([]);
export const current = signal<string | null>(null);
export const draftOptions = signal<Options>({}); // of a chat that does not exist yet

const STALE = 30000; // ms without a sign after which an answer of another tab is taken as cut off
const UNDO = 8000; // ms in which a deletion can be taken back

export class Conversation {
  readonly all = new Map<string, Message>();
  readonly cells = new Map<string, Signal<Message>>();
  readonly shape = signal(0); // counts changes of the tree
  readonly leaf = signal<string | null>(null);

  constructor(readonly id: string) {}

  readonly path = computed(() => {
    void this.shape.value;
    return pathTo(this.all, this.leaf.value).map((m) => m.id);
  });

  // The versions at each place: ids of the messages that have the same parent, oldest first.
  readonly versions = computed(() => {
    void this.shape.value;
    const groups = new Map<string | null, Message[]>();
    for (const m of this.all.values()) groups.set(m.parent, [...(groups.get(m.parent) ?? []), m]);
    for (const g of groups.values()) g.sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
    return groups;
  });

  set(m: Message): void {
    const known = this.all.get(m.id);
    this.all.set(m.id, m);
    const cell = this.cells.get(m.id);
    if (cell) cell.value = m;
    else this.cells.set(m.id, signal(m));
    if (!known || known.parent !== m.parent) this.shape.value++;
  }

  last(): Message | undefined {
    return pathTo(this.all, this.leaf.peek()).pop();
  }
}

const open = new Map<string, Conversation>();

export const shown = signal<Conversation | null>(null);
export const chat = computed(() => chats.value.find((c) => c.id === current.value) ?? null);
export const options = computed<Options>(() => chat.value?.options ?? draftOptions.value);
export const visible = computed(() =>
  chats.value.filter((c) => !c.deleted).sort((a, b) => Number(b.pinned) - Number(a.pinned) || b.updated - a.updated));

// --- Tabs -------------------------------------------------------------------------------------------------------------

const channel = typeof BroadcastChannel === "function" ? new BroadcastChannel("swiftlet") : null;
type News = { chat?: string; message?: string; gone?: string };
const tell = (news: News) => channel?.postMessage(news);

async function hear(news: News): Promise<void> {
  if (news.gone) drop(news.gone);
  if (news.chat) {
    const c = await db.getChat(news.chat);
    if (c) {
      const before = chats.value.find((x) => x.id === c.id);
      place(c);
      follow(c, before?.leaf ?? null);
    }
  }
  if (news.message) {
    const m = await db.getMessage(news.message);
    const conv = m && open.get(m.chat);
    if (m && conv && !(m.owner === TAB && conv.all.get(m.id)?.status === "streaming")) conv.set(m);
  }
}

// Another tab added to the branch that is shown here: show that too. A branch of its own stays where it is.
async function follow(c: Chat, before: string | null): Promise<void> {
  const conv = open.get(c.id);
  if (!conv || !c.leaf || c.leaf === before) return;
  if (!conv.all.has(c.leaf)) for (const m of await db.messagesOf(c.id)) if (!conv.all.has(m.id)) conv.set(m);
  if (isBelow(conv.all, c.leaf, conv.leaf.value)) conv.leaf.value = c.leaf;
}

// --- A page that is left in the middle of an answer ---------------------------------------------------------------------

const RESCUE = "swiftlet.rescue.";

export function rescue(m: Message): void {
  try {
    localStorage.setItem(RESCUE + m.id, JSON.stringify({ text: m.text, reasoning: m.reasoning }));
  } catch {
    // Too long, or forbidden: then the last save has to do.
  }
}

async function takeRescued(): Promise<void> {
  try {
    for (const key of Object.keys(localStorage).filter((k) => k.startsWith(RESCUE))) {
      const saved = JSON.parse(localStorage.getItem(key) ?? "{}") as { text?: string; reasoning?: string };
      localStorage.removeItem(key);
      const m = await db.getMessage(key.slice(RESCUE.length));
      const more = m && (saved.text ?? "").length + (saved.reasoning ?? "").length > m.text.length + (m.reasoning ?? "").length;
      if (more) await db.putMessages([{ ...m, text: saved.text ?? m.text, reasoning: saved.reasoning ?? m.reasoning }]);
    }
  } catch {
    // Nothing to be had.
  }
}

// --- Reading ----------------------------------------------------------------------------------------------------------

function place(c: Chat): void {
  const rest = chats.value.filter((x) => x.id !== c.id);
  chats.value = [...rest, c];
}

function drop(id: string): void {
  batch(() => {
    chats.value = chats.value.filter((c) => c.id !== id);
    open.delete(id);
    if (current.value === id) show(null);
  });
}

// An answer that this tab was receiving ended with the page that received it; one of another tab, when it fell silent.
function cutOff(m: Message, justLoaded: boolean): boolean {
  if (m.status !== "streaming") return false;
  return m.owner === TAB ? justLoaded : Date.now() - (m.beat ?? 0) > STALE;
}

async function endCutOff(conv: Conversation, justLoaded: boolean): Promise<void> {
  const dead = [...conv.all.values()].filter((m) => cutOff(m, justLoaded)).map((m): Message => ({ ...m, status: "interrupted" }));
  dead.forEach((m) => conv.set(m));
  if (dead.length) await db.putMessages(dead);
}

async function load(id: string): Promise<Conversation> {
  const known = open.get(id);
  if (known) return known;
  const conv = new Conversation(id);
  const list = await db.messagesOf(id);
  batch(() => list.forEach((m) => conv.set(m)));
  const leaf = (await db.getChat(id))?.leaf ?? null;
  conv.leaf.value = leaf && conv.all.has(leaf) ? leaf : list.length ? newestLeaf(conv.all, list[0].id) : null;
  open.set(id, conv);
  await endCutOff(conv, true);
  return conv;
}

export async function start(): Promise<void> {
  await db.open();
  await takeRescued();
  chats.value = await db.allChats();
  for (const c of chats.value) if (c.deleted && Date.now() - c.deleted > UNDO) await purge(c.id);
  if (channel) channel.onmessage = (e) => void hear(e.data);
  setInterval(() => shown.value && void endCutOff(shown.value, false), 10000);
  addEventListener("hashchange", () => void fromAddress());
  await fromAddress();
}

async function fromAddress(): Promise<void> {
  const id = location.hash.slice(1);
  await show(chats.value.some((c) => c.id === id && !c.deleted) ? id : null);
}

export async function show(id: string | null): Promise<void> {
  const conv = id ? await load(id) : null;
  batch(() => {
    current.value = id;
    shown.value = conv;
  });
  const address = id ? `#${id}` : location.pathname;
  if (location.hash.slice(1) !== (id ?? "")) history.pushState(null, "", address);
}

// --- Writing ----------------------------------------------------------------------------------------------------------

export async function ensureChat(firstText: string): Promise<Conversation> {
  if (shown.value) return shown.value;
  const now = Date.now();
  const c: Chat = {
    id: newId(), title: titleOf(firstText) || T.untitled, named: false, pinned: false, created: now, updated: now,
    leaf: null, options: draftOptions.value,
  };
  const conv = new Conversation(c.id);
  open.set(c.id, conv);
  await db.putChat(c);
  batch(() => {
    place(c);
    draftOptions.value = {};
  });
  await show(c.id);
  tell({ chat: c.id });
  return conv;
}

export async function patch(id: string, change: Partial<Chat>): Promise<void> {
  const now = await db.patchChat(id, change);
  if (now) place(now);
  tell({ chat: id });
}

export async function append(conv: Conversation, list: Message[]): Promise<void> {
  batch(() => {
    list.forEach((m) => conv.set(m));
    conv.leaf.value = list[list.length - 1].id;
  });
  await db.putMessages(list);
  await patch(conv.id, { leaf: conv.leaf.value, updated: Date.now() });
}

export async function keep(m: Message): Promise<void> {
  await db.putMessages([m]);
  tell({ message: m.id });
}

export async function selectVersion(conv: Conversation, id: string): Promise<void> {
  conv.leaf.value = newestLeaf(conv.all, id);
  await patch(conv.id, { leaf: conv.leaf.value });
}

export async function setOptions(change: Partial<Options>): Promise<void> {
  const next = { ...options.value, ...change };
  if (chat.value) await patch(chat.value.id, { options: next });
  else draftOptions.value = next;
}

export async function resetOptions(): Promise<void> {
  const { system, thinking, model } = options.value;
  const next = { system, thinking, model };
  if (chat.value) await patch(chat.value.id, { options: next });
  else draftOptions.value = next;
}

export async function rename(id: string, title: string): Promise<void> {
  const t = title.replace(/\s+/g, " ").trim().slice(0, 200);
  if (t) await patch(id, { title: t, named: true });
}

async function purge(id: string): Promise<void> {
  await db.removeChat(id);
  drop(id);
  tell({ gone: id });
}

export async function remove(c: Chat): Promise<void> {
  await patch(c.id, { deleted: Date.now() });
  if (current.value === c.id) await show(null);
  const timer = setTimeout(() => void purge(c.id), UNDO);
  const undo = () => {
    clearTimeout(timer);
    hideToast();
    void patch(c.id, { deleted: undefined });
  };
  showToast({ text: T.removed(c.title), action: { label: T.undo, run: undo } }, UNDO);
}

// --- Files ------------------------------------------------------------------------------------------------------------

export async function exportJson(list: Chat[], name: string): Promise<void> {
  const bundles = [];
  for (const c of list) bundles.push({ chat: c, messages: await db.messagesOf(c.id) });
  save(`${fileName(name)}.json`, toJson(bundles), "application/json");
}

export async function exportMarkdown(c: Chat): Promise<void> {
  const all = new Map((await db.messagesOf(c.id)).map((m) => [m.id, m]));
  save(`${fileName(c.title)}.md`, toMarkdown(c, pathTo(all, c.leaf)), "text/markdown");
}

export async function importJson(text: string): Promise<void> {
  let bundles;
  try {
    bundles = fromJson(text);
  } catch (e) {
    showToast({ text: (e as Error).message }, 8000);
    return;
  }
  for (const { chat: c, messages } of bundles) {
    await db.putMessages(messages);
    await db.putChat(c);
    place(c);
    tell({ chat: c.id });
  }
  showToast({ text: T.imported(bundles.length) });
}
