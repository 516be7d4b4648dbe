"""A browser: a page of 80 parts that then makes transfers of its own."""

import os
import re
import shutil
import urllib.parse

from harness import HERE, need, run, short, true


def prepare(site):
    shutil.copy(HERE / "clients" / "page.html", site / "page.html")
    (site / "tiles").mkdir()
    (site / "scripts").mkdir()
    for n in range(60):
        (site / "tiles" / f"{n}.svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1" width="24" height="24"><rect width="1" height="1" fill="hsl({n * 6} 70% 50%)"/></svg>\n'
        )
    for n in range(20):
        (site / "scripts" / f"{n}.js").write_text(f"export const value = {n};\n")


def checks(table, servers):
    prepare(servers.site)
    page = f"{servers.weft.url}/page.html?echo={urllib.parse.quote(servers.echo.url, safe='')}"

    def chromium(*args):
        program = need("chromium")
        # Root may not have a sandbox; nothing but these servers is looked at.
        return run(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   f"--user-data-dir={servers.scratch / 'profile'}", "--window-size=900,700", *args, page, timeout=90)  # fmt: skip

    def loads():
        shown = chromium("--dump-dom").decode("utf-8", "replace")
        said = re.findall(r'<li class="(ok|bad)">([^<]*)', shown)
        bad = [text for kind, text in said if kind == "bad"]
        true(f"{bad or short(shown)}", 'data-result="all well"' in shown and len(said) == 9)
        return f"{len(said)} of its checks"

    def picture():
        wanted = os.environ.get("SCREENSHOT", str(servers.scratch / "page.png"))
        chromium(f"--screenshot={wanted}")
        true("there is a picture", os.path.getsize(wanted) > 5000)
        return f"SCREENSHOT={wanted}" if "SCREENSHOT" in os.environ else ""

    table.check("chromium", "a page of 80 parts, fetch in both directions", loads)
    table.check("chromium", "the page, drawn", picture)
