// Asks the coordinator for its state once a second and shows it.

import {showAlerts} from './alerts.js';
import {chart, clusterMap} from './draw.js';
import {byId, bytes, duration, element, meter, number, percent, plainRow, renderRows, setClass, setText} from './parts.js';
import {showTimeline} from './timeline.js';

const EVERY_MS = 1000, HIDDEN_EVERY_MS = 10000, PATIENCE_MS = 5000, SAMPLES_MAX = 300;

let key = takeKey();
let paused = false;
let chosen = null;      // id of the job whose ranks are shown
let samples = null;     // null: the history is not loaded yet
let state = null;
let timeline = null;    // of a job: {id, version, data}
let answeredAt = 0;
let timer = 0;
let asking = false;

// The key comes behind # and so never travels in an address; then it is only kept for this tab.
function takeKey() {
  const given = location.hash.match(/^#([0-9a-f]{32})$/);
  if (!given) return sessionStorage.getItem('gradbus-key') ?? '';
  sessionStorage.setItem('gradbus-key', given[1]);
  history.replaceState(null, '', location.pathname);
  return given[1];
}

async function ask(path) {
  const answer = await fetch(path, {
    headers: key ? {Authorization: `Bearer ${key}`} : {},
    cache: 'no-store',
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (answer.status === 401) throw Object.assign(new Error('key'), {refused: true});
  if (!answer.ok) throw new Error(`the coordinator answers ${answer.status}`);
  return answer.json();
}

async function turn() {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  try {
    if (samples === null) samples = (await ask('history.json')).samples;
    state = await ask('state.json');
    take(state.sample);
    answeredAt = Date.now();
    byId('sign-in').hidden = true;
    byId('main').hidden = false;
    document.body.classList.remove('stale');
    render();
    showAlerts(state.prometheus);
    await renewTimeline();
  } catch (problem) {
    if (problem.refused) return signIn();
    fail(problem);
  } finally {
    asking = false;
  }
  if (!paused) timer = setTimeout(turn, document.hidden ? HIDDEN_EVERY_MS : EVERY_MS);
}

// A gap, or a coordinator that was started again: the whole history is asked for again.
function take(sample) {
  if (sample === null) return;
  const last = samples.length === 0 ? 0 : samples[samples.length - 1].number;
  if (sample.number === last) return;
  if (last !== 0 && sample.number !== last + 1) {
    samples = null;
    return;
  }
  samples.push(sample);
  if (samples.length > SAMPLES_MAX) samples.shift();
}

function signIn() {
  byId('main').hidden = true;
  byId('sign-in').hidden = false;
  health('locked', 'warn');
  setText(byId('sign-in-why'), key ? 'The coordinator does not accept this key.' : 'The coordinator asks for a key.');
  byId('key').focus();
}

function fail(problem) {
  document.body.classList.add('stale');
  health('no answer', 'bad');
  const since = answeredAt === 0 ? '' : `, for ${duration(Date.now() - answeredAt)}`;
  setText(byId('facts'), `The coordinator does not answer${since}: ${problem.message}`);
}

function health(text, name) {
  setText(byId('health'), text);
  setClass(byId('health'), `pill ${name}`);
}

// ---- parts of the page

function render() {
  const {cluster} = state;
  const wrong = cluster.problems.length;
  health(wrong === 0 ? 'healthy' : wrong === 1 ? '1 problem' : `${wrong} problems`, wrong === 0 ? 'good' : 'bad');
  setText(byId('facts'), `${cluster.coordinator}, version ${cluster.version}, up ${duration(cluster.uptime_ms)}`);
  renderProblems(cluster);
  byId('map').replaceChildren(...clusterMap(cluster, state.sample));
  const jobs = cluster.jobs.map((job, i) => ({...job, id: state.job_ids[i]}))
    .sort((one, other) => one.age_ms - other.age_ms);
  chooseJob(jobs);
  renderJobs(jobs);
  renderJob(jobs.find((job) => job.id === chosen));
  renderNodes(cluster);
  renderEvents();
}

function renderProblems(cluster) {
  const drained = cluster.drained_nodes.map((node) => `${node.node} takes no new jobs: ${node.reason}`);
  const lines = [...cluster.problems, ...drained];
  const list = byId('problems');
  setClass(list, lines.length === 0 ? 'none' : '');
  const shown = lines.length === 0 ? ['None.'] : lines;
  renderRows(list, shown.map((text, i) => ({text, i})), (item) => item.i, () => {
    const row = element('li');
    return {row, update: (item) => setText(row, item.text)};
  });
}

function chooseJob(jobs) {
  if (jobs.some((job) => job.id === chosen)) return;
  chosen = (jobs.find((job) => job.outcome === '') ?? jobs[0])?.id ?? null;
}

const stateOf = (job) => job.outcome !== '' ? job.outcome : job.stall !== '' ? 'stalled' : job.state;
const toneOf = (word) => ({failed: 'bad', stalled: 'bad', lost: 'bad', slow: 'warn', drained: 'warn'})[word] ?? '';

function ratesOf(job) {
  const most = (of) => job.ranks.reduce((sum, rank) => Math.max(sum, of(rank)), 0);
  const sum = (of) => job.ranks.reduce((total, rank) => total + of(rank), 0);
  return {
    step: most((rank) => rank.step),
    operations: most((rank) => rank.operations_per_s),
    bytes: sum((rank) => rank.bytes_per_s),
    waiting: job.ranks.length === 0 ? 0 : sum((rank) => rank.waiting) / job.ranks.length,
  };
}

function renderJobs(jobs) {
  byId('no-jobs').hidden = jobs.length > 0;
  renderRows(byId('jobs'), jobs, (job) => job.id, (made) => {
    const button = element('button', {type: 'button'});
    button.addEventListener('click', () => {
      chosen = made.id;
      render();
    });
    const cells = ['', '', 'n', 'n', 'n', 'n', 'n', 'n'].map((name) => element('td', {class: name}));
    return {
      row: element('tr', {}, element('th', {scope: 'row'}, button), ...cells),
      update(job) {
        const rates = ratesOf(job), lives = job.outcome === '';
        setText(button, job.job);
        button.title = job.job;
        button.setAttribute('aria-pressed', job.id === chosen);
        const texts = [stateOf(job), job.user || `uid ${job.uid}`, `${job.world_size}`, duration(job.age_ms),
          lives ? `${rates.step}` : '-', lives ? `${number(rates.operations)}/s` : '-',
          lives ? `${bytes(rates.bytes)}/s` : '-', lives ? percent(rates.waiting) : '-'];
        texts.forEach((text, i) => setText(cells[i], text));
        setClass(cells[0], toneOf(texts[0]));
      },
    };
  });
}

const charts = [
  ['ratio', chart('Compression ratio', (value) => number(value))],
  ['cosine', chart('Fidelity (cosine)', (value) => value.toFixed(4))],
  ['operations_per_s', chart('Operations', (value) => `${number(value)}/s`)],
  ['bytes_per_s', chart('Data of all ranks', (value) => `${bytes(value)}/s`)],
  ['waiting', chart('Time spent waiting', percent)],
  ['late_s', chart('Lateness of the latest rank', (value) => duration(value * 1000))],
];
byId('charts').append(...charts.map(([, made]) => made.root));

function renderJob(job) {
  setText(byId('job-title'), job ? `Ranks and charts of job ${job.job}` : 'Ranks and charts');
  for (const [name, made] of charts) made.update(job ? (samples ?? []).map((of) => of.jobs[job.id]?.[name]) : []);
  setText(byId('job-facts'), job ? factsOf(job) : 'No job is chosen.');
  const ranks = job ? [...job.ranks].sort((one, other) => one.waiting - other.waiting || one.rank - other.rank) : [];
  byId('ranks-order').hidden = byId('ranks-table').hidden = ranks.length === 0;
  renderRows(byId('ranks'), ranks, (rank) => rank.rank, () => {
    const cells = ['', '', 'n', 'n', 'n'].map((name) => element('td', {class: name}));
    const head = element('th', {scope: 'row'});
    const bar = meter();
    return {
      row: element('tr', {}, head, ...cells, element('td', {}, bar.root)),
      update(rank) {
        const word = rank.slow ? 'slow' : rank.state;
        setText(head, `${rank.rank}`);
        const texts = [rank.agent, word, `${rank.step}`, `${bytes(rank.bytes_per_s)}/s`, duration(rank.late_ns / 1e6)];
        texts.forEach((text, i) => setText(cells[i], text));
        setClass(cells[1], toneOf(word));
        bar.update(rank.waiting, percent(rank.waiting), rank.slow);
      },
    };
  });
}

function factsOf(job) {
  const facts = [`${stateOf(job)}, ${job.world_size} ranks`];
  if (job.transport) facts.push(`transport ${job.transport}`);
  if (job.compressed_bytes > 0)
    facts.push(`compressed ${bytes(job.uncompressed_bytes)} to ${bytes(job.compressed_bytes)}`);
  if (job.stall) facts.push(job.stall);
  if (job.error) facts.push(job.error);
  if (state.ranks_left_out > 0) facts.push(`${state.ranks_left_out} ranks of large jobs are not shown`);
  return facts.join('; ');
}

// Asks for the timeline of the chosen job when there is another one.
async function renewTimeline() {
  const known = state.timelines[chosen];
  if (known === undefined) timeline = null;
  else if (timeline?.id !== chosen || timeline.version !== known.version)
    timeline = {id: chosen, version: known.version, data: await ask(`timeline/${chosen}.json`)};
  renderTimeline();
}

function renderTimeline() {
  const job = state.cluster.jobs.find((_, i) => state.job_ids[i] === chosen);
  const fits = timeline !== null && timeline.id === chosen;
  showTimeline(fits ? timeline.data : null, job, state.timelines[chosen]?.age_ms ?? 0);
}

function renderNodes(cluster) {
  const lost = cluster.lost_nodes.map((node) => ({...node, lost: true, jobs: []}));
  renderRows(byId('nodes'), [...cluster.agents, ...lost], (node) => node.name, () => {
    const cells = ['', '', 'n', 'n', 'n', 'n'].map((name) => element('td', {class: name}));
    const head = element('th', {scope: 'row'});
    const jobs = element('td', {class: 'text'});
    const bar = meter();
    return {
      row: element('tr', {}, head, ...cells, element('td', {}, bar.root), jobs),
      update(node) {
        const [sends, receives] = state.sample?.nodes?.[node.name] ?? [0, 0];
        const role = node.lost ? 'lost' : node.drained ? 'drained' : node.shard ? 'shard' : 'agent';
        setText(head, node.name);
        const texts = [role, node.address ?? '-', node.lost ? '-' : `${node.cores}`,
          duration(node.lost ? node.lost_ms : node.silent_ms), `${bytes(sends)}/s`, `${bytes(receives)}/s`];
        texts.forEach((text, i) => setText(cells[i], text));
        setClass(cells[0], toneOf(role));
        const use = node.bits_per_s > 0 ? 8 * Math.max(sends, receives) / node.bits_per_s : 0;
        bar.root.hidden = !(node.bits_per_s > 0);
        bar.root.title = `${bytes(Math.max(sends, receives))}/s of ${bytes(node.bits_per_s / 8)}/s`;
        bar.update(use, percent(use), use > 0.9);
        setText(jobs, node.jobs.join(', ') || '-');
      },
    };
  });
}

function renderEvents() {
  const wanted = byId('filter').value.toLowerCase();
  const about = (event) => event.job || event.node || '-';
  const shown = [...state.events].reverse().filter((event) =>
    `${event.kind} ${about(event)} ${event.text}`.toLowerCase().includes(wanted));
  const time = (event) => new Date(state.time_ms - event.age_ms).toLocaleTimeString();
  renderRows(byId('events'), shown, (event) => event.number, plainRow([
    ['', time], ['', (event) => event.kind], ['', about],
    ['text', (event) => (event.times > 1 ? `(${event.times} times) ` : '') + event.text],
  ]));
}

// ---- what a person does

byId('pause').addEventListener('click', () => {
  paused = !paused;
  byId('pause').setAttribute('aria-pressed', paused);
  if (!paused) turn();
});
byId('filter').addEventListener('input', () => {
  if (state !== null) renderEvents();
});
byId('sign-in').addEventListener('submit', (event) => {
  event.preventDefault();
  key = byId('key').value.trim();
  sessionStorage.setItem('gradbus-key', key);
  turn();
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !paused) turn();
});
turn();
