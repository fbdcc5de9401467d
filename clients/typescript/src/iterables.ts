/** What is iterated over, at once or over time. */
export type AnyIterable<T> = Iterable<T> | AsyncIterable<T>;

/** What the caller's own iterable raised, as its cause; it ends a call for good. */
export class SourceFailed extends Error {}

/** Give the iterator of either kind of iterable. */
export function asyncIterator<T>(given: AnyIterable<T>): AsyncIterator<T> | Iterator<T> {
  return Symbol.asyncIterator in given ? given[Symbol.asyncIterator]() : given[Symbol.iterator]();
}

/** Give what a caller's iterable gives; what it throws comes as SourceFailed. */
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
