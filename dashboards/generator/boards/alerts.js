import { board, row } from '../board.js';
import {
  CLUSTER,
  FROM,
  RANK,
  TO,
  dated,
  instant,
  range,
  ranked,
  rows,
  series,
  sql,
} from '../query.js';
import { ALERT_STATE, SENT, SEVERITIES, SEVERITY, fromLabels } from '../look.js';
import { badFrom, bars, joined, lines, spans, stat, steps, table, worseFrom } from '../panels.js';

const links = fromLabels();
const NO_ALERT = 'No alert fires.';
const NO_RECORD =
  'Nothing happened in this time, or alerts are evaluated elsewhere (see the alert series above).';
const NO_TAKT = 'No Takt server writes its own series here.';
const HERE = `${CLUSTER}, node=~"$node|"`;
// Watchdog fires all the time: it shows that messages arrive.
const FIRES = 'alertstate="firing", alertname!="Watchdog"';
const firing = (more) => series('ALERTS', HERE, `${FIRES}${more ? `, ${more}` : ''}`);
const RANGE = `happened_at >= ${FROM} AND happened_at < ${TO} AND coalesce(labels ->> '$.cluster',
  '') ~ '\${cluster:regex}|' AND coalesce(node, '') ~ '\${node:regex}|'`;
/** Alerts with the midnight before each. An alert of no cluster has the day of the first one. */
const DATED = dated(
  `(SELECT *, coalesce(labels ->> '$.cluster', (SELECT min(cluster) FROM time_offsets)) AS cluster
    FROM alert_transitions) AS alerts`,
  'happened_at',
);
const severity = (name, thresholds) =>
  stat({
    title: `Firing: ${name}`,
    unit: 'none',
    none: NO_ALERT,
    width: 4,
    thresholds,
    about: `Alerts of severity ${name} that fire. critical calls the operator, warning is read the same
      day, info goes into the digest.`,
    targets: [instant(`count(${firing(`severity="${name}"`)}) or vector(0)`, name)],
  });

/** Alerts that fire now, for other boards too. */
export const firingTable = table({
  title: 'Firing now',
  unit: 'none',
  none: NO_ALERT,
  height: 9,
  sort: 'severity',
  about:
    'Alerts that fire. docs/rules.md says for each why it exists and what to do. Click a node.',
  targets: [
    rows(
      ranked('cluster, node, alertname, scope, uuid, device, mountpoint, user, jobid', HERE, FIRES),
    ),
  ],
  transformations: joined(
    ['severity'],
    ['severity', 'alertname', 'node', 'user', 'jobid', 'device', 'mountpoint', 'uuid', 'scope'],
  ),
  columns: { severity: { mappings: SEVERITY } },
});

