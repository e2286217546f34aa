// Writes a built page as C: every file's bytes, and a compressed copy where that is smaller. See server/page.h.
// usage: node embed.js DIST OUT.c
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { extname, join } from "node:path";
import { gzipSync } from "node:zlib";

const TYPES = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml", ".png": "image/png", ".webmanifest": "application/manifest+json",
};
const HASHED = /-[A-Za-z0-9_-]{8}\.(js|css)$/;
const LINE = 100; // bytes on a line; a long line costs the compiler more than many short ones

// A string of octal escapes: three digits each, so that no digit after one is taken with it.
function literal(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += LINE) {
    let s = "";
    for (const b of bytes.subarray(at, at + LINE))
      s += b >= 32 && b < 127 && b !== 34 && b !== 92 && b !== 63 ? String.fromCharCode(b) : `\\${b.toString(8).padStart(3, "0")}`;
    lines.push(`    "${s}"`);
  }
  return lines.join("\n");
}

const [dist, out] = process.argv.slice(2);
const names = ["index.html", ...readdirSync(join(dist, "assets")).sort().map((f) => `assets/${f}`)];
const text = [];
const rows = [];
let sent = 0;
for (const [i, name] of names.entries()) {
  const bytes = readFileSync(join(dist, name));
  const gzip = gzipSync(bytes, { level: 9 });
  const smaller = gzip.length < 0.95 * bytes.length;
  const type = TYPES[extname(name)];
  if (!type) throw new Error(`${name}: no content type is known for it`);
  text.push(`static const char file_${i}[] =\n${literal(bytes)};`);
  if (smaller) text.push(`static const char gzip_${i}[] =\n${literal(gzip)};`);
  rows.push(`    {"/${name === "index.html" ? "" : name}", "${type}", "${HASHED.test(name) ? "public, max-age=31536000, immutable" : "no-cache"}", ` +
    `file_${i}, ${bytes.length}, ${smaller ? `gzip_${i}, ${gzip.length}` : "NULL, 0"}},`);
  if (/\.(html|js|css)$/.test(name)) sent += smaller ? gzip.length : bytes.length;
}
writeFileSync(out, `/* Made from web/ by web/embed.js. */\n#include "page.h"\n\n${text.join("\n")}\n\n` +
  `const swl_page_file swl_page_files[] = {\n${rows.join("\n")}\n};\nconst size_t swl_page_n_files = ${rows.length};\n`);
console.log(`chat page: ${names.length} files, ${Math.round(sent / 1000)} kB compressed`);
if (sent > 150000) throw new Error("the page is larger than 150 kB compressed");
