// The list of conversations and the one that is shown. Every message has a signal of its own, so that an answer that
// grows draws itself and nothing else.

import { batch, computed, effect, signal, type Signal } from "@preact/signals";
import type { Chat, Message, Options } from "../types";
import * as db from "../lib/db";
import { fromJson, toJson, toMarkdown } from "../lib/exchange";
import { fileName, titleOf } from "../lib/format";
import { save } from "../lib/files";
import { newId, TAB } from "../lib/id";
import { isBelow, newestLeaf, pathTo } from "../lib/tree";
import { T } from "../strings";
import { hideToast, showToast } from "./say";

export const chats = signal<Chat[]>([]);
export const current = signal<string | null>(null);
export const draftOptions = signal<Options>({}); // of a chat that does not exist yet

const STALE = 30000; // ms without a sign after which a tab that writes an answer is asked whether it still does
const REPLY = 2000; // ms that it has for a sign
const UNDO = 8000; // ms in which a deletion can be taken back

export class Conversation {
  readonly all = new Map<string, Message>();
  readonly cells = new Map<string, Signal<Message>>();
  readonly shape = signal(0); // counts changes of the tree
  readonly leaf = signal<string | null>(null);
  loaded: Promise<void> = Promise.resolve();

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

  // What is stored, unless this tab is writing that message and knows it better.
  take(m: Message): void {
    const known = this.all.get(m.id);
    if (!mine.has(m.id) && !(known && same(known, m))) this.set(m);
  }

  last(): Message | undefined {
    return pathTo(this.all, this.leaf.peek()).pop();
  }
}

// A question never changes, and an answer not without one of these.
const same = (a: Message, b: Message): boolean =>
  a.role === "user" || (a.status === b.status && a.beat === b.beat && a.owner === b.owner && a.finish === b.finish &&
    a.text.length === b.text.length && a.reasoning?.length === b.reasoning?.length);

const open = new Map<string, Conversation>();

// Answers that this tab is writing, each with what saves it at once.
const mine = new Map<string, () => void>();

export const ready = signal(false); // the list has been read
export const shown = signal<Conversation | null>(null);
export const chat = computed(() => chats.value.find((c) => c.id === current.value) ?? null);
export const options = computed<Options>(() => chat.value?.options ?? draftOptions.value);
export const visible = computed(() =>
  chats.value.filter((c) => !c.deleted).sort((a, b) => Number(b.pinned) - Number(a.pinned) || b.updated - a.updated));

// --- Tabs -------------------------------------------------------------------------------------------------------------

// Tabs tell each other which records changed, after they did; what changed is read from the database.
const channel = typeof BroadcastChannel === "function" ? new BroadcastChannel("swiftlet") : null;
type News = { chat?: string; message?: string; gone?: string; who?: string };
const tell = (news: News) => channel?.postMessage(news);

// One after the other and none before the list was read, so that an older state never comes after a newer one.
let reading: Promise<unknown> = Promise.resolve();
function hear(news: News): void {
  if (news.who) mine.get(news.who)?.();
  else reading = reading.then(() => look(news)).catch(() => {}); // what cannot be read now is read with the next news
}

async function look(news: News): Promise<void> {
  if (news.message) await lookAtMessage(news.message);
  if (news.chat) await lookAtChat(news.chat);
  if (news.gone && !(await db.getChat(news.gone))) drop(news.gone);
}

// Another tab may have added to the branch that is shown here: that is shown too. A branch of its own stays where it is.
async function lookAtChat(id: string): Promise<void> {
  const conv = open.get(id);
  const { chat: c, messages } = conv ? await db.conversation(id) : { chat: await db.getChat(id), messages: [] };
  if (!c) return;
  batch(() => {
    place(c);
    messages.forEach((m) => conv!.take(m));
    if (conv && c.leaf && conv.all.has(c.leaf) && isBelow(conv.all, c.leaf, conv.leaf.value)) conv.leaf.value = c.leaf;
  });
}

async function lookAtMessage(id: string): Promise<void> {
  const m = await db.getMessage(id);
  const conv = m && open.get(m.chat);
  if (!m || !conv) return;
  if (m.parent && !conv.all.has(m.parent)) await lookAtChat(m.chat);
  else conv.take(m);
}

// A page that slept may have missed news.
async function catchUp(): Promise<void> {
  for (const c of await db.allChats()) place(c);
  if (current.value) await lookAtChat(current.value);
}

// --- A page that is left in the middle of an answer ---------------------------------------------------------------------

// It has no time for the database any more, so what is not stored yet is put where it is written at once.
const RESCUE = "swiftlet.rescue.";
const RESCUE_NEW = "swiftlet.unsaved.";
const unsaved = new Map<string, { chat: Chat; messages: Message[] }>(); // by the last message

function setAside(key: string, value: object): void {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // Too long, or forbidden: then the last save has to do.
  }
}

export const rescue = (m: Message): void => setAside(RESCUE + m.id, { ...m, owner: TAB });

const rescueNew = (): void => unsaved.forEach((x, id) => setAside(RESCUE_NEW + id, x));

