import { board, row } from '../board.js';
import {
  CLUSTER,
  FROM,
  NODE,
  TO,
  instant,
  limitDefault,
  range,
  rows,
  series,
  sql,
} from '../query.js';
import { UP, fromLabels, words } from '../look.js';
import { badFrom, bars, joined, lines, stat, steps, table, worseFrom } from '../panels.js';

const links = fromLabels();
const NO_TAKT = 'No Takt server writes its own series here (a plain Prometheus has none).';
const NO_EXPORTER = 'No takt-exporter is scraped.';
const rate = (metric, more) => `rate(${series(metric, CLUSTER, more)}[$__rate_interval])`;

export default board({
  uid: 'self',
  title: 'Takt itself',
  about: 'Does monitoring work: exporters, scraping, the store, alerting, Slurm.',
  variables: ['cluster', 'node'],
  panels: [
    row('Now'),
    stat({
      title: 'Targets that answer',
      unit: 'percentunit',
      none: NO_EXPORTER,
      width: 4,
      decimals: 1,
      thresholds: steps('red', [1 - limitDefault('exporters_down_ratio'), 'orange'], [1, 'green']),
      about: `Share of the scraped targets that answered the last time. The table below names the
          others.`,
      targets: [instant(`avg(${series('up', NODE)})`, 'up')],
    }),
    stat({
      title: 'Behind',
      unit: 's',
      none: NO_TAKT,
      width: 4,
      decimals: 0,
      limit: 'collector_lag_seconds',
      about: `Age of the newest instant up to which every scrape is on disk. Above the limit the
        disk is
          too slow, or full.`,
      targets: [
        instant(
          `time() - max(${series('takt_store_watermark_timestamp_seconds', CLUSTER)})`,
          'lag',
        ),
      ],
    }),
    stat({
      title: 'Disk of the data',
      unit: 'percentunit',
      none: NO_TAKT,
      width: 4,
      decimals: 0,
      limit: ['database_disk_low_ratio', (ratio) => 1 - ratio, (expr) => `1 - ${expr}`],
      about: `How full the disk with Takt's data is. Above the limit shorten the retention or make
        room:
          below a floor Takt stops storing.`,
      targets: [
        instant(
          `1 - min(${series('takt_store_disk_free_bytes', CLUSTER)} /
            ${series('takt_store_disk_size_bytes', CLUSTER)})`,
          'used',
        ),
      ],
    }),
    stat({
      title: 'Series',
      unit: 'short',
      none: NO_TAKT,
      width: 4,
      thresholds: steps('text'),
      about: 'Series that were ever stored. A sudden rise is a label that changes all the time.',
      targets: [instant(`sum(${series('takt_store_series', CLUSTER)})`, 'series')],
    }),
    stat({
      title: 'Configuration',
      unit: 'none',
      none: NO_TAKT,
      width: 4,
      mappings: words({ 0: ['last reload failed', 'red'], 1: ['loaded', 'green'] }),
      thresholds: steps('text'),
      about: `Whether the configuration could be read the last time. If not, the previous one is in
          force; the log says why.`,
      targets: [
        instant(`min(${series('takt_server_config_reload_successful', CLUSTER)})`, 'configuration'),
      ],
    }),
    stat({
      title: 'Damaged files',
      unit: 'none',
      none: NO_TAKT,
      width: 4,
      thresholds: badFrom(1),
      about: `Files that were found damaged and set aside since the server started. docs/storage.md
        says
          what to do.`,
      targets: [instant(`sum(${series('takt_store_damaged_files', CLUSTER)})`, 'files')],
    }),
    row('Exporters'),
    table({
      title: 'Targets',
      unit: 'none',
      none: NO_EXPORTER,
      sort: 'took',
      height: 10,
      about: `Scraped targets: whether they answer, how long a scrape takes and how many samples it
          brings. "port closed": the machine runs, the exporter does not.`,
      targets: [
        rows(`max by (cluster, node, instance) (${series('up', NODE)})`),
        rows(`max by (cluster, node, instance) (${series('scrape_duration_seconds', NODE)})`),
        rows(`max by (cluster, node, instance) (${series('scrape_samples_scraped', NODE)})`),
        rows(`max by (cluster, node, instance) (${series('takt_scrape_refused', NODE)})`),
      ],
      transformations: joined(['answers', 'took', 'samples', 'port closed'], ['node', 'instance']),
      columns: {
        answers: { mappings: UP },
        took: { unit: 's', thresholds: worseFrom(1, 5) },
        'port closed': { mappings: words({ 0: ['no', 'green'], 1: ['yes', 'red'] }) },
      },
    }),
    lines({
      title: 'Time of a scrape',
      unit: 's',
      none: NO_EXPORTER,
      min: 0,
      thresholds: worseFrom(1, 5),
      about: `Slowest, 95 % and middle scrape. A slow exporter waits for a device: the next panel
        names
          the collector.`,
      targets: [
        range(`max(${series('scrape_duration_seconds', NODE)})`, 'slowest'),
        range(`quantile(0.95, ${series('scrape_duration_seconds', NODE)})`, '95 % are below'),
        range(`quantile(0.5, ${series('scrape_duration_seconds', NODE)})`, 'middle'),
      ],
    }),
    bars({
      title: 'Slowest collectors',
      unit: 's',
      none: NO_EXPORTER,
      width: 12,
      min: 0,
      decimals: 3,
      about: `The fifteen slowest collectors of all chosen nodes, longest reading. One that grows
        hangs
          in a driver or a mount.`,
      targets: [
        instant(
          `topk(15, max by (collector)
            (${series('node_scrape_collector_duration_seconds', NODE)}))`,
          '{{collector}}',
        ),
      ],
    }),
    table({
      title: 'Failing collectors',
      unit: 'none',
      none: 'Every collector works, or finds no hardware.',
      width: 12,
      about: `Collectors that could not read what they should. The exporter's log names the file or
        call;
          docs/privileges.md what each needs.`,
      targets: [
        rows(
          `max by (cluster, node, collector) (${series('node_scrape_collector_success', NODE)} == 0)
            unless on (cluster, node, collector) (${series('takt_exporter_collector_absent', NODE)}
            == 1)`,
        ),
      ],
      transformations: joined([''], ['node', 'collector']),
    }),
    table({
      title: 'Versions of the exporter',
      unit: 'none',
      none: NO_EXPORTER,
      width: 12,
      about: 'How many nodes run which takt-exporter.',
      targets: [rows(`count by (cluster, version) (${series('takt_exporter_build_info', NODE)})`)],
      transformations: joined(['nodes'], ['version']),
      columns: { nodes: { link: false } },
    }),
    lines({
      title: 'GPU driver calls that fail',
      unit: 'cps',
      none: 'No call of the GPU driver failed.',
      min: 0,
      about: `Calls of NVML a second that failed for another reason than missing support. Their
        values
          are left out.`,
      targets: [
        range(
          `topk(10, sum by (cluster, node, call, error)
            (rate(${series('takt_gpu_call_errors_total', NODE)}[$__rate_interval])) > 0)`,
          '{{node}} {{call}}: {{error}}',
        ),
      ],
      links: [links.node],
    }),
    lines({
      title: 'Events that may be missing',
      unit: 'none',
      none: NO_EXPORTER,
      min: 0,
      bars: true,
      thresholds: badFrom(1),
      about: `Times that the kernel overwrote its log before it was read, and events that came too
        fast
          to be reported one by one.`,
      targets: [
        range(
          `sum(increase(${series('takt_kernel_log_overruns_total', NODE)}[$__interval])) or
            vector(0)`,
          'log overrun',
        ),
        range(
          `sum(increase(${series('takt_events_untold_total', NODE)}[$__interval])) or vector(0)`,
          'too many at once',
        ),
      ],
    }),
    row('Server'),
    lines({
      title: 'Samples a second',
      unit: 'cps',
      none: NO_TAKT,
      min: 0,
      about:
        'Samples that were scraped and that were stored. A gap means that samples are dropped.',
      targets: [
        range(`sum(${rate('takt_collector_scraped_samples_total')})`, 'scraped'),
        range(`sum(${rate('takt_store_samples_total')})`, 'stored'),
      ],
    }),
    lines({
      title: 'Scrapes by result',
      unit: 'cps',
      none: NO_TAKT,
      stack: true,
      min: 0,
      about: `Scrapes a second by result. Anything but success names why: unreachable, timeout,
          malformed.`,
      targets: [range(`sum by (result) (${rate('takt_collector_scrapes_total')})`, '{{result}}')],
    }),
    lines({
      title: 'Samples dropped',
      unit: 'cps',
      none: 'No sample was dropped.',
      min: 0,
      thresholds: badFrom(1),
      about:
        'Samples a second that were not stored, by reason. queue_full: the disk cannot take more.',
      targets: [
        range(`sum by (reason) (${rate('takt_store_dropped_samples_total')}) > 0`, '{{reason}}'),
      ],
    }),
    lines({
      title: 'Time of a commit',
      unit: 's',
      none: NO_TAKT,
      min: 0,
      thresholds: worseFrom(0.5, 2),
      about: `Mean time until a second's samples are on disk. Above half a second the disk is slow
        or
          busy.`,
      targets: [
        range(
          `sum(${rate('takt_store_commit_duration_seconds_sum')}) /
            sum(${rate('takt_store_commit_duration_seconds_count')})`,
          'mean',
        ),
      ],
    }),
    lines({
      title: 'Size of the blocks',
      unit: 'bytes',
      none: NO_TAKT,
      stack: true,
      min: 0,
      about:
        'Bytes of sealed samples by resolution. It stops growing once the retention is reached.',
      targets: [
        range(
          `sum by (resolution) (${series('takt_store_block_bytes', CLUSTER)})`,
          '{{resolution}}',
        ),
      ],
    }),
    lines({
      title: 'Sealing that waits or fails',
      unit: 'none',
      none: NO_TAKT,
      min: 0,
      about: `Segments that wait to be sealed, and failures of sealing, merging or removing. A
        number
          that grows needs a look at the log.`,
      targets: [
        range(`sum(${series('takt_store_unsealed_segments', CLUSTER)})`, 'wait'),
        range(
          `sum by (task)
            (increase(${series('takt_store_keeper_failures_total', CLUSTER)}[$__interval]))`,
          'failed: {{task}}',
        ),
      ],
    }),
    row('Alerting and Slurm'),
    lines({
      title: 'Time of the rules',
      unit: 's',
      none: NO_TAKT,
      min: 0,
      thresholds: worseFrom(5, 15),
      about: `How long the last evaluation of each group of rules took. A group that takes longer than
          its interval skips evaluations.`,
      targets: [
        range(
          `max by (rule_group) (${series('prometheus_rule_group_last_duration_seconds', CLUSTER)})`,
          '{{rule_group}}',
        ),
      ],
    }),
    lines({
      title: 'Failures of alerting',
      unit: 'none',
      none: NO_TAKT,
      min: 0,
      bars: true,
      thresholds: badFrom(1),
      about: `Rules that failed, evaluations that were missed, state that could not be stored,
        heartbeats
          that did not arrive.`,
      targets: [
        range(
          `sum(increase(${series('takt_alerts_rule_failures_total', CLUSTER)}[$__interval]))`,
          'rules failed',
        ),
        range(
          `sum(increase(${series('takt_alerts_evaluations_missed_total', CLUSTER)}[$__interval]))`,
          'evaluations missed',
        ),
        range(
          `sum(increase(${series('takt_alerts_commit_failures_total', CLUSTER)}[$__interval]))`,
          'not stored',
        ),
        range(
          `sum(increase(${series('takt_alerts_heartbeat_failures_total', CLUSTER)}[$__interval]))`,
          'heartbeats',
        ),
      ],
    }),
    lines({
      title: 'Slurm answers',
      unit: 'none',
      none: 'No Slurm is asked.',
      min: 0,
      max: 1,
      mappings: words({ 0: ['no', 'red'], 1: ['yes', 'green'] }),
      about: `Whether slurmctld and slurmdbd answered. While they do not, queue and node states are
          unknown.`,
      targets: [range(series('takt_slurm_up', CLUSTER), '{{daemon}}')],
    }),
    table({
      title: 'Job records that could not be read',
      unit: 'none',
      none: 'Every job record was understood.',
      width: 12,
      about: 'Lines of job records that were set aside, newest first, with the reason.',
      targets: [
        sql(
          `SELECT recorded_at, source, line, reason, text FROM rejects WHERE recorded_at >= ${FROM}
            AND recorded_at < ${TO} ORDER BY recorded_at DESC LIMIT 100`,
        ),
      ],
    }),
  ],
});
