"""A real browser, Chromium as Qt has it, for pages that tests open: run as a process of its own.

``python tests/browser.py URL WAIT SCRIPT ...`` loads a page without a window, runs the scripts one
after another, each WAIT seconds after the one before, and prints one line of JSON: whether the page
was loaded, what the scripts returned, the messages of the console, requests that leave this
machine, and the number of colours of a picture of the page.
"""

import json
import os
import subprocess
import sys


def opened(url, *scripts, wait=2.0, timeout=120):
    """Return what a browser says of a page."""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    environment["QTWEBENGINE_CHROMIUM_FLAGS"] = "--no-sandbox --disable-gpu"
    arguments = [sys.executable, __file__, str(url), str(wait), *scripts]
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def _main(url, wait, *scripts):
    from PyQt6.QtCore import QTimer, QUrl
    from PyQt6.QtWebEngineCore import (
        QWebEnginePage,
        QWebEngineProfile,
        QWebEngineUrlRequestInterceptor,
    )
    from PyQt6.QtWebEngineWidgets import QWebEngineView
    from PyQt6.QtWidgets import QApplication

    app = QApplication(sys.argv[:1])
    seen = {"loaded": False, "returned": [], "console": [], "outside": [], "colours": 0}

    class Requests(QWebEngineUrlRequestInterceptor):
        def interceptRequest(self, info):
            address = info.requestUrl()
            if address.host() not in ("", "localhost", "127.0.0.1"):
                seen["outside"].append(address.toString())

    class Page(QWebEnginePage):
        def javaScriptConsoleMessage(self, level, message, line, source):
            seen["console"].append(f"{level.name}: {message}")

    profile, requests = QWebEngineProfile(), Requests()
    profile.setUrlRequestInterceptor(requests)
    view = QWebEngineView()
    page = Page(profile, view)
    view.setPage(page)
    view.resize(1300, 900)
    view.show()
    left = list(scripts)

    def end():
        picture = view.grab().toImage()
        places = [
            (x, y) for x in range(0, picture.width(), 5) for y in range(0, picture.height(), 5)
        ]
        seen["colours"] = len({picture.pixel(x, y) for x, y in places})
        if os.environ.get("PICTURE"):
            picture.save(os.environ["PICTURE"])
        sys.stdout.write(f"{json.dumps(seen)}\n")
        sys.stdout.flush()
        os._exit(0)  # the engine's own end takes seconds

    def go_on(*returned):
        seen["returned"] += returned
        if not left:
            end()
        script = left.pop(0)
        QTimer.singleShot(int(1000 * float(wait)), lambda: page.runJavaScript(script, go_on))

    def loaded(well):
        seen["loaded"] = well
        go_on()

    page.loadFinished.connect(loaded)
    page.load(QUrl(url))
    app.exec()


if __name__ == "__main__":
    _main(*sys.argv[1:])
