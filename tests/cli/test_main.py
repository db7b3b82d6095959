"""The `penstock` command: what it prints, what it returns, and how it is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import penstock as pn
from penstock.cli.main import FAILED, INTERRUPTED, cli


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def _call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def _run(path: object, *options: str) -> Result:
    return _call("run", path, "--on", "local", *options)


def test_a_program_runs_and_leaves_a_summary(program: Path) -> None:
    program.write_text(
        "import penstock as pn\n"
        "flow = pn.Flow('[odd] name')\n"
        "flow.source(range(5)).map(lambda n: 1 // n, on_error='skip', name='[in]verse').sink(print)\n"
        "if __name__ == '__main__':\n"
        "    raise SystemExit('run by hand')\n"
    )
    result = _run(program, "--operators")
    assert result.exit_code == 0
    assert result.stdout.split() == ["1", "0", "0", "0"]
    assert "[odd] name: completed" in result.stderr
    assert "5 tuples" in result.stderr
    assert "[in]verse: 1 skipped" in result.stderr
    assert [line.split()[0] for line in result.stderr.splitlines()[-3:]] == ["source", "[in]verse", "sink"]


def test_a_failing_program_names_operator_and_line_and_returns_1(program: Path) -> None:
    program.write_text(
        "import penstock as pn\n"
        "flow = pn.Flow('failing')\n"
        "flow.source([1, 0]).map(lambda n: 1 // n, name='inverse').sink(print)\n"
    )
    result = _run(program)
    assert result.exit_code == FAILED
    assert result.stdout.split() == ["1"]
    assert "operator 'inverse'" in result.stderr
    assert "program.py:3" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in _run(program, "--traceback").stderr


@pytest.mark.parametrize(
    ("text", "which", "message"),
    [
        ("", "", "defines no flow"),
        ("import penstock as pn\na, b = pn.Flow('a'), pn.Flow('b')\n", "", "several flows; choose one of"),
        ("import penstock as pn\na = pn.Flow('a')\n", ":c", "defines no 'c'"),
        ("import penstock as pn\na = 3\n", ":a", "neither a flow nor a function"),
        ("import penstock as pn\na = pn.Flow('a')\n", "", "it has no source"),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_what_is_no_flow_is_explained(program: Path, command: str, text: str, which: str, message: str) -> None:
    program.write_text(text)
    result = _call(command, f"{program}{which}", "--on", "local")
    assert result.exit_code == FAILED
    assert message in " ".join(result.stderr.split())


def test_a_file_that_is_not_there() -> None:
    result = _run("nowhere.py")
    assert result.exit_code == FAILED
    assert "there is no file 'nowhere.py'" in result.stderr


def test_a_function_may_make_the_flow(program: Path) -> None:
    program.write_text(
        "import penstock as pn\n"
        "def make():\n"
        "    flow = pn.Flow('made')\n"
        "    flow.source('ab').sink(print)\n"
        "    return flow\n"
    )
    assert _run(f"{program}:make").stdout.split() == ["a", "b"]


def test_the_profile_is_saved(program: Path, tmp_path: Path) -> None:
    program.write_text(
        "import penstock as pn\nflow = pn.Flow('p')\nflow.source(range(9)).map(abs, name='m').sink(list)\n"
    )
    saved = tmp_path / "profile.json"
    program.write_text(program.read_text().replace("sink(list)", "sink([])"))
    assert _run(program, "--save-profile", str(saved)).exit_code == 0
    assert pn.Profile.load(saved).operators["m"].selectivity == 1


def test_a_plan_shows_segments_and_code_and_runs_nothing(program: Path) -> None:
    program.write_text(
        "import penstock as pn\n"
        "def numbers():\n"
        "    raise AssertionError('read')\n"
        "flow = pn.Flow('planned')\n"
        "flow.source(numbers).map(abs, name='absolute').key_by(abs).scan(lambda n, t: (n, t), init=0).sink(print)\n"
    )
    result = _call("plan", program, "--cores", "4")
    assert result.exit_code == 0
    assert "on 4 cores" in result.stdout
    assert "absolute" in result.stdout
    assert "partitioned by abs()" in result.stdout
    assert "def segment_0(chunk" in _call("plan", program, "--code").stdout


ENDLESS = """\
import itertools, penstock as pn
flow = pn.Flow("endless")
def tell(n):
    if n == 1_000_000:
        print("running", flush=True)
flow.source(itertools.count).sink(tell)
"""


def _started(program: Path) -> subprocess.Popen[str]:
    program.write_text(ENDLESS)
    command = [sys.executable, "-m", "penstock.cli.main", "run", str(program), "--on", "local"]
    # Where the tests run in the background Ctrl-C is ignored, and what they start would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    return process


def test_ctrl_c_stops_an_endless_program(program: Path) -> None:
    with _started(program) as process:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED
    assert "endless: cancelled" in errors
    assert "Traceback" not in errors


def test_a_reader_that_has_seen_enough_ends_the_program_quietly(program: Path) -> None:
    program.write_text(
        "import itertools, penstock as pn\n"
        "flow = pn.Flow('endless')\n"
        "flow.source(itertools.count).sink(lambda n: print(n, flush=True))\n"
    )
    command = [sys.executable, "-m", "penstock.cli.main", "run", str(program), "--on", "local"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "0\n"
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(timeout=60)
    assert process.returncode == 0
    assert errors == ""
