// Names for records. randomUUID exists in secure contexts only, and the page may be served over plain HTTP in a home.
export function newId(): string {
  const b = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(b, (x) => x.toString(16).padStart(2, "0")).join("");
}

const KEY = "swiftlet.tab";

// The name that the tab's last page left here.
function inherited(): string | null {
  try {
    const id = sessionStorage.getItem(KEY);
    sessionStorage.removeItem(KEY);
    return id;
  } catch {
    return null;
  }
}

// This tab. A reload keeps it, so that an answer which this tab was receiving is known to have ended with the old page.
// It is stored only while no page is there to use it: a tab that is duplicated copies the storage, but not the name.
export const TAB = inherited() ?? newId();

addEventListener("pagehide", () => {
  try {
    sessionStorage.setItem(KEY, TAB);
  } catch {
    // Then the next page is another tab.
  }
});
addEventListener("pageshow", (e) => e.persisted && inherited());
