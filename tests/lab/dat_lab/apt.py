# Packages through apt: those of the host, of backports and of other architectures, the last two with a private configuration.
# SPDX-License-Identifier: BSL-1.0

import os
import re
import subprocess
import time

from .outcome import Failure
from .output import say
from .tools import find_tool, tool


class Apt:
    """apt with the host's configuration; with a folder: with a private one there, which knows the packages of other sources."""

    def __init__(self, folder=None):
        self.env = {**os.environ, "LC_ALL": "C"}
        if folder:
            self.env["APT_CONFIG"] = os.path.join(folder, "apt.conf")

    def run(self, name, *args, cwd=None):
        return subprocess.run([tool(name, "gets packages"), *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=self.env, cwd=cwd)

    def names(self, pattern):
        """Names of all packages that match a regular expression."""
        return [line.split()[0] for line in self.run("apt-cache", "search", "--names-only", pattern).stdout.splitlines() if line]

    def versions(self, name):
        """{version: fields} of a package."""
        found = {}
        for text in self.run("apt-cache", "show", name).stdout.split("\n\n"):
            fields = dict(re.findall(r"^([\w-]+): (.*)$", text, re.M))
            if fields.get("Package") == name and "Version" in fields:
                found.setdefault(fields["Version"], fields)
        return found

    def download(self, package, folder):
        """The path of the package's file, which it puts into the folder; NAME or NAME=VERSION."""
        before = set(os.listdir(folder))
        r = self.run("apt-get", "download", package, cwd=folder)
        debs = [f for f in os.listdir(folder) if f.endswith(".deb") and f not in before]
        if r.returncode or len(debs) != 1:
            reason = next((l for l in r.stderr.splitlines() if l.startswith("E:")), "no reason given")
            raise Failure(f"cannot download {package} ({reason}): check the network, then sudo apt-get update")
        return os.path.join(folder, debs[0])


def debian_mirror():
    """(address, name of the release, file of keys or None) of the host's Debian, or None where apt has no source of Debian's."""
    host = Apt()
    if not find_tool("apt-get") or not find_tool("apt-config"):
        return None
    where = host.run("apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)|$(CODENAME)|$(SOURCESENTRY)", "Identifier: Packages")
    for line in where.stdout.splitlines():
        origin, uri, codename, entry = (line.split("|") + [""] * 4)[:4]
        if origin == "Debian" and re.fullmatch(r"[a-z]+", codename):
            break
    else:
        return None
    try:
        source = open(entry.rsplit(":", 1)[0]).read()
    except OSError:
        source = ""
    signed = re.search(r"^Signed-By:[ \t]*(/\S+)|signed-by=(/[^\s\]]+)", source, re.M | re.I)
    return uri, codename, signed and (signed.group(1) or signed.group(2))


def private(folder, name, text, architecture=None):
    """An Apt whose configuration is in a folder: one source, with its text; of another architecture: as for a host of that one on
    which nothing is installed. The host's configuration stays as it is."""
    paths = dict(re.findall(r"(\w+)='([^']*)'", Apt().run("apt-config", "shell", "parts", "Dir::Etc::parts/d", "main", "Dir::Etc::main/f").stdout))
    for d in ("conf.d", "sources.d", "preferences.d", "state/lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(folder, d), exist_ok=True)

    def write(name, text):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)

    # The host's settings apply, as a proxy, but no program of the host's that runs after an update.
    write("apt.conf", f'Dir::Etc::parts "{folder}/conf.d";\nDir::Etc::main "{folder}/main";\n')
    hooks = "".join(f"#clear APT::Update::{h};\n" for h in ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success"))
    own = {"Etc::sourcelist": "/dev/null", "Etc::sourceparts": f"{folder}/sources.d", "State": f"{folder}/state", "Cache": f"{folder}/cache"}
    if architecture:
        write("status", "")
        own.update({"State::status": f"{folder}/status", "Etc::preferences": "/dev/null", "Etc::preferencesparts": f"{folder}/preferences.d"})
        hooks += f'#clear DPkg::Post-Invoke;\n#clear APT::Architectures;\nAPT::Architecture "{architecture}";\nAPT::Architectures {{ "{architecture}"; }};\n'
    own = "".join(f'Dir::{k} "{v}";\n' for k, v in own.items())
    write("main", hooks + own + 'APT::Sandbox::User "root";\nAPT::Update::Error-Mode "any";\n')
    for old in os.listdir(os.path.join(folder, "conf.d")):
        os.unlink(os.path.join(folder, "conf.d", old))
    parts = paths.get("parts", "/etc/apt/apt.conf.d/").rstrip("/")
    links = {f"host-{name}": os.path.join(parts, name) for name in (os.listdir(parts) if os.path.isdir(parts) else [])}
    if os.path.exists(paths.get("main", "")):
        links["main"] = paths["main"]
    for link, target in links.items():
        os.symlink(target, os.path.join(folder, "conf.d", link))
    write(f"sources.d/{name}.sources", text)
    return Apt(folder)


def read_lists(apt, folder, text, what):
    """Reads the lists of a private Apt once a day; the reason why they could not be read, or None."""
    stamp = os.path.join(folder, "updated")
    if os.path.exists(stamp) and time.time() - os.stat(stamp).st_mtime <= 86400 and open(stamp).read() == text:
        return None
    say(f"reading the package list of {what} (once a day, with a configuration of its own in {folder})")
    r = apt.run("apt-get", "update", "-qq")
    if r.returncode:
        return next((l for l in r.stderr.splitlines() if l.startswith(("E:", "W:"))), "no reason given")
    with open(stamp, "w") as f:
        f.write(text)
    return None


def source(mirror, suites, more=""):
    """The text of a source of apt."""
    uri, _, signed = mirror
    return f"Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: main\n{more}" + (f"Signed-By: {signed}\n" if signed else "")


def backports(cache):
    """The backports of the host's Debian as an Apt, or None; the host's configuration stays as it is. Reads the lists once a day."""
    mirror = debian_mirror()
    if not mirror:
        return None
    suite, folder = f"{mirror[1]}-backports", os.path.join(cache, "apt")
    text = source(mirror, suite)
    apt = private(folder, "backports", text)
    reason = read_lists(apt, folder, text, suite)
    if reason:
        say(f"{suite} is not readable ({reason}): its kernels are left out or those of an older list")
    return apt


def of_architecture(cache, architecture):
    """The packages of another architecture, Debian's name of it, from the mirror of the host's Debian, as an Apt."""
    mirror = debian_mirror()
    if not mirror:
        raise Failure(f"packages of {architecture} come from a Debian mirror, and apt has no source of Debian's on this host: use the host's own architecture")
    codename, folder = mirror[1], os.path.join(cache, "apt")
    for suites in (f"{codename} {codename}-backports", codename):
        text = source(mirror, suites, f"Architectures: {architecture}\n")
        apt = private(folder, "debian", text, architecture)
        reason = read_lists(apt, folder, text, f"{codename} for {architecture}")
        if not reason:
            return apt
    if not apt.names("^linux-image-"):
        raise Failure(f"the package list of {codename} for {architecture} is not readable ({reason}): check the network")
    say(f"the package list of {codename} for {architecture} is not readable ({reason}): an older one is used")
    return apt
