# How a run ends: the exceptions that end it, and the exit codes of dat-lab itself.
# SPDX-License-Identifier: BSL-1.0

RC_TIMEOUT, RC_MACHINE = 124, 125


class Failure(Exception):
    """A reason not to run at all; the message holds the remedy. Each argument is a line."""


class TimeUp(Exception):
    pass


class MachineDied(Exception):
    pass


class OutputClosed(Exception):
    pass


class Ended(Exception):
    """A signal before the command ran, or one too many."""

    def __init__(self, number):
        self.number = number