// Of an answer only what is more than the record, and only while nobody else has gone on with it.
async function takeAnswer(m: Message): Promise<void> {
  const size = (x: Message) => x.text.length + (x.reasoning ?? "").length;
  const ended = m.status !== "streaming";
  const now = await db.changeMessage(m.id, (old) => old.owner !== m.owner || size(m) < size(old) ? null
    : { ...old, ...m, status: ended ? m.status : old.status });
  if (now) tell({ message: m.id });
}

async function takeRescued(): Promise<void> {
  const all = (prefix: string) => Object.keys(localStorage).filter((k) => k.startsWith(prefix));
  try {
    for (const key of all(RESCUE_NEW)) {
      const { chat: c, messages } = JSON.parse(localStorage.getItem(key)!) as { chat: Chat; messages: Message[] };
      await db.restore(c, messages);
      localStorage.removeItem(key);
      tell({ chat: c.id });
    }
    for (const key of all(RESCUE)) {
      await takeAnswer(JSON.parse(localStorage.getItem(key)!) as Message);
      localStorage.removeItem(key);
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
    if (current.value === id) void show(null);
  });
}

// Whether a tab is writing the answer: this one knows, another gives a sign now and then.
const silent = (m: Message): boolean => Date.now() - (m.beat ?? 0) > STALE;
const left = (m: Message): boolean => m.status === "streaming" && !mine.has(m.id) && (m.owner === TAB || silent(m));

// `m` is what was known of it when its tab was asked: a sign given since counts, whatever the clocks say.
async function cutOff(conv: Conversation, m: Message): Promise<void> {
  const now = await db.changeMessage(m.id, (old) =>
    left(old) && (old.owner === TAB || old.beat === m.beat) ? { ...old, status: "interrupted" } : null);
  if (now) tell({ message: m.id });
  const stored = now ?? (await db.getMessage(m.id));
  if (stored) conv.take(stored);
}

// Answers that nobody is writing any more. What this tab's last page was receiving ended with that page; a tab that fell
// silent is asked first.
async function endLeft(conv: Conversation): Promise<void> {
  for (const m of [...conv.all.values()].filter(left)) {
    if (m.owner === TAB) await cutOff(conv, m);
    else {
      tell({ who: m.id });
      setTimeout(() => void cutOff(conv, m), REPLY);
    }
  }
}

// Where in the conversation that it shows this tab is: the stored leaf is that of the tab that wrote last, and a reload is
// to show what was shown. Other conversations begin where they were left by whatever tab.
const PLACE = "swiftlet.place";

function keepPlace(): void {
  const leaf = shown.value?.leaf.value;
  if (!leaf) return;
  try {
    sessionStorage.setItem(PLACE, leaf);
  } catch {
    // Then the next page begins at the stored leaf.
  }
}

function keptPlace(): string | null {
  try {
    return sessionStorage.getItem(PLACE);
  } catch {
    return null;
  }
}

async function read(conv: Conversation): Promise<void> {
  const { chat: c, messages } = await db.conversation(conv.id);
  batch(() => messages.forEach((m) => conv.take(m)));
  const place = keptPlace();
  const known = (id: string | null | undefined): id is string => !!id && conv.all.has(id);
  const leaf = known(place) && !(known(c?.leaf) && isBelow(conv.all, c!.leaf, place)) ? place : c?.leaf;
  conv.leaf.value = known(leaf) ? leaf : messages.length ? newestLeaf(conv.all, messages[0].id) : null;
  await endLeft(conv);
}

// News of a conversation are heard from the moment on at which it is being read.
async function load(id: string): Promise<Conversation> {
  let conv = open.get(id);
  if (!conv) {
    conv = new Conversation(id);
    open.set(id, conv);
    conv.loaded = read(conv);
    conv.loaded.catch(() => open.delete(id));
  }
  await conv.loaded;
  return conv;
}

async function readAll(): Promise<void> {
  await takeRescued();
  const all = await db.allChats();
  batch(() => {
    all.forEach(place);
    ready.value = true;
  });
  for (const c of all) if (c.deleted && Date.now() - c.deleted > UNDO) await purge(c.id, c.deleted);
}

export async function start(): Promise<void> {
  if (channel) channel.onmessage = (e) => hear(e.data);
  addEventListener("pagehide", rescueNew);
  const read = readAll();
  reading = read;
  await read;
  setInterval(() => shown.value && void endLeft(shown.value), 10000);
  addEventListener("hashchange", () => void fromAddress());
  addEventListener("pageshow", (e) => e.persisted && (reading = reading.then(catchUp).catch(() => {})));
  await fromAddress();
  effect(keepPlace);
}

async function fromAddress(): Promise<void> {
  const id = location.hash.slice(1);
  await show(chats.value.some((c) => c.id === id && !c.deleted) ? id : null);
}

let asked = 0; // counts what was asked to be shown: reading the last but one may end last

export async function show(id: string | null): Promise<void> {
  const n = ++asked;
  const conv = id ? await load(id) : null;
  if (n === asked) present(id, conv);
}

function present(id: string | null, conv: Conversation | null): void {
  batch(() => {
    current.value = id;
    shown.value = conv;
  });
  const address = id ? `#${id}` : location.pathname;
  if (location.hash.slice(1) !== (id ?? "")) history.pushState(null, "", address);
}

