// Conversations in IndexedDB. Every message is a record of its own, and what belongs together is read and written in one
// transaction over both stores: nobody meets a conversation whose last message is not there yet, and every change starts
// from what is stored, not from what a tab remembers. Transactions of all tabs follow one another, so that tabs which
// write at the same time lose nothing. Where storage is forbidden the same calls work on memory, and `lasting` says so.

import type { Chat, Message } from "../types";

export let lasting = true;
let db: IDBDatabase | null = null;

const STORES = ["chats", "messages"];

const wait = <V>(r: IDBRequest<V>): Promise<V> =>
  new Promise((resolve, reject) => {
    r.onsuccess = () => resolve(r.result);
    r.onerror = () => reject(r.error);
  });

const finished = (t: IDBTransaction): Promise<void> =>
  new Promise((resolve, reject) => {
    t.oncomplete = () => resolve();
    t.onabort = t.onerror = () => reject(t.error);
  });

async function connect(): Promise<void> {
  try {
    const r = indexedDB.open("swiftlet", 1);
    r.onupgradeneeded = () => {
      r.result.createObjectStore("chats", { keyPath: "id" });
      r.result.createObjectStore("messages", { keyPath: "id" }).createIndex("chat", "chat");
    };
    db = await wait(r);
    db.onversionchange = () => db?.close();
  } catch {
    lasting = false;
  }
}

let opened: Promise<void> | null = null;
export const open = (): Promise<void> => (opened ??= connect());

// --- Records, wherever they are ---------------------------------------------------------------------------------------

interface Records {
  chat(id: string): Promise<Chat | undefined>;
  chats(): Promise<Chat[]>;
  message(id: string): Promise<Message | undefined>;
  messagesOf(chat: string): Promise<Message[]>;
  putChat(c: Chat): void;
  putMessage(m: Message): void;
  removeChat(id: string): void;
  removeMessage(id: string): void;
}

function inDatabase(t: IDBTransaction): Records {
  const chats = t.objectStore("chats");
  const messages = t.objectStore("messages");
  return {
    chat: (id) => wait(chats.get(id)),
    chats: () => wait(chats.getAll()),
    message: (id) => wait(messages.get(id)),
    messagesOf: (chat) => wait(messages.index("chat").getAll(chat)),
    putChat: (c) => void chats.put(c),
    putMessage: (m) => void messages.put(m),
    removeChat: (id) => void chats.delete(id),
    removeMessage: (id) => void messages.delete(id),
  };
}

function inMemory(): Records {
  const chats = new Map<string, Chat>();
  const messages = new Map<string, Message>();
  return {
    chat: async (id) => chats.get(id),
    chats: async () => [...chats.values()],
    message: async (id) => messages.get(id),
    messagesOf: async (chat) => [...messages.values()].filter((m) => m.chat === chat),
    putChat: (c) => void chats.set(c.id, c),
    putMessage: (m) => void messages.set(m.id, m),
    removeChat: (id) => void chats.delete(id),
    removeMessage: (id) => void messages.delete(id),
  };
}

const memory = inMemory();
let turn: Promise<unknown> = Promise.resolve(); // changes of the memory follow one another too

async function read<V>(f: (r: Records) => Promise<V>): Promise<V> {
  await open();
  return f(db ? inDatabase(db.transaction(STORES)) : memory);
}

// A disk that is full takes nothing: then the page goes on with what it has in memory, and says that it is not kept.
async function write<V>(f: (r: Records) => Promise<V>): Promise<V | undefined> {
  await open();
  if (!db) {
    const mine = turn.then(() => f(memory));
    turn = mine;
    return mine;
  }
  try {
    const t = db.transaction(STORES, "readwrite", { durability: "relaxed" });
    return (await Promise.all([f(inDatabase(t)), finished(t)]))[0];
  } catch {
    lasting = false;
    return undefined;
  }
}

