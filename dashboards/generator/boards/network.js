import { board, row } from '../board.js';
import { spread } from '../nodes.js';
import { NODE, counted, instant, limitDefault, range, rows, series } from '../query.js';
import { FAULT, fromLabels } from '../look.js';
import { VALUES, badFrom, bars, joined, lines, stat, table, worseFrom } from '../panels.js';

const links = fromLabels();
const NO_LINK = 'No link of these nodes reports its speed.';
const NO_IB = 'No exporter of these nodes reports InfiniBand.';
const LINK = 'cluster, node, device';
const IB_STATE = series('node_infiniband_state_id', NODE);
const REAL = 'device!~"lo|veth.*|docker.*|virbr.*"';
const rate = (metric, window = '$__rate_interval') => `rate(${series(metric, NODE)}[${window}])`;
const SPEED = series('takt_link_negotiated_bits_per_second', NODE);
const use = (metric, window) => `8 * ${rate(metric, window)} / on (${LINK}) group_left () ${SPEED}`;

/** Speed of links, for the board of a few workstations too. */
export const linkTable = table({
  title: 'Links',
  unit: 'none',
  none: NO_LINK,
  height: 9,
  sort: 'slower than it could',
  about: `Speed that each link agreed on, what the adapter could do, and what the switch offers.
    "slower"
      with cause "cable": both ends can do more, so change the cable.`,
  targets: [
    rows(`max by (${LINK}) (${SPEED})`),
    rows(`max by (${LINK}) (${series('takt_link_capability_bits_per_second', NODE)})`),
    rows(`max by (${LINK}) (${series('takt_link_partner_bits_per_second', NODE)})`),
    rows(`max by (${LINK}, cause) (${series('takt_link_below_capability', NODE)} == 1)`),
    rows(`max by (${LINK}) (${series('takt_link_wireless', NODE)})`),
    rows(`max by (${LINK}) (${series('takt_link_full_duplex', NODE)})`),
  ],
  transformations: joined(
    ['speed', 'adapter', 'switch', 'slower than it could', 'radio', 'full duplex'],
    ['node', 'device', VALUES, 'cause'],
  ),
  columns: {
    speed: { unit: 'bps' },
    adapter: { unit: 'bps' },
    switch: { unit: 'bps' },
    'slower than it could': { mappings: FAULT },
    radio: { mappings: FAULT },
    'full duplex': {
      mappings: [
        {
          type: 'value',
          options: {
            0: { text: 'no', color: 'red', index: 0 },
            1: { text: 'yes', color: 'green', index: 1 },
          },
        },
      ],
    },
  },
});
export const linkUse = lines({
  title: 'Fullest links',
  unit: 'percentunit',
  none: NO_LINK,
  min: 0,
  max: 1,
  limit: 'net_saturated_ratio',
  about: `Traffic as a share of the speed the link agreed on, the ten fullest. Above the limit jobs
    wait
      for the network.`,
  targets: [
    range(`topk(10, ${use('node_network_receive_bytes_total')})`, '{{node}} {{device}} received'),
    range(`topk(10, ${use('node_network_transmit_bytes_total')})`, '{{node}} {{device}} sent'),
  ],
  links: [links.node],
});

