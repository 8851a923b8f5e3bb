"""What is global around a fit: settings, torch's generators, and freed memory."""

import ctypes
import os
import sys
import threading
import zlib
from contextlib import ExitStack, contextmanager
from functools import cache

import numpy as np
import torch
from joblib import cpu_count
from torch.utils._python_dispatch import TorchDispatchMode

from .forks import in_each_child

_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def _begin_child():
    """Let go, in the child of a fork, of what only threads of the parent would end."""
    global _lock, _n_users
    # OpenMP would wait forever for the parent's threads. The child may set another
    # number.
    torch.set_num_threads(1)
    _lock = threading.Lock()
    if _n_users:
        _n_users = 0
        _give_back(ctypes.CDLL(None))


in_each_child(_begin_child)


@contextmanager
def own_settings():
    """Compute in this thread with the default settings of torch and NumPy.

    An outer autocast, inference mode, `no_grad` and default device have no effect
    inside. There are at most as many threads as cores; the code inside may use fewer.
    The default dtype belongs to the whole process and is not changed: code inside has
    to name the dtype of the tensors that it makes.
    """
    with ExitStack() as settings:
        settings.enter_context(_granted_threads())
        settings.enter_context(np.errstate(**_NUMPY_ERRORS))
        settings.enter_context(torch.inference_mode(False))
        settings.enter_context(torch.enable_grad())
        for device_type in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device_type):
                off = torch.autocast(device_type, enabled=False)
                settings.enter_context(off)
        if torch.empty(0).device.type != "cpu":
            settings.enter_context(torch.device("cpu"))
        yield


@contextmanager
def _granted_threads():
    """Use at most as many threads as a container grants cores, unless OMP_NUM_THREADS.

    Torch uses a thread for each core of the machine. If fewer can run at a time, they
    wait for each other.
    """
    n = torch.get_num_threads()
    granted = n if "OMP_NUM_THREADS" in os.environ else cpu_count()
    if granted < n:
        torch.set_num_threads(granted)
    try:
        yield
    finally:
        if torch.get_num_threads() != n:
            torch.set_num_threads(n)


def spawn_seed(seed: int, purpose: str, *numbers: int) -> int:
    """A seed below 2**32; other purposes and numbers give independent streams."""
    key = (zlib.crc32(purpose.encode()), *numbers)
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0])


# -------------------------------------------------------------------- random draws

_aten = torch.ops.aten
# Operations whose tensors have the default dtype if none is given.
_FACTORIES = {
    *(_aten.empty.memory_format, _aten.zeros.default, _aten.ones.default),
    *(_aten.rand.default, _aten.randn.default, _aten.eye.default, _aten.eye.m),
    *(_aten.linspace.default, _aten.logspace.default),
}
# Operations that take no generator in earlier releases of torch, and methods that fill
# a tensor in the same way.
_LIKE = {
    _aten.rand_like: torch.Tensor.uniform_,
    _aten.randn_like: torch.Tensor.normal_,
    _aten.randint_like: torch.Tensor.random_,
}


class OwnDraws(TorchDispatchMode):
    """Random draws come from generators of this context, and new tensors are float32.

    For code that takes no generator, such as the constructors of modules and dropout.
    It acts in this thread alone: the global generator and the default dtype are neither
    read nor changed.

    Parameters
    ----------
    seed : int
        Seed of the generators, one for each device that draws.
    *generators : torch.Generator
        Used for their devices in place of generators that are made from the seed.
    """

    drew = False  # whether anything was drawn

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # True imports torch's compiler, which takes seconds

    def __init__(self, seed: int, *generators: torch.Generator):
        super().__init__()
        self._seed = seed
        self._generators = {generator.device: generator for generator in generators}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in _FACTORIES and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.float32
        if func is _aten.native_dropout.default:  # on a GPU, or in inference mode
            return self._dropout(*args, **kwargs)
        if not _draws(func, args, kwargs) or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        func = _with_generator(func)
        if "generator" in _names(func):
            kwargs["generator"] = self._generator(args, kwargs.get("device"))
            return func(*args, **kwargs)
        if func.overloadpacket in _LIKE:
            like = torch.empty_like(args[0], **kwargs)
            fill = _LIKE[func.overloadpacket]
            return fill(like, *args[1:], generator=self._generator([like], None))
        with self:  # in inference mode, it may consist of several operations
            found = func.decompose(*args, **kwargs)
        return func(*args, **kwargs) if found is NotImplemented else found

    def _dropout(self, x, p: float, train: bool | None):
        """Dropout of x, and the mask of what is left, as torch returns them."""
        if train is False:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        with self:
            left = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p)
        return x * left * (1 / (1 - p) if p < 1 else 0.0), left

    def _generator(self, args, device) -> torch.Generator:
        self.drew = True
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        device = tensors[0].device if tensors else torch.device(device or "cpu")
        if device.type == "meta":  # nothing is drawn
            device = torch.device("cpu")
        if device not in self._generators:
            generator = torch.Generator(device).manual_seed(self._seed)
            self._generators[device] = generator
        return self._generators[device]


def _draws(func, args, kwargs) -> bool:
    """Whether a call draws; attention does only if it has dropout."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    return "dropout_p" not in names or given.get("dropout_p", 0) != 0


@cache
def _with_generator(func):
    """The overload of a random operation that takes a generator, if there is one."""
    names = _names(func)
    if "generator" not in names:
        for overload in func.overloadpacket.overloads():
            other = getattr(func.overloadpacket, overload)
            if _names(other) == names | {"generator"}:
                return other
    return func


@cache
def _names(func) -> frozenset[str]:
    return frozenset(argument.name for argument in func._schema.arguments)


# -------------------------------------------------------------------- freed memory

# Parameters of mallopt(3), and the largest values that glibc itself adjusts them to.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
THRESHOLD, MMAP_MAX = 32 * 2**20, 65536

_lock = threading.Lock()
_n_users = 0


@contextmanager
def kept_memory(device: torch.device):
    """Let the process keep the memory that it frees, while steps run on a CPU.

    glibc returns large blocks to the system when they are freed. The system then hands
    them out zeroed, with a page fault for each page. A training step frees hundreds of
    megabytes and requests them again.

    At the end, free memory is returned. There is no effect without glibc, if the
    environment has settings for its memory, or on other devices than a CPU. Contexts
    may be nested and used by several threads, but only blocks of the main thread, and
    those of other threads up to 64 MiB, are kept.
    """
    global _n_users
    libc = _glibc() if device.type == "cpu" else None
    if libc is None:
        yield
        return
    with _lock:
        _n_users += 1
        if _n_users == 1:
            libc.mallopt(M_MMAP_MAX, 0)  # large requests come from the heap, too
            libc.mallopt(M_TRIM_THRESHOLD, -1)  # never trim
    try:
        yield
    finally:
        with _lock:
            _n_users = max(0, _n_users - 1)  # 0 in a child that was forked inside
            if _n_users == 0:
                _give_back(libc)


def _give_back(libc):
    libc.mallopt(M_MMAP_MAX, MMAP_MAX)
    libc.mallopt(M_MMAP_THRESHOLD, THRESHOLD)
    libc.mallopt(M_TRIM_THRESHOLD, 2 * THRESHOLD)
    libc.malloc_trim(0)


def _glibc():
    """The C library, if it is glibc and no environment variable configures it."""
    set_already = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") and name.endswith("_") for name in os.environ
    )
    if sys.platform != "linux" or set_already:
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
