"""A real browser, headless, without a screen: Chromium by its driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.console.console_site import PATIENCE

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip


class Browser:
    """One window; everything waits until what it looks for is there."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver, self.address = driver, address

    def open(self, view: str) -> None:
        """Go to a view, such as "topics"; a new document, so that nothing of the last one is left."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}/#/{view}")

    def until(self, check: Callable[[], Any], what: str) -> Any:
        """What `check` answers, once it is true; elements may be replaced while it looks."""
        waiting = WebDriverWait(
            self.driver, PATIENCE, 0.1, ignored_exceptions=[StaleElementReferenceException]
        )
        return waiting.until(lambda _: check(), what)

    def texts(self, selector: str) -> list[str]:
        return [element.text for element in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    def rows(self, selector: str = "main table") -> list[list[str]]:
        """The cells of a table's body."""
        found: list[list[str]] = self.driver.execute_script(
            "return [...document.querySelectorAll(arguments[0] + ' tbody tr')]"
            ".map(row => [...row.cells].map(cell => cell.innerText))",
            selector,
        )
        return found

    def click(self, selector: str, text: str = "") -> None:
        """Click what is there, visible and says `text`."""

        def clicked() -> bool:
            for element in self.driver.find_elements(By.CSS_SELECTOR, selector):
                if (not text or element.text == text) and element.is_displayed() and element.is_enabled():
                    element.click()
                    return True
            return False

        self.until(clicked, f"{selector} {text}")

    def element(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def size(self, width: int, height: int) -> None:
        """The size of the page's own area, told to the browser as a device's would be."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def dark(self, dark: bool) -> None:
        """The system's setting."""
        media = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        found: int = self.driver.execute_script(script)
        return found

    def picture(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        assert self.driver.save_screenshot(str(path))

    def complaints(self) -> list[str]:
        """What the browser has to say against the page: scripts that fail, what the policy forbids."""
        told: list[dict[str, str]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in told if entry["level"] == "SEVERE"]


@contextmanager
def chromium(address: str, profile: Path) -> Iterator[Browser]:
    """A browser of the test's own. AssertionError says what to install."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert program and driver, "no Chromium here: Debian has it as chromium and chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Browser(opened, address)
    finally:
        opened.quit()
