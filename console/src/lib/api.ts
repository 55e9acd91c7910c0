// The methods of the server by name. Their types are generated from the server's own schemas.

import type { Methods } from '../types/methods.ts';

export type MethodName = keyof Methods;
export type Params<M extends MethodName> = Methods[M]['params'];
export type Answer<M extends MethodName> = Methods[M]['answer'];
