"""The console in a real browser: `make test-console`. It takes the pictures of docs/console.md on its way."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.broker.security.securitykit import ALICE, Issuer
from tests.console.console_site import (
    HANGING,
    HANGING_ID,
    PATIENCE,
    SCRIPT,
    Site,
    create,
    history,
    member,
    seed_hanging,
    transactional,
    write,
)
from tests.kit.program import until
from tests.top.busy import READERS, SINKS, fill, reader

# -- Chromium by its driver ----------------------------------------------------------------------
# A real browser, headless, without a screen: Chromium by its driver.

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


# -- the console ---------------------------------------------------------------------------------

pytestmark = pytest.mark.browser

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MOST_BYTES = 150_000
SAMPLES = 62
"""Seconds of rates that a picture shows at least."""


@contextmanager
def traffic(client: dict[str, Any], topic: str) -> Iterator[None]:
    """A producer and a consumer at work, now more, now less."""
    over = threading.Event()

    def produce() -> None:
        producer, turn = Producer(client), 0
        while not over.wait(0.1):
            turn += 1
            for _ in range(20 + 15 * (turn % 40 > 20) + turn % 7 * 4):
                producer.produce(topic, b"x" * 200)
            producer.poll(0)
        producer.flush(20)

    def consume() -> None:
        consumer = Consumer({**client, "group.id": "dashboard", "client.id": "dashboard-1"})
        consumer.subscribe([topic])
        while not over.is_set():
            consumer.consume(500, 0.2)
        consumer.close()

    threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("console")
    seed_hanging(data, HANGING)
    with Site(data, **{"console.writable": "true"}) as opened:
        client = opened.client()
        create(client, "orders", "clicks", "payments", partitions=3)
        kept = [history(client, "orders")]
        write(Producer(client), "payments", *(f'{{"payment": {number}}}' for number in range(40)))
        stuck = transactional(client, "payments-import")
        stuck.begin_transaction()
        write(stuck, "payments", '{"payment": 41}')
        slow = member(client, "billing", "payments", 12)
        with traffic(client, "clicks"):
            yield opened
        slow.close()
        kept.append(stuck)


@pytest.fixture(scope="module")
def window(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(site.address, tmp_path_factory.mktemp("profile")) as browser:
        browser.size(1280, 800)
        yield browser


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    yield window
    assert window.complaints() == []


def picture(browser: Browser, name: str) -> None:
    path = PICTURES / f"console-{name}.png"
    browser.picture(path)
    assert path.stat().st_size < MOST_BYTES, f"{path} is too large for the docs"


def test_topics_partitions_and_records(browser: Browser) -> None:
    browser.open("topics")
    rows = {row[0].split()[0]: row for row in browser.until(browser.rows, "topics")}
    assert rows["orders"][1:4] == ["3", "9", "3"]
    assert rows["__consumer_offsets"][0].endswith("internal")
    picture(browser, "topics")
    browser.click("main a", "orders")
    partitions = browser.until(lambda: browser.rows(".card"), "partitions")
    assert partitions[0][:5] == ["Partition 0", "0", "6", "9", "3"]
    browser.click("main a", "Partition 0")
    records = browser.until(lambda: browser.rows("table.records"), "records")
    states = ["none", "none", "committed", "control", "aborted", "control", "open", "committed", "control"]
    assert [row[2] for row in records] == states
    assert browser.driver.current_url.endswith("offset=-1") or "messages" in browser.driver.current_url
    picture(browser, "messages")


def test_records_are_text_and_never_markup(browser: Browser) -> None:
    browser.open("messages?topic=orders&partition=0&offset=0")
    records = browser.until(lambda: browser.rows("table.records"), "records")
    assert (records[1][4], records[1][5]) == ("<b>k1</b>", SCRIPT)
    assert "hurt" not in browser.driver.title
    assert not browser.driver.execute_script(
        "return document.querySelectorAll('main script, main img, main b').length"
    )
    browser.open("topics?filter=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    browser.until(lambda: browser.texts(".none"), "an empty list")
    assert not browser.driver.execute_script("return document.images.length")


def test_the_isolation_level_and_the_form_are_chosen(browser: Browser) -> None:
    browser.open("messages?topic=orders&partition=0&offset=0")
    browser.until(lambda: len(browser.rows("table.records")) == 9, "everything")
    browser.click("#read_committed")
    committed = browser.until(
        lambda: (rows := browser.rows("table.records")) and len(rows) == 3 and rows, "what is committed"
    )
    assert [row[5] for row in committed] == ["first", SCRIPT, "kept"]
    browser.click("#as option", "hex")
    browser.until(lambda: browser.rows("table.records")[0][5] == b"first".hex(" "), "hex")
    browser.click("#read_uncommitted")
    browser.until(lambda: len(browser.rows("table.records")) == 9, "everything again")


def test_paging_through_records(browser: Browser) -> None:
    browser.open("messages?topic=payments&partition=0&limit=10&offset=0")
    browser.until(
        lambda: browser.rows("table.records")[:1] and browser.rows("table.records")[0][0] == "0", "the first"
    )
    browser.click(".bar button", "Newer")
    browser.until(lambda: browser.rows("table.records")[0][0] == "10", "the next")
    browser.click(".bar button", "Older")
    browser.until(lambda: browser.rows("table.records")[0][0] == "0", "the first again")


def test_groups_members_and_lag(browser: Browser) -> None:
    browser.open("groups")
    row = browser.until(lambda: next((r for r in browser.rows() if r[0] == "billing"), None), "the group")
    assert row[1:] == ["Stable", "classic", "1", "29"]
    browser.click("main a", "billing")
    browser.until(lambda: browser.rows("table.offsets"), "offsets")
    assert browser.rows("table.members")[0][0].startswith("reader-1")
    offsets = {row[0]: row[1:] for row in browser.rows("table.offsets")}
    assert offsets["payments-0"] == ["12", "41", "29", "reader-1"]
    picture(browser, "group")


def shown(browser: Browser, name: str) -> list[str]:
    return next((row for row in browser.rows("table.transactions") if row[0] == name), [])


def test_a_transaction_is_aborted_by_the_button(browser: Browser, site: Site) -> None:
    browser.open("transactions")
    row = browser.until(lambda: shown(browser, "payments-import"), "the open transaction")
    assert (row[1], row[5], row[6]) == ("Ongoing", "payments-0", "Abort")
    browser.until(lambda: browser.rows("table.hanging"), "the hanging one")
    picture(browser, "transactions")
    buttons = "table.transactions tbody tr:nth-child({}) button"
    number = [one[0] for one in browser.rows("table.transactions")].index("payments-import") + 1
    browser.click(buttons.format(number))
    browser.until(lambda: browser.texts("dialog h2") == ["Abort payments-import?"], "the question")
    picture(browser, "abort")
    browser.click("dialog button", "Cancel")
    browser.until(lambda: not browser.element("dialog").is_displayed(), "the question is gone")
    assert site.look("transactions", filter="payments-import")["transactions"][0]["state"] == "Ongoing"
    browser.click(buttons.format(number))
    browser.click("dialog button.act", "Abort")
    browser.until(lambda: browser.texts("#told") == ["payments-import: CompleteAbort"], "the outcome")
    browser.until(lambda: not shown(browser, "payments-import"), "it is gone from the list")
    assert site.look("partitions", topic="payments")["partitions"][0]["stable"] == 42
    browser.click("#state-all")
    assert browser.until(lambda: shown(browser, "payments-import"), "all of them")[1] == "CompleteAbort"


def test_a_hanging_transaction_is_aborted_by_the_button(browser: Browser, site: Site) -> None:
    browser.open("transactions")
    (row,) = browser.until(lambda: browser.rows("table.hanging"), "the hanging one")
    assert row[:3] == [f"{HANGING}-0", f"{HANGING_ID} / 3", "0"]
    browser.click("table.hanging button", "Abort")
    browser.click("dialog button.act", "Abort")
    browser.until(lambda: not browser.rows("table.hanging"), "it is gone from the list")
    assert site.look("hanging")["hanging"] == []


VIEWS = ["overview", "topics", "topic?name=orders", "messages?topic=orders&partition=0", "groups",
         "group?name=billing", "transactions?state=all"]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [1280, 400])
def test_no_view_is_wider_than_its_window(browser: Browser, view: str, width: int) -> None:
    browser.size(width, 800)
    try:
        browser.open(view)
        browser.until(lambda: browser.texts("main table, main .charts"), "the view")
        assert browser.overflow() <= 0
        if width == 400 and view.startswith("messages"):
            picture(browser, "phone")
    finally:
        browser.size(1280, 800)


def test_the_rates_as_pictures(browser: Browser, site: Site) -> None:
    until(lambda: len(site.look("rates")["ago"]) >= SAMPLES, f"{SAMPLES} samples", PATIENCE)
    browser.open("overview")
    browser.until(
        lambda: len(browser.driver.find_elements("css selector", ".chart svg path.line")) == 7, "seven lines"
    )
    assert set(browser.texts(".charts h2")) == {
        "Records written per second", "Bytes per second", "Requests per second",
        "Mean time of a produce request",
    }  # fmt: skip
    assert browser.texts(".tile b")[0] == "6"
    picture(browser, "overview")
    browser.dark(True)
    try:
        back = browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert back == "rgb(16, 19, 26)"
        picture(browser, "dark")
    finally:
        browser.dark(False)


def test_nothing_comes_from_elsewhere(browser: Browser, site: Site) -> None:
    browser.open("overview")
    browser.until(lambda: browser.texts(".tile"), "the view")
    names = browser.driver.execute_script(
        "return performance.getEntriesByType('resource').map(one => one.name)"
    )
    assert names and all(name.startswith(f"{site.address}/") for name in names)


def test_a_broker_that_is_gone_is_told_of(browser: Browser) -> None:
    """The page says so, and goes on when it is back; here the network fails it."""
    browser.open("topics")
    browser.until(browser.rows, "topics")
    browser.driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    browser.until(lambda: "does not answer" in browser.element("#trouble").text, "the trouble")
    browser.driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        offline | {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    browser.until(lambda: not browser.element("#trouble").is_displayed(), "it is over")
    browser.complaints()  # the browser's own word on that


def test_hundreds_of_names(tmp_path: Path) -> None:
    with Site(tmp_path / "data") as site:
        create(site.client(), "orders")
        write(Producer(site.client()), "orders", *("v" for _ in range(600)))
        fill(site.broker.bootstrap, "orders", 600)
        with chromium(site.address, tmp_path / "profile") as browser:
            browser.open("groups")
            rows = browser.until(lambda: browser.rows("table.groups"), "groups")
            assert len(rows) == 200 and f"{READERS - 200} more: filter" in browser.texts(".pager .note")
            assert len(browser.rows("table.sinks")) == SINKS
            browser.click("table.groups th button", "Lag")
            browser.until(
                lambda: browser.rows("table.groups")[0][0] == reader(READERS - 1), "the largest lag first"
            )
            browser.element("main input[type=search]").send_keys("SHOP-READER-00")
            browser.until(lambda: len(browser.rows("table.groups")) == 5, "what the filter leaves")
            browser.open("transactions?state=all")
            browser.until(lambda: browser.rows("table.sinks"), "sinks")
            assert not any("/w." in row[0] for row in browser.rows("table.transactions"))
            browser.click("table.sinks button", "copy-1")
            browser.until(
                lambda: any(row[0] == "copy-1/5.0/0/w.0" for row in browser.rows("table.transactions")),
                "the ids of a sink",
            )
            browser.click("#unfold")
            browser.until(lambda: not browser.rows("table.sinks"), "all among each other")
            assert browser.overflow() <= 0 and browser.complaints() == []


def test_read_only_there_is_no_button(tmp_path: Path) -> None:
    with Site(tmp_path / "data") as site:
        create(site.client(), "orders")
        producer = history(site.client(), "orders")
        with chromium(site.address, tmp_path / "profile") as browser:
            browser.open("transactions")
            row = browser.until(lambda: shown(browser, "orders-job"), "the open transaction")
            assert "read-only" in row[6] and "console.writable" in row[6]
            assert not browser.texts("main td button")
            assert browser.complaints() == []
        del producer


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "jwks.json", "ES256")
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
    }  # fmt: skip
    with Site(tmp_path / "data", **config) as site, chromium(site.address, tmp_path / "profile") as browser:
        browser.open("topics")
        for token in ("wrong", issuer.token(ALICE)):
            browser.until(lambda: browser.texts("dialog h2") == ["Who are you?"], "the question")
            browser.until(lambda: browser.element("dialog input").get_attribute("value") == "", "a new field")
            browser.element("dialog input").send_keys(token)
            browser.click("dialog button.act", "Log in")
        browser.until(lambda: browser.texts("#about")[0].startswith(f"{ALICE} "), "the name")
        browser.until(
            lambda: browser.texts(".none") == ["No topics, or none that you may describe."], "topics"
        )
