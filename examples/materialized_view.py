"""Makes a view: rows that match, in a shuffled order, at most so many, with a column that only the view has.

In another folder the order may be another one: it follows from row ids and the seed.

Prints:
    3 rows added
    [{'name': 'Eve', 'initial': 'E'}, {'name': 'Cleo', 'initial': 'C'}, {'name': 'Bob', 'initial': 'B'}]
"""

import sys

import leman


@leman.udf
def initial(name: str) -> str:
    return name[0]


db = leman.connect(sys.argv[1])
if "adults" in db.table_names():
    db.drop_view("adults")
people = db.create_table(
    "members", {"name": ["Ann", "Bob", "Cleo", "Dan", "Eve"], "age": [15, 25, 30, 12, 41]}, mode="overwrite"
)
query = people.search(None).where("age > 21").select(["name"]).add_column("initial", initial).shuffle(seed=42).limit(3)
view = query.create_materialized_view(conn=db, view_name="adults")  # placeholders: no function is called
print(f"{view.refresh().rows_added} rows added")
print(view.to_arrow().to_pylist())
