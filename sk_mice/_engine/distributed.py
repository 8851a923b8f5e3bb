"""One fit in several processes: their rows of a batch, and their messages.

Every process runs the same `fit`. Random draws are made for whole batches, and each
process works on its own rows of them. What is done once is done by the first process,
and its result is sent to the others. A fit in one process has a `Group` of its own, in
which nothing is sent: every method returns what it is given.

Two groups of torch carry the messages. One is for steps, and fails if a process does
not answer within `STEP_TIMEOUT`. The other is for everything between them, such as a
partition that the first process computes. It waits, and fails when a process ends.
"""

import inspect
import itertools
import math
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

STEP_TIMEOUT = timedelta(seconds=40)
JOIN_TIMEOUT = timedelta(minutes=30)  # until all have called `fit`
PATIENCE = timedelta(days=1)
# What torchrun sets for each process, as other launchers do.
OF_TORCHRUN = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}

# Words in the errors of a lost connection. They come from libraries below torch, as a
# RuntimeError without a class of its own.
LOST = ("gloo", "nccl", "pair closure", "closed by peer")
_numbers = itertools.count()  # of the default groups that this process makes

T = TypeVar("T")


class Part(NamedTuple):
    """The rows of a batch on which this process works."""

    rows: Tensor  # (M,), int64: their indices in the batch
    n: int  # rows of the whole batch; with neighbors, several for each sample


class Group:
    """The processes of a fit; here, a single one.

    Attributes
    ----------
    rank, size : int
        The number of this process, from 0, and the number of processes.
    local_rank : int or None
        The number of this process on its machine; None if there is only one process.
    """

    rank, size = 0, 1
    local_rank: int | None = None

    @property
    def first(self) -> bool:
        """Whether this is the process that does what is done once, such as writing."""
        return self.rank == 0

    def rows(self, n: int) -> slice:
        """The slice of n rows that this process has; sizes differ by at most one."""
        lengths = self._lengths(n)
        start = sum(lengths[: self.rank])
        return slice(start, start + lengths[self.rank])

    def _lengths(self, n: int) -> list[int]:
        return [n // self.size + (i < n % self.size) for i in range(self.size)]

    def agree(self, facts: dict[str, tuple[str, str]]) -> None:
        """Check that the facts are the same in all processes.

        Each name has a value that is compared, and one that is shown if they differ. A
        ValueError in every process names what differs.
        """

    def refuse(self, error: Exception) -> None:
        """Tell the processes that wait in `agree` that this one raises an error."""

    def from_first(self, function: Callable[[], T]) -> T:
        """What the function returns, or raises, in the first process."""
        return function()

    def barrier(self) -> None:
        """Wait for all processes, for as long as it takes."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process; waits as `barrier` does."""
        return flag

    def any_at_last_step(self, flag: bool) -> bool:
        """Whether any process set the flag one call before, so that no step waits."""
        return flag

    def gather(self, own: Tensor, n: int, *, between_steps=False) -> Tensor:
        """All n rows, in order, from the rows of each process."""
        return own

    def sum(self, *tensors: Tensor) -> None:
        """Add up tensors of all processes, in place."""

    def maximum(self, tensor: Tensor) -> None:
        """Take the largest values of all processes, in place."""

    def average_buffers(self, module: nn.Module, but: Sequence[str]) -> None:
        """Average buffers of floats; the others become those of the first process."""

    def broadcast(self, *tensors: Tensor) -> None:
        """Replace tensors by those of the first process."""

    def parallel(self, module: nn.Module) -> Callable:
        """A module as a function, whose backward pass averages the gradients.

        The module gets the weights and the buffers of the first process.
        """
        return module.__call__

    def explain(self, error: RuntimeError) -> None:
        """Raise a RuntimeError that says so if another process was lost."""

    def close(self, failed: bool) -> None:
        """Leave the group, after waiting for the others unless the fit has failed."""


ALONE = Group()


class Processes(Group):
    """The processes of torch's default group, each with its rank."""

    def __init__(self, *, own: bool):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        self._own = own  # whether the default group was made for this fit
        self._agreed = False
        self._asked: tuple | None = None
        self._steps = dist.new_group(backend=_backend(), timeout=STEP_TIMEOUT)
        self._between = dist.new_group(backend="gloo", timeout=PATIENCE)

    # ------------------------------------------------------------------- agreement

    def agree(self, facts):
        self._agreed = True
        heard = self._hear(facts, None)
        for rank, (_, refusal) in enumerate(heard):
            if refusal is not None:
                raise ValueError(f"Rank {rank} refuses what `fit` was given: {refusal}")
        nothing = "", "not there"
        known = [facts for facts, _ in heard]
        listed = []
        for name in sorted(set().union(*known)):
            values, shown = zip(*(f.get(name, nothing) for f in known), strict=True)
            if len(set(values)) > 1:
                listed.append(f"{name} is {_by_rank(shown)}")
        if listed:
            raise ValueError(
                "X, parameters and versions of libraries must be the same in all "
                f"processes of a fit; {'; '.join(listed)}."
            )

    def refuse(self, error):
        if not self._agreed:
            self._agreed = True
            self._hear(None, f"{type(error).__name__}: {error}")

    def _hear(self, *message) -> list:
        heard = [None] * self.size
        dist.all_gather_object(heard, message, group=self._between)
        return heard

    def from_first(self, function):
        result = [None, None]  # value, error
        if self.first:
            try:
                result[0] = function()
            except Exception as error:
                result[1] = error
        try:
            dist.broadcast_object_list(result, src=0, group=self._between)
        except Exception as error:
            if result[1] is None:
                raise
            raise result[1] from error  # the error cannot be pickled
        value, refusal = result
        if refusal is not None:
            raise refusal
        return value

    def barrier(self):
        self.any(False)

    def any(self, flag):
        work, flags = self._ask(flag, self._between)
        work.wait()
        return bool(flags)

    def any_at_last_step(self, flag):
        asked, self._asked = self._asked, self._ask(flag, self._steps)
        if asked is None:
            return False
        work, flags = asked
        work.wait()
        return bool(flags)

    def _ask(self, flag, group):
        flags = torch.tensor([int(flag)])
        work = dist.all_reduce(flags, dist.ReduceOp.MAX, group=group, async_op=True)
        return work, flags

    # --------------------------------------------------------------------- tensors

    def gather(self, own, n, *, between_steps=False):
        lengths = self._lengths(n)
        mine = own.new_zeros(lengths[0], *own.shape[1:])  # all send equally many
        mine[: len(own)] = own
        found = [torch.empty_like(mine) for _ in lengths]
        dist.all_gather(
            [rows.view(torch.uint8) for rows in found],  # not all backends have types
            mine.view(torch.uint8),
            group=self._between if between_steps else self._steps,
        )
        parts = zip(found, lengths, strict=True)
        return torch.cat([rows[:length] for rows, length in parts])

    def sum(self, *tensors):
        for tensor in tensors:
            dist.all_reduce(tensor, group=self._steps)

    def maximum(self, tensor):
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self._steps)

    def average_buffers(self, module, but):
        buffers = [b for name, b in module.named_buffers() if name not in but]
        floats = [buffer for buffer in buffers if buffer.is_floating_point()]
        if floats:  # one message for all
            mean = torch.cat([buffer.flatten() for buffer in floats]) / self.size
            self.sum(mean)
            parts = mean.split([buffer.numel() for buffer in floats])
            for buffer, part in zip(floats, parts, strict=True):
                buffer.copy_(part.view_as(buffer))
        self.broadcast(*(b for b in buffers if not b.is_floating_point()))

    def broadcast(self, *tensors):
        for tensor in tensors:
            dist.broadcast(tensor, src=0, group=self._steps)

    def parallel(self, module):
        parallel = nn.parallel.DistributedDataParallel
        names = inspect.signature(parallel).parameters
        new, old = "forward_sync_buffers", "broadcast_buffers"
        return parallel(
            module,
            process_group=self._steps,
            static_graph=True,  # networks may have weights that they do not use
            **{new if new in names else old: False},  # each normalises its own rows
        ).__call__

    # ------------------------------------------------------------------------- end

    def explain(self, error):
        lost = any(words in str(error).lower() for words in LOST)
        if lost or isinstance(error, dist.DistError):
            seconds = math.ceil(STEP_TIMEOUT.total_seconds())
            raise RuntimeError(
                f"Rank {self.rank} of {self.size} has lost another process of the fit: "
                f"it ended, or did not answer for {seconds} s. Its own output says "
                "why. With `checkpoint`, the same script goes on from there."
            ) from error

    def close(self, failed):
        if not failed:  # the others may still read what was sent last
            self.barrier()
        dist.destroy_process_group(self._steps)
        dist.destroy_process_group(self._between)
        if self._own:
            dist.destroy_process_group()


