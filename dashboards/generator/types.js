// Writes the committed boards as TypeScript literals into the folder of the first argument. There
// the compiler checks them against @grafana/schema (scripts/check-dashboards.sh).

import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const BOARDS = new URL('../grafana/', import.meta.url);
const FOLDER = pathToFileURL(`${process.argv[2]}/`);

/** The schema's name of each panel, and whether its series have options of their own. */
const PANELS = {
  barchart: ['BarChart', true],
  bargauge: ['BarGauge', false],
  heatmap: ['Heatmap', true],
  piechart: ['PieChart', true],
  stat: ['Stat', false],
  'state-timeline': ['StateTimeline', true],
  'status-history': ['StatusHistory', true],
  table: ['Table', false],
  timeseries: ['TimeSeries', true],
};
const each = (line) => Object.entries(PANELS).map(([type, of]) => line(type, ...of)).join('\n');

const imports = each((type, name) => {
  const folder = `@grafana/schema/dist/esm/raw/composable/${type.replace('-', '')}/panelcfg/x`;
  return `import type * as ${name} from '${folder}/${name}PanelCfg_types.gen';`;
});
const options = each((type, name) => {
  const own = `Plain<${name}.Options>`;
  // Grafana 10.2 has tooltip.show where later ones have tooltip.mode.
  const both = '{ tooltip: { show: boolean; mode: "single"; yHistogram: boolean } }';
  return `  '${type}': ${type === 'heatmap' ? `Omit<${own}, 'tooltip'> & ${both}` : own};`;
});
const custom = each((type, name, has) =>
  `  '${type}': ${has ? `Plain<${name}.FieldConfig>` : 'Record<string, unknown>'};`);

const types = `${imports}
import type * as schema from '@grafana/schema';

/** Enumerations as the texts and numbers that stand in JSON. */
export type Plain<T> = T extends string ? \`\${T}\`
  : T extends number | boolean | null | undefined | symbol | Function ? T
  : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;

interface Options {
${options}
}
interface Custom {
${custom}
}
type Mapping =
  | { type: 'value'; options: Record<string, { text: string; color: string; index: number }> }
  | {
      type: 'special';
      options: { match: 'null+nan'; result: { color: string; index: number } };
    };
interface Override {
  matcher: { id: 'byName' | 'byRegexp'; options: string };
  properties: { id: string; value: unknown }[];
}
type Defaults = Omit<Plain<schema.FieldConfig>, 'thresholds' | 'mappings' | 'custom'> & {
  thresholds: { mode: 'absolute'; steps: { color: string; value: number | null }[] };
  mappings: Mapping[];
};
interface Target {
  datasource: { type: string; uid: string };
  refId: string;
  expr?: string;
  legendFormat?: string;
  range?: boolean;
  instant?: boolean;
  rawSql?: string;
  rawQuery?: boolean;
  editorMode?: 'code';
  format?: 'table' | 'time_series';
}
type Common = Omit<Plain<schema.Panel>, 'type' | 'options' | 'fieldConfig' | 'targets'>;
type PanelOf<T extends keyof Options> = Common & {
  type: T;
  options: Partial<Options[T]>;
  targets: Target[];
  fieldConfig: { defaults: Defaults & { custom: Partial<Custom[T]> }; overrides: Override[] };
};
export type AnyPanel = { [T in keyof Options]: PanelOf<T> }[keyof Options];

/** With keys that Grafana has long known and that the schema of 10.2 leaves out. */
type Variable = Omit<Plain<schema.VariableModel>, 'current' | 'options'> & {
  current: object;
  options: object[];
  definition?: string;
  regex?: string;
  includeAll?: boolean;
  allValue?: string;
};
/** With the keys of Prometheus' annotations. */
type Annotation = Omit<Plain<schema.AnnotationQuery>, 'datasource'> & {
  datasource: object;
  expr: string;
  step: string;
  titleFormat: string;
  textFormat: string;
  tagKeys: string;
  useValueForTime: boolean;
};
export type Board = Omit<Plain<schema.Dashboard>, 'panels' | 'templating' | 'annotations'> & {
  panels: (AnyPanel | Plain<schema.RowPanel>)[];
  templating: { list: Variable[] };
  annotations: { list: Annotation[] };
};
`;

mkdirSync(FOLDER, { recursive: true });
writeFileSync(new URL('board.ts', FOLDER), types);
for (const file of readdirSync(BOARDS).filter((name) => name.endsWith('.json'))) {
  const board = readFileSync(new URL(file, BOARDS), 'utf8').trim();
  const name = file.replace('.json', '.board.ts');
  const literal = `import type { Board } from './board';\nexport const board: Board = ${board};\n`;
  writeFileSync(new URL(name, FOLDER), literal);
}