export default board({
  uid: 'alerts',
  title: 'alerts',
  about: 'What fires, what happened, who was notified.',
  variables: ['cluster', 'nodePartition', 'node'],
  from: 'now-24h',
  panels: [
    row('Now'),
    severity('critical', badFrom(1)),
    severity('warning', steps('green', [1, 'orange'])),
    severity('info', steps('text')),
    stat({
      title: 'Pending',
      unit: 'none',
      none: NO_ALERT,
      width: 4,
      thresholds: steps('text'),
      about: 'Alerts whose condition holds, but not yet for long enough to fire.',
      targets: [
        instant(
          `count(${series('ALERTS', CLUSTER, 'alertstate="pending"')}) or vector(0)`,
          'pending',
        ),
      ],
    }),
    stat({
      title: 'Messages that wait',
      unit: 'none',
      none: NO_TAKT,
      width: 4,
      thresholds: worseFrom(1, 10),
      about: 'Messages that are not delivered yet. Worry when it stays: the channel may be down.',
      targets: [
        instant(`sum(${series('takt_notifications_queued', CLUSTER)}) or vector(0)`, 'messages'),
      ],
    }),
    stat({
      title: 'Oldest message',
      unit: 's',
      none: NO_TAKT,
      width: 4,
      thresholds: worseFrom(60, 600),
      decimals: 0,
      about: 'Age of the oldest message that waits.',
      targets: [
        instant(`max(${series('takt_notifications_oldest_seconds', CLUSTER)}) or vector(0)`, 'age'),
      ],
    }),
    firingTable,
    row('Over time'),
    lines({
      title: 'Firing alerts',
      unit: 'none',
      none: NO_ALERT,
      stack: true,
      min: 0,
      about: `Number of alerts that fire, by severity. A sudden tower is one cause that hits many
          nodes.`,
      colors: SEVERITIES,
      targets: [range(`count by (severity) (${firing()})`, '{{severity}}')],
    }),
    bars({
      title: 'Alerts that fired longest',
      unit: 's',
      none: NO_ALERT,
      width: 12,
      min: 0,
      about: `Time that each alert fired in the time range, all nodes together. A name that always
        leads
          wants to be mended, or its limit changed.`,
      targets: [
        instant(
          `topk(15, sum by (alertname) (count_over_time(${firing()}[$__range:$__interval])) * $__interval_ms / 1000)`,
          '{{alertname}}',
        ),
      ],
    }),
    spans({
      title: 'When which alert fired',
      unit: 'none',
      none: NO_ALERT,
      height: 12,
      mappings: SEVERITY,
      about:
        'The forty alerts and nodes that fired longest. Spans that begin together share a cause.',
      targets: [
        range(
          `${ranked('cluster, node, alertname', HERE, FIRES)} and on (cluster, node, alertname)
            topk(40, count_over_time(max by (cluster, node, alertname)
            (${firing()})[$__range:$__interval] @ end()))`,
          '{{alertname}} {{node}}',
        ),
      ],
      links: [links.node],
    }),
    row('History'),
    table({
      title: 'What happened',
      unit: 'none',
      none: NO_RECORD,
      height: 12,
      about: `Each step of each alert, newest first, with the reason for it. "unknown" means that
        the
          exporter behind it is down.`,
      targets: [
        sql(`SELECT happened_at, ${RANK} AS severity, alertname, labels ->> '$.cluster' AS cluster, node,
          state_before, state_after, value, reason, labels
        FROM alert_transitions WHERE ${RANGE} ORDER BY happened_at DESC LIMIT 500`),
      ],
      columns: {
        severity: { mappings: SEVERITY },
        state_before: { mappings: ALERT_STATE },
        state_after: { mappings: ALERT_STATE },
      },
    }),
    lines({
      title: 'Alerts that began, by day',
      unit: 'none',
      none: NO_RECORD,
      bars: true,
      stack: true,
      min: 0,
      colors: SEVERITIES,
      about: 'Alerts that began to fire, by day and severity.',
      targets: [
        sql(
          `SELECT day_start AS time, coalesce(severity, 'none') AS metric, count(*) AS value FROM
            ${DATED}
        WHERE ${RANGE} AND state_after = 'firing' AND state_before <> 'firing' GROUP BY ALL ORDER BY
          time, metric`,
          'time_series',
        ),
      ],
    }),
    table({
      title: 'Noisiest alerts',
      unit: 'none',
      none: NO_RECORD,
      width: 12,
      about: `How often each alert began to fire in the time range, and on how many nodes. Many
        times on
          one node is flapping.`,
      targets: [
        sql(`SELECT alertname, ${RANK} AS severity, count(*) AS times, count(DISTINCT node) AS nodes,
          max(happened_at) AS last FROM alert_transitions
        WHERE ${RANGE} AND state_after = 'firing' AND state_before <> 'firing' GROUP BY ALL ORDER BY
          times DESC LIMIT 50`),
      ],
      columns: { severity: { mappings: SEVERITY }, nodes: { link: false } },
    }),
    row('Messages'),
    table({
      title: 'Messages',
      unit: 'none',
      none: 'No message was sent in this time.',
      height: 9,
      about: 'Messages to channels, newest first. "gave up" needs a look: the error says why.',
      targets: [
        sql(`SELECT created_at, channel, reason, status, alerts, state, attempts, error,
          epoch(updated_at - created_at) AS took
        FROM notifications WHERE created_at >= ${FROM} AND created_at < ${TO} ORDER BY created_at
          DESC LIMIT 300`),
      ],
      columns: {
        state: { mappings: SENT },
        status: { mappings: ALERT_STATE },
        took: { unit: 's' },
      },
    }),
    lines({
      title: 'Attempts to deliver',
      unit: 'cps',
      none: NO_TAKT,
      min: 0,
      about: `Attempts a second by channel and outcome. Anything but "sent" that lasts is a channel
        out
          of order.`,
      targets: [
        range(
          `sum by (channel, outcome)
            (rate(${series('takt_notifications_attempts_total', CLUSTER)}[$__rate_interval]))`,
          '{{channel}}: {{outcome}}',
        ),
      ],
    }),
    table({
      title: 'Silences',
      unit: 'none',
      none: 'Nothing is silenced.',
      width: 12,
      about: 'Silences that hold now or held in the time range, with who set them and why.',
      targets: [
        sql(
          `SELECT starts_at, ends_at, created_by, comment, matchers FROM silences WHERE starts_at <
            ${TO} AND ends_at > ${FROM} ORDER BY ends_at DESC LIMIT 100`,
        ),
      ],
    }),
  ],
});
