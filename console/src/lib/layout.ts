// Where the nodes of a plan lie. Loaded only by pages that draw a graph.

import dagre from '@dagrejs/dagre';

export interface Node {
  id: string;
  title: string;
  detail: string;
  loop: boolean;
  state: string;
}

export interface Edge {
  from: string;
  to: string;
  /** A step that uses another's result without waiting for it by name. */
  reference: boolean;
}

export interface Placed {
  nodes: (Node & { x: number; y: number })[];
  edges: { path: string; reference: boolean; head: { x: number; y: number } }[];
  width: number;
  height: number;
}

export const NODE = { width: 172, height: 46 };

export function layout(nodes: Node[], edges: Edge[]): Placed {
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({ rankdir: 'TB', nodesep: 24, ranksep: 34, marginx: 4, marginy: 6 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.id, { ...NODE });
  for (const edge of edges) if (graph.hasNode(edge.from) && graph.hasNode(edge.to)) graph.setEdge(edge.from, edge.to);
  dagre.layout(graph);
  const size = graph.graph();
  return {
    width: size.width ?? NODE.width,
    height: size.height ?? NODE.height,
    nodes: nodes.map((node) => {
      const at = graph.node(node.id);
      return { ...node, x: at.x - NODE.width / 2, y: at.y - NODE.height / 2 };
    }),
    edges: edges.flatMap((edge) => {
      const found = graph.edge(edge.from, edge.to);
      if (!found) return [];
      const points = found.points;
      const end = points.at(-1) ?? { x: 0, y: 0 };
      return [{ path: curve(points), reference: edge.reference, head: end }];
    }),
  };
}

function curve(points: { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return '';
  return `M${first.x} ${first.y}` + rest.map((point) => `L${point.x} ${point.y}`).join('');
}

/** Names of steps that an argument refers to: `$steps.read.data`, `${read.text}`, `$.read`. */
export function referencesIn(value: unknown, ids: ReadonlySet<string>): Set<string> {
  const found = new Set<string>();
  const look = (item: unknown): void => {
    if (typeof item === 'string') {
      for (const match of item.matchAll(/\$\{?\.?(?:steps\.)?([A-Za-z_][\w-]*)/g)) if (match[1] && ids.has(match[1])) found.add(match[1]);
    } else if (Array.isArray(item)) item.forEach(look);
    else if (item !== null && typeof item === 'object') Object.values(item).forEach(look);
  };
  look(value);
  return found;
}
