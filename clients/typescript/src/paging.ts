import { integer, type Kinds } from "./arguments.js";
import { CALL, type CallOptions } from "./scope.js";

/** Options of listings. */
export interface ListOptions extends CallOptions {
  /** The largest number of items; undefined: all. */
  limit?: number | undefined;
}

/** The kinds of a listing's options. */
export const LIST: Kinds<ListOptions> = { ...CALL, limit: integer };

/** A page of a listing. */
interface Page {
  readonly nextPageToken: string;
}

const PAGE = 1000;

/** Yield the items of a paged listing, at most `limit` (undefined: all). A page may have few items, or none. */
export async function* listed<P extends Page, T>(
  call: (page: { pageToken: string; pageSize: number }) => Promise<P>,
  itemsOf: (page: P) => readonly T[],
  limit = Number.POSITIVE_INFINITY,
): AsyncGenerator<T, void, undefined> {
  let left = limit;
  for (let pageToken = ""; left > 0;) {
    const page = await call({ pageToken, pageSize: Math.min(PAGE, left) });
    const items = itemsOf(page).slice(0, left);
    left -= items.length;
    yield* items;
    pageToken = page.nextPageToken;
    if (pageToken === "") {
      return;
    }
  }
}

/** Collect the items of an iterable in an array. */
export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
  }
  return found;
}