// --- Writing ----------------------------------------------------------------------------------------------------------

// The conversation that is shown, or a new one, which is stored with its first message.
export function ensureChat(firstText: string): Conversation {
  if (shown.value) return shown.value;
  const now = Date.now();
  const c: Chat = {
    id: newId(), title: titleOf(firstText) || T.untitled, named: false, pinned: false, created: now, updated: now,
    leaf: null, options: draftOptions.value,
  };
  const conv = new Conversation(c.id);
  open.set(c.id, conv);
  asked++;
  batch(() => {
    place(c);
    draftOptions.value = {};
    present(c.id, conv);
  });
  return conv;
}

type Change = (old: Chat) => Partial<Chat>;

// Seen at once, and then as it is stored, which holds what other tabs have changed.
export async function patch(id: string, change: Change): Promise<void> {
  const known = chats.value.find((c) => c.id === id);
  if (known) place({ ...known, ...change(known) });
  const now = await db.changeChat(id, change);
  if (now) place(now);
  tell({ chat: id });
}

// New messages of a branch. A conversation in which somebody writes is not to be deleted any more.
export async function append(conv: Conversation, list: Message[]): Promise<void> {
  const known = chats.value.find((c) => c.id === conv.id);
  if (!known) return;
  const leaf = list[list.length - 1].id;
  const change = { leaf, updated: Date.now(), deleted: undefined };
  batch(() => {
    list.forEach((m) => conv.set(m));
    conv.leaf.value = leaf;
    place({ ...known, ...change });
  });
  unsaved.set(leaf, { chat: { ...known, ...change }, messages: list });
  const now = await db.append(known, change, list, [...conv.all.values()]);
  unsaved.delete(leaf);
  if (now) place(now);
  tell({ chat: conv.id });
}

// --- Answers that this tab writes ---------------------------------------------------------------------------------------

const another = (m: Message): boolean => m.status === "streaming" && !!m.owner && m.owner !== TAB;

// `save` is called when another tab asks whether the answer is still being written.
export function hold(id: string, save: () => void): void {
  mine.set(id, save);
}

// `lost`: to another tab, whose text is shown from now on.
export async function release(id: string, lost: boolean): Promise<void> {
  mine.delete(id);
  if (lost) await lookAtMessage(id);
}

// Takes an answer to go on with it, as it is stored: another tab may have done so before. Null while it does.
export async function claim(known: Message): Promise<Message | null> {
  const start: Partial<Message> = { status: "streaming", owner: TAB, beat: Date.now(), fault: undefined, finish: undefined };
  hold(known.id, () => {});
  const now = await db.changeMessage(known.id, (old) => (another(old) && !silent(old) ? null : { ...old, ...start }));
  if (now) tell({ message: known.id });
  if (now || !db.lasting) return now ?? { ...known, ...start };
  await release(known.id, true);
  return null;
}

// Stores a step of an answer. False: another tab has taken the answer, or removed it.
export async function keep(m: Message): Promise<boolean> {
  const now = await db.changeMessage(m.id, (old) => (another(old) ? null : m));
  tell({ message: m.id });
  return !!now || !db.lasting;
}

export async function selectVersion(conv: Conversation, id: string): Promise<void> {
  const leaf = newestLeaf(conv.all, id);
  conv.leaf.value = leaf;
  await patch(conv.id, () => ({ leaf }));
}

// --- Settings and names ---------------------------------------------------------------------------------------------------

export async function setOptions(change: Partial<Options>): Promise<void> {
  if (chat.value) await patch(chat.value.id, (old) => ({ options: { ...old.options, ...change } }));
  else draftOptions.value = { ...draftOptions.value, ...change };
}

export async function resetOptions(): Promise<void> {
  const keepThese = ({ system, thinking, model }: Options): Options => ({ system, thinking, model });
  if (chat.value) await patch(chat.value.id, (old) => ({ options: keepThese(old.options) }));
  else draftOptions.value = keepThese(draftOptions.value);
}

export async function rename(id: string, title: string): Promise<void> {
  const t = title.replace(/\s+/g, " ").trim().slice(0, 200);
  if (t) await patch(id, () => ({ title: t, named: true }));
}

// Nobody has taken the deletion back, nor written in the conversation since, in whatever tab.
async function purge(id: string, deleted: number): Promise<void> {
  if (!(await db.removeChat(id, (c) => c.deleted === deleted))) return;
  drop(id);
  tell({ gone: id });
}

export async function remove(c: Chat): Promise<void> {
  const deleted = Date.now();
  await patch(c.id, (old) => (old.updated > deleted ? {} : { deleted })); // another tab may have written meanwhile
  if (current.value === c.id) await show(null);
  const timer = setTimeout(() => void purge(c.id, deleted), UNDO);
  const undo = () => {
    clearTimeout(timer);
    hideToast();
    void patch(c.id, () => ({ deleted: undefined }));
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
    await db.put(c, messages);
    place(c);
    tell({ chat: c.id });
  }
  showToast({ text: T.imported(bundles.length) });
}
