// Server-sent events: bytes in any cut to the text of each "data:" field.

export class SseParser {
  private rest = "";
  private data: string[] = [];

  constructor(private emit: (data: string) => void) {}

  push(text: string): void {
    this.rest += text;
    let from = 0;
    for (;;) {
      const end = this.rest.indexOf("\n", from);
      if (end < 0) break;
      this.line(this.rest.slice(from, this.rest[end - 1] === "\r" && end > from ? end - 1 : end));
      from = end + 1;
    }
    this.rest = this.rest.slice(from);
  }

  private line(line: string): void {
    if (!line) {
      if (this.data.length) this.emit(this.data.join("\n"));
      this.data = [];
    } else if (line.startsWith("data:")) {
      this.data.push(line.slice(line[5] === " " ? 6 : 5));
    }
  }
}
