"""What can be said at once of the machine that a run asks for, before an engine is started for it."""

from __future__ import annotations

import shutil
import subprocess

from engine.judging.devices import device_for
from engine.judging.facts import MachineError
from engine.settings import RunSettings, SettingsError

_TIMEOUT_S = 30.0
_PROGRAM = (
    "import importlib.util as found; "
    "print(*(name for name in ('torch', 'triton') if found.find_spec(name) is None), sep=' and ')"
)


def check_machine(settings: RunSettings) -> None:
    """Makes sure that kernels can be judged with the interpreter and the architecture that the settings name.

    Raises:
        SettingsError: the architecture is not known.
        MachineError: the interpreter cannot be run, or lacks torch or triton.
    """
    try:
        device_for(settings.arch)
    except ValueError as error:
        raise SettingsError(f"{error} with --arch") from error
    python = settings.python
    if shutil.which(python) is None:
        raise MachineError(f"there is no interpreter {python}; name one that has torch and triton with --python")
    try:
        done = subprocess.run(
            [python, "-c", _PROGRAM], cwd="/", capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"the interpreter {python} cannot be run ({error}); name another with --python") from error
    missing = done.stdout.strip()
    if done.returncode:
        raise MachineError(f"{python} is no Python that can judge kernels; name another interpreter with --python")
    if missing:
        raise MachineError(f"{python} has no {missing}; install them there, or name another interpreter with --python")
