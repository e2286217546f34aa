// What the reader chose for the page as a whole; small, so it is in localStorage.

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

export interface Prefs {
  theme: Theme;
  announce: boolean;
  openThinking: boolean;
  panel: boolean;
}

const KEY = "swiftlet.prefs";
const START: Prefs = { theme: "system", announce: true, openThinking: false, panel: false };

function read(): Prefs {
  try {
    const p = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Prefs>;
    return {
      theme: p.theme === "light" || p.theme === "dark" ? p.theme : "system",
      announce: p.announce !== false,
      openThinking: p.openThinking === true,
      panel: p.panel === true,
    };
  } catch {
    return START;
  }
}

export const prefs = signal<Prefs>(read());

export function setPref<K extends keyof Prefs>(name: K, value: Prefs[K]): void {
  prefs.value = { ...prefs.value, [name]: value };
  try {
    localStorage.setItem(KEY, JSON.stringify(prefs.value));
  } catch {
    // Then it lasts as long as the page.
  }
  if (name === "theme") showTheme();
}

const systemDark = matchMedia("(prefers-color-scheme: dark)");

function showTheme(): void {
  const { theme } = prefs.value;
  document.documentElement.dataset.theme = theme === "system" ? (systemDark.matches ? "dark" : "light") : theme;
  // What surrounds the page on a phone.
  const color = getComputedStyle(document.documentElement).getPropertyValue("--bg").trim();
  document.querySelector('meta[name="theme-color"]')?.setAttribute("content", color);
}

export function followTheme(): void {
  showTheme();
  systemDark.addEventListener("change", showTheme);
  addEventListener("storage", (e) => {
    if (e.key !== KEY) return;
    prefs.value = read();
    showTheme();
  });
}
