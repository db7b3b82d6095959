"""Which options the JVM gets for its archive of classes, without starting one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.platforms.spark.class_archive import java_options, recording


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that says what it is, and a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    return tmp_path / "java"


def archive(options: str, name: str) -> Path:
    (found,) = [option for option in options.split() if option.startswith(f"-XX:{name}=")]
    return Path(found.partition("=")[2])


def recorded(home: Path, given: str = "") -> Path:
    """Where a session that is recorded puts its archive."""
    with recording():
        return archive(java_options(str(home), given), "ArchiveClassesAtExit")


def test_nothing_is_recorded_unasked(home: Path) -> None:
    assert java_options(str(home), "-Xmx2g") == "-Xmx2g"


def test_a_recorded_session_leaves_an_archive_for_later_ones(home: Path) -> None:
    path = recorded(home, "-Xmx2g")
    path.write_bytes(b"\x01\x02\x03\x04 and more")
    options = java_options(str(home), "-Xmx2g")
    assert options.startswith("-Xmx2g ")
    assert archive(options, "SharedArchiveFile") == path


def test_an_archive_without_its_head_is_made_again(home: Path) -> None:
    path = recorded(home)
    path.write_bytes(bytes(1000))
    assert recorded(home) == path


def test_another_java_has_another_archive_and_one_long_unused_goes(home: Path) -> None:
    old = recorded(home)
    old.write_bytes(b"\x01\x02\x03\x04 and more")
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    assert recorded(home) != old
    assert old.exists()  # another installation may be using it
    os.utime(old, (0, 0))
    recorded(home)
    assert not old.exists()


@pytest.mark.parametrize("given", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa"])
def test_what_the_user_says_about_archives_counts(home: Path, given: str) -> None:
    assert java_options(str(home), given) == given


def test_without_a_place_to_keep_it_there_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.parent / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home.parent / "file"))
    assert java_options(str(home), "-Xmx2g") == "-Xmx2g"
    assert java_options(str(home.parent / "nowhere"), "") == ""
