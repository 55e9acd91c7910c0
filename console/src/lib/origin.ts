// The origin that Toolyard sees. In development the sources are served by another port, which passes requests on.

export const ORIGIN: string = import.meta.env.DEV ? String(import.meta.env.VITE_TOOLYARD_URL) : location.origin;
