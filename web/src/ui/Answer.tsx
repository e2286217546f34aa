import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { AnswerView } from "../markdown/view";
import { lastCost } from "../state/generate";

// Text of a message as Markdown. Preact owns the box, AnswerView all that is in it. A long text is drawn over several
// frames; until all of it is there the box is busy.
export function Answer({ text, done, small }: { text: string; done: boolean; small?: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const view = useRef<AnswerView | null>(null);
  useEffect(() => () => view.current?.stop(), []);
  useLayoutEffect(() => box.current!.setAttribute("aria-busy", "true"), [text, done]);
  useEffect(() => {
    view.current ??= new AnswerView(box.current!, () => box.current?.removeAttribute("aria-busy"));
    const begin = performance.now();
    view.current.set(text, done);
    lastCost.ms = performance.now() - begin;
  }, [text, done]);
  return <div class={`prose ${small ? "small" : ""}`} dir="auto" ref={box} />;
}
