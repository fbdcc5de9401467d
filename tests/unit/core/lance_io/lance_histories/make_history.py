"""Makes a table with each operation that this release of Lance can do, and keeps what its history says.

    python make_history.py [FOLDER]    # in an environment with the release of pylance; writes lance-X.Y.Z.tar.xz

The archive has the manifests and transactions of the table, and `made.json`: for each version what was done, and for
compactions which files came from which, as this release itself tells where it can.
"""

import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path

import lance
import pyarrow as pa
from lance import LanceOperation

INDEXES = {"id": "BTREE", "kind": "BITMAP", "tags": "LABEL_LIST", "text": "INVERTED", "word": "NGRAM", "n": "ZONEMAP"}


def rows(first, count):
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "kind": [i % 3 for i in ids],
            "tags": [["a", "b"] for _ in ids],
            "text": [f"to be {i}" for i in ids],
            "word": [f"word {i}" for i in ids],
            "n": [i * 2 for i in ids],
        }
    )


class Made:
    """A table, and what was done to it: (kind, of the one that comes last, at which version)."""

    def __init__(self, uri, stable_row_ids):
        self.uri = uri
        lance.write_dataset(rows(0, 20), uri, max_rows_per_file=10, enable_stable_row_ids=stable_row_ids)
        self.kinds = ["Overwrite"]

    def open(self):
        return lance.dataset(self.uri)

    def did(self, kind, action):
        """Each version that an action makes beyond one is what it needs before."""
        action(self.open())
        new = self.open().version - len(self.kinds)
        self.kinds += [*before(kind, new - 1), kind]
        assert len(self.kinds) == self.open().version, (kind, new, self.kinds)

    def commit(self, operation):
        def action(dataset):
            properties = {"made by": "hand", "é": "ü"}
            transaction = lance.Transaction(dataset.version, operation(dataset), transaction_properties=properties)
            lance.LanceDataset.commit(dataset, transaction)

        return action


def before(kind, versions):
    """Compaction reserves ids for its fragments first."""
    return (["ReserveFragments"] if kind == "Rewrite" else [kind]) * versions


def compact(dataset):
    dataset.optimize.compact_files(target_rows_per_fragment=1000)


def append(first):
    return lambda dataset: lance.write_dataset(rows(first, 10), dataset, mode="append")


def replaced(dataset):
    """A file for a column of nulls."""
    from lance.file import LanceFileWriter

    with LanceFileWriter(f"{dataset.uri}/data/given.lance", pa.schema([pa.field("given", pa.int32())])) as writer:
        fragment = dataset.get_fragments()[0]
        column = pa.array([1] * fragment.physical_rows, pa.int32())
        writer.write_batch(pa.record_batch([column], schema=pa.schema([pa.field("given", pa.int32())])))
    file = lance.fragment.DataFile.create(dataset, "given.lance")
    return LanceOperation.DataReplacement([LanceOperation.DataReplacementGroup(fragment.fragment_id, file)])


def make(uri, stable_row_ids):
    """The table; its rows are appended to before each compaction, so that there is something to compact."""
    made = Made(uri, stable_row_ids)
    made.did("Rewrite", compact)
    made.did("Append", append(100))
    made.did("Delete", lambda d: d.delete("id IN (1, 3, 101)"))
    made.did("Rewrite", compact)
    for column, kind in INDEXES.items():
        made.did("CreateIndex", lambda d, c=column, k=kind: d.create_scalar_index(c, k))
    for first in (200, 300):  # fragments are compacted together once all indexes cover them
        made.did("Append", append(first))
        made.did("CreateIndex", lambda d: d.optimize.optimize_indices())
        made.did("Rewrite", compact)
    made.did("Update", lambda d: d.update({"n": "n + 1"}, where="id = 5"))
    made.did("Update", lambda d: d.merge_insert("id").when_matched_update_all().execute(rows(6, 2)))
    made.did("Merge", lambda d: d.add_columns({"more": "id + 1"}))
    made.did("Project", lambda d: d.drop_columns(["more"]))
    made.did("Merge", lambda d: d.add_columns(pa.field("given", pa.int32())))
    made.did("DataReplacement", made.commit(replaced))
    made.did("UpdateConfig", lambda d: d.update_config({"a": "b"}))
    made.did("Restore", lambda d: lance.dataset(uri, version=d.version - 2).restore())
    made.did("UpdateBases", lambda d: d.add_bases([lance.DatasetBasePath(f"{uri}-more", "more")]))
    made.did("Overwrite", lambda d: lance.write_dataset(rows(0, 5), d, mode="overwrite"))
    return made


def told(dataset, version):
    """What Lance itself says of a compaction: [files and live rows of the old fragments, the same of the new ones]."""
    try:
        groups = dataset.read_transaction(version).operation.groups
    except TypeError:
        return None
    return [[[side(f) for f in g.old_fragments], [side(f) for f in g.new_fragments]] for g in groups]


def side(fragment):
    return [[file.path for file in fragment.files], fragment.physical_rows, fragment.num_deletions]


def description(made):
    dataset = made.open()
    rewrites = {v: told(dataset, v) for v, kind in enumerate(made.kinds, 1) if kind == "Rewrite"}
    return {"kinds": made.kinds, "rewrites": rewrites}


def archive(to):
    """Manifests and transactions of two tables: with row ids that are stable, and without."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(to, "w:xz", preset=9) as packed:
        for name, stable in (("stable", True), ("addresses", False)):
            uri = Path(folder, name)
            made = make(str(uri), stable)
            for part in ("_versions", "_transactions"):
                packed.add(uri / part, f"{name}/{part}")
            content = json.dumps(description(made)).encode()
            entry = tarfile.TarInfo(f"{name}/made.json")
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    archive(Path(sys.argv[1] if len(sys.argv) > 1 else ".", f"lance-{lance.__version__}.tar.xz"))
