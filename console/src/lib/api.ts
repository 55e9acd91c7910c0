// The methods of the server by name. Their types are generated from the server's own schemas.

import type { Methods } from '../types/methods.ts';
import type { ConsoleMethods } from './console-methods.ts';

export type Api = Omit<Methods, keyof ConsoleMethods> & ConsoleMethods;
export type MethodName = keyof Api;
export type Params<M extends MethodName> = Api[M]['params'];
export type Answer<M extends MethodName> = Api[M]['answer'];
