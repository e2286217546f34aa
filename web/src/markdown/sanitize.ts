// The only way from a string to elements: DOMPurify, whose Trusted Types policy is the one that the page's security
// policy allows. The list of what may pass is short, because the renderer makes nothing else.

import DOMPurify from "dompurify";

const TAGS = ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong",
  "del", "a", "table", "thead", "tbody", "tr", "th", "td", "span"];
const ATTRIBUTES = ["href", "title", "class", "start", "align", "role", "aria-label"];

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer");
});

export function toFragment(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    ADD_URI_SAFE_ATTR: ["start", "align", "aria-label"], // no addresses, so not held against the line above
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    SANITIZE_NAMED_PROPS: true,
    RETURN_DOM_FRAGMENT: true,
  }) as unknown as DocumentFragment;
}
