"""The commands: `penstock run`, `penstock plan` and `penstock calibrate`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from penstock.cli.program import load_flow
from penstock.cli.progress import Progress, Steps, duration, summary
from penstock.compiler.plan import Plan
from penstock.errors import Cancelled, PenstockError, PlatformError, is_user_file
from penstock.graph.annotations import THREADING_MODELS
from penstock.optimizer.profile import Profile
from penstock.platforms import calibration, launch
from penstock.platforms.profiling import profile
from penstock.runtime.policies import POLICIES

# Exit codes: 1 a failing program, 2 a wrong call (click's own), 130 stopped by Ctrl-C, as shells expect.
FAILED, INTERRUPTED = 1, 130
_FILE = click.Path(exists=True, dir_okay=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock")
def cli() -> None:
    """Penstock: stream programs written once, run in parallel, with the same output."""


@cli.command()
@click.argument("program", metavar="FILE[:FLOW]")
@click.option("--on", type=click.Choice(launch.PLATFORMS), default="spark", show_default=True, help="Platform.")
@click.option("--threading", type=click.Choice(THREADING_MODELS), default=None, help="Threading model (local).")
@click.option("--threads", type=int, default=None, help="Number of scheduler threads (local).")
@click.option("--policy", type=click.Choice(tuple(POLICIES)), default=None, help="Which ready port runs next (local).")
@click.option("--latency", is_flag=True, default=None, help="Measure latency from source to sink (local).")
@click.option("--master", default=None, help="Spark master, such as spark://host:7077; all local cores by default.")
@click.option("--checkpoint", type=click.Path(file_okay=False), default=None, help="Folder to go on from (Spark).")
@click.option("--trigger", default=None, help="How often a batch starts, such as 1s (Spark).")
@click.option("--spark-log", "log", default=None, help="Show Spark's own log at this level, such as WARN.")
@click.option("--plan-from", type=_FILE, default=None, help="Run by a plan saved with penstock plan --json.")
@click.option("--profile-from", type=_FILE, default=None, help="Run by the plan for a saved profile.")
@click.option("--plan", "show_plan", is_flag=True, help="Print the plan before running.")
@click.option("--operators", is_flag=True, help="Print what each operator did and cost.")
@click.option("--save-profile", type=click.Path(dir_okay=False), default=None, help="Write the profile as JSON.")
@click.option("--traceback", "show_traceback", is_flag=True, help="Show the whole traceback of an error.")
def run(
    program: str,
    on: str,
    threading: str | None,
    threads: int | None,
    policy: str | None,
    latency: bool | None,
    master: str | None,
    checkpoint: str | None,
    trigger: str | None,
    log: str | None,
    plan_from: str | None,
    profile_from: str | None,
    show_plan: bool,
    operators: bool,
    save_profile: str | None,
    show_traceback: bool,
) -> None:
    """Run the flow in FILE to the end of its sources."""
    if plan_from is not None and profile_from is not None:
        raise click.UsageError("--plan-from is a plan, --profile-from makes one: choose one")
    console = Console(stderr=True)
    options: dict[str, object] = {"threading": threading, "threads": threads, "policy": policy, "latency": latency}
    options |= {"master": master, "checkpoint": checkpoint, "trigger": trigger, "log": log}
    job = None
    try:
        flow = load_flow(program)
        if plan_from is not None:
            options["plan"] = Plan.from_json(_text_of(plan_from), flow)
        if profile_from is not None:
            options["profile"] = Profile.load(profile_from)
        job = launch.submit(flow, on=on, **{key: value for key, value in options.items() if value is not None})
        if show_plan:
            click.echo(str(job.plan) + "\n")
        Progress(job, console).follow()
        summary(job, console, operators=operators)
        if save_profile is not None:
            with _writing(save_profile, "profile"):
                job.profile().save(Path(save_profile))
    except KeyboardInterrupt:
        if job is not None:
            job.cancel()
            job.wait_ended()
            summary(job, console, operators=False)
        sys.exit(INTERRUPTED)
    except Cancelled as error:
        console.print(str(error), markup=False)
        sys.exit(INTERRUPTED)
    except PenstockError as error:
        if _reader_went_away(error):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains while it exits
            sys.exit(0)
        _report(error, console, show_traceback)
        sys.exit(FAILED)


@cli.command()
@click.argument("program", metavar="FILE[:FLOW]")
@click.option("--on", type=click.Choice(launch.PLATFORMS), default="local", show_default=True, help="Platform.")
@click.option("--cores", type=int, default=None, help="Plan for this many cores.")
@click.option("--threading", type=click.Choice(THREADING_MODELS), default="auto", help="Threading model (local).")
@click.option("--profile", "measure", is_flag=True, help="Measure the first tuples of the sources, and plan by that.")
@click.option("--profile-from", type=_FILE, default=None, help="Plan by a saved profile.")
@click.option("--gil/--no-gil", default=None, help="Plan for a Python with or without a GIL; as this one by default.")
@click.option("--pes", type=int, default=None, help="Divide the flow into this many processes (local).")
@click.option("--code", is_flag=True, help="Show the generated functions.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON, for penstock run --plan-from.")
@click.option("--picture", type=click.Path(dir_okay=False), default=None, help="Draw the plan into an SVG file.")
@click.option("--traceback", "show_traceback", is_flag=True, help="Show the whole traceback of an error.")
def plan(
    program: str,
    on: str,
    cores: int | None,
    threading: str,
    measure: bool,
    profile_from: str | None,
    gil: bool | None,
    pes: int | None,
    code: bool,
    as_json: bool,
    picture: str | None,
    show_traceback: bool,
) -> None:
    """Explain how the flow in FILE would run."""
    if measure and profile_from is not None:
        raise click.UsageError("--profile measures, --profile-from reads: choose one")
    if picture is not None and Path(picture).suffix.lower() != ".svg":
        raise click.UsageError(f"--picture draws SVG: give the file a name that ends in .svg, not '{picture}'")
    try:
        flow = load_flow(program)
        found = profile(flow) if measure else None
        if profile_from is not None:
            found = Profile.load(profile_from)
        explained = launch.plan(flow, cores=cores, on=on, threading=threading, profile=found, gil=gil, pes=pes)
        if picture is not None:
            with _writing(picture, "picture"):
                Path(picture).write_text(explained.picture(), encoding="utf-8")
        if as_json:
            click.echo(explained.to_json())
            return
    except PenstockError as error:
        _report(error, Console(stderr=True), show_traceback)
        sys.exit(FAILED)
    click.echo(explained.code() if code else str(explained))


@cli.command()
@click.option("--spark", is_flag=True, help="Measure Spark's stages, shuffles and batches too: a few minutes.")
@click.option("--save", type=click.Path(dir_okay=False), default=None, help="Write it here, not to the user's cache.")
@click.option("--traceback", "show_traceback", is_flag=True, help="Show the whole traceback of an error.")
def calibrate(spark: bool, save: str | None, show_traceback: bool) -> None:
    """Measure what handing tuples over costs on this machine, and keep it for plans.

    What a calibration with --spark has found stays until the next one with --spark.
    """
    console = Console(stderr=True)
    try:
        with Steps(console) as steps:
            found = calibration.calibrate(spark=spark, tell=steps.tell)
        kept = calibration.keep(found, None if save is None else Path(save))
    except KeyboardInterrupt:
        console.print("stopped: nothing is kept")
        sys.exit(INTERRUPTED)
    except PenstockError as error:
        _report(error, console, show_traceback)
        sys.exit(FAILED)
    click.echo(f"{'boundary':<10}{'delta':>10}{'cp':>10}{'cp, keyed':>11}   per tuple, on {found.machine}")
    for kind, boundary in found.boundaries.items():
        costs = f"{duration(boundary.delta):>10}{duration(boundary.cp):>10}{duration(boundary.keyed_cp):>11}"
        click.echo(f"{kind:<10}{costs}")
    for kind in ("stage", "shuffle") if spark else ():
        if kind not in found.boundaries:
            click.echo(f"{kind:<10}lost in noise: plans keep what they had; try again on a quiet machine")
    if found.batch is not None:
        own = f"{duration(found.batch.base)}, and {duration(found.batch.shuffle)} for each shuffle"
        click.echo(f"Spark's own time of a batch: {own}")
    click.echo(f"kept in {kept}" if kept is not None else "not kept: the cache folder cannot be written")


@cli.command()
@click.option("--traceback", "show_traceback", is_flag=True, help="Show the whole traceback of an error.")
def prepare(show_traceback: bool) -> None:
    """Make Spark start sooner on this machine: keeps its loaded classes in the cache folder (about 180 MB)."""
    console = Console(stderr=True)
    try:
        from penstock.platforms.spark.prepare import prepare as prepare_spark

        with console.status("starting Spark once and writing its classes down"):
            prepare_spark()
    except PenstockError as error:
        _report(error, console, show_traceback)
        sys.exit(FAILED)
    console.print("Spark starts sooner from now on.")


@contextmanager
def _writing(path: str, what: str) -> Iterator[None]:
    """An error of the file system while `what` is written to `path` is one of ours."""
    try:
        yield
    except OSError as error:
        raise PlatformError(f"the {what} cannot be written to {path}: {error.strerror or error}") from error


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlatformError(f"{path} cannot be read: {error}") from error


def _report(error: PenstockError, console: Console, show_traceback: bool) -> None:
    """The error as its message; the user's part of the traceback below it, or all of it when asked."""
    if show_traceback:
        traceback.print_exception(error)
        return
    console.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
    cause = error.__cause__
    if cause is not None:
        frames = [f for f in traceback.extract_tb(cause.__traceback__) if is_user_file(f.filename)]
        console.print(Text("".join(traceback.format_list(frames[-3:])).rstrip()), soft_wrap=True)


def _reader_went_away(error: BaseException | None) -> bool:
    """True when the program failed because whoever read its output, such as `head`, has seen enough."""
    while error is not None:
        if isinstance(error, BrokenPipeError):
            return True
        error = error.__cause__
    return False


def main() -> None:
    """The entry point of the `penstock` command."""
    cli()


if __name__ == "__main__":
    main()
