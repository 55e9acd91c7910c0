// A small form for a tool's arguments, from its JSON Schema: text, numbers, switches, choices; everything else as JSON.

import type { Json } from '../types/methods.ts';

export type FieldKind = 'text' | 'number' | 'switch' | 'choice' | 'json';

export interface Field {
  name: string;
  kind: FieldKind;
  required: boolean;
  hint: string;
  choices: string[];
  /** The schema's own default, as text. */
  initial: string;
  long: boolean;
}

interface Schema {
  type?: string | string[];
  properties?: { [name: string]: Schema };
  required?: string[];
  description?: string;
  enum?: Json[];
  oneOf?: Schema[];
  const?: Json;
  default?: Json;
  maxLength?: number;
  format?: string;
}

const LONG_NAMES = /content|text|body|message|note|value|prompt|script|code/i;

export function fields(schema: unknown): Field[] {
  const root = (schema ?? {}) as Schema;
  const required = new Set(root.required ?? []);
  return Object.entries(root.properties ?? {}).map(([name, each]) => {
    const choices = choicesOf(each);
    const type = Array.isArray(each.type) ? each.type.find((one) => one !== 'null') : each.type;
    const kind: FieldKind = choices.length > 0 ? 'choice'
      : type === 'boolean' ? 'switch'
      : type === 'integer' || type === 'number' ? 'number'
      : type === 'string' ? 'text' : 'json';
    const initial = each.default === undefined ? '' : typeof each.default === 'string' ? each.default : JSON.stringify(each.default);
    return { name, kind, required: required.has(name), hint: each.description ?? '', choices, initial, long: kind === 'text' && LONG_NAMES.test(name) };
  });
}

function choicesOf(schema: Schema): string[] {
  if (schema.enum?.every((each) => typeof each === 'string')) return schema.enum as string[];
  if (schema.oneOf?.length && schema.oneOf.every((each) => typeof each.const === 'string')) return schema.oneOf.map((each) => String(each.const));
  return [];
}

/** The arguments that the fields say, or what is wrong with one of them. Empty fields are left out. */
export function read(list: Field[], values: { [name: string]: string }): { args: { [name: string]: Json }; errors: { [name: string]: string } } {
  const args: { [name: string]: Json } = {};
  const errors: { [name: string]: string } = {};
  for (const field of list) {
    const text = values[field.name] ?? '';
    if (text === '' && field.kind !== 'switch') {
      if (field.required) errors[field.name] = 'This is required.';
      continue;
    }
    if (field.kind === 'number') {
      const number = Number(text);
      if (Number.isFinite(number)) args[field.name] = number;
      else errors[field.name] = 'This is not a number.';
    } else if (field.kind === 'switch') {
      if (text !== '') args[field.name] = text === 'true';
    } else if (field.kind === 'json') {
      try {
        args[field.name] = JSON.parse(text) as Json;
      } catch (error) {
        errors[field.name] = `This is not JSON: ${(error as Error).message}`;
      }
    } else args[field.name] = text;
  }
  return { args, errors };
}

/** A shell command that makes the same call. */
export function command(tool: string, args: { [name: string]: Json }): string {
  return `toolyard call ${tool} --args '${JSON.stringify(args).replaceAll("'", `'\\''`)}'`;
}
