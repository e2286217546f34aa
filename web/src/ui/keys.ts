// Keys that work anywhere on the page.

import { current, shown, show } from "../state/chats";
import { busy, stop } from "../state/generate";
import { closeDrawer, drawer, editing, focusComposer, openDrawer, showPanel, wide } from "../state/view";

const inField = (e: KeyboardEvent): boolean => !!(e.target as Element | null)?.closest?.("input, textarea, select, [contenteditable]");

function search(): void {
  if (!wide.value && drawer.value !== "chats") openDrawer("chats");
  requestAnimationFrame(() => document.querySelector<HTMLInputElement>("#search")?.focus());
}

export async function newChat(): Promise<void> {
  await show(null);
  closeDrawer();
  focusComposer();
}

function escape(): void {
  if (drawer.value !== "none") closeDrawer();
  else if (editing.value) {
    editing.value = null;
    focusComposer();
  } else if (current.value && busy(current.value)) stop(current.value);
}

export function listenKeys(): void {
  addEventListener("keydown", (e) => {
    if (e.defaultPrevented || e.isComposing) return;
    const command = e.ctrlKey || e.metaKey;
    if (command && !e.shiftKey && !e.altKey && e.key.toLowerCase() === "k") search();
    else if (command && e.shiftKey && e.key.toLowerCase() === "o") void newChat();
    else if (e.key === "Escape") return escape();
    else if (e.key === "?" && !command && !inField(e)) showPanel("keys");
    else return;
    e.preventDefault();
  });
}

// The last message of the reader, to edit it.
export function editLast(): boolean {
  const conv = shown.value;
  const id = conv?.path.value.filter((x) => conv.all.get(x)?.role === "user").pop();
  if (!id || busy(conv!.id)) return false;
  editing.value = id;
  return true;
}
