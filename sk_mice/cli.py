"""The command ``sk-mice``: clusters a folder of images without Python."""

import errno
import os
import re
import sys
import warnings
from contextlib import nullcontext, redirect_stderr
from functools import cache

from ._cli.terminal import Messages
from ._interruption import ended_by_ctrl_c
from ._words import shortened

__all__ = ["main"]

FAILED, WRONG, CTRL_C, NO_READER = 1, 2, 130, 141
# Errors whose messages are written for users; other errors are bugs.
WORDED = (OSError, ValueError, TypeError, ImportError, ArithmeticError)
# The options and arguments that stand for parameters.
OPTIONS = {
    "background": "--background",
    "device": "--device",
    "image_size": "--image-size",
    "max_epochs": "--epochs",
    "n_clusters": "--clusters",
    "n_jobs": "--jobs",
    "network": "--features",
    "path": "PHOTOS",
    "random_state": "--seed",
    "weights": "`weights` in Python",
}
# Replacements for what helps only in Python, and for words of typer's.
ADVICE = {
    "Value error, ": "",
    "Read them with another `background`": "Fit with another --background",
    "Got unexpected extra argument(s)": "Too many arguments (names with spaces need "
    "quotation marks):",
    "Try fewer clusters, more epochs (`max_epochs`), another start (`init`, `n_init`, "
    "`random_state`) or a lower `lr`.": "Try fewer clusters, a longer training "
    "(--epochs; --minutes of `sk-mice fit`) or another start (--seed).",
    "Try a lower `lr` or higher temperatures.": "Try another start (--seed).",
    "With `out`, the images are in a file.": "Try fewer images, or without --features "
    "a smaller --image-size.",
}


def main(argv=None) -> int:
    """Run the command ``sk-mice``.

    Parameters
    ----------
    argv : list of str, default=None
        The arguments; those of the process if None.

    Returns
    -------
    int
        The exit code: 0 if all went well, 1 if the work failed, 2 if the arguments are
        wrong, 130 after Ctrl-C, 141 if nobody reads the output any more.

    Examples
    --------
    >>> from sk_mice.cli import main
    >>> main(["score", "missing.csv", "truth.csv"])
    2
    """
    with redirect_stderr(Messages(sys.stderr)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries warn of their own code
        warnings.simplefilter("always", UserWarning)
        # The commands say it in their own words.
        warnings.filterwarnings("ignore", "(`fit` was i|I)nterrupted")
        # This warning is about a user's own folds; `choose-k` makes its own.
        warnings.filterwarnings("ignore", ".* of the samples to score would have")
        show_once = cache(_show_warning)  # a command may call a model several times
        warnings.showwarning = lambda message, *args, **kwargs: show_once(str(message))
        try:
            code = _run(argv)
        except BrokenPipeError:
            code = NO_READER
        except KeyboardInterrupt:
            _say("stopped")
            code = CTRL_C
    _drop_what_cannot_be_written()
    return code


def _run(argv) -> int:
    try:
        with ended_by_ctrl_c():
            from typer import TyperException

            from ._cli.commands import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        _say('error: the command needs typer: pip install "sk-mice[app]"')
        return FAILED
    try:
        # Typer reads the arguments and returns what is to be done, or an exit code.
        argv = (sys.argv[1:] if argv is None else argv) or ["--help"]
        if any(re.fullmatch("(--[^=]+=)?", argument) for argument in argv):
            _say("error: an argument is empty, perhaps from a variable that is not set")
            return WRONG
        with ended_by_ctrl_c():
            work = app(argv, prog_name="sk-mice", standalone_mode=False)
        if callable(work):
            work()
            return 0
        return work or 0
    except BrokenPipeError:
        raise
    except SystemExit as exit_:  # after a completion of the shell, or Ctrl-C in a fit
        return int(exit_.code or 0)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "sk-mice"
        help_ = f" ({command} --help lists the options)" if context else ""
        _say(f"error: {_line(_with_options(error.format_message()))}{help_}")
        return error.exit_code
    except Exception as error:
        if os.environ.get("SK_MICE_TRACEBACK"):
            raise
        _say(f"error: {_with_notes(_message(error), error)}")
        return FAILED


def _drop_what_cannot_be_written() -> None:
    """Else Python fails once more when it flushes the streams at its end."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _message(error: Exception) -> str:
    """The message of an error in one line, with its file or option."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)!r}: {error.strerror}"
    if isinstance(error, OSError) and error.errno == errno.ENOENT:  # of `os.getcwd`
        return "The current folder is no longer there: change to another one."
    words = _line(_with_options(str(error)))
    if _is_out_of_memory(error):
        return f"Not enough memory. {words}".rstrip()
    if isinstance(error, RuntimeError) and words == "can't start new thread":
        return (
            "The system lets this user or container start no more threads: raise its "
            "limit, such as that of `ulimit -u`."
        )
    if isinstance(error, WORDED) and words:
        return words
    return (
        f"{type(error).__name__}: {words} (a bug? SK_MICE_TRACEBACK=1 shows where it "
        "arose)"
    )


def _with_notes(words: str, error: Exception) -> str:
    """The message of an error, and what the commands have added on how to go on."""
    notes = getattr(error, "__notes__", [])
    return " ".join([f"{words.rstrip('.')}.", *notes]) if notes else words


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory is short; torch and NumPy raise different errors."""
    of_a_gpu = type(error).__name__ == "OutOfMemoryError"  # no import of torch for it
    of_torch = of_a_gpu or "DefaultCPUAllocator" in str(error)
    return of_torch or isinstance(error, MemoryError)


def _with_options(text: str) -> str:
    for advice, other in ADVICE.items():
        text = text.replace(advice, other)
    for name, option in OPTIONS.items():
        text = text.replace(f"`{name}`", option)
    return text


def _line(text: str) -> str:
    """A text in one line, with semicolons in a list whose lines are indented."""
    text, *listed = text.split("\n  ")
    return " ".join(f"{text} {'; '.join(listed)}".split())


def _show_warning(text: str) -> None:
    first, *rest = _with_options(text).split("\n")
    _say("\n".join([f"warning: {first}", *shortened(rest)]))  # `fit --json` names all


def _say(text: str) -> None:
    # Bars make room for the line, and come back below it.
    bars = sys.modules.get("sk_mice._progress_bar")
    with bars.tqdm.external_write_mode(sys.stderr) if bars else nullcontext():
        print(f"sk-mice: {text}", file=sys.stderr, flush=True)
