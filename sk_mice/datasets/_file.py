"""A folder of images as one .npy file, which goes on where it was interrupted.

For `images.npy`, values are written to `images.npy.part` while images are decoded. The
journal, `images.npy.files`, says which files are in it, by size and time of change. It
stays beside the result, so that the same call finds that there is nothing to do.
"""

import hashlib
import json
import os
from contextlib import suppress
from errno import EEXIST

import numpy as np

from .._engine.files import lock, replace
from .._engine.maps import check_out, create, reopened, write_rows

ROWS_OF_ENTRY = 512  # decoded between two entries of the journal
JOURNAL = b'{"files": '  # how a journal begins


def files_of(out, root) -> set[tuple[str, ...]]:
    """The files that are written for `out`, as parts of their paths below a folder."""
    try:
        path = os.path.relpath(os.path.realpath(out), os.path.realpath(root))
    except ValueError:  # on another drive
        return set()
    return {tuple(f"{path}{end}".split(os.sep)) for end in ("", ".part", ".files")}


def decode_to_file(out, decoder, root, found, decode, *, leave_out):
    """Decode files into the rows of a .npy file; returns a map of it, and reasons.

    `found` has the files as parts of their paths below `root`. ``decode(X, rows)``
    fills rows of X and yields the reason why a row could not be filled, or None. With
    `leave_out`, such rows are left out. Without, the result is None, and the next call
    decodes only these files again.
    """
    out = check_out(out).resolve()  # a link stays
    part, journal = (out.with_name(out.name + end) for end in (".part", ".files"))
    stamps = [_stamp(os.path.join(root, *parts)) for parts in found]
    names = hashlib.sha256(repr(found).encode("utf-8", "surrogatepass")).hexdigest()
    header = {"files": names, **decoder.settings()}
    _check_own(out, part, journal)
    with open(journal, "a+", encoding="utf-8") as file:
        lock(file, wait=True)  # another process may write the same file
        known, done = _read(file, header, stamps)
        there = _stamp(out)
        if done and there and there[0] not in (0, done[0]):
            why = "differs in size from what a call with this `out` wrote; move it"
            raise FileExistsError(EEXIST, why, str(out))
        if not done or done != there or len(known) < len(found):
            known = _decode_rest(file, header, part, decoder, stamps, known, decode)
            good = [row for row in range(len(found)) if known[row] is None]
            if not good or (len(good) < len(found) and not leave_out):
                return None, [known[row] for row in range(len(found))]
            _finish(part, out, good, len(found))
            _write(file, {"done": _stamp(out)})
    return np.load(out, mmap_mode="r"), [known[row] for row in range(len(found))]


def _check_own(out, part, journal):
    """Refuse to replace files that no earlier call has written."""
    if journal.exists():
        with open(journal, "rb") as file:
            start = file.read(len(JOURNAL))
        others = [] if JOURNAL.startswith(start) else [journal]  # may be cut off
    else:
        others = [path for path in (out, part) if path.exists()]
    if others:
        why = "is there, and no earlier call with this `out` has written it"
        raise FileExistsError(EEXIST, why, str(others[0]))


def _stamp(path):
    """Size and time of change of a file; None if there is none."""
    with suppress(OSError):
        status = os.stat(path)
        return [status.st_size, status.st_mtime_ns]
    return None


def _read(file, header, stamps):
    """The decoded rows, each with its reason or None, and the stamp of the result."""
    file.seek(0)
    known, done = {}, None
    try:
        alike = json.loads(file.readline()) == header
        for line in file:
            entry = json.loads(line)
            done = entry.get("done")
            for row, stamp, reason in entry.get("rows", ()):
                if alike and stamps[row] == stamp:
                    known[row] = reason
    except ValueError:  # empty, or cut off when the machine stopped
        pass
    return known, done


def _write(file, entry):
    file.write(json.dumps(entry) + "\n")
    file.flush()
    os.fsync(file.fileno())


def _decode_rest(file, header, part, decoder, stamps, known, decode):
    """Decode files that are not `known` or could not be read; returns what is known."""
    shape = decoder.shape(len(stamps))
    X = reopened(part, shape, np.uint8)
    if X is None:
        X, known = create(part, shape, np.uint8), {}
    known = {row: None for row, reason in known.items() if reason is None}
    file.truncate(0)
    _write(file, header)
    _note(file, stamps, known)
    rest = [row for row in range(len(stamps)) if row not in known]
    reasons = iter(decode(X, rest))
    for start in range(0, len(rest), ROWS_OF_ENTRY):
        found = {}
        try:
            for row in rest[start : start + ROWS_OF_ENTRY]:
                found[row] = next(reasons)
        finally:  # rows that were decoded before Ctrl-C are kept
            X.flush()
            _note(file, stamps, found)
        known |= found
    next(reasons, None)  # may warn at its end
    return known


def _note(file, stamps, known):
    rows = [(row, stamps[row], reason) for row, reason in known.items()]
    _write(file, {"rows": rows})


def _finish(part, out, good, n):
    """Give the result its name, without the rows that could not be filled."""
    if len(good) == n:
        replace(part, out)
        return
    X = np.load(part, mmap_mode="r")
    write_rows(out, (len(good), *X.shape[1:]), X.dtype, (X[[row]] for row in good))
    del X  # Windows removes no file that is mapped
    part.unlink()
