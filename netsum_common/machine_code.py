"""The cache of machine code on disk."""

import contextlib
import glob
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, Protocol

from numba.core import caching

from netsum_common.sources import sources_stamp


class CompilationWatcher(Protocol):
    """Is notified of functions that no cache holds."""

    def begin(self, folder: str) -> None:
        """Note that a function is not in the cache at `folder`, and will be compiled."""

    def note_function(self) -> None:
        """Note that a function was compiled."""


watchers: list[CompilationWatcher] = []


class _Stamped:
    """Overrides a Numba cache locator's test of the freshness of a function's module: all that the module imports counts."""

    _py_file: str

    def get_source_stamp(self) -> str:
        return sources_stamp(Path(self._py_file))


# Numba is not typed, so its classes are Any to the type checker. They are undocumented:
# tests/test_machine_code.py names the versions of Numba that these were tried with.
class ChosenFolder(_Stamped, caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """The folder of NUMBA_CACHE_DIR."""


class BesideSource(_Stamped, caching.InTreeCacheLocator):  # type: ignore[misc]
    """`__pycache__` beside the source."""


class FilledBesideSource(BesideSource):
    """`__pycache__` beside the source, read-only, if it is current: in an image that was built with it."""

    def ensure_cache_path(self) -> None:
        """Accept a folder that cannot be written."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Return the locator, or None where nothing current is held."""
        locator = cls(py_func, py_file)
        pattern = f"*.{py_func.__qualname__}-{locator.get_disambiguator()}.py*.nbi"
        for index in Path(locator.get_cache_path()).glob(pattern):
            kept = caching.IndexDataCacheFile(str(index.parent), index.stem, locator.get_source_stamp())
            if kept._load_index():
                return locator
        return None


class UserWide(_Stamped, caching.UserWideCacheLocator):  # type: ignore[misc]
    """The user's cache folder, where the installation is read-only."""


class Temporary(_Stamped, caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """A temporary folder, where the user's folder is read-only too."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno
        self._cache_path = os.path.join(_temporary_folder(), self.get_suitable_cache_subpath(py_file))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Return the locator; there is no further place to try."""
        locator = cls(py_func, py_file)
        locator.ensure_cache_path()
        return locator


class _CacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (ChosenFolder, BesideSource, FilledBesideSource, UserWide, Temporary)


class _Files(caching.IndexDataCacheFile):  # type: ignore[misc]
    """The files of a function's machine code, each named after its sources and signature.

    Numba numbers them, and writes the index first. A process that reads the index then loads an older file of that number, or,
    where two processes compile two signatures at once, the other's: code for arguments of other types.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write the machine code of a signature, then the index."""
        overloads = self._load_index()
        digest = hashlib.sha256(repr((self._source_stamp, key)).encode()).digest()
        name = self._data_name(int.from_bytes(digest[:6]))
        self._save_data(name, data)
        if not overloads and Path(self._index_path).exists():  # Left by older sources.
            for old in Path(self._cache_path).glob(
                glob.escape(self._index_name.removesuffix("nbi")) + "*.nbc"
            ):
                if old.name != name:
                    old.unlink(missing_ok=True)
        overloads[key] = name
        self._save_index(overloads)


class StampedCache(caching.FunctionCache):  # type: ignore[misc]
    """A Numba cache that is stale when a source has changed that the function's module imports, directly or not.

    The first place that can be used is taken: NUMBA_CACHE_DIR, ``__pycache__`` beside the source, the user's cache
    folder, a temporary folder.
    """

    _impl_class = _CacheImpl

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _Files(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code of a signature, or None; then the watchers are notified that it will be compiled."""
        found = super().load_overload(sig, target_context)
        if found is None:
            for watcher in watchers:
                watcher.begin(self.cache_path)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the machine code of a signature, if there is a place to keep it."""
        with contextlib.suppress(PermissionError):  # filled beside the source, for another kind of CPU
            super().save_overload(sig, data)
        for watcher in watchers:
            watcher.note_function()


def _temporary_folder() -> str:
    """Return a folder of this user alone: its files are executed.

    Raises OSError if the system's temporary folder cannot be written.
    """
    folder = Path(tempfile.gettempdir()) / f"netsum-cache-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
        raise PermissionError(f"{folder} belongs to another user or can be written by others: delete it")
    return str(folder)
