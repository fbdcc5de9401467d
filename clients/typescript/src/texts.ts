/**
 * Return whether a text has an unpaired surrogate, for example because it was cut within a character. UTF-8 cannot
 * encode it.
 */
export function hasHalfPair(text: string): boolean {
  return /\p{Surrogate}/u.test(text);
}
