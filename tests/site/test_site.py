#!/usr/bin/env python3
# Tests every page of the site in a browser: phone and desktop, light and dark; and follows every link.
# SPDX-License-Identifier: BSL-1.0
"""test_site.py [--html DIR] [--shots DIR] [PAGE...]: ends with `N passed, N failed`, a page in a view being one. The pictures of all pages are
written to build/docs/shots. Needs Debian's chromium, chromium-driver and python3-selenium."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import html.parser
import pathlib
import re
import sys
import urllib.parse
from collections.abc import Iterator, Sequence

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

ROOT = pathlib.Path(__file__).resolve().parents[2]
VIEWS = {"phone": (390, 844, True), "desktop": (1440, 900, False)}
SCHEMES = ("light", "dark")
# Finds content that a page should not show; runs in the page.
FAULTS = """
const faults = [];
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) {
  const wide = [...document.querySelectorAll('body *')].filter((e) => {
    const box = e.getBoundingClientRect();
    if (!box.width || box.right <= width + 1 || getComputedStyle(e).position === 'fixed') return false;
    for (let p = e.parentElement; p; p = p.parentElement)
      if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(p).overflowX) && p !== document.body && p !== document.documentElement) return false;
    return true;
  });
  faults.push(`wider than the screen: ${document.documentElement.scrollWidth} of ${width}, by ${wide.slice(0, 3).map((e) => `<${e.tagName.toLowerCase()} class="${e.className}">`).join(' ')}`);
}
for (const image of document.images) if (!image.complete || !image.naturalWidth) faults.push(`missing image ${image.getAttribute('src')}`);
if (!document.querySelector('h1, #search-results')) faults.push('no heading');
const luminance = (color) => {
  const [r, g, b, a] = color.match(/[\\d.]+/g).map(Number);
  if (a === 0) return null;
  const part = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
};
const behind = (e) => { for (; e; e = e.parentElement) { const l = luminance(getComputedStyle(e).backgroundColor); if (l !== null) return l; } return 1; };
let pale = 0, first = '';
for (const e of [...document.querySelectorAll('article p, article li, article td, article dt, article h1, article code, .state')].slice(0, 400)) {
  if (!e.textContent.trim() || !e.getClientRects().length || e.closest('.highlight, a.headerlink, .state-bar')) continue;
  const front = luminance(getComputedStyle(e).color), back = behind(e);
  if (front === null) continue;
  if ((Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05) < 3.5 && !pale++) first = e.textContent.trim().slice(0, 40);
}
if (pale) faults.push(`${pale} texts of too little contrast, as "${first}"`);
const chosen = document.body.dataset.theme;
const asked = ['light', 'dark'].includes(chosen) ? 'the reader' : 'the system';
const dark = asked === 'the reader' ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
if ((behind(document.body) < 0.5) !== dark) faults.push(`not ${dark ? 'dark' : 'light'}, as ${asked} asks for`);
return faults;
"""


# A page of each kind. Kinds differ in their use by a reader.
KINDS = ("index.html", "docs/guide.html", "docs/architecture.html", "docs/performance.html", "performance.html", "docs/conformance/rules.html",
         "docs/conformance/by-clause.html", "reference/index.html", "reference/evd.html", "examples/README.html", "examples/01_hello.cpp.html",
         "source/tests/conformance/test_functions.py.html", "source/tests/provider/index.html", "genindex.html", "search.html")  # fmt: skip


class reader(html.parser.HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"href", "src"} and value and not (tag == "link" and ("rel", "canonical") in attrs):
                self.links.append(value)
            elif name in {"id", "name"} and value:
                self.anchors.add(value)


def pages_of(folder: pathlib.Path) -> list[pathlib.Path]:
    """All pages of the site."""
    return sorted(path for path in folder.rglob("*.html") if "_static" not in path.relative_to(folder).parts)


HOST = re.compile(r"(?=.{4,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")
# Examples in place of an address, and addresses that are valid on one machine or network only.
NO_PLACE = re.compile(r"(^|\.)(example\.(com|org|net)|localhost|local|internal|lan|test|invalid|example)$")


def fault_of_address(link: str) -> str:
    """Why a link to another site cannot be right; empty when its form is. (No link to another site is followed.)"""
    try:
        parts = urllib.parse.urlsplit(link)
        host, port = parts.hostname or "", parts.port
    except ValueError as e:
        return str(e)
    if parts.scheme == "mailto":
        return "" if re.fullmatch(r"[^@\s]+@[^@\s]+\.[a-z]+", parts.path) else "no address of mail"
    if parts.scheme != "https":
        return "no https" if parts.scheme in {"", "http"} else f"the scheme {parts.scheme}"
    if not HOST.fullmatch(host) or NO_PLACE.search(host) or port is not None or parts.username is not None:
        return "no public host"
    if re.search(r"[^!-~]|[<>\"{}|\\^`]|%(?![0-9A-Fa-f]{2})", link) or re.search(r"[.,;:)]$", link):
        return "characters that no address has, or punctuation at its end"
    return ""


def broken_links(folder: pathlib.Path) -> dict[str, list[str]]:
    """The links of each page that lead nowhere on the site, and those to other sites whose form is wrong."""
    read: dict[pathlib.Path, reader] = {}
    for path in pages_of(folder):
        read[path] = reader()
        read[path].feed(path.read_text(encoding="utf-8"))
    broken = collections.defaultdict(list)
    for path, page in read.items():
        for link in page.links:
            if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//", link):
                if fault := fault_of_address(link):
                    broken[path.relative_to(folder).as_posix()].append(f"{link}: {fault}")
                continue
            parts = urllib.parse.urlsplit(link)
            target = path if not parts.path else (path.parent / urllib.parse.unquote(parts.path)).resolve()
            fragment = urllib.parse.unquote(parts.fragment)
            if not target.is_file():
                broken[path.relative_to(folder).as_posix()].append(f"{link}: no such file")
            elif fragment and target in read and fragment not in read[target].anchors:
                broken[path.relative_to(folder).as_posix()].append(f"{link}: the page has no such anchor")
    return broken


def browser() -> webdriver.Chrome:
    """A headless Chromium that keeps what pages log."""
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files", "--disable-dev-shm-usage"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    driver.set_page_load_timeout(300)
    return driver


def use_view(driver: webdriver.Chrome, view: str, scheme: str) -> None:
    """The size of the screen, and what the system asks for."""
    width, height, mobile = VIEWS[view]
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})


def look(folder: pathlib.Path, paths: list[pathlib.Path], view: str, shots: pathlib.Path) -> Iterator[tuple[str, list[str]]]:
    """(page, faults) of one size of screen, in both schemes of color."""
    driver = browser()
    try:
        for path in paths:
            name = path.relative_to(folder).as_posix()
            driver.get_log("browser")
            use_view(driver, view, SCHEMES[0])
            driver.get(path.as_uri())
            logged = [f"logged: {entry['message']}" for entry in driver.get_log("browser")]
            for scheme in SCHEMES:
                use_view(driver, view, scheme)
                faults = [*logged, *driver.execute_script(FAULTS)]
                shot = shots / f"{view}-{scheme}" / (name.replace("/", "--").removesuffix(".html") + ".png")
                shot.parent.mkdir(parents=True, exist_ok=True)
                shot.write_bytes(driver.get_screenshot_as_png())
                yield f"{name}, {view}, {scheme}", faults
                logged = []
    finally:
        driver.quit()


def themes(folder: pathlib.Path, pages: Sequence[str] = KINDS) -> Iterator[tuple[str, list[str]]]:
    """(page, faults): the button of colors leads through light, dark and what the system asks for, and each looks as it should."""
    press = """
