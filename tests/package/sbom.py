#!/usr/bin/env python3
# Writes the bill of materials of the tree in the form of SPDX 2.3.
# SPDX-License-Identifier: BSL-1.0
"""Prints an SPDX document in JSON: the package with its licence and version, each file that git tracks with its digests, and what dat
and its tools depend on. `reuse` reports the licence and the copyright of each file."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import versions  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The components that programs with dat, and dat's tools, link or include; the versions are those of README.md.
DEPENDENCIES = {
    "libibverbs": ("", "pkg:generic/libibverbs", "GPL-2.0-only OR Linux-OpenIB", "DEPENDS_ON"),
    "librdmacm": ("", "pkg:generic/librdmacm", "GPL-2.0-only OR Linux-OpenIB", "DEPENDS_ON"),
    "Boost": ("1.74", "pkg:generic/boost", "BSL-1.0", "DEPENDS_ON"),
    "CLI11": ("", "pkg:generic/cli11", "BSD-3-Clause", "OPTIONAL_DEPENDENCY_OF"),
    "fmt": ("", "pkg:generic/fmt", "MIT", "OPTIONAL_DEPENDENCY_OF"),
    "nlohmann_json": ("", "pkg:generic/nlohmann-json", "MIT", "OPTIONAL_DEPENDENCY_OF"),
    "xxHash": ("", "pkg:generic/xxhash", "BSD-2-Clause", "OPTIONAL_DEPENDENCY_OF"),
}


def files_by_reuse(root: pathlib.Path) -> list[dict[str, str]]:
    """The files with licence and copyright, from the tag-value document of `reuse spdx`."""
    text = subprocess.run(["reuse", "--root", root, "spdx"], capture_output=True, text=True, check=True).stdout
    found = []
    for block in text.split("\n\n"):
        tags = dict(re.findall(r"^(FileName|FileChecksum|LicenseInfoInFile|FileCopyrightText): (.*)$", block, re.M))
        if "FileName" in tags:
            found.append(tags)
    return found


def time_of(root: pathlib.Path) -> str:
    """The time of the last commit, so that the same tree has the same document. SOURCE_DATE_EPOCH takes precedence."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(["git", "-C", root, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=True).stdout
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def document(root: pathlib.Path) -> dict[str, object]:
    """The document."""
    version = versions.version(root)
    tracked = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout.split("\0")
    by_name = {tags["FileName"].removeprefix("./"): tags for tags in files_by_reuse(root)}
    files, relations, sums = [], [], []
    for number, name in enumerate(sorted(filter(None, tracked))):
        data = (root / name).read_bytes()
        sha1 = hashlib.sha1(data).hexdigest()
        sums.append(sha1)
        tags = by_name.get(name, {})
        files.append({
            "SPDXID": f"SPDXRef-File-{number}",
            "fileName": f"./{name}",
            "checksums": [{"algorithm": "SHA1", "checksumValue": sha1}, {"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()}],
            "licenseConcluded": "BSL-1.0",
            "licenseInfoInFiles": [tags.get("LicenseInfoInFile", "NOASSERTION")],
            "copyrightText": tags.get("FileCopyrightText", "NOASSERTION").replace("<text>", "").replace("</text>", ""),
        })  # fmt: skip
        relations.append({"spdxElementId": "SPDXRef-dat", "relationshipType": "CONTAINS", "relatedSpdxElement": f"SPDXRef-File-{number}"})
    packages: list[dict[str, object]] = [{
        "SPDXID": "SPDXRef-dat",
        "name": "dat",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": hashlib.sha1("".join(sorted(sums)).encode()).hexdigest()},
        "licenseConcluded": "BSL-1.0",
        "licenseDeclared": "BSL-1.0",
        "licenseInfoFromFiles": ["BSL-1.0"],
        "copyrightText": "2026 The dat authors",
    }]  # fmt: skip
    for name, (least, purl, licence, relation) in DEPENDENCIES.items():
        identity = f"SPDXRef-{name.replace('_', '-')}"
        packages.append({
            "SPDXID": identity,
            "name": name,
            "versionInfo": f">= {least}" if least else "NOASSERTION",
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": licence,
            "licenseDeclared": licence,
            "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}],
        })  # fmt: skip
        ends = ("SPDXRef-dat", identity) if relation == "DEPENDS_ON" else (identity, "SPDXRef-dat")
        relations.append({"spdxElementId": ends[0], "relationshipType": relation, "relatedSpdxElement": ends[1]})
    relations.append({"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-dat"})
    digest = hashlib.sha256(json.dumps([files, packages]).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"dat-{version}",
        "documentNamespace": f"https://example.org/dat/spdx/dat-{version}-{digest[:16]}",
        "creationInfo": {"created": time_of(root), "creators": ["Organization: The dat authors", "Tool: tests/package/sbom.py"]},
        "packages": packages,
        "files": files,
        "relationships": relations,
    }


def main() -> int:
    """Prints or writes the document."""
    parser = argparse.ArgumentParser(prog="./dev sbom", description=__doc__)
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="write it to FILE")
    options = parser.parse_args()
    text = json.dumps(document(ROOT), indent=1) + "\n"
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
