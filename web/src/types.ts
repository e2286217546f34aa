// What is stored and passed around. A conversation is a tree of messages: an edit or another answer is a sibling, and
// `leaf` names the branch that is shown.

export type Role = "user" | "assistant";
export type Status = "streaming" | "done" | "stopped" | "interrupted" | "error";
export type Thinking = "auto" | "off" | "on" | "low" | "medium" | "high";

export interface TextFile {
  name: string;
  size: number;
  text: string;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cached: number;
  reasoning: number;
}

export interface Timings {
  prompt_n: number;
  prompt_ms: number;
  predicted_n: number;
  predicted_ms: number;
  hits: number;
  misses: number;
  bytes: number;
}

export type FaultKind = "down" | "key" | "full" | "busy" | "loading" | "refused" | "server";

export interface Fault {
  kind: FaultKind;
  text: string;
}

export interface ToolCall {
  id: string;
  name: string;
  args: string;
}

export interface Message {
  id: string;
  chat: string;
  parent: string | null;
  role: Role;
  text: string;
  created: number;
  status: Status;
  reasoning?: string;
  thinkMs?: number;
  thinkTokens?: number;
  finish?: string;
  model?: string;
  usage?: Usage;
  timings?: Timings;
  files?: TextFile[];
  calls?: ToolCall[];
  fault?: Fault;
  owner?: string; // the tab that writes this answer, and when it last said so
  beat?: number;
}

export interface Options {
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  seed?: number;
  max_tokens?: number;
  system?: string;
  thinking?: Thinking;
  model?: string;
}

export interface Chat {
  id: string;
  title: string;
  named: boolean; // by the user, so that it is not taken from the first words
  pinned: boolean;
  created: number;
  updated: number;
  leaf: string | null;
  options: Options;
  deleted?: number;
}

export interface Model {
  id: string;
  size: number;
  context: number;
  params: number;
}

export interface Props {
  context: number;
  sampling: Record<string, number>;
  memory: { budget: number; used: number; pool: number } | null;
  build: string;
  thinking: { switch: boolean; effort: boolean }; // what of it the model's template lets a request change
}
