import { check, checkOptions, type Fields } from "./arguments.js";
import { invalid } from "./errors.js";

type Method<T, A extends unknown[], R> = (this: T, ...given: A) => R;

/** The constructor of `async` functions. */
const AsyncFunction = (async () => Promise.resolve()).constructor;

/**
 * Declare the arguments of a method: positional ones by name, in order, and then an object of options, if any. Other
 * arguments are refused before the method runs: with an INVALID_ARGUMENT that names them, as a rejected promise if the
 * method is `async`.
 */
export function takes(positional: Fields = {}, options?: Fields) {
  return <T, A extends unknown[], R>(method: Method<T, A, R>, context: ClassMethodDecoratorContext): Method<T, A, R> =>
    guarded(String(context.name), method, positional, options);
}

/** Like {@link takes}, for a function. */
export function guarded<T, A extends unknown[], R>(
  name: string,
  method: Method<T, A, R>,
  positional: Fields,
  options?: Fields,
): Method<T, A, R> {
  function now(this: T, ...given: A): R {
    checkArguments(name, given, positional, options);
    return method.apply(this, given);
  }
  async function later(this: T, ...given: A): Promise<Awaited<R>> {
    checkArguments(name, given, positional, options);
    return await method.apply(this, given);
  }
  const checked = (method instanceof AsyncFunction ? later : now) as Method<T, A, R>;
  return Object.defineProperty(checked, "name", { value: name });
}

function checkArguments(method: string, given: unknown[], positional: Fields, options: Fields | undefined): void {
  const wanted = [...Object.keys(positional), ...(options === undefined ? [] : ["options"])];
  if (given.slice(wanted.length).some((surplus) => surplus !== undefined)) {
    const message = `${method} takes (${wanted.join(", ")}), not ${String(given.length)} arguments`;
    throw invalid("arguments", message);
  }
  Object.entries(positional).forEach(([name, kind], at) => {
    check(name, given[at], kind);
  });
  if (options !== undefined) {
    checkOptions(given[wanted.length - 1], options);
  }
}
