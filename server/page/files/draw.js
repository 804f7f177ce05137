// The map of the cluster, and charts of figures over time.

import {counted, drawn, element, number, setText} from './parts.js';

const WIDTH = 300, HEIGHT = 70;
const NODES_MAX = 48;  // more are not readable; the table has all
const PATHS_MAX = 300;

// A chart with a title and the newest value. Gaps in the values are gaps in the line.
export function chart(title, format) {
  const curve = drawn('path', {class: 'curve'});
  const svg = drawn('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img'}, curve);
  const newest = element('b');
  const bounds = element('small');
  const root = element('figure', {},
    element('figcaption', {}, element('span', {}, title), newest), svg, bounds);
  root.hidden = true;  // until there is a value
  return {
    root,
    update(values) {
      const known = values.filter((value) => value !== null && value !== undefined);
      root.hidden = known.length === 0;
      if (root.hidden) return;
      const least = Math.min(...known), most = Math.max(...known);
      curve.setAttribute('d', line(values, least, most));
      const last = format(known[known.length - 1]);
      setText(newest, last);
      const range = `${format(least)} to ${format(most)}`;
      setText(bounds, range);
      svg.setAttribute('aria-label', `${title}: now ${last}, ${range} in the time shown`);
    },
  };
}

function line(values, least, most) {
  const step = WIDTH / Math.max(1, values.length - 1);
  const height = (value) =>
    most === least ? HEIGHT / 2 : HEIGHT - 4 - (HEIGHT - 8) * (value - least) / (most - least);
  let path = '', pen = 'M';
  values.forEach((value, i) => {
    if (value === null || value === undefined) {
      pen = 'M';
      return;
    }
    path += `${pen}${(i * step).toFixed(1)} ${height(value).toFixed(1)}`;
    if (pen === 'M' && (values[i + 1] === null || values[i + 1] === undefined)) path += 'h2';
    pen = 'L';
  });
  return path;
}

// Agents in a circle, shards inside it, lost nodes at the end.
export function clusterMap(cluster, sample) {
  const lost = cluster.lost_nodes.map((node) => ({...node, lost: true, jobs: []}));
  const all = [...cluster.agents, ...lost];
  const shown = all.slice(0, NODES_MAX);
  const places = placesOf(shown);
  const rate = (name) => (sample?.nodes?.[name]?.[0] ?? 0);
  const busiest = Math.max(1, ...shown.map((node) => rate(node.name)));
  const lines = cluster.paths.filter((path) => places.has(path.agent) && places.has(path.peer)).slice(0, PATHS_MAX)
    .map((path) => pathLine(path, places, Math.min(rate(path.agent), rate(path.peer)) / busiest));
  const busy = shown.filter((node) => rate(node.name) > 0).length;
  const shards = cluster.agents.filter((node) => node.shard).length;
  const label = `Map of ${counted(cluster.agents.length - shards, 'agent')} and ${counted(shards, 'shard')}: ` +
    `${busy} send now, ${lost.length} are lost`;
  const svg = drawn('svg', {viewBox: '0 0 520 340', role: 'img', 'aria-label': label}, ...lines,
    ...shown.map((node) => nodeMark(node, places.get(node.name), rate(node.name))));
  if (all.length <= NODES_MAX) return [svg];
  return [svg, element('p', {class: 'quiet'}, `${counted(all.length - NODES_MAX, 'more node')} in the table.`)];
}

function placesOf(nodes) {
  const places = new Map();
  const ring = nodes.filter((node) => !node.shard);
  const inner = nodes.filter((node) => node.shard);
  const put = (group, x, y, alone) => group.forEach((node, i) => {
    const angle = 2 * Math.PI * i / group.length - Math.PI / 2;
    places.set(node.name, group.length === 1 ? [260, alone]
      : [260 + x * Math.cos(angle), 170 + y * Math.sin(angle)]);
  });
  put(ring, 205, 130, 230);
  put(inner, ring.length > 8 ? 110 : 75, ring.length > 8 ? 65 : 40, ring.length > 1 ? 190 : 110);
  return places;
}

function pathLine(path, places, use) {
  const [x1, y1] = places.get(path.agent), [x2, y2] = places.get(path.peer);
  const mbit = path.beta_ns > 0 ? `, ${number(8000 / path.beta_ns)} Mbit/s` : '';
  return drawn('line', {class: 'path', x1, y1, x2, y2, 'stroke-width': (1 + 6 * use).toFixed(1)},
    drawn('title', {}, `${path.agent} to ${path.peer}: ${number(path.alpha_us)} us${mbit}`));
}

function nodeMark(node, [x, y], rate) {
  const state = node.lost ? 'lost' : node.drained ? 'drained' : rate > 0 ? 'busy' : '';
  const what = node.lost ? 'lost' : node.drained ? 'drained' : node.shard ? 'shard'
    : node.jobs.length === 1 ? '1 job' : `${node.jobs.length} jobs`;
  const shape = node.shard
    ? drawn('rect', {class: `node ${state}`, x: x - 40, y: y - 17, width: 80, height: 34})
    : drawn('rect', {class: `node ${state}`, x: x - 40, y: y - 17, width: 80, height: 34, rx: 17});
  const name = node.name.length > 12 ? `${node.name.slice(0, 11)}~` : node.name;
  return drawn('g', {}, drawn('title', {}, `${node.name}, ${what}`), shape,
    drawn('text', {x, y: y - 1}, name), drawn('text', {class: 'small', x, y: y + 11}, what));
}
