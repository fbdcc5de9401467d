"""A program that says what there is to be, and is run again as it is: also after its function was edited.

Prints:
    first run: [3, 4]
    the same again: [3, 4]
    score changed: 2 rows stale, * second*
    edited: [2, 2]
"""

import sys

import leman


@leman.udf(name="score")
def first(text: str) -> int:
    return len(text)


@leman.udf(name="score")
def edited(text: str) -> int:
    return len(set(text))


def program(score: leman.UDF) -> list[int]:
    db = leman.connect(sys.argv[1])
    table = db.create_table("terms", {"text": ["aab", "abab"]}, exist_ok=True)
    # without report= it is printed on standard error, with the difference of the sources
    table.add_columns({"score": score}, on_change="update", report=lambda change: print(change.summary))
    table.backfill("score")
    values: list[int] = table.to_arrow()["score"].to_pylist()
    return values


print("first run:", program(first))
print("the same again:", program(first))
print("edited:", program(edited))