def open_group(wanted: bool) -> Group:
    """The group of a fit: the processes of torch's default group, if that is wanted.

    If there is no such group, one is made from what torchrun has set in the
    environment. Without other processes, and in workers and threads, it is `ALONE`.
    """
    main = threading.current_thread() is threading.main_thread()
    if not (wanted and main and dist.is_available()):
        return ALONE
    if dist.is_initialized():
        return Processes(own=False) if dist.get_world_size() > 1 else ALONE
    is_worker = multiprocessing.current_process().name != "MainProcess"
    if is_worker or not os.environ.keys() >= OF_TORCHRUN:
        return ALONE
    size = int(os.environ["WORLD_SIZE"])
    if size == 1:
        return ALONE
    hook = sys.excepthook  # torch wraps it once more for each group
    dist.init_process_group(
        _backend(),
        store=dist.PrefixStore(_prefix(), _store()),
        rank=int(os.environ["RANK"]),
        world_size=size,
        timeout=JOIN_TIMEOUT,
    )
    sys.excepthook = hook
    return Processes(own=True)


def _backend() -> str:
    """Torch's backends for messages; nccl is for GPUs, and not on Windows."""
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    return "cpu:gloo,cuda:nccl" if has_nccl else "gloo"


def _prefix() -> str:
    """A prefix for the keys in the store, another one for each group.

    torchrun keeps the store when it restarts processes.
    """
    life = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
    return f"sk_mice/{life}/{next(_numbers)}"


@cache
def _store():
    """The store by which the processes find one another; all fits share its port."""
    store, _, _ = next(dist.rendezvous("env://", timeout=JOIN_TIMEOUT))
    return store


def _by_rank(values: Sequence[str]) -> str:
    """Each value with the ranks that have it."""
    ranks: dict[str, list[str]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(value, []).append(str(rank))
    if len(ranks) == 1:  # shown alike
        return f"{values[0]} in all ranks, and yet not the same"
    return ", ".join(f"{value} in rank {' '.join(of)}" for value, of in ranks.items())
