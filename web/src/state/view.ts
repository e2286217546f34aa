// What is open, and where the focus goes.

import { signal } from "@preact/signals";
import { prefs, setPref } from "./prefs";

export const wide = signal(matchMedia("(min-width: 900px)").matches);
export const drawer = signal<"none" | "chats" | "panel">("none"); // below 900 px
export const panelTab = signal<"settings" | "numbers" | "keys">("settings");
export const editing = signal<string | null>(null); // the message that is being edited
export const searching = signal("");
export const touch = matchMedia("(pointer: coarse)").matches;

let opener: HTMLElement | null = null;

export function watchWidth(): void {
  matchMedia("(min-width: 900px)").addEventListener("change", (e) => {
    wide.value = e.matches;
    drawer.value = "none";
  });
}

export function openDrawer(which: "chats" | "panel"): void {
  opener = document.activeElement as HTMLElement | null;
  drawer.value = which;
}

// The focus goes back to what opened it.
export function closeDrawer(): void {
  if (drawer.value === "none") return;
  drawer.value = "none";
  opener?.focus();
  opener = null;
}

export const panelShown = (): boolean => (wide.value ? prefs.value.panel : drawer.value === "panel");

export function togglePanel(): void {
  if (wide.value) setPref("panel", !prefs.value.panel);
  else if (drawer.value === "panel") closeDrawer();
  else openDrawer("panel");
}

export function showPanel(tab: "settings" | "numbers" | "keys"): void {
  panelTab.value = tab;
  if (!panelShown()) togglePanel();
}

export function focusComposer(): void {
  requestAnimationFrame(() => document.querySelector<HTMLTextAreaElement>("#message")?.focus({ preventScroll: true }));
}
