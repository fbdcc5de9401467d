"""`leman up`, `ps`, `status`, `logs`, `down`, and programs of the services: `demo`, `pack-env`, `config`."""

from __future__ import annotations

import contextlib
import datetime
import enum
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from leman._local import running_systems
from leman._local.running_systems import ServiceFile, System
from leman._locations import check_database_exists, check_database_possible, database_uri
from leman.cli._terminal import JsonOption, moment, note, print_json, print_line, print_table
from leman.errors import InvalidArgument, MissingDependency, NotFound

SomeDatabase = Annotated[
    str | None,
    typer.Argument(metavar="[DB]", help="Path of a database; selects the services that serve it.", show_default=False),
]
_POLL = 0.2
_MOST = 18  # characters of an environment's folder in one line
_PRINTED = re.compile(r"^\[(job-[\w-]+)\] ")


def up(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Folder of the database.")],
    *,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="Interpreter for services and functions, by default this one.")
    ] = None,
) -> None:
    """Run the services of a local database until Ctrl-C, with their own Redis and Spark.

    Exit codes: 0 stopped on request, 1 not started, 2 wrong settings, 4 other services already serve the database.
    """
    uri = database_uri(path)
    if "://" in uri:
        raise InvalidArgument(
            "leman up takes a local folder. Its services can serve databases in an object store, too: run leman up"
            f" ./system, then leman.connect({uri!r}, endpoint=…, token=…) with `executor` and `token` of"
            " ./system/_leman/service.json"
        )
    program = _interpreter(python)
    check_database_possible(uri)
    arguments = ["--database", uri, "--foreground", "--register", str(running_systems.register_system())]
    sys.stdout.flush()
    os.execv(program, [program, "-P", "-m", "leman_local", *arguments])


def ps(*, as_json: JsonOption = False) -> None:
    """List this user's services on this machine, with one line for each system of processes."""
    found = running_systems.list_systems()
    if as_json:
        print_json([_described(system) for system in found])
        return
    if not found:
        note("no services run")
    headings = ("pid", "kind", "release", "since", "memory", "python", "databases")
    print_table(
        headings,
        [(s.pid, s.kind, s.said.get("version"), _since(s), _megabytes(s), _environment(s), _places(s)) for s in found],
        whole=headings,
        cut_last=True,
    )


def status(db: SomeDatabase = None, *, as_json: JsonOption = False) -> None:
    """Show the processes that serve a database, by default those of the services that this environment shares.

    Exit code 1: none run.
    """
    system = _system(db)
    if as_json:
        print_json(_described(system))
        return
    for name, value in (
        ("kind", system.kind),
        ("release", system.said.get("version")),
        ("since", _since(system)),
        ("python", system.said.get("python")),
        ("logs", system.log("*").parent),
        *(("database", place) for place in system.databases),
    ):
        print_line(f"{name:<10}{value}")
    rows = [
        (name, pid, system.said.get(name, ""), _text(_memory(pid))) for name, pid in sorted(system.processes.items())
    ]
    print_table(("process", "pid", "address", "memory"), rows)


def logs(
    db: SomeDatabase = None,
    job_id: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="What the functions of this job printed.", show_default=False)
    ] = None,
    *,
    process: Annotated[
        str | None, typer.Option(help="supervisor, planner, executor, commit_coordinator or redis; by default all.")
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The number of last lines to print.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
) -> None:
    """Show the last lines of the services' logs, or what a job's functions printed: `leman logs [DB] [JOB]`."""
    if db is not None and job_id is None and db.startswith("job-") and not Path(db).exists():
        db, job_id = None, db
    elif db is not None and "://" not in db and not _systems_of(db) and not Path(database_uri(db), "_leman").is_dir():
        check_database_exists(database_uri(db))
    homes = (
        [_home(db)] if db is not None or job_id is None else [system.home for system in running_systems.list_systems()]
    )
    names = [process] if process else ["executor"] if job_id else ["*"]
    files = [file for home in homes for name in names for file in sorted((home / "logs").glob(f"{name}.log"))]
    if not files:
        raise NotFound(
            "there are no such logs: `leman ps` lists the services that run. What functions print in an installation of"
            f" its own is in the log of its executor, or of Spark's workers: look for [{job_id or 'job-…'}] there",
            reason="NO_LOGS",
        )
    printed = False
    for file in files:
        told = list(_lines_of_job(_whole(file), job_id))[-lines:]
        printed = printed or bool(told)
        if told and len(files) > 1:
            print_line(f"==> {file} <==")
        for line in told:
            print_line(line)
    if job_id and not printed:
        note(f"no output of functions of {job_id} is kept here: `leman jobs ls DB` lists jobs")
    if follow:
        _follow(files, job_id)


