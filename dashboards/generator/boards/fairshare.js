import { board, row } from '../board.js';
import { FROM, TO, chosen, sql } from '../query.js';
import { lines, steps, table } from '../panels.js';

const NONE =
  "No fair share is recorded: neither Slurm's associations nor [fairshare] in takt.toml are read.";
const RANGE = `noted_at >= ${FROM} AND noted_at < ${TO}`;
const LATEST =
  'noted_at = (SELECT max(noted_at) FROM fairshare AS last WHERE last.cluster = fairshare.cluster)';
const USERS = `"user" IS NOT NULL AND ${chosen('cluster', 'account', 'user')}`;
const ACCOUNTS = `"user" IS NULL AND ${chosen('cluster', 'account')}`;
/** Names of the ten largest by raw usage. */
const TEN = (name, of) =>
  `name IN (SELECT ${name} FROM fairshare WHERE ${RANGE} AND ${of} GROUP BY 1 ORDER BY
    max(raw_usage) DESC LIMIT 10)`;
const overTime = (value, name, of) =>
  sql(
    `SELECT * FROM (SELECT date_trunc('hour', noted_at) AS time, ${name} AS metric, ${name} AS name,
      avg(${value}) AS value
    FROM fairshare WHERE ${RANGE} AND ${of} AND ${value} IS NOT NULL AND isfinite(${value}) GROUP BY
      ALL) WHERE ${TEN(name, of)} ORDER BY time, metric`.replace(
      'SELECT * FROM',
      'SELECT time, metric, value FROM',
    ),
    'time_series',
  );

export default board({
  uid: 'fairshare',
  title: 'fair share',
  about: 'Who stands where in the fair share, since when, and why.',
  variables: ['cluster', 'sqlAccount', 'sqlUser'],
  from: 'now-30d',
  refresh: '5m',
  panels: [
    row('Now'),
    table({
      title: 'Users',
      unit: 'none',
      none: NONE,
      width: 14,
      height: 11,
      about: `Each user's place now, lowest last. The factor goes from 0 (used far more than the
        share)
          to 1. It rises by itself as old usage fades.`,
      targets: [
        sql(
          `SELECT cluster, account, "user", fair_share, norm_shares, effective_usage, raw_usage /
            3600 AS raw_hours FROM fairshare WHERE ${LATEST} AND ${USERS} ORDER BY fair_share DESC
            NULLS LAST`,
        ),
      ],
      columns: {
        fair_share: {
          bar: true,
          min: 0,
          max: 1,
          decimals: 3,
          name: 'fair share',
          thresholds: steps('red', [0.25, 'orange'], [0.5, 'green']),
        },
        norm_shares: { unit: 'percentunit', decimals: 1, name: 'share' },
        effective_usage: { unit: 'percentunit', decimals: 1, name: 'used' },
        raw_hours: { unit: 'suffix:h', decimals: 0, name: 'faded usage' },
      },
    }),
    table({
      title: 'Accounts',
      unit: 'none',
      none: NONE,
      width: 10,
      height: 11,
      about: `Each account's share, and the share of the faded usage it had. Used above share: its
        jobs
          wait for others.`,
      targets: [
        sql(
          `SELECT cluster, account, norm_shares, effective_usage, CASE WHEN isfinite(level_fs) THEN
            level_fs END AS level_fs FROM fairshare WHERE ${LATEST} AND ${ACCOUNTS} ORDER BY
            effective_usage DESC NULLS LAST`,
        ),
      ],
      columns: {
        norm_shares: { unit: 'percentunit', decimals: 1, name: 'share' },
        effective_usage: { unit: 'percentunit', decimals: 1, name: 'used' },
        level_fs: {
          decimals: 2,
          name: 'share / used',
          thresholds: steps('red', [0.5, 'orange'], [1, 'green']),
        },
      },
    }),
    row('Over time'),
    lines({
      title: 'Fair-share factor of users',
      unit: 'none',
      none: NONE,
      min: 0,
      max: 1,
      decimals: 3,
      about: `The factor of the ten users with the largest usage, hour by hour. It falls while they
          compute and rises while they pause.`,
      targets: [overTime('fair_share', '"user"', USERS)],
    }),
    lines({
      title: 'Share of usage by user',
      unit: 'percentunit',
      none: NONE,
      min: 0,
      about: `Share of the faded usage that each of the ten largest users has. Compare with the
        share
          they were given.`,
      targets: [overTime('effective_usage', '"user"', USERS)],
    }),
    lines({
      title: 'Share of usage by account',
      unit: 'percentunit',
      none: NONE,
      min: 0,
      about: 'Share of the faded usage that each account has.',
      targets: [overTime('effective_usage', 'account', ACCOUNTS)],
    }),
    lines({
      title: 'Shares given to accounts',
      unit: 'percentunit',
      none: NONE,
      min: 0,
      about: `Share that each account was given among its siblings. A step is a change of the
          configuration.`,
      targets: [overTime('norm_shares', 'account', ACCOUNTS)],
    }),
  ],
});