const button = [...document.querySelectorAll('.theme-toggle')].find((e) => e.checkVisibility() && e.getBoundingClientRect().width);
if (button) button.click();
return button ? document.body.dataset.theme : null;
"""
    driver = browser()
    try:
        for page in pages:
            for view in VIEWS:
                for scheme in SCHEMES:
                    use_view(driver, view, scheme)
                    driver.get((folder / page).as_uri())
                    faults, seen = [], []
                    for _ in range(3):
                        seen.append(driver.execute_script(press))
                        faults += [f"after {' '.join(map(str, seen))}: {fault}" for fault in driver.execute_script(FAULTS)]
                    other = "light" if scheme == "dark" else "dark"
                    if seen != [other, scheme, "auto"]:
                        faults.append(f"the button of colors gives {seen}, not {[other, scheme, 'auto']}")
                    yield f"{page}, {view}, {scheme}, the button of colors", faults
    finally:
        driver.quit()


def filters(folder: pathlib.Path) -> list[str]:
    """The search of the rules: what it must find, and what not."""
    driver, faults = browser(), []
    count = "return [...document.querySelectorAll('#rules tbody tr')].filter((r) => !r.hidden).map((r) => r.id)"
    fill = "const f = document.querySelector('form.filter'); for (const [k, v] of Object.entries(arguments[0])) f.elements[k].value = v; f.dispatchEvent(new Event('input'))"
    try:
        page = (folder / "docs/conformance/rules.html").as_uri()
        driver.get(page)
        everything = driver.execute_script(count)
        if len(everything) < 1000:
            faults.append(f"the table has {len(everything)} rules")
        for values, good in (
            ({"text": everything[7].lower()}, lambda found: everything[7] in found and len(found) < 50),
            ({"text": "no rule has these words"}, lambda found: not found),
            ({"text": "", "family": "EVD"}, lambda found: found and all(one.startswith("EVD-") for one in found)),
            ({"family": "", "state": "untestable"}, lambda found: 0 < len(found) < len(everything)),
        ):
            driver.execute_script(fill, values)
            found = driver.execute_script(count)
            if not good(found):
                faults.append(f"{values} shows {len(found)} rules, as {found[:3]}")
        driver.get(page + "?family=CNO&text=agent")
        found = driver.execute_script(count)
        if not found or not all(one.startswith("CNO-") for one in found):
            faults.append(f"an address with a choice shows {len(found)} rules, as {found[:3]}")
    finally:
        driver.quit()
    return faults


def searches(folder: pathlib.Path) -> list[str]:
    """The search of the site finds a name of the interface."""
    driver = browser()
    try:
        driver.get((folder / "search.html").as_uri() + "?q=wait_and_drain")
        all_links = "return [...document.querySelectorAll('#search-results li a')].map((a) => a.getAttribute('href'))"
        # The page shows one result after the other.
        with contextlib.suppress(TimeoutException):
            WebDriverWait(driver, 300).until(lambda d: any("reference/evd.html" in link for link in d.execute_script(all_links)))
        links = driver.execute_script(all_links)
        return [] if any("reference/evd.html" in link for link in links) else [f"the search for wait_and_drain finds {links[:5]}"]
    finally:
        driver.quit()


def main() -> int:
    """Looks at all pages, or at those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--html", type=pathlib.Path, default=ROOT / "build/docs/html")
    parser.add_argument("--shots", type=pathlib.Path, default=ROOT / "build/docs/shots")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="only these, as docs/guide.html; otherwise all")
    options = parser.parse_args()
    folder = options.html.resolve()
    paths = [folder / page for page in options.pages] or pages_of(folder)
    passed = failed = 0

    def count(name: str, faults: list[str]) -> None:
        nonlocal passed, failed
        passed, failed = passed + (not faults), failed + bool(faults)
        for fault in faults:
            print(f"{name}: {fault}", flush=True)

    for page, links in (broken := broken_links(folder)).items():
        count(f"{page}, links", links)
    if not broken:
        count("links", [])
    with concurrent.futures.ThreadPoolExecutor(len(VIEWS)) as pool:
        jobs = [pool.submit(lambda view=view: list(look(folder, paths, view, options.shots))) for view in VIEWS]
        for job in jobs:
            for name, faults in job.result():
                count(name, faults)
    if not options.pages:
        for name, faults in themes(folder):
            count(name, faults)
        count("the search of the rules", filters(folder))
        count("the search of the site", searches(folder))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
