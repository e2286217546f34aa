// Conversations in IndexedDB. Every message is a record of its own and changes of a conversation are read and written
// in one transaction, so that tabs which write at the same time lose nothing. Where storage is forbidden the same calls
// work on memory, and `lasting` says so.

import type { Chat, Message } from "../types";

export let lasting = true;
let db: IDBDatabase | null = null;
const chats = new Map<string, Chat>();
const messages = new Map<string, Message>();

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

export async function open(): Promise<void> {
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

export async function allChats(): Promise<Chat[]> {
  if (!db) return [...chats.values()];
  return wait(db.transaction("chats").objectStore("chats").getAll());
}

export async function getChat(id: string): Promise<Chat | undefined> {
  if (!db) return chats.get(id);
  return wait(db.transaction("chats").objectStore("chats").get(id));
}

export async function messagesOf(chat: string): Promise<Message[]> {
  if (!db) return [...messages.values()].filter((m) => m.chat === chat);
  return wait(db.transaction("messages").objectStore("messages").index("chat").getAll(chat));
}

export async function getMessage(id: string): Promise<Message | undefined> {
  if (!db) return messages.get(id);
  return wait(db.transaction("messages").objectStore("messages").get(id));
}

export async function putChat(chat: Chat): Promise<void> {
  if (!db) return void chats.set(chat.id, chat);
  const t = db.transaction("chats", "readwrite");
  t.objectStore("chats").put(chat);
  return finished(t);
}

// Changes some members and leaves the others as another tab may have set them.
export async function patchChat(id: string, patch: Partial<Chat>): Promise<Chat | undefined> {
  if (!db) {
    const old = chats.get(id);
    if (old) chats.set(id, { ...old, ...patch });
    return chats.get(id);
  }
  const t = db.transaction("chats", "readwrite");
  const store = t.objectStore("chats");
  const old: Chat | undefined = await wait(store.get(id));
  if (!old) return undefined;
  const now = { ...old, ...patch };
  store.put(now);
  await finished(t);
  return now;
}

export async function putMessages(list: Message[]): Promise<void> {
  if (!db) return list.forEach((m) => messages.set(m.id, m));
  const t = db.transaction("messages", "readwrite");
  for (const m of list) t.objectStore("messages").put(m);
  return finished(t);
}

export async function removeChat(id: string): Promise<void> {
  if (!db) {
    chats.delete(id);
    for (const m of [...messages.values()]) if (m.chat === id) messages.delete(m.id);
    return;
  }
  const t = db.transaction(["chats", "messages"], "readwrite");
  t.objectStore("chats").delete(id);
  const cursor = t.objectStore("messages").index("chat").openKeyCursor(id);
  cursor.onsuccess = () => {
    const c = cursor.result;
    if (!c) return;
    t.objectStore("messages").delete(c.primaryKey);
    c.continue();
  };
  return finished(t);
}

// Conversations in which a message holds the words; one pass over all messages.
export async function search(words: string): Promise<Set<string>> {
  const found = new Set<string>();
  const want = words.toLowerCase();
  const look = (m: Message) => {
    if (!found.has(m.chat) && m.text.toLowerCase().includes(want)) found.add(m.chat);
  };
  if (!db) {
    messages.forEach(look);
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
