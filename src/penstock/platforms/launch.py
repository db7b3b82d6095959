"""`run`, `submit` and `plan`: from a flow to a job on the platform asked for."""

from __future__ import annotations

from typing import Any

from penstock.compiler.plan import Plan
from penstock.errors import PlatformError
from penstock.graph.flow import Flow
from penstock.optimizer.calibrate import Calibration
from penstock.optimizer.profile import Profile
from penstock.platforms import local
from penstock.platforms.job import Job
from penstock.platforms.spark import planning

PLATFORMS = ("spark", "local")
_LOCAL_OPTIONS = ("threading", "threads", "pes", "policy", "quantum", "queue", "latency", "clock", "profile", "plan")
_SPARK_OPTIONS = ("master", "checkpoint", "trigger", "conf", "spark", "log", "profile", "plan")


def submit(flow: Flow, *, on: str = "spark", **options: Any) -> Job:
    """Start `flow` on a platform and return its job at once.

    Options of on="local": `threading=` ("auto", "manual", "dedicated" or "dynamic"), `threads=` (of the dynamic
    scheduler), `policy=` (which ready port runs next: a name or a `pn.Policy`), `quantum=` (seconds a thread stays with
    a port), `queue=` (capacity in tuples), `latency=True` (measure source to sink), `pes=`, `clock=`, `profile=` (a
    profile to plan by; or False: measure nothing), `plan=` (run by this plan of `pn.plan`).

    Options of on="spark": `master=` ("local[*]" by default), `checkpoint=` (a folder from which a stopped or killed job
    goes on), `trigger=` (such as "1s": how often a batch starts; as soon as there is data by default), `conf=` (Spark
    settings), `spark=` (a session of your own), `log=` (a Spark log level), `profile=` (a profile to plan by), `plan=`
    (run by this plan of `pn.plan(flow, on="spark")`).
    """
    graph = flow.graph()
    check_profile(options.get("profile"), switch=on == "local")
    check_plan(options.get("plan"))
    if on == "local":
        return local.submit(graph, **_known(options, _LOCAL_OPTIONS, on))
    if on == "spark":
        job: Job = _spark().submit(graph, **_known(options, _SPARK_OPTIONS, on))
        return job
    raise _no_platform(on)


def run(flow: Flow, *, on: str = "spark", **options: Any) -> Job:
    """Run `flow` to the end of its sources, and return the finished job. Ctrl-C stops it cleanly.

    >>> import penstock as pn
    >>> flow = pn.Flow("words")
    >>> words = flow.source(["to be", "or not"]).flat_map(str.split).collect()
    >>> pn.run(flow, on="local").state
    'completed'
    >>> words
    ['to', 'be', 'or', 'not']
    """
    job = submit(flow, on=on, **options)
    try:
        job.wait()
    except KeyboardInterrupt:
        job.cancel()
        job.wait_ended()
        raise
    return job


def plan(
    flow: Flow,
    *,
    cores: int | None = None,
    on: str = "local",
    threading: str = "auto",
    profile: Profile | None = None,
    calibration: Calibration | None = None,
    gil: bool | None = None,
    pes: int | None = None,
) -> Plan:
    """How `flow` would run: its operators, kinds, keys and segments, and why. Nothing is read or opened.

    It says which operators may be replicated and by what their streams would be split, and why the others may not.
    With a `profile` (of `pn.profile`, or saved from a run) also which operators share a thread, which are replicated
    (on Spark: the channels and threads of each stage), and the throughput expected on `cores` cores (those of this
    machine by default). `calibration` says what boundaries cost, by default what `penstock calibrate` found;
    `gil=False` plans for a Python without a GIL. With `pes`, also which operators would share which of that many
    processes (on="local"), and what to expect of them: each has a GIL of its own, and all share the cores.

    >>> import penstock as pn
    >>> flow = pn.Flow("squares")
    >>> out = flow.source(range(2000)).map_batch(lambda tuples: [n * n for n in tuples], name="square").collect()
    >>> plan = pn.plan(flow, cores=2, profile=pn.profile(flow))
    >>> pn.run(flow, on="local", plan=plan).state, sum(out) == sum(n * n for n in range(2000))
    ('completed', True)
    """
    graph = flow.graph()
    check_profile(profile)
    if on == "local":
        return local.plan(graph, threading, cores=cores, profile=profile, calibration=calibration, gil=gil, pes=pes)
    if on == "spark":
        if pes is not None:
            raise PlatformError("pes= is for on='local': on Spark, processes are Spark's own")
        if threading != "auto":
            raise PlatformError("threading= is for on='local': what runs in which thread on Spark follows the stages")
        return planning.plan(graph, cores=cores, profile=profile, calibration=calibration, gil=gil)
    raise _no_platform(on)


def check_profile(profile: object, *, switch: bool = False) -> None:
    """Raise `PlatformError` for what is no profile; with `switch`, a truth value says whether to measure."""
    if profile is None or isinstance(profile, Profile) or (switch and isinstance(profile, bool)):
        return
    also = ", or a truth value: whether to measure" if switch else ""
    raise PlatformError(
        f"profile= must be a pn.Profile{also}, not {profile!r}; pn.profile(flow) measures one, pn.Profile.load(...) "
        "reads a file"
    )


def check_plan(plan: object) -> None:
    """Raise `PlatformError` for what is no plan."""
    if plan is not None and not isinstance(plan, Plan):
        raise PlatformError(
            f"plan= must be a pn.Plan, not {plan!r}; pn.plan(flow) makes one, pn.Plan.from_json(text, flow) reads one"
        )


def _known(options: dict[str, Any], names: tuple[str, ...], on: str) -> dict[str, Any]:
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise PlatformError(f"on={on!r} has no option {unknown[0]!r}; it has {', '.join(names)}")
    return options


def _spark() -> Any:
    try:
        from penstock.platforms.spark import submit as platform
    except ImportError as error:
        raise PlatformError(
            f"on='spark' needs a package that is missing ({error}): pip install penstock again, or use on='local'"
        ) from error
    return platform


def _no_platform(on: str) -> PlatformError:
    return PlatformError(f"on= must be one of {', '.join(PLATFORMS)}, not {on!r}")
