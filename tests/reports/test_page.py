"""Pages: what is text stays text, and only the page's own script runs."""

import pytest

from albert_tf.reports import page
from tests import pages

EVIL = '<script>alert("1 & 2")</script>'
ESCAPED = "&lt;script&gt;alert(&quot;1 &amp; 2&quot;)&lt;/script&gt;"


@pytest.mark.parametrize(
    "markup",
    [
        page.element("p", EVIL),
        page.element("p", page.element("b", EVIL)),
        page.section("x", EVIL, name="x"),
        page.section(EVIL, name="x"),
        page.table([[EVIL]]),
        page.table([["x", EVIL]]),
        page.table([["x"]], head=[EVIL]),
        page.table([["x"]], caption=EVIL),
        page.element("p", title=EVIL),
        page.page(EVIL),
        page.page("x", EVIL),
    ],
)
def test_text_is_escaped_wherever_it_stands(markup):
    assert "<script>alert" not in markup and ESCAPED in markup


def test_a_browser_runs_no_script_but_the_pages_own(tmp_path):
    path = tmp_path / "x.html"
    path.write_text(page.page("x", page.table([["b"]], head=["Name"])))
    assert "<button>Name</button>" in pages.browse(path, "--dump-dom")
    # As if a text had not been escaped.
    evil = page.Markup("<script>document.title = 'run'</script>")
    path.write_text(page.page("x", evil))
    with pytest.raises(AssertionError, match="Content Security Policy"):
        pages.browse(path, "--dump-dom")


def test_markup_is_not_escaped_again():
    inner = page.element("b", "1 < 2", class_="x")
    assert page.element("p", "a", inner) == (
        '<p>a<b class="x">1 &lt; 2</b></p>'
    )


def test_a_text_that_looks_like_a_cell_is_no_cell():
    assert "<td>" not in page.cell("<td>x</td>")[4:]
    own = page.element("td", "x")
    assert page.cell(own) is own
