// Builds the page into one folder: index.html, and assets/ with names that carry a hash of their content.
import { readFileSync } from "node:fs";
import { transformWithEsbuild } from "vite";

// The theme is set before the first paint by a small script that blocks; the policy allows no inline script.
function firstPaint() {
  const source = new URL("src/first-paint.js", import.meta.url);
  let file = "";
  return {
    name: "first-paint",
    enforce: "post",
    apply: "build",
    async buildStart() {
      const { code } = await transformWithEsbuild(readFileSync(source, "utf8"), "first-paint.js", { minify: true });
      file = this.emitFile({ type: "asset", name: "first-paint.js", source: code });
    },
    generateBundle(_options, bundle) {
      const page = bundle["index.html"];
      page.source = String(page.source).replace("<!--first-paint-->",
        `<script src="/${this.getFileName(file)}"></script>`);
    },
  };
}

export default {
  plugins: [firstPaint()],
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    target: "es2021",
    assetsInlineLimit: 0,
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
  },
  // For work on the page: npm run dev beside a server on its usual port.
  server: { proxy: Object.fromEntries(["/v1", "/props", "/slots", "/tokenize", "/health"].map(
    (path) => [path, { target: process.env.SWIFTLET_URL ?? "http://127.0.0.1:8080", changeOrigin: true }])) },
};
