// Names for records. randomUUID exists in secure contexts only, and the page may be served over plain HTTP in a home.
export function newId(): string {
  const b = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(b, (x) => x.toString(16).padStart(2, "0")).join("");
}

// This tab. A reload keeps it, so that an answer which this tab was receiving is known to have ended with the old page.
function tabId(): string {
  try {
    const old = sessionStorage.getItem("swiftlet.tab");
    if (old) return old;
    const id = newId();
    sessionStorage.setItem("swiftlet.tab", id);
    return id;
  } catch {
    return newId();
  }
}

export const TAB = tabId();
