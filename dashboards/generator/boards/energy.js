import { board, row } from '../board.js';
import { ASSESSED, ENDED, NODE, dated, instant, range, series, sql } from '../query.js';
import { GPU_KEY, idle } from '../gpus.js';
import { NO_ASSESSMENT } from '../usage.js';
import { GPU_HOURS, fromLabels } from '../look.js';
import { bars, columns, lines, stat, steps, table } from '../panels.js';

const links = fromLabels();
const NO_GPU = 'No NVIDIA GPU here counts its energy.';
const NO_CPU =
  'No CPU here reports its energy (RAPL), or the exporter may not read it (docs/privileges.md).';
const KWH = `sum(increase(${series('takt_gpu_energy_joules_total', NODE)}[$__range])) / 3.6e6`;
// A CPU of several dies has a metric for each.
const RAPL = `{__name__=~"node_rapl_package(_.+)?_joules_total", ${NODE}}`;
const CPU = (window) => `sum(rate(${RAPL}[${window}]))`;
const HELD = series('takt_gpu_job_info', NODE);
const POWER = series('takt_gpu_power_watts', NODE);
const energy = 'sum(gpu_energy_joules) / 3.6e6';
const price = `coalesce(try_cast('$price' AS DOUBLE), 0)`;

export default board({
  uid: 'energy',
  title: 'energy and cost',
  about: 'What GPUs and CPUs draw, who caused it, and what it costs.',
  variables: ['cluster', 'partition', 'account', 'sqlUser', 'node', 'kwhPrice', 'kwhCo2'],
  from: 'now-7d',
  refresh: '5m',
  panels: [
    row('In this time'),
    stat({
      title: 'Energy of GPUs',
      unit: 'kwatth',
      none: NO_GPU,
      width: 5,
      decimals: 1,
      thresholds: steps('text'),
      about: 'Energy that all chosen GPUs drew in the time range, by their own counters.',
      targets: [instant(KWH, 'GPUs')],
    }),
    stat({
      title: 'Cost',
      unit: 'none',
      none: NO_GPU,
      width: 5,
      decimals: 2,
      thresholds: steps('text'),
      about: `Energy of the GPUs times the price of a kWh in the rate card that is in force ([rates] in
        takt.toml); 0 without one. Cooling and CPUs are not in it.`,
      targets: [instant(`${KWH} * $price`, 'cost')],
    }),
    stat({
      title: 'CO2',
      unit: 'massg',
      none: NO_GPU,
      width: 5,
      decimals: 1,
      thresholds: steps('text'),
      about:
        'Energy of the GPUs times the grams of CO2 in a kWh of the rate card that is in force.',
      targets: [instant(`${KWH} * $co2`, 'CO2')],
    }),
    stat({
      title: 'Drawn by idle GPUs',
      unit: 'watt',
      none: NO_GPU,
      width: 5,
      decimals: 0,
      thresholds: steps('text'),
      about: `Power that GPUs draw now though no kernel ran for half an hour. A card that never
        sleeps
          may lack persistence mode.`,
      targets: [instant(`sum((${POWER}) and on (${GPU_KEY}) ${idle(NODE)}) or vector(0)`, 'idle')],
    }),
    stat({
      title: 'CPUs now',
      unit: 'watt',
      none: NO_CPU,
      width: 4,
      decimals: 0,
      thresholds: steps('text'),
      about: `Power of all CPU packages now, by their own counters. Memory, fans and disks are not
        in
          it.`,
      targets: [instant(CPU('5m'), 'CPUs')],
    }),
    row('Power'),
    lines({
      title: 'Power of GPUs and CPUs',
      unit: 'watt',
      none: NO_GPU,
      stack: true,
      min: 0,
      about: `Mean power by the energy counters, all chosen nodes together. Plan cooling and supply
        for
          its peaks.`,
      targets: [
        range(
          `sum(rate(${series('takt_gpu_energy_joules_total', NODE)}[$__rate_interval]))`,
          'GPUs',
        ),
        range(CPU('$__rate_interval'), 'CPUs'),
      ],
    }),
    lines({
      title: 'Power of GPUs held and free',
      unit: 'watt',
      none: NO_GPU,
      stack: true,
      min: 0,
      about: `Power of GPUs that a job holds, and of the others. Much power in free GPUs: somebody
        works
          beside the scheduler, or cards do not sleep.`,
      targets: [
        range(`sum((${POWER}) and on (cluster, node, uuid) ${HELD}) or vector(0)`, 'held'),
        range(`sum((${POWER}) unless on (cluster, node, uuid) ${HELD}) or vector(0)`, 'free'),
      ],
    }),
    bars({
      title: 'Energy by node',
      unit: 'kwatth',
      none: NO_GPU,
      width: 12,
      min: 0,
      decimals: 1,
      about: 'The fifteen nodes whose GPUs drew most in the time range. Click one for the node.',
      targets: [
        instant(
          `topk(15, sum by (cluster, node)
            (increase(${series('takt_gpu_energy_joules_total', NODE)}[$__range])) / 3.6e6)`,
          '{{node}}',
        ),
      ],
      links: [links.node],
    }),
    bars({
      title: 'Share of the power limit',
      unit: 'percentunit',
      none: NO_GPU,
      width: 12,
      min: 0,
      max: 1,
      about: `The fifteen GPUs closest to their power limit now. At the limit they slow down a
        little:
          normal under load.`,
      targets: [
        instant(
          `topk(15, ${POWER} / ${series('takt_gpu_power_limit_watts', NODE)})`,
          '{{node}} {{uuid}}',
        ),
      ],
      links: [links.gpu, links.node],
    }),
    row('Who caused it'),
    lines({
      title: 'Energy of finished jobs, by day',
      unit: 'kwatth',
      none: NO_ASSESSMENT,
      bars: true,
      min: 0,
      about: 'Energy that the GPUs of jobs drew, counted on the day a job ended.',
      targets: [
        sql(
          `SELECT day_start AS time, ${energy} AS "energy" FROM ${dated(ASSESSED, 'end_time')} WHERE
            ${ENDED} GROUP BY 1 ORDER BY 1`,
          'time_series',
        ),
      ],
    }),
    columns({
      title: 'Energy by user',
      unit: 'kwatth',
      none: NO_ASSESSMENT,
      decimals: 1,
      about: 'The fifteen users whose finished jobs drew most.',
      targets: [
        sql(
          `SELECT "user", ${energy} AS "energy" FROM ${ASSESSED} WHERE ${ENDED} GROUP BY "user"
            ORDER BY 2 DESC NULLS LAST LIMIT 15`,
        ),
      ],
    }),
    table({
      title: 'Energy and cost by account',
      unit: 'none',
      none: NO_ASSESSMENT,
      height: 8,
      about: `Energy of finished jobs by account, its cost at the price above (that of the rate card in force), and energy for each
          GPU-hour. A low figure for busy cards means that they waited.`,
      targets: [
        sql(`SELECT cluster, account, count(*) AS jobs, sum(held_gpu_seconds) / 3600 AS gpu_hours,
          ${energy} AS energy, ${energy} * ${price} AS cost,
        sum(gpu_energy_joules) / nullif(sum(held_gpu_seconds) FILTER (gpu_energy_joules IS NOT
          NULL), 0) AS mean_power
        FROM ${ASSESSED} WHERE ${ENDED} GROUP BY ALL ORDER BY energy DESC NULLS LAST`),
      ],
      columns: {
        gpu_hours: { unit: GPU_HOURS, decimals: 1 },
        energy: { unit: 'kwatth', decimals: 1 },
        cost: { decimals: 2 },
        mean_power: { unit: 'watt', decimals: 0, name: 'mean power of a GPU' },
      },
    }),
  ],
});
