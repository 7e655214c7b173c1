#!/usr/bin/env python3
# Looks at every page of the site in a browser: phone and desktop, light and dark; and follows every link.
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
import sys
import urllib.parse
from collections.abc import Iterator

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

ROOT = pathlib.Path(__file__).resolve().parents[2]
VIEWS = {"phone": (390, 844, True), "desktop": (1440, 900, False)}
SCHEMES = ("light", "dark")
# What a page shows that it should not; runs in the page.
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
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
if ((behind(document.body) < 0.5) !== dark) faults.push(`not ${dark ? 'dark' : 'light'}, as the system asks for`);
return faults;
"""


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


def broken_links(folder: pathlib.Path) -> dict[str, list[str]]:
    """The links of each page that lead nowhere on the site. (Links to other sites are not followed.)"""
    read: dict[pathlib.Path, reader] = {}
    for path in pages_of(folder):
        read[path] = reader()
        read[path].feed(path.read_text(encoding="utf-8"))
    broken = collections.defaultdict(list)
    for path, page in read.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
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


def look(folder: pathlib.Path, paths: list[pathlib.Path], view: str, shots: pathlib.Path) -> Iterator[tuple[str, list[str]]]:
    """(page, faults) of one size of screen, in both schemes of color."""
    width, height, mobile = VIEWS[view]
    driver = browser()
    try:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile})
        for path in paths:
            name = path.relative_to(folder).as_posix()
            driver.get_log("browser")
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": SCHEMES[0]}]})
            driver.get(path.as_uri())
            logged = [f"logged: {entry['message']}" for entry in driver.get_log("browser")]
            for scheme in SCHEMES:
                driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
                faults = [*logged, *driver.execute_script(FAULTS)]
                shot = shots / f"{view}-{scheme}" / (name.replace("/", "--").removesuffix(".html") + ".png")
                shot.parent.mkdir(parents=True, exist_ok=True)
                shot.write_bytes(driver.get_screenshot_as_png())
                yield f"{name}, {view}, {scheme}", faults
                logged = []
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
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="only these, as docs/guide.html; otherwise all, and every page of a source file in one view")
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
        # Pages of source files are alike: the phone, where they could be too wide, shows all of them.
        plain = [path for path in paths if "source" not in path.relative_to(folder).parts]
        jobs = [pool.submit(lambda view=view, some=some: list(look(folder, some, view, options.shots))) for view, some in (("phone", paths), ("desktop", plain))]
        for job in jobs:
            for name, faults in job.result():
                count(name, faults)
    if not options.pages:
        count("the search of the rules", filters(folder))
        count("the search of the site", searches(folder))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
