"""Become another program, tied to the life of the process that asked for it.

A file of its own and not a `preexec_fn`: that one warns, and may deadlock, when threads are alive. Run as
`python -I -S launch.py PARENT SIGNAL USER GROUP PROGRAM ARGUMENT…` with numbers for the first four; signal 0
leaves the program alone when the parent dies, user 0 keeps the present user.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def drop_privileges(user: int, group: int) -> None:
    """Become `user` for good; 0 changes nothing."""
    if user:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)


def die_with(parent: int, signal: int) -> None:
    """Ask the kernel (Linux) for `signal` when the parent dies; leave at once if it already has."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if signal and prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal)
        if os.getppid() != parent:
            sys.exit("the process that asked for this one is gone")


def main() -> None:
    """Take on the wanted identity and become the program."""
    parent, signal, user, group = map(int, sys.argv[1:5])
    drop_privileges(user, group)  # first: a change of user clears the signal
    die_with(parent, signal)
    os.execv(sys.argv[5], sys.argv[5:])


if __name__ == "__main__":
    main()
