// Alerts of the Prometheus that watches the cluster. The browser asks it; the coordinator only knows where it is.

import {byId, duration, plainRow, renderRows, setText} from './parts.js';

const EVERY_MS = 5000, PATIENCE_MS = 4000;

let askedAt = 0;
let asking = false;

export async function showAlerts(prometheus) {
  if (prometheus === '') {
    setText(byId('alerts-facts'), 'The coordinator knows no Prometheus: set --prometheus-url.');
    return;
  }
  if (asking || Date.now() - askedAt < EVERY_MS) return;
  asking = true;
  askedAt = Date.now();
  try {
    const answer = await fetch(`${prometheus}/api/v1/alerts`,
      {cache: 'no-store', credentials: 'omit', signal: AbortSignal.timeout(PATIENCE_MS)});
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show((await answer.json()).data.alerts.filter((alert) => alert.labels.alertname.startsWith('Gradbus')));
  } catch (problem) {
    setText(byId('alerts-facts'), `Prometheus at ${prometheus} does not answer this browser: ${problem.message}`);
  } finally {
    asking = false;
  }
}

function show(alerts) {
  const firing = alerts.filter((alert) => alert.state === 'firing').length;
  setText(byId('alerts-facts'), alerts.length === 0 ? 'None.'
    : `${firing} firing, ${alerts.length - firing} pending. The runbook has a section for each.`);
  byId('alerts-table').hidden = alerts.length === 0;
  const keyOf = (alert) => JSON.stringify(alert.labels);
  const sorted = [...alerts].sort((one, other) =>
    one.state.localeCompare(other.state) || one.activeAt.localeCompare(other.activeAt));
  renderRows(byId('alerts'), sorted, keyOf, plainRow([
    ['', (alert) => alert.labels.alertname], ['', (alert) => alert.state], ['', (alert) => alert.labels.severity ?? '-'],
    ['', (alert) => duration(Date.now() - Date.parse(alert.activeAt))],
    ['text', (alert) => alert.annotations.summary ?? ''],
  ]));
}
