"""Skips rows on which a function fails, tells why, and computes those alone with a fixed function.

Prints:
    1.5 None 2.0
    ValueError: could not convert string to float: '1,25'
    1.5 1.25 2.0
"""

import sys

import leman

skip = leman.ErrorHandlingConfig(on_error=[leman.Skip(ValueError)])


@leman.udf(name="parse", error_handling=skip)
def parse(text: str) -> float:
    return float(text)


@leman.udf(name="parse", error_handling=skip)
def parse_fixed(text: str) -> float:
    return float(text.replace(",", "."))


db = leman.connect(sys.argv[1])
table = db.create_table("prices", {"text": ["1.5", "1,25", "2.0"]}, mode="overwrite")
table.add_columns({"price": parse})
job_id = table.backfill("price")  # ends DONE_WITH_ERRORS
print(*table.to_arrow()["price"].to_pylist())
for row in table.get_errors(job_id=job_id):
    print(f"{row.error_type}: {row.error_message}")
db.retry_job(job_id, udf=parse_fixed, keep_others=True)  # the failed row alone
print(*table.to_arrow()["price"].to_pylist())