// --- What is asked of them --------------------------------------------------------------------------------------------

export const allChats = (): Promise<Chat[]> => read((r) => r.chats());

export const getChat = (id: string): Promise<Chat | undefined> => read((r) => r.chat(id));

export const getMessage = (id: string): Promise<Message | undefined> => read((r) => r.message(id));

export const messagesOf = (chat: string): Promise<Message[]> => read((r) => r.messagesOf(chat));

// A conversation and its messages as they were at one moment.
export const conversation = (id: string): Promise<{ chat?: Chat; messages: Message[] }> =>
  read(async (r) => {
    const [chat, messages] = await Promise.all([r.chat(id), r.messagesOf(id)]);
    return { chat, messages };
  });

export const put = (chat: Chat, messages: Message[]): Promise<void> =>
  write(async (r) => {
    r.putChat(chat);
    messages.forEach(r.putMessage);
  });

// Changes some members and leaves the others as another tab may have set them. Undefined: there is no such conversation.
export const changeChat = (id: string, change: (old: Chat) => Partial<Chat>): Promise<Chat | undefined> =>
  write(async (r) => {
    const old = await r.chat(id);
    if (!old) return undefined;
    const now = { ...old, ...change(old) };
    r.putChat(now);
    return now;
  });

// Adds messages and changes the conversation. One that is new, or that another tab has just removed for good, is put
// whole, from what the tab has of it.
export const append = (chat: Chat, change: Partial<Chat>, added: Message[], all: Message[]): Promise<Chat | undefined> =>
  write(async (r) => {
    const old = await r.chat(chat.id);
    const now = { ...(old ?? chat), ...change };
    r.putChat(now);
    (old ? added : all).forEach(r.putMessage);
    return now;
  });

// The same for a page that was left before it could: what was stored all the same stays as it is.
export const restore = (chat: Chat, messages: Message[]): Promise<void> =>
  write(async (r) => {
    const there = await Promise.all([r.chat(chat.id), ...messages.map((m) => r.message(m.id))]);
    const missing = messages.filter((_, i) => !there[i + 1]);
    if (!missing.length) return;
    missing.forEach(r.putMessage);
    r.putChat({ ...(there[0] as Chat | undefined ?? chat), leaf: chat.leaf, updated: chat.updated, deleted: undefined });
  });

// `change` says what a message becomes, or null to leave it. Undefined: it was left, or is not there.
export const changeMessage = (id: string, change: (old: Message) => Message | null): Promise<Message | undefined> =>
  write(async (r) => {
    const old = await r.message(id);
    const now = old && change(old);
    if (!now) return undefined;
    r.putMessage(now);
    return now;
  });

// Removes a conversation if it still is as `wanted` says; tells whether it did.
export const removeChat = (id: string, wanted: (c: Chat) => boolean): Promise<boolean | undefined> =>
  write(async (r) => {
    const [chat, messages] = await Promise.all([r.chat(id), r.messagesOf(id)]);
    if (!chat || !wanted(chat)) return false;
    r.removeChat(id);
    messages.forEach((m) => r.removeMessage(m.id));
    return true;
  });

// Conversations in which a message holds the words; one pass over all messages.
export async function search(words: string): Promise<Set<string>> {
  const found = new Set<string>();
  const want = words.toLowerCase();
  const look = (m: Message) => {
    if (!found.has(m.chat) && m.text.toLowerCase().includes(want)) found.add(m.chat);
  };
  await open();
  if (!db) {
    for (const c of await memory.chats()) (await memory.messagesOf(c.id)).forEach(look);
    return found;
  }
  const r = db.transaction("messages").objectStore("messages").openCursor();
  await new Promise<void>((resolve, reject) => {
    r.onerror = () => reject(r.error);
    r.onsuccess = () => {
      if (!r.result) return resolve();
      look(r.result.value);
      r.result.continue();
    };
  });
  return found;
}
