"""A faster start of the JVM: the classes of Spark, loaded and checked once, are kept in an archive of the user's.

Loading some ten thousand classes is most of what starting Spark costs. The JVM can write down what it has loaded when
it exits and map that into memory the next time (class data sharing). Writing takes a while, so it is done only when
asked (`penstock prepare`); every later session uses the archive. It lies in the user's cache folder and takes about
180 MB; one that does not fit the Java or the Spark at hand has another name, and the JVM ignores a damaged one.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

_OWN = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit", "AutoCreateSharedArchive")
_KEPT = 30 * 24 * 3600  # seconds that the archive of another Java or Spark is left alone
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # no word about each class that cannot be kept


def java_options(home: str, given: str) -> str:
    """Options for a JVM of the Java at `home` that will run Spark, beside those that are `given`.

    Inside `recording()` the JVM writes an archive when it exits.
    """
    if any(option in given for option in _OWN):
        return given
    archive = _archive(home)
    if archive is None:
        return given
    if _is_whole(archive):
        return f"{given} -XX:SharedArchiveFile={archive} {_QUIET}".strip()
    if not _recording:
        return given
    _forget_others(archive)
    return f"{given} -XX:ArchiveClassesAtExit={archive} {_QUIET}".strip()


_recording: list[bool] = []  # not empty while a session is to be recorded


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """A JVM that is started inside writes an archive when it exits, unless there is one."""
    _recording.append(True)
    try:
        yield
    finally:
        _recording.pop()


def _archive(home: str) -> Path | None:
    """Where the archive for this Java and this Spark lies; None where nothing can be kept."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
        release = (Path(home) / "release").read_text()
        mark = zlib.crc32(f"{home} {release} {jars} {pyspark.__version__} {jars.stat().st_mtime_ns}".encode())
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid() or " " in str(folder) or not os.access(folder, os.W_OK):
            return None
    except (OSError, RuntimeError):  # no such file, no home
        return None
    return folder / f"spark-{mark:08x}.jsa"


def _is_whole(archive: Path) -> bool:
    """The JVM writes the head last."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except OSError:
        return False


def _forget_others(archive: Path) -> None:
    for other in archive.parent.glob("spark-*.jsa"):
        with contextlib.suppress(OSError):
            if other != archive and time.time() - other.stat().st_mtime > _KEPT:
                other.unlink()
