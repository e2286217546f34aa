// The list of messages. It follows its end only while the reader is there. Long conversations are drawn from the end,
// a few messages at a time, so that the page answers meanwhile.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { remoteHost } from "../lib/api";
import { codeClick } from "../markdown/code";
import { shown, type Conversation } from "../state/chats";
import { activities } from "../state/generate";
import { showToast } from "../state/say";
import { T } from "../strings";
import { Icon, Mark } from "./Icon";
import { Message, type MessageProps } from "./Message";

const FIRST = 12; // messages drawn at once
const STEP = 4; // and then at a time
const GROUP = 20; // messages that are drawn again together
const NEAR = 48; // px from the end that still count as the end

function One(p: MessageProps) {
  return useMemo(() => <Message {...p} />, [p.conv, p.cell, p.n, p.last]);
}

interface GroupProps {
  conv: Conversation;
  ids: string[];
  from: number; // index of the first that is drawn
  questions: number; // before these
  answers: number;
  end: string; // the conversation's last message
}

// Some messages that follow one another. A change of the list draws only the groups again that it touches, and in them the
// messages that it touches. (preact/compat has a memo, but with it "change" events would mean "input".)
function Group({ conv, ids, from, questions, answers, end }: GroupProps) {
  const list = () => ids.map((id, i) => {
    const cell = conv.cells.get(id)!;
    const n = cell.peek().role === "user" ? ++questions : ++answers;
    return i < from ? null : <li key={id}><One conv={conv} cell={cell} n={n} last={id === end} /></li>;
  });
  return useMemo(() => <>{list()}</>, [conv, ids.join(" "), Math.max(0, from), questions, answers, ids.includes(end)]);
}

// The index from which messages are drawn; goes down to 0 in steps.
function useFrom(conv: Conversation | null, n: number): number {
  const [state, setState] = useState({ conv, from: Math.max(0, n - FIRST) });
  const from = state.conv === conv ? state.from : Math.max(0, n - FIRST);
  if (state.conv !== conv) setState({ conv, from });
  useEffect(() => {
    if (!from) return;
    const timer = setTimeout(() => setState({ conv, from: Math.max(0, from - STEP) }), 16);
    return () => clearTimeout(timer);
  }, [conv, from]);
  return from;
}

function Empty() {
  return (
    <div class="empty">
      <Mark />
      <p class="empty-title">{T.emptyTitle}</p>
      <p class="hint">{T.emptyText(remoteHost)}</p>
    </div>
  );
}

// Keeps the end in view; says whether the reader is there.
function useFollow(conv: Conversation | null) {
  const box = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLOListElement>(null);
  const follow = useRef(true);
  const top = useRef(0);
  const [atEnd, setAtEnd] = useState(true);
  const toEnd = () => {
    const b = box.current;
    if (!b) return;
    b.scrollTop = b.scrollHeight;
    top.current = b.scrollTop;
  };
  const set = (on: boolean) => {
    follow.current = on;
    setAtEnd(on);
  };
  const scrolled = () => {
    const b = box.current!;
    const near = b.scrollHeight - b.scrollTop - b.clientHeight <= NEAR;
    // Text that grew below is not the reader's doing; only going up leaves the end.
    if (near) set(true);
    else if (b.scrollTop < top.current - 1) set(false);
    top.current = b.scrollTop;
  };
  useLayoutEffect(() => {
    set(true);
    toEnd();
  }, [conv]);
  useEffect(() => {
    const seen = new ResizeObserver(() => follow.current && toEnd());
    if (box.current) seen.observe(box.current);
    if (list.current) seen.observe(list.current);
    return () => seen.disconnect();
  }, [conv, !!list.current]);
  return { box, list, atEnd, scrolled, jump: () => (set(true), toEnd()) };
}

export function Messages() {
  const conv = shown.value;
  const path = conv?.path.value ?? [];
  const from = useFrom(conv, path.length);
  const { box, list, atEnd, scrolled, jump } = useFollow(conv);
  const running = conv ? activities.value[conv.id]?.message : undefined;
  useLayoutEffect(() => {
    if (running) jump(); // what was just sent is looked at
  }, [running]);
  const groups: GroupProps[] = [];
  for (let at = 0, questions = 0; at < path.length; at += GROUP) {
    const ids = path.slice(at, at + GROUP);
    groups.push({ conv: conv!, ids, from: from - at, questions, answers: at - questions, end: path[path.length - 1] });
    questions += ids.filter((id) => conv!.cells.get(id)!.peek().role === "user").length;
  }
  return (
    <div class="view">
      <div class="scroll" ref={box} onScroll={scrolled} tabIndex={-1}
      onClick={(e) => codeClick(e, (text) => showToast({ text }, 2500))}>
      <ol class={`messages ${path.length ? "" : "none"} ${running ? "busy" : ""}`} ref={list} aria-label={T.messages}>
        {groups.map((g, i) => <Group key={i} {...g} />)}
      </ol>
      {!path.length && <Empty />}
    </div>
    {!atEnd && <button type="button" class="jump" onClick={jump}><Icon name="end" />{T.jumpToEnd}</button>}
    </div>
  );
}
