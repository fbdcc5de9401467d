/** An iterable, sync or async. */
export type AnyIterable<T> = Iterable<T> | AsyncIterable<T>;

/** Wraps an error of the caller's own iterable, as its cause. The call is not retried. */
export class SourceFailed extends Error {}

/** Return the iterator of either kind of iterable. */
export function asyncIterator<T>(given: AnyIterable<T>): AsyncIterator<T> | Iterator<T> {
  return Symbol.asyncIterator in given ? given[Symbol.asyncIterator]() : given[Symbol.iterator]();
}

/** Yield the items of a caller's iterable; its errors are wrapped in SourceFailed. */
export async function* sourceOf<T>(open: () => AnyIterable<T>): AsyncGenerator<T, void, undefined> {
  const iterator = asyncIterator(open());
  try {
    for (;;) {
      let next: IteratorResult<T, unknown>;
      try {
        next = await iterator.next();
      } catch (cause) {
        throw new SourceFailed("the source failed", { cause });
      }
      if (next.done === true) {
        return;
      }
      yield next.value;
    }
  } finally {
    await iterator.return?.();
  }
}
