"""Which files a file source reads, and in which order."""

# Paths are plain strings here: they are compared, sorted and stored in offsets.
# ruff: noqa: PTH100, PTH110, PTH112, PTH207
from __future__ import annotations

import fnmatch
import glob
import os
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import FlowError

PathLike = str | os.PathLike[str]
PathsLike = PathLike | Iterable[PathLike]


@dataclass(frozen=True, slots=True)
class Paths:
    """What the user named: one path (a file, a directory or a glob pattern) or a list of files.

    Paths are made absolute at once, so that a process with another working directory finds the same files.
    """

    given: tuple[str, ...]
    as_list: bool = False
    pattern: str = "*"

    @classmethod
    def of(cls, path: PathsLike, pattern: str = "*") -> Paths:
        """Read the `path` argument of a source.

        >>> Paths.of(["/b", "/a"]).given
        ('/b', '/a')
        """
        if isinstance(path, str | os.PathLike):
            return cls((_absolute(path),), pattern=pattern)
        try:
            given = tuple(_absolute(one) for one in path)
        except TypeError:
            raise FlowError(f"path must be a path or a list of paths, not {path!r}") from None
        return cls(given, as_list=True, pattern=pattern)

    def names(self) -> list[str]:
        """The files that are there now: a list in its own order, a directory or pattern in name order."""
        if not self.changing():
            return list(self.given)
        (path,) = self.given
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                return sorted(entry.path for entry in entries if self._wanted(entry))
        return sorted(filter(os.path.isfile, glob.glob(path, recursive=True)))

    def changing(self) -> bool:
        """True for a directory or a pattern: what it names may change."""
        return not self.as_list and (os.path.isdir(self.given[0]) or self._is_pattern())

    def _is_pattern(self) -> bool:
        return glob.has_magic(self.given[0]) and not os.path.exists(self.given[0])

    def _wanted(self, entry: os.DirEntry[str]) -> bool:
        # Hidden files are left out as in a shell: that is also where unfinished output of file sinks lies.
        return not entry.name.startswith(".") and fnmatch.fnmatchcase(entry.name, self.pattern) and entry.is_file()


def _absolute(path: PathLike) -> str:
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise FlowError(f"path must be a non-empty text, not {text!r}")
    return os.path.abspath(text)


class Listing:
    """The files of one run, and which one follows which.

    A finite run takes the listing once. One that follows a directory looks again and goes on with the next file in
    name order; a file that appears behind the one being read can no longer have its turn and is reported by `late`.
    """

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.changing = paths.changing()
        self.names = paths.names()
        self._known = set(self.names)

    def refresh(self) -> None:
        """Look again for files."""
        if self.changing:
            self.names = self.paths.names()

    def after(self, path: str, index: int) -> tuple[str, int] | None:
        """The file to read after `path`, number `index` of the listing; the first one after `("", -1)`."""
        following = bisect_right(self.names, path) if self.changing else index + 1
        return (self.names[following], following) if following < len(self.names) else None

    def late(self, path: str) -> list[str]:
        """Files that appeared since the last call with names before `path`."""
        if not self.changing:
            return []
        appeared = [name for name in self.names if name not in self._known]
        self._known.update(appeared)
        return [name for name in appeared if name < path]
