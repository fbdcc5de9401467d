/** Return whether a text has half of a surrogate pair, as one has that was cut amid a character: no UTF-8 stands for it. */
export function hasHalfPair(text: string): boolean {
  return /\p{Surrogate}/u.test(text);
}
