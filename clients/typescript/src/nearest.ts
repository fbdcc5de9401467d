/** Return the known name that an unknown one probably means; undefined if none is similar. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const wanted = plain(name);
  const most = Math.max(1, Math.floor(wanted.length / 3));
  const [best] = known
    .map((each) => ({ each, away: distance(wanted, plain(each)) }))
    .filter(({ away }) => away <= most)
    .sort((one, other) => one.away - other.away);
  return best?.each;
}

/** Normalize a name, so that `requestId` and `request_id` are equal. */
function plain(name: string): string {
  return name.replaceAll(/[_-]/g, "").toLowerCase();
}

/** Count the characters to insert, remove, replace or swap with their neighbour to turn one text into the other. */
function distance(one: string, other: string): number {
  let [earlier, before]: number[][] = [[], Array.from({ length: other.length + 1 }, (_, at) => at)];
  for (let at = 0; at < one.length; at++) {
    const row = [at + 1];
    for (let to = 0; to < other.length; to++) {
      const replaced = Number(before?.[to]) + (one[at] === other[to] ? 0 : 1);
      const swaps = at > 0 && to > 0 && one[at] === other[to - 1] && one[at - 1] === other[to];
      const swapped = swaps ? Number(earlier?.[to - 1]) + 1 : replaced;
      row.push(Math.min(replaced, swapped, Number(before?.[to + 1]) + 1, Number(row[to]) + 1));
    }
    [earlier, before] = [before, row];
  }
  return Number(before?.at(-1));
}