export default board({
  uid: 'network',
  title: 'network links',
  about: 'Do links have the speed they should, are they full, do they lose data.',
  variables: ['cluster', 'nodePartition', 'node'],
  panels: [
    row('Now'),
    stat({
      title: 'Slow by cable',
      unit: 'none',
      none: NO_LINK,
      width: 4,
      thresholds: badFrom(1),
      about: 'Links that are slower than both ends can do: most often the cable.',
      targets: [
        instant(
          `count(${series('takt_link_below_capability', NODE, 'cause="cable"')} == 1) or vector(0)`,
          'links',
        ),
      ],
    }),
    stat({
      title: 'Over the limit',
      unit: 'none',
      none: NO_LINK,
      width: 4,
      thresholds: worseFrom(1, 5),
      about: 'Links that are fuller than the limit now, in either direction.',
      targets: [
        instant(
          `count((${use('node_network_receive_bytes_total', '5m')} >
            ${limitDefault('net_saturated_ratio')}) or
            (${use('node_network_transmit_bytes_total', '5m')} >
            ${limitDefault('net_saturated_ratio')})) or vector(0)`,
          'links',
        ),
      ],
    }),
    stat({
      title: 'Came and went',
      unit: 'none',
      none: 'No link is reported.',
      width: 4,
      thresholds: badFrom(1),
      about: `Links that lost their carrier in the time range. Replace the cable, look at the port
        of the
          switch.`,
      targets: [
        instant(
          `count(increase(${series('node_network_carrier_changes_total', NODE, REAL)}[$__range])
            > ${limitDefault('net_carrier_changes')}) or vector(0)`,
          'links',
        ),
      ],
    }),
    stat({
      title: 'With errors',
      unit: 'none',
      none: 'No link is reported.',
      width: 4,
      thresholds: badFrom(1),
      about: 'Links that received or sent damaged packets in the last ten minutes.',
      targets: [
        instant(
          `count((increase(${series('node_network_receive_errs_total', NODE)}[10m]) >
            ${limitDefault('net_damaged_frames')}) or
            (increase(${series('node_network_transmit_errs_total', NODE)}[10m]) >
            ${limitDefault('net_damaged_frames')})) or vector(0)`,
          'links',
        ),
      ],
    }),
    stat({
      title: 'Cluster traffic over radio',
      unit: 'none',
      none: NO_LINK,
      width: 4,
      thresholds: badFrom(1),
      about: 'Wireless links that carry the default route or NFS. Plug in a cable.',
      targets: [
        instant(
          `count((${series('takt_link_wireless', NODE)} == 1) and on (${LINK})
            ${series('takt_link_traffic', NODE)}) or vector(0)`,
          'links',
        ),
      ],
    }),
    stat({
      title: 'InfiniBand ports down',
      unit: 'none',
      none: NO_IB,
      width: 4,
      thresholds: badFrom(1),
      about: 'InfiniBand ports that are not active. A port without a cable counts too.',
      targets: [instant(counted(`${IB_STATE} != 4`, IB_STATE), 'ports')],
    }),
    linkTable,
    row('Traffic'),
    linkUse,
    bars({
      title: 'Busiest nodes',
      unit: 'Bps',
      none: 'No link is reported.',
      width: 12,
      min: 0,
      about: 'The fifteen nodes with the most traffic now, both directions together.',
      targets: [
        instant(
          `topk(15, sum by (cluster, node)
            (rate(${series('node_network_receive_bytes_total', NODE, REAL)}[5m]))
            + sum by (cluster, node)
            (rate(${series('node_network_transmit_bytes_total', NODE, REAL)}[5m])))`,
          '{{node}}',
        ),
      ],
      links: [links.node],
    }),
    spread('received'),
    spread('sent'),
    row('Errors'),
    lines({
      title: 'Damaged packets',
      unit: 'percentunit',
      none: 'No link reported ten packets a second in this time.',
      min: 0,
      limit: 'net_errors_ratio',
      about: `Share of received packets that were damaged, the ten worst links with at least ten
        packets
          a second. Replace the cable; look at the switch.`,
      targets: [
        range(
          `topk(10, ${rate('node_network_receive_errs_total')} /
            (${rate('node_network_receive_packets_total')} > 10))`,
          '{{node}} {{device}}',
        ),
      ],
      links: [links.node],
    }),
    lines({
      title: 'Dropped packets',
      unit: 'pps',
      none: 'No link reported a dropped packet in this time.',
      min: 0,
      about: `Packets that were received and thrown away, or could not be sent, the ten worst links.
        A
          few are normal; many mean that the node is overloaded.`,
      targets: [
        range(
          `topk(10, ${rate('node_network_receive_drop_total')} +
            ${rate('node_network_transmit_drop_total')} > 0)`,
          '{{node}} {{device}}',
        ),
      ],
      links: [links.node],
    }),
    lines({
      title: 'Links that come and go',
      unit: 'none',
      none: 'No link lost its carrier in this time.',
      min: 0,
      bars: true,
      limit: 'net_carrier_changes',
      about: 'Changes of the carrier in ten minutes. Each is a moment without network.',
      targets: [
        range(
          `topk(20,
            increase(${series('node_network_carrier_changes_total', NODE, REAL)}[10m])
            > 0)`,
          '{{node}} {{device}}',
        ),
      ],
      links: [links.node],
    }),
    lines({
      title: 'TCP segments sent again',
      unit: 'percentunit',
      none: 'No node reported ten TCP segments a second in this time.',
      min: 0,
      thresholds: worseFrom(0.01, 0.05),
      about: `Share of TCP segments that had to be sent again, the ten worst nodes. Above 1 % the
        network
          loses data.`,
      targets: [
        range(
          `topk(10, ${rate('node_netstat_Tcp_RetransSegs')} / (${rate('node_netstat_Tcp_OutSegs')} >
            10))`,
          '{{node}}',
        ),
      ],
      links: [links.node],
    }),
    row('InfiniBand'),
    lines({
      title: 'InfiniBand traffic',
      unit: 'Bps',
      none: NO_IB,
      min: 0,
      about: 'Bytes received and sent by each port, the ten busiest.',
      targets: [
        range(
          `topk(10, ${rate('node_infiniband_port_data_received_bytes_total')})`,
          '{{node}} {{device}}/{{port}} received',
        ),
        range(
          `topk(10, ${rate('node_infiniband_port_data_transmitted_bytes_total')})`,
          '{{node}} {{device}}/{{port}} sent',
        ),
      ],
      links: [links.node],
    }),
    lines({
      title: 'InfiniBand errors in an hour',
      unit: 'none',
      none: NO_IB,
      min: 0,
      limit: 'net_infiniband_symbol_errors_per_hour',
      about:
        'Symbol errors and lost links of each port. Above the limit reseat or replace the cable.',
      targets: [
        range(
          `topk(10, increase(${series('node_infiniband_symbol_error_total', NODE)}[1h]))`,
          '{{node}} {{device}}/{{port}} symbol errors',
        ),
        range(
          `topk(10, increase(${series('node_infiniband_link_downed_total', NODE)}[1h]))`,
          '{{node}} {{device}}/{{port}} link lost',
        ),
      ],
      links: [links.node],
    }),
  ],
});
