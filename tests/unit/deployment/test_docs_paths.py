"""What documents name is there: files, modules, tests, settings, RPCs, reasons, links, headings, decision records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import leman
from leman_core import settings as config

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("core", "local", "planner", "executor", "commit_coordinator")
#: Where the packages of each folder are imported from.
IMPORTED = {path.name: path for package in PACKAGES for path in (ROOT / package).glob("leman_*")}
FOLDERS = (
    *PACKAGES,
    "benchmarks",
    "clients",
    "deploy",
    "docs",
    "examples",
    "protos",
    "requirements",
    "scripts",
    "tests",
)
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "clients/*/*.md")
    for path in ROOT.glob(pattern)
)
FILES = frozenset(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")) | frozenset(ROOT.iterdir())
NAMES = frozenset(path.name for path in FILES)
#: A constant of a test.
OF_TESTS = {"COMPACTION_IS_FREE"}
#: In a database, or answered over HTTP; not in this repository.
STORED = {"service.json", "_leman/service.json", "lake/_leman/service.json", "/openapi.json"}

CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*")
FILE = re.compile(r"[\w/.-]+\.(?:py|md|proto|toml|ya?ml|json|txt|in)")
MODULE = re.compile(rf"(?:python -m )?((?:{'|'.join((*IMPORTED, 'tests', 'benchmarks'))})(?:\.\w+)+)")
TEST = re.compile(r"`(test_\w+)`")
#: A test of a file, as pytest takes it.
NODE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
#: Numbers of public reports at the beginning of a table's row.
REPORTS = re.compile(r"^\| ([\d–, ]+) \|(.*)\|$", re.MULTILINE)
SETTING = re.compile(r"LEMAN_[A-Z]+__[A-Z_]+")
REASON = re.compile(r"`([A-Z]{3,}_[A-Z_]{3,})`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: How a line of a block of commands begins.
COMMAND = re.compile(r"(\./leman|leman|export|pip|\.venv/bin/\S+|\.ci/run)\b")
#: What variables in documents of the SDK stand for.
OBJECTS = {"db": leman.Database, "table": leman.Table, "docs": leman.Table, "view": leman.View}
#: Documents of other clients, and of how the SDK once was.
OF_OTHERS = re.compile(r"clients/(go|java|typescript)/|docs/decisions/")
METHOD = re.compile(rf"\b({'|'.join(OBJECTS)})\.([a-z]\w*)\(")
ENTRY = re.compile(r"^\*\*(.+?)\*\* –", re.MULTILINE)


def text_of(document: str) -> str:
    return (ROOT / document).read_text()


def is_there(named: str) -> bool:
    if named in STORED or (ROOT / named).exists():
        return True
    return "/" not in named and named in NAMES


def module_is_there(dotted: str) -> bool:
    """A module, a package, or a name in a module."""
    for name in (dotted, dotted.rpartition(".")[0]):
        top, *inner = name.split(".")
        at = IMPORTED.get(top, ROOT / top).joinpath(*inner)
        if at.with_suffix(".py").exists() or (at.is_dir() and "." in name):
            return True
    return False


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_and_folder_that_is_named_exists(document):
    named = CODE.findall(text_of(document))

    assert [name for name in named if (PATH.fullmatch(name) or FILE.fullmatch(name)) and not is_there(name)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_module_that_is_named_exists(document):
    found = [match[1] for name in CODE.findall(text_of(document)) if (match := MODULE.fullmatch(name))]

    assert [name for name in found if not module_is_there(name)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document):
    lost = []
    for link in LINK.findall(text_of(document)):
        target, _, fragment = link.partition("#")
        if "://" in target:
            continue
        path = (ROOT / document).parent / target if target else ROOT / document
        headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE) if path.suffix == ".md" else []
        if not path.exists() or (fragment and fragment not in map(anchor, headings)):
            lost.append(link)

    assert lost == []


def test_every_test_that_is_named_exists():
    there = {name for path in FILES if path.suffix == ".py" for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = {name for document in DOCUMENTS for name in TEST.findall(text_of(document))}

    assert named - there == set()


def test_every_test_that_is_named_with_its_file_is_in_it():
    named = [node for document in DOCUMENTS for node in NODE.findall(text_of(document))]

    assert len(named) > 50
    assert [f"{path}::{name}" for path, name in named if f"def {name}(" not in text_of(path)] == []


def test_every_public_report_has_a_line_and_a_test_or_a_word_why_not():
    found: list[int] = []
    for numbers, line in REPORTS.findall(text_of("docs/public_reports.md")):
        for part in numbers.split(", "):
            first, _, last = part.partition("–")
            found += range(int(first), int(last or first) + 1)
        assert NODE.search(line) or re.search(r"\*\*not |no test:", line), line

    assert sorted(found) == list(range(1, 88))


def test_every_setting_that_is_named_exists():
    known = {info.env for info in config.describe(config.load())}
    named = {name for document in DOCUMENTS for name in SETTING.findall(text_of(document))}

    assert len(named) > 20
    assert named - known - {"LEMAN_SECTION__KEY"} == set()


def test_every_rpc_and_every_reason_that_is_named_exists():
    protos = "\n".join(path.read_text() for path in FILES if path.suffix == ".proto")
    bodies = dict(re.findall(r"^service (\w+) \{(.*?)^\}", protos, re.DOTALL | re.MULTILINE))
    code = "\n".join(path.read_text() for path in FILES if path.suffix == ".py" and "tests" not in path.parts)
    words = set(re.findall(r"\b[A-Z][A-Z_]+\b", protos + code))

    for document in DOCUMENTS:
        text = text_of(document)
        for service, rpc in re.findall(r"`(\w+Service)\.(\w+)`", text):
            assert f"rpc {rpc}(" in bodies[service], document
        reasons = {name for name in REASON.findall(text) if not name.startswith(("LEMAN_", "OTEL_"))}
        assert reasons - words <= OF_TESTS, document


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if not OF_OTHERS.match(d)])
def test_every_method_of_the_sdk_that_is_named_exists(document):
    named = set(METHOD.findall(text_of(document)))
    assert [f"{variable}.{name}" for variable, name in sorted(named) if not hasattr(OBJECTS[variable], name)] == []


def test_decision_records_are_numbered_without_gaps():
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))

    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    assert [record.read_text().partition(".")[0] for record in records] == [f"# {n + 1}" for n in range(len(records))]


def test_the_glossary_is_in_order_and_says_each_word_once():
    terms = [term.casefold() for term in ENTRY.findall(text_of("docs/glossary.md"))]

    assert len(terms) > 50
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_command_has_a_line_of_its_own(document):
    """A block of commands that was wrapped like prose has words, or another command, where none can be."""
    wrapped = []
    for block in re.findall(r"^```\w*\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL):
        lines = block.splitlines()
        if lines and re.match(r"(\./leman|leman) [a-z]", lines[0]):
            wrapped += [line for line in lines if not COMMAND.match(line)]
            wrapped += [line for line in lines if re.search(r"# .* (\./leman|leman) [a-z]+ (\./lake|.* # )", line)]
    assert wrapped == []
