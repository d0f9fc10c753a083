"""Become another program, tied to the life of the process that asked for it.

A file of its own and not a `preexec_fn`: that one warns, and may deadlock, when threads are alive. Run as
`python -I -S launch.py PARENT SIGNAL USER GROUP PROGRAM ARGUMENT…` with numbers for the first four; signal 0
leaves the program alone when the parent dies, user 0 keeps the present user.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def drop_privileges(user: int, group: int) -> None:
    """Become `user` for good; 0 changes nothing."""
    if user:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)


def die_with(parent: int, last_words: int) -> None:
    """Ask the kernel (Linux) for a signal when the parent dies; leave at once if it already has."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if last_words and prctl is not None:
        prctl(PR_SET_PDEATHSIG, last_words)
        if os.getppid() != parent:
            sys.exit("the process that asked for this one is gone")


def hear_the_terminal() -> None:
    """Undo what a shell does to a program in the background, which ignores Ctrl-C and hands that on."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def main() -> None:
    """Take on the wanted identity and become the program."""
    parent, last_words, user, group = map(int, sys.argv[1:5])
    drop_privileges(user, group)  # first: a change of user clears the signal
    die_with(parent, last_words)
    hear_the_terminal()
    os.execv(sys.argv[5], sys.argv[5:])


if __name__ == "__main__":
    main()
