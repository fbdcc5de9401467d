import { integer, type Kinds } from "./arguments.js";
import { CALL, type CallOptions } from "./scope.js";

/** How much of a listing is taken. */
export interface ListOptions extends CallOptions {
  /** At most so many; undefined: all. */
  limit?: number | undefined;
}

/** What the options of a listing are. */
export const LIST: Kinds<ListOptions> = { ...CALL, limit: integer };

/** A page of a listing. */
interface Page {
  readonly nextPageToken: string;
}

const PAGE = 1000;

/** Give the items of a listing, page by page, `limit` of them at the most (undefined: all). A page may have few or none. */
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

/** Take all that an iterable gives into an array. */
export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
  }
  return found;
}
