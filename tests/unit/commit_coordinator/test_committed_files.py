"""Notes of what committed files hold."""

import dataclasses

import pytest

from leman_coordinator.lance_io import table_files
from leman_coordinator.lance_io.table_files import FOLDER, Committed
from leman_core.model.plan import StagedFile

MANY = 40


def staged(number):
    return StagedFile(
        file=f"{number:032x}-a.lance",
        size_bytes=100 + number,
        digest=f"{number:032x}",
        physical_rows=10,
        rows_computed=10,
        rows_failed=0,
    )


def committed(number):
    return Committed(100 + number, f"{number:032x}")


def noted(folder, count=MANY):
    for number in range(count):
        table_files.write_note(str(folder), [staged(number)])
    return {staged(number).file: committed(number) for number in range(count)}


def notes(folder):
    return sorted(path for path in (folder / FOLDER).iterdir())


def test_what_was_noted_is_read(tmp_path):
    assert table_files.read_notes(str(tmp_path)).files == {}
    table_files.write_note(str(tmp_path), [staged(1), staged(2)])
    table_files.write_note(str(tmp_path), [staged(3)])
    found = table_files.read_notes(str(tmp_path))
    assert found.files == {staged(number).file: committed(number) for number in (1, 2, 3)}
    assert (found.damaged, found.bytes_read) == ({}, sum(path.stat().st_size for path in notes(tmp_path)))


@pytest.mark.parametrize(
    ("changed", "may"),
    [
        ({}, True),
        ({"file": "a b.lance"}, False),
        ({"file": "../x.lance"}, False),
        ({"digest": "0 1"}, False),
        ({"digest": ""}, False),
    ],
)
def test_what_no_worker_wrote_is_not_noted_before_it_was_checked(changed, may):
    name = f"{'a' * 32}-{'b' * 12}.lance"
    assert table_files.can_be_noted(dataclasses.replace(staged(1), **{"file": name, **changed})) is may


def test_the_same_files_again_make_no_other_note(tmp_path):
    for _ in range(3):
        table_files.write_note(str(tmp_path), [staged(1)])
    assert len(notes(tmp_path)) == 1


def test_a_note_whose_bits_were_flipped_says_nothing(tmp_path):
    noted(tmp_path, 1)
    (path,) = notes(tmp_path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            path.write_bytes(bytes(changed))
            found = table_files.read_notes(str(tmp_path))
            assert (found.files, list(found.damaged)) == ({}, [path.name])


def test_a_folder_in_the_place_of_a_note_is_a_damaged_note(tmp_path):
    noted(tmp_path)
    path, *_ = notes(tmp_path)
    path.unlink()
    path.mkdir()
    for _ in range(2):
        found = table_files.read_notes(str(tmp_path))
        assert (found.damaged, len(found.files)) == ({path.name: "a folder lies in its place"}, MANY - 1)
        table_files.fold_notes(str(tmp_path), found.files.keys)


@pytest.mark.parametrize("count", [0, 3])
def test_few_notes_are_left_as_they_are(tmp_path, count):
    noted(tmp_path, count)
    table_files.fold_notes(str(tmp_path), set)
    assert len(table_files.read_notes(str(tmp_path)).files) == count


def test_many_notes_become_one_without_files_that_are_gone(tmp_path):
    before = noted(tmp_path)
    gone = {staged(0).file, staged(7).file}
    damaged = notes(tmp_path)[3]
    lost = damaged.read_text().splitlines()[1].split(" ")[0]
    damaged.write_bytes(b"{}")
    later = staged(MANY)

    def listed():
        table_files.write_note(str(tmp_path), [later])  # in the middle of the folding
        return set(before) - gone

    table_files.fold_notes(str(tmp_path), listed)
    found = table_files.read_notes(str(tmp_path))
    expected = {name: value for name, value in before.items() if name not in gone | {lost}}
    assert found.files == {**expected, later.file: committed(MANY)}
    assert list(found.damaged) == [damaged.name]
    assert len(notes(tmp_path)) == 3


def test_folding_that_is_stopped_can_be_done_again(tmp_path, monkeypatch):
    before = noted(tmp_path)
    write = table_files._write

    def written_and_killed(folder, files):
        write(folder, files)
        raise KeyboardInterrupt

    monkeypatch.setattr(table_files, "_write", written_and_killed)
    with pytest.raises(KeyboardInterrupt):
        table_files.fold_notes(str(tmp_path), lambda: set(before))
    monkeypatch.undo()
    for _ in range(2):
        table_files.fold_notes(str(tmp_path), lambda: set(before))
        assert table_files.read_notes(str(tmp_path)).files == before
