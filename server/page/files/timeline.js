// The last steps of a traced job: what each rank computes, and what it waits for.

import {byId, drawn, duration, percent, plainRow, renderRows, setText} from './parts.js';

const LEFT = 96, WIDTH = 800, ROW = 26, BAR = 9;
const TRACKS_MAX = 32;

// Draws the timeline; null: there is none.
export function showTimeline(timeline, job, age) {
  const tracks = (timeline?.tracks ?? []).slice(0, TRACKS_MAX);
  const any = tracks.length > 0 && timeline.length_us > 0;
  for (const part of ['timeline', 'timeline-key', 'timeline-table']) byId(part).hidden = !any;
  setText(byId('timeline-facts'), any ? factsOf(timeline, job, age) : job
    ? `Job ${job.job} was not traced. Record it: gradbus trace ${job.job} --seconds 5` : 'No job is chosen.');
  const ranks = tracks.filter((track) => track.rank !== null).map((track) => measured(track, timeline.length_us));
  byId('timeline').replaceChildren(...(any ? [picture(timeline, tracks, ranks, job)] : []));
  const time = (us) => `${duration(us / 1000)} (${percent(us / timeline.length_us)})`;
  renderRows(byId('timeline-ranks'), any ? ranks : [], (rank) => rank.rank, plainRow([
    ['', (rank) => `${rank.rank}`], ['', (rank) => rank.node], ['n', (rank) => time(timeline.length_us - rank.exposed)],
    ['n', (rank) => time(rank.communication)], ['n', (rank) => time(rank.exposed)],
    ['n', (rank) => time(rank.communication - rank.exposed)],
  ]));
}

function factsOf(timeline, job, age) {
  const what = timeline.steps > 0 ? `The last ${timeline.steps} steps` : 'The end of the trace';
  const more = timeline.tracks.length > TRACKS_MAX ? `; ${timeline.tracks.length - TRACKS_MAX} rows are not shown` : '';
  return `${what} of job ${job.job}, ${duration(timeline.length_us / 1000)}, recorded ${duration(age)} ago${more}.`;
}

// Times in which at least one of the spans of these kinds is open.
function union(spans, ...kinds) {
  const sorted = spans.filter(([kind]) => kinds.includes(kind)).sort((one, other) => one[1] - other[1]);
  const joined = [];
  for (const [, begin, end] of sorted) {
    const last = joined[joined.length - 1];
    if (last && begin <= last[1]) last[1] = Math.max(last[1], end);
    else joined.push([begin, end]);
  }
  return joined;
}

const total = (spans) => spans.reduce((sum, [begin, end]) => sum + end - begin, 0);

function measured(track) {
  const waits = union(track.spans, 'wait');
  const busy = union(track.spans, 'wait', 'in flight');
  return {rank: track.rank, node: track.node, waits, busy, exposed: total(waits), communication: total(busy)};
}

function picture(timeline, tracks, ranks, job) {
  const scale = WIDTH / timeline.length_us;
  const bars = (spans, y, name) => spans.map(([begin, end]) => drawn('rect', {
    class: name, x: (LEFT + begin * scale).toFixed(1), y, height: BAR, width: Math.max(0.4, (end - begin) * scale).toFixed(1)}));
  const parts = tracks.flatMap((track, i) => {
    const y = i * ROW + 4;
    const text = drawn('text', {class: 'left', x: 0, y: y + 13}, track.rank === null ? track.node : `rank ${track.rank}`);
    if (track.rank === null) return [text, ...bars(union(track.spans, 'send', 'receive'), y + 5, 'network')];
    const {waits, busy} = ranks.find((rank) => rank.rank === track.rank);
    return [text, ...bars(gaps(waits, timeline.length_us), y, 'compute'), ...bars(busy, y + BAR + 1, 'hidden'),
      ...bars(waits, y + BAR + 1, 'exposed')];
  });
  const bottom = tracks.length * ROW + 18;
  const least = ranks.length === 0 ? 0 : Math.min(...ranks.map((rank) => rank.exposed)) / timeline.length_us;
  const most = ranks.length === 0 ? 0 : Math.max(...ranks.map((rank) => rank.exposed)) / timeline.length_us;
  const label = `Timeline of job ${job.job}: ${ranks.length} ranks wait ${percent(least)} to ${percent(most)} of the time`;
  return drawn('svg', {viewBox: `0 0 ${LEFT + WIDTH} ${bottom + 4}`, role: 'img', 'aria-label': label}, ...parts,
    drawn('text', {class: 'small left', x: LEFT, y: bottom}, '0'),
    drawn('text', {class: 'small right', x: LEFT + WIDTH, y: bottom}, duration(timeline.length_us / 1000)));
}

function gaps(spans, length) {
  const found = [];
  let at = 0;
  for (const [begin, end] of spans) {
    if (begin > at) found.push([at, begin]);
    at = end;
  }
  if (at < length) found.push([at, length]);
  return found;
}
