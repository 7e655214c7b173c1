# Runs tests of dat-lab: the whole set or without its slower half, with a report as JUnit XML.
# SPDX-License-Identifier: BSL-1.0

import os
import re
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree as xml

import lab_testing


class Recorder(unittest.TextTestResult):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.cases = []

    def startTest(self, test):
        super().startTest(test)
        self.began, self.said = time.monotonic(), None

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.said = ("failure", self._exc_info_to_string(err, test))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.said = ("failure", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        super().addError(test, err)
        entry = ("error", self._exc_info_to_string(err, test))
        if isinstance(test, unittest.TestCase):
            self.said = entry
        else:  # setUpClass
            self.cases.append((test.id(), 0.0, entry))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.said = ("skipped", reason)

    def stopTest(self, test):
        super().stopTest(test)
        self.cases.append((test.id(), time.monotonic() - self.began, self.said))

    def write(self, path):
        bad = [c[2][0] for c in self.cases if c[2]]
        suite = xml.Element("testsuite", name="dat-lab", tests=str(len(self.cases)), failures=str(bad.count("failure")))
        suite.set("errors", str(bad.count("error")))
        suite.set("skipped", str(bad.count("skipped")))
        for name, took, said in self.cases:
            group, method = name.split(".")[-2:]  # without the module
            case = xml.SubElement(suite, "testcase", classname="dat-lab." + group, name=method.replace("_", " "), time=f"{took:.3f}")
            if said:
                xml.SubElement(case, said[0], message=said[1].strip().splitlines()[-1][:200]).text = re.sub(r"[^\t\n -\ud7ff]", "?", said[1])
        xml.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


class Loader(unittest.TestLoader):
    def getTestCaseNames(self, case):
        names = super().getTestCaseNames(case)
        if lab_testing.QUICK:
            names = [n for n in names if not getattr(case, "slow", False) and not getattr(getattr(case, n), "slow", False)]
        return names


def main():
    args, results = sys.argv[1:], None
    if "--quick" in args:
        args.remove("--quick")
        lab_testing.QUICK = True
    if "--results" in args:
        at = args.index("--results")
        results = args[at + 1]
        del args[at : at + 2]
    # The kernel is downloaded and KVM is tried before any measurement or comparison.
    ready = subprocess.run([lab_testing.DAT_LAB, "--prepare"], stdin=subprocess.DEVNULL)
    if ready.returncode:
        print(f"{os.path.basename(sys.argv[0])}: the machine cannot be prepared", file=sys.stderr)
        return 1
    runner = unittest.TextTestRunner(resultclass=Recorder, verbosity=1)
    program = unittest.main(argv=[sys.argv[0], *args], testLoader=Loader(), testRunner=runner, exit=False)
    if results:
        program.result.write(results)
    return 0 if program.result.wasSuccessful() else 1
