"""`penstock calibrate`, and `penstock plan` with profiles, files and pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import FAILED, cli
from penstock.optimizer.calibrate import Boundary, Calibration
from penstock.platforms import calibration


def _call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def _measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = Calibration({"port": Boundary(2e-6, 3e-7)}, "this machine")
    monkeypatch.setattr(calibration, "calibrate", lambda spark: found)


def test_calibrating_prints_a_table_and_keeps_it(tmp_path: Path) -> None:
    result = _call("calibrate")
    assert result.exit_code == 0
    assert "this machine" in result.stdout
    assert result.stdout.splitlines()[1].split() == ["port", "2", "µs", "300", "ns"]
    assert calibration.kept_calibration()["port"] == Boundary(2e-6, 3e-7)
    assert _call("calibrate", "--save", tmp_path / "mine.json").exit_code == 0
    assert Calibration.load(tmp_path / "mine.json")["port"].delta == 2e-6


def test_a_calibration_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = _call("calibrate", "--save", tmp_path / "file" / "below.json")
    assert result.exit_code == FAILED
    assert "cannot be written" in result.stderr
