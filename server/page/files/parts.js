// Small parts that the page is built of. Texts from the cluster only become text nodes.

const SVG = 'http://www.w3.org/2000/svg';

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  return fill(made, attributes, children);
}

export function drawn(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

// Writes only what differs, so a screen reader and a selection are not disturbed.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

// Keeps a row for each key and so the focus in it. `make(item)` returns {row, update(item)}.
export function renderRows(body, items, keyOf, make) {
  const known = body.known ?? (body.known = new Map());
  const wanted = new Set(items.map(keyOf));
  for (const [key, kept] of known) {
    if (wanted.has(key)) continue;
    kept.row.remove();
    known.delete(key);
  }
  let before = null;
  for (const item of items) {
    const key = keyOf(item);
    if (!known.has(key)) known.set(key, make(item));
    const {row, update} = known.get(key);
    update(item);
    const place = before === null ? body.firstChild : before.nextSibling;
    if (place !== row) body.insertBefore(row, place);
    before = row;
  }
}

// A row of plain cells; `columns`: [class, text of the item] each. The first cell is its heading.
export function plainRow(columns) {
  return () => {
    const cells = columns.map(([name], i) =>
      element(i === 0 ? 'th' : 'td', i === 0 ? {scope: 'row', class: name} : {class: name}));
    return {
      row: element('tr', {}, ...cells),
      update(item) {
        columns.forEach(([, text], i) => setText(cells[i], text(item)));
      },
    };
  };
}

// A bar of a share from 0 to 1, with its figure as text.
export function meter() {
  const bar = drawn('rect', {class: 'bar', height: 10, rx: 3});
  const figure = element('span');
  const root = element('span', {class: 'meter'},
    drawn('svg', {viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true'},
      drawn('rect', {class: 'track', width: 100, height: 10, rx: 3}), bar), figure);
  return {
    root,
    update(share, text, attention = false) {
      bar.setAttribute('width', Math.max(0, Math.min(1, share)) * 100);
      bar.setAttribute('class', attention ? 'bar slow' : 'bar');
      setText(figure, text);
    },
  };
}

// "1 node", "2 nodes".
export function counted(amount, noun) {
  return `${amount} ${noun}${amount === 1 ? '' : 's'}`;
}

export function number(value) {
  if (value === null || value === undefined) return '-';
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toPrecision(3);
}

export function bytes(value) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB'];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    ++unit;
  }
  return `${unit === 0 ? Math.round(value) : number(value)} ${units[unit]}`;
}

// "0 %" is nothing at all.
export const percent = (share) => share > 0 && share < 0.005 ? '<1 %' : `${Math.round(share * 100)} %`;

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600) % 24} h`;
}
