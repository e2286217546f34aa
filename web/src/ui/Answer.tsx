import { useEffect, useRef } from "preact/hooks";
import { AnswerView } from "../markdown/view";
import { lastCost } from "../state/generate";

// Text of a message as Markdown. Preact owns the box, AnswerView all that is in it.
export function Answer({ text, done, small }: { text: string; done: boolean; small?: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const view = useRef<AnswerView | null>(null);
  useEffect(() => () => view.current?.stop(), []);
  useEffect(() => {
    view.current ??= new AnswerView(box.current!);
    const begin = performance.now();
    view.current.set(text, done);
    lastCost.ms = performance.now() - begin;
  }, [text, done]);
  return <div class={`prose ${small ? "small" : ""}`} dir="auto" ref={box} />;
}