def down(
    db: SomeDatabase = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All services of this user on this machine.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the services of a database, by default those that this environment shares.

    This takes about three seconds, or more on a busy machine. Finished work of running jobs is kept, and the jobs
    continue when the services run again.
    """
    if every and db is not None:
        raise typer.BadParameter("give a database, or --all")
    found = running_systems.list_systems() if every else _systems_of(db)
    ended = [(system, system.down()) for system in found]
    if as_json:
        print_json([{"pid": system.pid, "home": str(system.home), "killed": not calmly} for system, calmly in ended])
        return
    if not ended:
        note("no services run" if every else _none(db))
    for system, calmly in ended:
        print_line(f"{system.kind} services of {_places(system)}: {'ended' if calmly else 'killed'}")


def _interpreter(python: str | None) -> str:
    """Return the Python interpreter for the services. Raises MissingDependency, InvalidArgument."""
    if python is None:
        running_systems.require_services(MissingDependency)
        return sys.executable
    program = os.path.abspath(os.path.expanduser(python))  # noqa: PTH100, PTH111 - environments differ by links
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('leman_local') is None)"
    try:
        done = subprocess.run([program, "-P", "-c", look], capture_output=True, text=True, check=False)
    except OSError as error:
        raise InvalidArgument(f"--python {python}: {error.strerror}") from None
    if done.returncode:
        raise MissingDependency(
            f"{program} cannot run the services: pip install leman[local] in its environment",
            reason="SERVICES_NOT_INSTALLED",
        )
    return program


def _systems_of(db: str | None) -> list[System]:
    if db is not None:
        system = running_systems.system_serving(database_uri(db))
        return [] if system is None else [system]
    home = running_systems.shared_home()
    said = ServiceFile(home).running()
    return [] if said is None else [System(home, said)]


def _system(db: str | None) -> System:
    found = _systems_of(db)
    if not found:
        raise NotFound(_none(db), reason="NOT_RUNNING")
    return found[0]


def _none(db: str | None) -> str:
    """Return the message for services that do not run."""
    if db is not None:
        return f"no services run for {database_uri(db)}; `leman ps` lists all"
    others = [system for system in running_systems.list_systems() if _is_like_shared(system)]
    if not others:
        return "no services run from this Python environment; `leman ps` lists all"
    served = next((place for system in others for place in system.databases), "--all")
    return (
        f"no services run with the settings of this shell. {len(others)} of this Python environment run with others "
        f"(JAVA_HOME, PYTHONPATH, SPARK_…, LEMAN_…): `leman ps` lists them, `leman down {served}` ends them"
    )


def _is_like_shared(system: System) -> bool:
    """Return whether this Python shares the system when other settings are in the environment."""
    return system.kind == "shared" and running_systems.is_this_python(str(system.said.get("python") or ""))


def _home(db: str | None) -> Path:
    """Return the folder of the services that run, or that ran last, whose logs are kept."""
    found = _systems_of(db)
    if found:
        return found[0].home
    own = Path(database_uri(db), "_leman") if db is not None else None
    return own if own is not None and (own / "logs").is_dir() else running_systems.shared_home()


def _described(system: System) -> dict[str, object]:
    names = ("planner", "executor", "commit_coordinator", "http")
    return {
        "pid": system.pid,
        "kind": system.kind,
        "databases": system.databases,
        "version": system.said.get("version"),
        "started_at": system.said.get("started_at"),
        "python": system.said.get("python"),
        "home": str(system.home),
        "addresses": {name: system.said[name] for name in names if system.said.get(name)},
        "processes": system.processes,
        "memory_bytes": sum(_memory(pid) for pid in _tree(system.pid)),
    }


def _places(system: System) -> str:
    places = [_from_home(place) if sys.stdout.isatty() else place for place in system.databases]
    return ", ".join(places[:2]) + (f" and {len(places) - 2} more" if len(places) > 2 else "") or "no database"


def _environment(system: System) -> str:
    """Return the folder of a system's Python, shortened for one line. `leman status` shows all of it."""
    python = str(system.said.get("python") or "")
    if not sys.stdout.isatty():
        return python
    folder = _from_home(re.sub(r"/bin/python[\d.]*$", "", python))
    return folder if len(folder) <= _MOST else f"…{folder[1 - _MOST :]}"


def _from_home(path: str) -> str:
    home = os.path.expanduser("~").rstrip("/")  # noqa: PTH111 - a str, as it is shown
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path


def _since(system: System) -> str:
    try:
        return moment(datetime.datetime.fromisoformat(str(system.said.get("started_at"))))
    except ValueError:
        return ""


def _megabytes(system: System) -> str:
    return _text(sum(_memory(pid) for pid in _tree(system.pid)))


def _text(size: int) -> str:
    return f"{size >> 20:,} MB" if size else ""


def _tree(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants that the operating system shows."""
    yield pid
    try:
        told = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return
    for child in " ".join(told).split():
        yield from _tree(int(child))


def _memory(pid: int) -> int:
    """Return the bytes of memory of a process, with its part of memory that several processes use, or 0 if unknown.

    If the operating system does not report that, return only the memory that no other process uses.
    """
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) << 10 if found else 0
    with contextlib.suppress(OSError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _whole(file: Path) -> Iterator[str]:
    """Yield the lines of a log, beginning with its rotated files."""
    for part in (*(file.with_name(f"{file.name}.{number}") for number in range(9, 0, -1)), file):
        if part.exists():
            with part.open(errors="replace") as opened:
                yield from (line.rstrip("\n") for line in opened)


def _lines_of_job(lines: Iterator[str], job_id: str | None) -> Iterator[str]:
    for line in lines:
        printed = _PRINTED.match(line)
        if job_id is None:
            yield line
        elif printed and printed[1] == job_id:
            yield line[printed.end() :]


def _follow(files: list[Path], job_id: str | None) -> None:
    opened = [file.open(errors="replace") for file in files]
    for file in opened:
        file.seek(0, os.SEEK_END)
    try:
        while True:
            for file in opened:
                for line in _lines_of_job((line.rstrip("\n") for line in file), job_id):
                    print_line(line)
            sys.stdout.flush()
            time.sleep(_POLL)
    except KeyboardInterrupt:
        pass
    finally:
        for file in opened:
            file.close()


class DemoName(enum.Enum):
    """The demos besides the default one."""

    POLYGLOT = "polyglot"


config = typer.Typer(help="Shows the settings of the services.", no_args_is_help=True)


def demo(
    example: Annotated[DemoName | None, typer.Argument(help="`polyglot`: one table, four languages.")] = None,
    *,
    rows: Annotated[int | None, typer.Option(min=1, help="At most this many rows.")] = None,
    path: Annotated[str | None, typer.Option(help="Folder of the demo's database.  [default: ./leman-demo]")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Rebuild what already exists.")] = False,
) -> None:
    """Index the Python source code on this machine: compute columns, then answer questions with them."""
    running_systems.require_services(MissingDependency)
    root = running_systems.services_checkout()
    program = example.value if example else "demo"
    if not (root / "examples" / program / "main.py").exists():
        raise NotFound(f"the demo comes with the source of Leman, which is not in {root}", reason="NO_DEMO")
    options = [*(["--rows", str(rows)] if rows else []), *(["--path", path] if path else [])]
    options += ["--fresh"] if fresh else []
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    _become(f"examples.{program}.main", *options)


def pack_env(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write the archive.")] = "leman-env.tar.gz",
) -> None:
    """Pack this Python environment into an archive for the workers of a Spark cluster (`spark.archives`)."""
    _become("leman_executor.spark.pack_env", file)


@config.command("show")
def config_show(*, as_json: JsonOption = False) -> None:
    """List each setting of the services with its value, its meaning, and where the value comes from."""
    _become("leman_core.settings", *(["--json"] if as_json else []))


@config.command("clean")
def config_clean() -> None:
    """Delete the archives of Spark's classes. `leman config show` lists their location and size."""
    _become("leman_core.process.class_archives", "--clean")


def _become(module: str, *arguments: str) -> NoReturn:
    running_systems.require_services(MissingDependency)
    sys.stdout.flush()
    os.execv(sys.executable, running_systems.services_command(module, *arguments))
