// Makes `to` (in the page) equal to `from` (fresh) while keeping every node that already agrees: text that only grew is
// appended to its node, so that a selection stays where it is and nothing that did not change is painted again.

function sameKind(a: Node, b: Node): boolean {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName;
}

function morphText(to: Text, from: Text): void {
  if (to.data === from.data) return;
  if (from.data.startsWith(to.data)) to.appendData(from.data.slice(to.data.length));
  else to.data = from.data;
}

function morphAttributes(to: Element, from: Element): void {
  for (const { name } of [...to.attributes]) if (!from.hasAttribute(name)) to.removeAttribute(name);
  for (const { name, value } of from.attributes) if (to.getAttribute(name) !== value) to.setAttribute(name, value);
}

export function morph(to: Node, from: Node): void {
  let old = to.firstChild;
  let fresh = from.firstChild;
  while (fresh) {
    const nextFresh: ChildNode | null = fresh.nextSibling;
    if (!old) {
      to.appendChild(fresh);
    } else if (sameKind(old, fresh)) {
      const nextOld: ChildNode | null = old.nextSibling;
      if (old instanceof Text) morphText(old, fresh as Text);
      else if (old instanceof Element) {
        // A code block's own state (wrapped or not) is the reader's.
        if (!old.matches("figure, figcaption, figcaption *")) morphAttributes(old, fresh as Element);
        if (!old.matches("figcaption")) morph(old, fresh);
      }
      old = nextOld;
    } else {
      const nextOld: ChildNode | null = old.nextSibling;
      to.replaceChild(fresh, old);
      old = nextOld;
    }
    fresh = nextFresh;
  }
  while (old) {
    const next: ChildNode | null = old.nextSibling;
    to.removeChild(old);
    old = next;
  }
}
