// The plan editor: CodeMirror inside a shadow root, because its styles are constructed sheets there and need no exception
// in the page's Content-Security-Policy. Loaded only by Plans.

import { acceptCompletion, autocompletion, completionKeymap, type Completion, type CompletionContext, type CompletionResult } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { json, jsonParseLinter } from '@codemirror/lang-json';
import { HighlightStyle, indentOnInput, bracketMatching, syntaxHighlighting, syntaxTree } from '@codemirror/language';
import { forceLinting, linter, lintGutter, lintKeymap, type Diagnostic } from '@codemirror/lint';
import { EditorState } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';

export interface Issue {
  /** A JSON pointer or a dotted path of the plan. */
  path: string;
  message: string;
  error: boolean;
}

export interface ToolHint {
  name: string;
  description: string;
  args: { name: string; required: boolean; hint: string }[];
}

const COLORS = HighlightStyle.define([
  { tag: tags.propertyName, color: 'var(--c-key)' },
  { tag: tags.string, color: 'var(--c-str)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--c-num)' },
  { tag: tags.invalid, color: 'var(--bad)' },
]);

const THEME = EditorView.theme({
  '&': { height: '100%', backgroundColor: 'var(--panel)', color: 'var(--ink)', fontSize: '13px' },
  '&.cm-focused': { outline: '2px solid var(--focus)', outlineOffset: '-2px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '20px' },
  '.cm-gutters': { backgroundColor: 'var(--panel)', color: 'var(--ink3)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--hover)' },
  '.cm-content': { caretColor: 'var(--ink)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--selected)' },
  '.cm-tooltip': { backgroundColor: 'var(--panel)', color: 'var(--ink)', border: '1px solid var(--line2)', borderRadius: '6px' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--selected)', color: 'var(--ink)' },
  '.cm-completionDetail': { color: 'var(--ink2)', fontStyle: 'normal' },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--bad)' },
  '.cm-diagnostic-warning': { borderLeftColor: 'var(--warn)' },
});

const STEP_KEYS = ['id', 'tool', 'args', 'preview', 'dependsOn', 'foreach', 'captureAs', 'onError', 'retry', 'timeoutMs', 'tags'];
const PLAN_KEYS = ['version', 'goal', 'assumptions', 'riskLevel', 'contextRequests', 'defaults', 'steps', 'outputs', 'uiHints'];
const VALUES: Record<string, string[]> = { riskLevel: ['read-only', 'writes', 'commands'], onError: ['stop', 'skip', 'retry'] };

export class PlanEditor {
  readonly #view: EditorView;
  #issues: Issue[] = [];

  constructor(parent: HTMLElement, text: string, tools: () => ToolHint[], onChange: (text: string) => void, onRun: () => void) {
    const root = parent.shadowRoot ?? parent.attachShadow({ mode: 'open' });
    const mount = document.createElement('div');
    root.replaceChildren(mount);
    this.#view = new EditorView({
      root,
      parent: mount,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(), lintGutter(), json(), THEME, syntaxHighlighting(COLORS),
          autocompletion({ override: [(context) => complete(context, tools())] }),
          linter((view) => [...jsonParseLinter()(view), ...this.#diagnostics(view)], { delay: 200 }),
          keymap.of([{ key: 'Mod-Enter', run: () => (onRun(), true) }, { key: 'Tab', run: acceptCompletion }, indentWithTab, ...completionKeymap, ...lintKeymap, ...historyKeymap, ...defaultKeymap]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ 'aria-label': 'Plan, JSON' }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) onChange(update.state.doc.toString());
          }),
        ],
      }),
    });
  }

  set(text: string): void {
    this.#view.dispatch({ changes: { from: 0, to: this.#view.state.doc.length, insert: text } });
  }

  /** Shows findings of the server at their places. */
  issues(list: Issue[]): void {
    this.#issues = list;
    forceLinting(this.#view);
  }

  destroy(): void {
    this.#view.destroy();
  }

  #diagnostics(view: EditorView): Diagnostic[] {
    return this.#issues.map((issue) => {
      const place = locate(view.state, issue.path);
      return { ...place, severity: issue.error ? 'error' : 'warning', message: issue.message };
    });
  }
}

/** Where a path like `steps[1].args.path` or `/steps/1/args/path` lies in the text. */
export function locate(state: EditorState, path: string): { from: number; to: number } {
  const names = path.replace(/^\$?[./]?/, '').split(/[./[\]]+/).filter(Boolean);
  let node = syntaxTree(state).topNode.firstChild;
  let found = node;
  for (const name of names) {
    if (!node) break;
    let next = null;
    if (node.name === 'Object') {
      for (const property of node.getChildren('Property')) {
        const key = property.getChild('PropertyName');
        if (key && state.sliceDoc(key.from + 1, key.to - 1) === name) next = property.lastChild;
      }
    } else if (node.name === 'Array') {
      const items = [];
      for (let child = node.firstChild; child; child = child.nextSibling) if (!['[', ']', ','].includes(child.name)) items.push(child);
      next = items[Number(name)] ?? null;
    }
    if (!next) break;
    node = found = next;
  }
  if (!found) return { from: 0, to: Math.min(1, state.doc.length) };
  const line = state.doc.lineAt(found.from);
  return { from: found.from, to: Math.max(found.from, Math.min(found.to, line.to)) };
}

function complete(context: CompletionContext, tools: ToolHint[]): CompletionResult | null {
  const token = syntaxTree(context.state).resolveInner(context.pos, -1);
  const word = context.matchBefore(/[\w.$-]*/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const inKey = token.name === 'PropertyName' || token.name === 'Property' || token.name === 'Object' || token.name === '{';
  const options = inKey ? keys(context, tools) : values(context, tools);
  if (options.length === 0) return null;
  return { from: word.from, options, validFor: /^[\w.$-]*$/ };
}

function lineKey(context: CompletionContext): string {
  const before = context.state.sliceDoc(Math.max(0, context.pos - 200), context.pos);
  return /"([\w]+)"\s*:\s*"?[^"{}[\],]*$/.exec(before)?.[1] ?? '';
}

function values(context: CompletionContext, tools: ToolHint[]): Completion[] {
  const key = lineKey(context);
  if (key === 'tool') return tools.map((tool) => ({ label: tool.name, detail: tool.description.slice(0, 60), type: 'function' }));
  if (VALUES[key]) return (VALUES[key] ?? []).map((label) => ({ label, type: 'enum' }));
  const ids = [...context.state.doc.toString().matchAll(/"id"\s*:\s*"([^"]+)"/g)].map((match) => match[1] ?? '');
  return ids.map((id) => ({ label: `$steps.${id}`, type: 'variable' }));
}

function keys(context: CompletionContext, tools: ToolHint[]): Completion[] {
  const before = context.state.sliceDoc(0, context.pos);
  const args = /"tool"\s*:\s*"([^"]+)"[^{}]*"args"\s*:\s*\{[^{}]*$/.exec(before.slice(-1500));
  const tool = args ? tools.find((each) => each.name === args[1]) : undefined;
  if (tool) return tool.args.map((arg) => ({ label: arg.name, detail: arg.required ? 'required' : '', info: arg.hint, type: 'property', boost: arg.required ? 1 : 0 }));
  const inSteps = /"steps"\s*:\s*\[/.test(before);
  return (inSteps ? STEP_KEYS : PLAN_KEYS).map((label) => ({ label, type: 'property' }));
}
