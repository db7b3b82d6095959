"""The dynamic scheduler: threads that come and go, threads that are stuck, policies, and threads without work."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

import penstock as pn
from penstock.graph.graph import Target
from penstock.runtime.pe import PE, Threading
from penstock.runtime.policies import (
    POLICIES,
    LeastLatency,
    LeastRecentlyRun,
    LongestQueue,
    LongestRunningTime,
    Policy,
    Random,
    as_policy,
)
from penstock.runtime.port import LOOK_AGAIN, Port
from penstock.runtime.scheduler import Scheduler
from tests.runtime.forcing import LONG
from tests.runtime.running import until


def pipeline(size: int, length: int = 5) -> tuple[pn.Flow, Any]:
    flow = pn.Flow("pipeline")
    stream: pn.Stream[Any] = flow.source(range(size))
    for _ in range(length):
        stream = stream.map(lambda n: n + 1)
    return flow, stream.scan(lambda total, n: (total + n, total + n), init=0).collect()


def running_sums(size: int, length: int = 5) -> list[int]:
    return [sum(range(length, length + n + 1)) for n in range(size)]


# -------------------------------------------------------------------------------------------------------------- threads


@pytest.mark.usefixtures("switching_often")
@pytest.mark.parametrize("seed", range(6))
def test_threads_come_and_go_at_any_moment(seed: int) -> None:
    rng = random.Random(seed)
    flow, out = pipeline(3000)
    pe = PE(flow.graph(), threading_=Threading("dynamic", threads=3, capacity=rng.choice([1, 16, 256])))
    pe.start()
    while not pe.wait(rng.choice([0, 0.0005])):
        pe.scheduler.set_threads(rng.randint(1, 9))
        if rng.random() < 0.5:
            pe.scheduler.end_suspended()
    assert out == running_sums(3000)


def test_suspended_threads_wait_and_come_back() -> None:
    go = threading.Event()
    flow = pn.Flow("threads")
    flow.source(lambda: iter(go.wait, True)).map(lambda n: n).collect()
    pe = PE(flow.graph(), threading_=Threading("dynamic", threads=4))
    pe.start()
    scheduler = pe.scheduler
    assert (scheduler.threads, len(scheduler.workers)) == (4, 4)
    scheduler.set_threads(1)
    assert (scheduler.threads, len(scheduler.workers)) == (1, 4)
    workers = list(scheduler.workers)
    scheduler.set_threads(3)
    assert scheduler.workers == workers, "suspended threads are resumed, not replaced"
    scheduler.set_threads(2)
    scheduler.end_suspended()
    until(lambda: sum(worker.thread.is_alive() for worker in workers) == 2)
    assert (scheduler.threads, len(scheduler.workers)) == (2, 2)
    scheduler.set_threads(5)
    assert (scheduler.threads, len(scheduler.workers)) == (5, 5)
    go.set()
    assert pe.wait(LONG)
    scheduler.set_threads(7)
    assert not any(worker.thread.is_alive() for worker in scheduler.all_workers()), "none is started after the end"


def test_a_thread_stuck_in_an_operator_is_known_and_others_go_on() -> None:
    go, inside = threading.Event(), threading.Event()

    def stuck(n: int) -> int:
        inside.set()
        go.wait(LONG)
        return n

    flow = pn.Flow("stuck")
    source = flow.source(range(50))
    late = source.filter(lambda n: n == 0).map(stuck).collect()
    out = source.map(lambda n: n).map(lambda n: n).collect()
    pe = PE(flow.graph(), threading_=Threading("dynamic", threads=2))
    pe.start()
    assert inside.wait(LONG)
    until(lambda: len(out) == 50)
    until(lambda: any(worker.is_stuck(time.perf_counter(), 0.01) for worker in pe.scheduler.workers))
    assert sum(worker.is_stuck(time.perf_counter(), 0.01) for worker in pe.scheduler.workers) == 1
    stuck_one = next(worker for worker in pe.scheduler.workers if worker.is_stuck(time.perf_counter(), 0.01))
    metrics = stuck_one.metrics(time.perf_counter())
    assert metrics.port == "stuck"
    pe.scheduler.set_threads(1)
    pe.scheduler.set_threads(2)
    go.set()
    assert pe.wait(LONG)
    assert late == [0]
    assert not any(worker.is_stuck(time.perf_counter(), 0.0) for worker in pe.scheduler.workers)


class Two(pn.Operator):
    inputs = 3

    def process(self, t: Any, port: int) -> Any:
        return t


def test_there_is_one_thread_more_than_inputs_of_an_operator_of_the_users() -> None:
    flow = pn.Flow("several")
    a, b, c = (flow.source(range(10)) for _ in range(3))
    out = a.process(Two(), b, c).collect()
    pe = PE(flow.graph(), threading_=Threading("dynamic", threads=1))
    assert pe.scheduler.fewest == 4
    pe.start()
    with pytest.raises(pn.PlatformError, match="at least 4 scheduler threads, not 3"):
        pe.scheduler.set_threads(3)
    assert pe.wait(LONG)
    assert len(pe.scheduler.workers) == 4
    assert sorted(out) == sorted([*range(10)] * 3)


def test_an_operator_of_several_inputs_that_gets_queues_later_gets_its_threads_too() -> None:
    go = threading.Event()
    flow = pn.Flow("several")
    a, b, c = (flow.source(lambda: iter(go.wait, True)) for _ in range(3))
    a.process(Two(), b, c, name="two").collect()
    pe = PE(flow.graph(), threading_=Threading("manual", threads=1))
    pe.start()
    node = next(node.index for node in pe.graph.nodes if node.name == "two")
    assert pe.change_ports({Target(node, port): "dynamic" for port in range(3)})
    assert pe.scheduler.threads == 4
    go.set()
    assert pe.wait(LONG)


@pytest.mark.parametrize(("quantum", "changes"), [(1e-9, range(2, 80)), (1000.0, range(1, 2))])
def test_a_thread_leaves_a_port_when_its_quantum_is_over(quantum: float, changes: range) -> None:
    """One thread, two busy ports: with a short quantum both get on, with a long one the first is emptied first."""
    go = threading.Event()
    seen: list[str] = []
    flow = pn.Flow("quantum")
    numbers = flow.source(range(40))
    for name in ("a", "b"):
        with flow.threading("dynamic"):
            waiting = numbers.map(lambda n: go.wait(LONG), name=name)
        waiting.sink(lambda _, name=name: seen.append(name))
    pe = PE(flow.graph(), threading_=Threading("manual", threads=1, quantum=quantum, capacity=1000))
    pe.start()
    until(lambda: all(port.pushed == 41 for port in pe.ports.values()))  # with the final punctuation
    go.set()
    assert pe.wait(LONG)
    assert sorted(seen) == ["a"] * 40 + ["b"] * 40
    assert sum(one != other for one, other in itertools.pairwise(seen)) in changes


def test_threads_without_work_do_not_spin() -> None:
    """Nothing to do for any of them, and then: everything there is to do is in the hands of a stuck thread."""
    go, stuck = threading.Event(), threading.Event()

    def wait(n: int) -> int:
        stuck.set()
        go.wait(LONG)
        return n

    looks = 0

    class Counting(LeastRecentlyRun):
        def take(self) -> Port | None:
            nonlocal looks
            looks += 1
            return super().take()

    class Waits(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            called = super().wait(timeout)
            waits.append((timeout, called))
            return called

    waits: list[tuple[float | None, bool]] = []
    flow = pn.Flow("idle")
    flow.source(range(100)).map(lambda n: n).map(wait).collect()
    pe = PE(flow.graph(), threading_=Threading("dynamic", threads=4, capacity=1, policy=Counting))
    pe.scheduler._work = Waits(threading.Lock())
    pe.start()
    assert stuck.wait(LONG)
    until(lambda: len(waits) > 12 and set(waits[-12:]) == {(LOOK_AGAIN, False)})  # the others have nothing to do
    looks_before, waits_before = looks, len(waits)
    until(lambda: len(waits) >= waits_before + 60)
    looks_after, rest = looks, waits[waits_before:]
    go.set()
    assert pe.wait(LONG)
    assert set(rest) == {(LOOK_AGAIN, False)}, "nobody calls them, so they sleep for as long as they may"
    # Before each wait a thread meets every port at most once. Four threads may have looked and not waited yet.
    assert looks_after - looks_before <= (len(rest) + 4) * (len(pe.ports) + 1)


# ------------------------------------------------------------------------------------------------------------- the list


def plain_port(name: str, length: int = 0, capacity: int = 100) -> Port:
    port = Port(Target(0, 0), name, capacity)
    for n in range(length):
        port.push([n])
    return port


def test_a_port_is_on_the_list_once_however_often_it_is_announced() -> None:
    scheduler = Scheduler(cast("PE", None), LeastRecentlyRun())
    port = plain_port("port")
    port.announce = scheduler.announce
    port.push([1])
    port.push([2])
    assert scheduler.find_work() is port
    assert scheduler.find_work() is None
    port.push([3])
    assert scheduler.find_work() is None, "it is still in the hands of the thread that took it"
    port.release_consumer()
    scheduler.put_back(port)
    assert scheduler.find_work() is port


def test_an_empty_port_leaves_the_list_until_it_is_announced_again() -> None:
    scheduler = Scheduler(cast("PE", None), LeastRecentlyRun())
    port = plain_port("port")
    scheduler.announce(port)
    assert scheduler.find_work() is None
    assert scheduler.policy.empty
    port.announce = scheduler.announce
    port.push([1])
    assert scheduler.find_work() is port


def test_a_port_in_the_hands_of_a_pusher_stays_on_the_list() -> None:
    scheduler = Scheduler(cast("PE", None), LeastRecentlyRun())
    busy, free = plain_port("busy"), plain_port("free")
    for port in (busy, free):
        port.announce = scheduler.announce
        port.push([1])
    assert busy.try_consume()
    assert scheduler.find_work() is free
    assert scheduler.find_work() is None
    busy.release_consumer()
    assert scheduler.find_work() is busy


def test_a_port_that_the_scheduler_no_longer_runs_leaves_the_list() -> None:
    scheduler = Scheduler(cast("PE", None), LeastRecentlyRun())
    port = plain_port("port")
    port.announce = scheduler.announce
    port.push([1])
    port.scheduled = False
    assert scheduler.find_work() is None
    assert not port.listed.locked()


# ------------------------------------------------------------------------------------------------------------- policies


def put_all(policy: Policy, ports: Sequence[Port]) -> Policy:
    for port in ports:
        policy.put(port)
    return policy


def take_all(policy: Policy) -> list[str]:
    taken = []
    while (port := policy.take()) is not None:
        taken.append(port.name)
    assert policy.empty
    return taken


def test_least_recently_run_takes_what_has_waited_longest_for_a_thread() -> None:
    ports = [plain_port(name, 1) for name in "abc"]
    for port, last_run in zip(ports, [3.0, 1.0, 2.0], strict=True):
        port.last_run = last_run
    assert take_all(put_all(LeastRecentlyRun(), ports)) == ["b", "c", "a"]


def test_least_recently_run_goes_round_ports_that_never_ran() -> None:
    assert take_all(put_all(LeastRecentlyRun(), [plain_port(name, 1) for name in "abc"])) == ["a", "b", "c"]


def test_longest_queue() -> None:
    ports = [plain_port("a", 2), plain_port("b", 5), plain_port("c", 3)]
    assert take_all(put_all(LongestQueue(), ports)) == ["b", "c", "a"]


def test_longest_queue_settles_ties_at_random() -> None:
    firsts = {take_all(put_all(LongestQueue(seed), [plain_port(name, 2) for name in "abc"]))[0] for seed in range(50)}
    assert firsts == {"a", "b", "c"}


def test_least_latency_takes_the_oldest_tuple() -> None:
    late, early = plain_port("late"), plain_port("early")
    early.push([1])
    late.push([1])
    early.push([2])
    assert take_all(put_all(LeastLatency(), [late, early])) == ["early", "late"]


def test_longest_running_time_looks_at_what_waits_and_at_the_space_behind() -> None:
    full = plain_port("full", 10, capacity=10)
    quick, slow, blocked = plain_port("quick", 10), plain_port("slow", 10), plain_port("blocked", 10)
    for port, seconds in ((quick, 1.0), (slow, 5.0), (blocked, 50.0)):
        port.busy_seconds, port.processed = seconds, 100
    blocked.subscribers = [full]
    assert take_all(put_all(LongestRunningTime(), [quick, blocked, slow])) == ["slow", "quick", "blocked"]
    unknown = plain_port("unknown", 1)
    assert take_all(put_all(LongestRunningTime(), [slow, unknown])) == ["unknown", "slow"]


def test_random_takes_each_once_and_the_same_for_the_same_seed() -> None:
    names = "abcdefgh"
    orders = [take_all(put_all(Random(7), [plain_port(name, 1) for name in names])) for _ in range(2)]
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(names)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_runs_a_program(name: str) -> None:
    flow, out = pipeline(500)
    pn.run(flow, on="local", threading="dynamic", threads=3, policy=name, queue=8)
    assert out == running_sums(500)


class ShortestQueue(Policy):
    def choose(self, ready: Sequence[Port]) -> Port:
        return min(ready, key=lambda port: port.length)


@pytest.mark.parametrize("policy", [ShortestQueue, ShortestQueue()])
def test_a_policy_of_the_users(policy: Any) -> None:
    for _ in range(2):  # a policy may serve one job after another
        flow, out = pipeline(500)
        pn.run(flow, on="local", threading="dynamic", threads=2, policy=policy)
        assert out == running_sums(500)


def test_a_policy_serves_one_job_at_a_time_and_forgets_the_ports_of_the_last() -> None:
    go = threading.Event()
    policy = ShortestQueue()
    flow = pn.Flow("first")
    first = flow.source(range(1000)).map(lambda n: go.wait(LONG)).collect()
    job = pn.submit(flow, on="local", threading="dynamic", policy=policy)
    other, out = pipeline(10)
    with pytest.raises(pn.PlatformError, match="ShortestQueue serves a job that still runs"):
        pn.submit(other, on="local", threading="dynamic", policy=policy)
    job.cancel()
    go.set()
    with pytest.raises(pn.Cancelled):
        job.wait(LONG)
    delivered = len(first)
    pn.run(other, on="local", threading="dynamic", policy=policy)
    assert out == running_sums(10)
    assert len(first) == delivered, "the second job ran ports of the first"


def test_a_policy_that_fails_ends_the_run_with_its_error() -> None:
    class Broken(Policy):
        def choose(self, ready: Sequence[Port]) -> Port:
            raise KeyError("broken")

    flow, _ = pipeline(10)
    with pytest.raises(KeyError, match="broken"):
        pn.run(flow, on="local", threading="dynamic", policy=Broken)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(pn.PlatformError, match="policy= must be one of least_recently_run"):
        as_policy("fastest")
