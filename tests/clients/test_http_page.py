"""The chat page in a headless Chromium, against a real server.

Screenshots lie in RENGA_SCREENSHOTS, if that names a folder.
"""

import os
import pathlib

import chromium
import pytest
from conftest import eventually
from gateway_server import HttpServer

pytestmark = pytest.mark.skipif(chromium.find() is None, reason="no Chromium here")

IDLE = "document.getElementById('stop').hidden"
ANSWERS = "document.querySelectorAll('.assistant').length"
LAST = "document.querySelector('.message:last-child"
LOOKS = {
    "light": {},
    "dark": {"dark": True},
    "phone": {"width": 390, "height": 844, "phone": True},
    "phone-dark": {"width": 390, "height": 844, "phone": True, "dark": True},
}


@pytest.fixture(scope="module")
def server(model):
    running = HttpServer(model).wait_ready()
    yield running
    running.stop_alive()


@pytest.fixture
def page(server):
    browser = chromium.Browser()
    browser.open(f"http://{server.http_address}/")
    browser.wait("document.getElementById('state').dataset.state === 'ready'")
    yield browser
    problems = browser.console
    browser.close()
    assert problems == []


def ask(page, text):
    page.type(text)
    page.press("Enter", 13)


def limit(page, tokens):
    """The longest answer, as a user types it."""
    page.click("[name=max_tokens]")
    page.type(str(tokens))
    page.click("#input")


def test_a_question_is_answered_as_it_streams_and_its_numbers_are_shown(page):
    limit(page, 12)
    ask(page, "Tell me a story")
    page.wait(f"{ANSWERS} === 1 && {IDLE}")
    numbers = page.run(f"{LAST} .numbers').textContent")
    for part in ("first token", "tokens/s", "prompt tokens cached"):
        assert part in numbers
    assert page.run("document.getElementById('mine-whole').textContent") != "–"
    ask(page, "And then?")
    page.wait(f"{ANSWERS} === 2 && {IDLE}")
    assert page.run("document.querySelectorAll('.user').length") == 2


def test_stop_ends_the_answer_here_and_on_the_server(page, server):
    page.run(  # The model must not end by itself first.
        "{ const real = window.fetch; window.fetch = (url, options) => real(url, options?.body"
        "? {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})}"
        ": options); }"
    )
    ask(page, "Tell me a very long story")
    page.wait(f"{LAST}.assistant .text')?.textContent.length > 0")
    page.press("Escape", 27)
    page.wait(IDLE)
    assert "stopped" in page.run(f"{LAST} .numbers').textContent")
    eventually(lambda: server.metric("renga_requests_running") == 0, "no request runs")
    page.wait("document.getElementById('live-running').textContent.startsWith('0 ')")


def test_regenerate_replaces_the_last_answer(page):
    limit(page, 6)
    ask(page, "Say something")
    page.wait(f"{ANSWERS} === 1 && {IDLE}")
    page.click(".message:last-child .again")
    page.wait(f"{ANSWERS} === 1 && {IDLE} && {LAST} .numbers').textContent !== ''")
    assert page.run("document.querySelectorAll('.message').length") == 2


def test_an_error_is_shown_as_one_and_the_talk_goes_on(page):
    page.run("document.querySelector('[name=min_p]').max = 5")
    page.run("document.querySelector('[name=min_p]').value = 3")
    ask(page, "x")
    page.wait("document.querySelector('[role=alert]') !== null")
    assert "min_p" in page.run("document.querySelector('[role=alert]').textContent")
    page.console.clear()  # The browser itself notes the status 400.
    page.run("document.querySelector('[name=min_p]').value = 0")
    limit(page, 4)
    ask(page, "y")
    page.wait(f"{IDLE} && document.querySelector('[role=alert]') === null")


def test_a_models_text_is_never_html(page):
    ask(page, "<img src=x onerror=alert(1)>")
    page.wait("document.querySelector('.user .text')?.textContent.includes('<img')")
    assert page.run("document.querySelectorAll('.message img').length") == 0
    rendered = page.run(
        "import('/page/text.js').then(({render}) => { const d = document.createElement('div');"
        "d.append(...render('a <b>b</b> `c` **d**\\n```html\\n<i>e</i>\\n```\\nf'));"
        "return d.innerHTML; })"
    )
    assert rendered == (
        'a &lt;b&gt;b&lt;/b&gt; <code>c</code> <strong>d</strong><pre tabindex="0">'
        "<code>&lt;i&gt;e&lt;/i&gt;</code></pre>f"
    )


def test_it_is_used_by_the_keyboard_alone_and_everything_has_a_name(page):
    reached = []
    for _ in range(25):
        page.press("Tab", 9)
        reached.append(
            page.run("document.activeElement.id || document.activeElement.name")
        )
    for name in ("send", "new-chat", "temperature", "system", "key"):
        assert name in reached or name == "send"  # Send is off without a text.
    unnamed = page.run(
        "[...document.querySelectorAll('button, input, textarea')].filter(e =>"
        "!e.textContent.trim() && !e.labels?.length && !e.ariaLabel).map(e => e.outerHTML)"
    )
    assert unnamed == []


def test_settings_and_the_talk_survive_a_reload_but_the_key_does_not(page, server):
    limit(page, 5)
    page.click("[name=key]")
    page.type("not-kept")
    page.click("#input")
    ask(page, "hello")
    page.wait(f"{ANSWERS} === 1 && {IDLE}")
    page.open(f"http://{server.http_address}/?again")
    page.wait(f"{ANSWERS} === 1")
    assert page.run("document.querySelector('[name=max_tokens]').value") == "5"
    assert page.run("document.querySelector('[name=key]').value") == ""
    kept = "JSON.stringify(localStorage) + JSON.stringify(sessionStorage)"
    assert "not-kept" not in page.run(kept)


@pytest.mark.parametrize("look", LOOKS)
def test_it_fits_the_window_in_light_and_dark(server, look, tmp_path):
    browser = chromium.Browser(**LOOKS[look])
    folder = pathlib.Path(os.environ.get("RENGA_SCREENSHOTS", tmp_path))
    try:
        browser.open(f"http://{server.http_address}/")
        browser.wait("document.getElementById('state').dataset.state === 'ready'")
        browser.screenshot(folder / f"{look}-empty.png")
        browser.run("document.querySelector('[name=max_tokens]').value = 60")
        ask(browser, "What is a key-value cache good for?")
        browser.wait(f"{ANSWERS} === 1 && {IDLE}")
        browser.screenshot(folder / f"{look}-talk.png")
        wide = "document.documentElement.scrollWidth > window.innerWidth"
        assert not browser.run(wide), "nothing may stick out"
        if "phone" in LOOKS[look]:
            browser.click("#toggle-side")
            browser.wait("document.activeElement.id === 'close-side'")
            browser.screenshot(folder / f"{look}-settings.png")
            browser.click("#close-side")
            browser.wait("!document.body.classList.contains('side-open')")
        light = "getComputedStyle(document.body).backgroundColor"
        assert browser.run(light) == ("rgb(20, 23, 22)" if "dark" in look else "rgb(251, 251, 250)")
        assert browser.console == []
    finally:
        browser.close()
