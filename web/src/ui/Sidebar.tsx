import { useEffect, useRef, useState } from "preact/hooks";
import type { Chat } from "../types";
import * as db from "../lib/db";
import { daysAgo } from "../lib/format";
import { remoteHost } from "../lib/api";
import { current, exportJson, exportMarkdown, importJson, patch, ready, remove, rename, show, visible } from "../state/chats";
import { activities } from "../state/generate";
import { closeDrawer, focusComposer, searching, wide } from "../state/view";
import { T } from "../strings";
import { Icon, IconButton, Mark } from "./Icon";
import { newChat } from "./keys";

function groupOf(c: Chat): string {
  if (c.pinned) return T.pinned;
  const days = daysAgo(c.updated);
  return days <= 0 ? T.today : days === 1 ? T.yesterday : days <= 7 ? T.week : T.older;
}

// Chats whose title or messages hold the words; messages are looked through a moment after the last key.
function useFound(words: string): Set<string> | null {
  const [found, setFound] = useState<Set<string> | null>(null);
  useEffect(() => {
    setFound(null);
    if (!words) return;
    const timer = setTimeout(() => void db.search(words).then(setFound), 200);
    return () => clearTimeout(timer);
  }, [words]);
  return found;
}

function RenameField({ c, done }: { c: Chat; done: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.select(), []);
  const save = () => {
    if (field.current) void rename(c.id, field.current.value);
    done();
  };
  return (
    <input class="field rename" ref={field} value={c.title} aria-label={T.titleLabel} maxLength={200} onBlur={save}
      onKeyDown={(e) => {
        if (e.key === "Enter") save();
        if (e.key === "Escape") {
          e.preventDefault();
          done();
        }
      }} />
  );
}

function ItemActions({ c, rename: startRename, close }: { c: Chat; rename: () => void; close: () => void }) {
  return (
    <div class="chat-actions">
      <IconButton icon="pin" label={c.pinned ? T.unpin : T.pin} pressed={c.pinned} onClick={() => {
        void patch(c.id, () => ({ pinned: !c.pinned }));
        close();
      }} />
      <IconButton icon="edit" label={T.rename} onClick={startRename} />
      <IconButton icon="file" label={T.exportMarkdown} onClick={() => void exportMarkdown(c)} />
      <IconButton icon="download" label={T.exportChat} onClick={() => void exportJson([c], c.title)} />
      <IconButton icon="trash" label={T.remove} onClick={() => void remove(c)} />
    </div>
  );
}

function Item({ c }: { c: Chat }) {
  const [open, setOpen] = useState(false);
  const [renaming, setRenaming] = useState(false);
  const here = current.value === c.id;
  if (renaming) return <li class="chat"><RenameField c={c} done={() => setRenaming(false)} /></li>;
  return (
    <li class={`chat ${here ? "here" : ""} ${open ? "opened" : ""}`}>
      <div class="chat-row">
        <button type="button" class="chat-title" dir="auto" title={c.title} aria-current={here ? "page" : undefined} onClick={() => {
          void show(c.id);
          closeDrawer();
          if (wide.value) focusComposer();
        }}>
          {c.id in activities.value && <span class="pulse" aria-hidden="true" />}
          <span class="cut">{c.title}</span>
        </button>
        <IconButton icon="dots" class="chat-more" label={T.more(c.title)} expanded={open} onClick={() => setOpen(!open)} />
      </div>
      {open && <ItemActions c={c} rename={() => {
        setOpen(false);
        setRenaming(true);
      }} close={() => setOpen(false)} />}
    </li>
  );
}

function List() {
  const words = searching.value.trim();
  const found = useFound(words);
  const list = visible.value.filter((c) => !words || c.title.toLowerCase().includes(words.toLowerCase()) || found?.has(c.id));
  if (!list.length) return ready.value ? <p class="hint pad">{words ? T.noneFound(words) : T.noChats}</p> : null;
  const groups: [string, Chat[]][] = [];
  for (const c of list) {
    const g = groupOf(c);
    const last = groups[groups.length - 1];
    if (last?.[0] === g) last[1].push(c);
    else groups.push([g, [c]]);
  }
  return (
    <div class="chats">
      {groups.map(([name, members]) => (
        <section key={name} aria-label={name}>
          <h2 class="group">{name}</h2>
          <ul>{members.map((c) => <Item key={c.id} c={c} />)}</ul>
        </section>
      ))}
    </div>
  );
}

function Foot() {
  const file = useRef<HTMLInputElement>(null);
  void ready.value; // until then nothing is known of the storage
  return (
    <div class="foot">
      <div class="foot-row">
        <button type="button" class="quiet" onClick={() => file.current?.click()}><Icon name="upload" />{T.importChats}</button>
        <button type="button" class="quiet" disabled={!visible.value.length} onClick={() => void exportJson(visible.value, "swiftlet-chats")}>
          <Icon name="download" />{T.exportAll}
        </button>
        <input ref={file} type="file" accept=".json,application/json" hidden aria-label={T.importChats} id="import" onChange={(e) => {
          const f = e.currentTarget.files?.[0];
          e.currentTarget.value = "";
          if (f) void f.text().then(importJson);
        }} />
      </div>
      <p class="stays" title={T.staysWhy}><Icon name="lock" />{db.lasting ? T.stays(remoteHost) : T.notKept}</p>
    </div>
  );
}

export function Sidebar() {
  return (
    <>
      <div class="side-head">
        <span class="brand"><Mark />{T.app}</span>
        {!wide.value && <IconButton icon="close" label={T.close} onClick={closeDrawer} />}
      </div>
      <div class="side-tools">
        <button type="button" class="new-chat" onClick={() => void newChat()}><Icon name="plus" />{T.newChat}</button>
        <label class="search">
          <Icon name="search" />
          <input id="search" type="search" aria-label={T.searchChats} placeholder={T.searchChats} value={searching.value}
            onInput={(e) => (searching.value = e.currentTarget.value)}
            onKeyDown={(e) => {
              if (e.key !== "Escape" || !searching.value) return;
              e.preventDefault();
              searching.value = "";
            }} />
        </label>
      </div>
      <List />
      <Foot />
    </>
  );
}
