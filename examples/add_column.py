"""Adds a column that a function computes, and computes it.

Prints:
    [{'text': 'to be or not to be', 'words': 6}, {'text': 'that is the question', 'words': 4}]
"""

import sys

import leman


@leman.udf
def word_count(text: str) -> int:
    return len(text.split())


db = leman.connect(sys.argv[1])  # a folder; starts the services on this machine, if they do not run yet
table = db.create_table("docs", {"text": ["to be or not to be", "that is the question"]}, mode="overwrite")
table.add_columns({"words": word_count})  # the column exists, all NULL
table.backfill("words")
print(table.to_arrow().to_pylist())
