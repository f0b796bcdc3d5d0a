"""Processor time of tests: `make test DURATIONS=1` lists the files and the tests that take most of it.

Seconds of this process, of all its threads (XLA compiles in several) and of the processes it waited for; a clock would
count what else the machine does.
"""

import os
from collections import Counter

import pytest

KEY = "processor_seconds"
SHOWN = 40


def seconds():
    return sum(os.times()[:4])


class Processor:
    """A plugin: measures in the process that runs a test, adds up in the one that reports."""

    def __init__(self):
        self.of_test = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        item.stash[STARTED] = seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        now = seconds()
        report.user_properties.append((KEY, now - item.stash[STARTED]))
        item.stash[STARTED] = now
        return report

    def pytest_runtest_logreport(self, report):
        spent = [value for key, value in report.user_properties if key == KEY]
        self.of_test[report.nodeid] += spent[-1] if spent else 0.0

    def pytest_terminal_summary(self, terminalreporter):
        of_file = Counter()
        for test, spent in self.of_test.items():
            of_file[test.split("::")[0]] += spent
        terminalreporter.section(f"processor seconds: {sum(of_file.values()):.0f}")
        for title, counted in (("files", of_file), ("tests", self.of_test)):
            terminalreporter.write_line(title)
            for name, spent in counted.most_common(SHOWN):
                terminalreporter.write_line(f"{spent:8.1f}  {name}")


STARTED = pytest.StashKey[float]()
