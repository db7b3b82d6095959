"""The same program on a real standalone cluster: a master and two workers on loopback, each a process of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

import penstock as pn
from penstock.platforms.spark.session import java_home
from tests.spark import cluster_program
from tests.spark.processes import Program, program, python, wait_for

HOME = Path(pyspark.__file__).parent


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    env = {
        "SPARK_HOME": str(HOME),
        "JAVA_HOME": java_home(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path / "scratch"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": cluster_program.QUICK,
    }
    command = str(HOME / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    with ExitStack() as started:

        def start(name: str, *arguments: str) -> Program:
            where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            log = tmp_path / f"{name}.log"
            return started.enter_context(program(command, *arguments[:1], *where, *arguments[1:], log=log, env=env))

        leader = start("master", f"{deploy}.master.Master")
        address = _logged(leader, r"spark://127\.0\.0\.1:\d+")
        for number in (1, 2):
            room = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"worker{number}"))
            worker = start(f"worker{number}", f"{deploy}.worker.Worker", *room, address)
            _logged(worker, "Successfully registered with master")
        yield address


def _logged(process: Program, pattern: str) -> str:
    """What a process says once it is ready."""
    wait_for(lambda: bool(re.search(pattern, process.output())) or not process.running, pattern)
    found = re.search(pattern, process.output())
    assert found is not None, process.output()
    return found.group()


def test_a_keyed_flow_on_a_standalone_cluster(master: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"word{n * n % 17} {n}\n" for n in range(500)))
    flow, totals, tens = cluster_program.build(lines)
    pn.run(flow, on="local")
    expected = cluster_program.results(totals, tens)
    file = Path(cluster_program.__file__)
    with program(*python(file, master, lines, tmp_path / "result.json"), log=tmp_path / "driver.log") as driver:
        assert driver.wait() == 0, driver.output()
    found = json.loads((tmp_path / "result.json").read_text())
    assert found.pop("places") >= 2, "both workers have a share"
    del expected["places"]
    assert found == expected
