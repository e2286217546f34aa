import { T } from "../strings";

const W = 240;
const H = 48;

// The last points as a line from 0 to the largest.
export function Curve({ name, value, points, top }: { name: string; value: string; points: number[]; top?: number }) {
  const high = top ?? Math.max(...points, 1e-9) * 1.1;
  const x = (i: number) => ((i / (points.length - 1)) * W).toFixed(1);
  const y = (v: number) => (H - 2 - (Math.min(v, high) / high) * (H - 6)).toFixed(1);
  const line = points.map((v, i) => `${i ? "L" : "M"}${x(i)} ${y(v)}`).join("");
  return (
    <section class="figure">
      <h2>{name}</h2>
      <p class="value">{value}</p>
      <svg class="curve" viewBox={`0 0 ${W} ${H}`} preserveAspectRatio="none" role="img" aria-label={T.curve(name, value)}>
        <path class="area" d={`${line}L${W} ${H}L0 ${H}Z`} />
        <path class="line" d={line} />
      </svg>
    </section>
  );
}
