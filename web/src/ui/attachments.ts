// Files that wait in the composer.

import { signal } from "@preact/signals";
import type { TextFile } from "../types";
import { readText } from "../lib/files";
import { T } from "../strings";
import { showToast } from "../state/say";
import { focusComposer } from "../state/view";

export const attached = signal<TextFile[]>([]);

export async function addFiles(files: File[]): Promise<void> {
  const refused: string[] = [];
  for (const f of files) {
    try {
      attached.value = [...attached.value, await readText(f)];
    } catch (e) {
      refused.push((e as Error).message);
    }
  }
  if (refused.length) showToast({ text: refused.join(" ") }, 10000);
  focusComposer();
}

export function addPaste(text: string): void {
  const n = attached.value.filter((f) => f.name.startsWith("pasted-text-")).length + 1;
  attached.value = [...attached.value, { name: T.pasted(n), size: new Blob([text]).size, text }];
}

export function removeFile(f: TextFile): void {
  attached.value = attached.value.filter((x) => x !== f);
  focusComposer();
}
