"""`penstock calibrate`, and `penstock plan` with profiles, files and pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import FAILED, INTERRUPTED, cli
from penstock.optimizer.calibrate import BatchTime, Boundary, Calibration
from penstock.optimizer.profile import OperatorProfile, Profile
from penstock.platforms import calibration


def _call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def _measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def measured(*, spark: bool, tell: Callable[[str], None]) -> Calibration:
        tell("boundary: port")
        batch = BatchTime(0.25, 0.125) if spark else None
        return Calibration({"port": Boundary(2e-6, 3e-7, 4e-7)}, "this machine", batch)

    monkeypatch.setattr(calibration, "calibrate", measured)


def test_calibrating_prints_a_table_and_keeps_it(tmp_path: Path) -> None:
    result = _call("calibrate")
    assert result.exit_code == 0
    assert "this machine" in result.stdout
    assert result.stdout.splitlines()[1].split() == ["port", "2", "µs", "300", "ns", "400", "ns"]
    assert calibration.kept_calibration()["port"] == Boundary(2e-6, 3e-7, 4e-7)
    assert _call("calibrate", "--save", tmp_path / "mine.json").exit_code == 0
    assert Calibration.load(tmp_path / "mine.json")["port"].delta == 2e-6


def test_calibrating_tells_what_it_does_and_keeps_what_batches_cost(program: Path) -> None:
    result = _call("calibrate", "--spark")
    assert result.exit_code == 0
    assert result.stderr.split() == ["0", "s", "boundary:", "port"]
    assert "Spark's own time of a batch: 250 ms, and 125 ms for each shuffle" in result.stdout
    assert "shuffle   lost in noise" in result.stdout
    assert _call("calibrate").exit_code == 0
    assert calibration.kept_calibration().batch == BatchTime(0.25, 0.125)
    text = _call("plan", program, "--on", "spark").stdout
    assert "in batches of 2 s of which Spark takes 0.25 s itself" in text  # no shuffle
    assert "measured on this machine, but for shuffle and stage, which are assumed" in text


def test_a_calibration_that_is_interrupted_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> Calibration:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration, "calibrate", interrupted)
    assert _call("calibrate").exit_code == INTERRUPTED
    assert calibration.kept_calibration() == Calibration({})


def test_a_calibration_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = _call("calibrate", "--save", tmp_path / "file" / "below.json")
    assert result.exit_code == FAILED
    assert "cannot be written" in result.stderr


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(
        "import penstock as pn\n"
        "flow = pn.Flow('squares')\n"
        "numbers = flow.source(range(3000), name='numbers')\n"
        "numbers.map_batch(lambda ns: [n * n for n in ns], name='square').sink(print, name='out')\n"
    )
    return path


def test_a_plan_by_a_profile_that_is_measured(program: Path, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    result = _call("plan", program, "--profile", "--cores", "4", "--no-gil", "--picture", picture)
    assert result.exit_code == 0, result.stderr
    assert "expected:" in result.stdout
    assert "on 4 cores" in result.stdout
    assert "region 1:" in result.stdout
    assert "\n9\n" not in result.stdout  # nothing was delivered
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    result = _call("plan", program, "--picture", tmp_path / "plan.png")
    assert result.exit_code != 0
    assert "ends in .svg" in result.output


def test_a_plan_with_pes_by_a_profile_that_is_measured(program: Path) -> None:
    result = _call("plan", program, "--profile", "--cores", "4", "--pes", "2")
    assert result.exit_code == 0, result.stderr
    assert "2 PEs, " in result.stdout
    assert "bytes per source tuple between them\n" in result.stdout  # all sizes are known
    assert "up to " in result.stdout


def test_a_plan_by_a_saved_profile_is_run(program: Path, tmp_path: Path) -> None:
    costs = {"numbers": 1e-7, "square": 2e-5, "out": 1e-7}
    profile = Profile("squares", {name: OperatorProfile(cost, 1.0, 9) for name, cost in costs.items()})
    profile.save(tmp_path / "profile.json")
    planned = ["plan", program, "--profile-from", tmp_path / "profile.json", "--cores", "3"]
    assert "3 copies, dealt in turn" in _call(*planned).stdout
    result = _call(*planned, "--json")
    assert result.exit_code == 0, result.stderr
    (tmp_path / "plan.json").write_text(result.stdout, encoding="utf-8")
    done = _call("run", program, "--on", "local", "--plan-from", tmp_path / "plan.json", "--operators")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.split() == [str(n * n) for n in range(3000)]
    assert "square[2]" in done.stderr  # the queue of the third copy


def test_a_plan_for_spark_by_a_profile_that_is_measured(program: Path, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    result = _call("plan", program, "--on", "spark", "--profile", "--cores", "4", "--picture", picture)
    assert result.exit_code == 0, result.stderr
    assert "on Spark" in result.stdout
    assert "expected:" in result.stdout
    assert "on 4 cores" in result.stdout
    assert "stage 0:" in result.stdout
    assert "stage 0: 4 channels" in picture.read_text(encoding="utf-8")


def test_a_damaged_calibration_is_named_with_what_to_do(program: Path, tmp_path: Path) -> None:
    kept = calibration.default_path()
    assert kept is not None
    kept.parent.mkdir(parents=True)
    for damaged in (b"{", b"\xff{}", b'{"penstock_calibration": 1}'):
        kept.write_bytes(damaged)
        for on in ("local", "spark"):
            result = _call("plan", program, "--on", on, "--profile")
            assert result.exit_code == FAILED
            assert f"{kept} cannot be read as a calibration: " in result.stderr.replace("\n", " ")
            assert "penstock calibrate measures and writes it anew" in result.stderr
    assert _call("calibrate").exit_code == 0
    assert _call("plan", program, "--profile").exit_code == 0


def test_files_that_cannot_be_written_are_errors(program: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "such"
    result = _call("plan", program, "--picture", nowhere / "plan.svg")
    assert result.exit_code == FAILED
    assert f"error: the picture cannot be written to {nowhere / 'plan.svg'}: No such file" in result.stderr
    result = _call("run", program, "--on", "local", "--save-profile", nowhere / "profile.json")
    assert result.exit_code == FAILED
    assert f"the profile cannot be written to {nowhere / 'profile.json'}: No such file" in result.stderr


def test_wrong_profiles_and_plans(program: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert "no Penstock profile" in _call("plan", program, "--profile-from", bad).stderr
    assert "no Penstock plan" in _call("run", program, "--on", "local", "--plan-from", bad).stderr
    bad.write_bytes(b"\xff{}")
    assert "bad.json cannot be read" in _call("plan", program, "--profile-from", bad).stderr
    assert "bad.json cannot be read" in _call("run", program, "--on", "local", "--plan-from", bad).stderr
    assert _call("plan", program, "--profile-from", tmp_path / "nowhere.json").exit_code == 2
    assert _call("plan", program, "--profile-from", bad, "--profile").exit_code == 2
    assert _call("run", program, "--profile-from", bad, "--plan-from", bad).exit_code == 2
