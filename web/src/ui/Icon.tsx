import { icon, type IconName } from "./icon-paths";

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={icon[name]} />
    </svg>
  );
}

export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 64 64" aria-hidden="true">
      <path d="M4 22c12-1 20 4 26 12 7-12 16-19 30-20-8 5-14 12-18 20-4 8-9 14-17 17 2-4 2-7 1-11C20 31 13 25 4 22z" />
    </svg>
  );
}

interface ButtonProps {
  icon: IconName;
  label: string;
  onClick: (e: MouseEvent) => void;
  class?: string;
  pressed?: boolean;
  expanded?: boolean;
  disabled?: boolean;
}

export function IconButton({ icon: name, label, onClick, class: c, pressed, expanded, disabled }: ButtonProps) {
  return (
    <button type="button" class={`icon-button ${c ?? ""}`} aria-label={label} title={label} onClick={onClick}
      aria-pressed={pressed} aria-expanded={expanded} disabled={disabled}>
      <Icon name={name} />
    </button>
  );
}
