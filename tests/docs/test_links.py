"""Relative links and images of the pages lead to files and headings that exist."""

import re
from pathlib import Path

import pytest
from docs_text import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
ALL = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^()\s>]+)>?\)")
IMAGE = re.compile(r"^```\{(?:image|figure)\} +(\S+)", re.MULTILINE)
CARD = re.compile(r"^:link: (\S+)\n:link-type: doc", re.MULTILINE)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)


def prose(path: Path) -> str:
    """Text without code; directives stay."""
    fence = re.compile(r"^( *)(`{3,})(.*?)\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)
    text = fence.sub(lambda m: m[0] if m[3].startswith("{") else "", path.read_text())
    return re.sub(r"(?<!`)`[^`\n]+`(?!`)", "code", text)


def anchors(path: Path) -> set[str]:
    """Anchors of a page: its headings as GitHub and MyST name them, and targets of its own."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        again = sum(other == slug or re.fullmatch(rf"{slug}-\d+", other) is not None
                    for other in found)  # fmt: skip
        found.append(f"{slug}-{again}" if again else slug)
    return {*found, *re.findall(r"^\((\S+)\)=$", text, re.MULTILINE)}


def broken(path: Path) -> list[str]:
    """Targets of a page that lead nowhere."""
    text, folder = prose(path), path.parent
    trees = "\n".join(TOCTREE.findall(text)).splitlines()
    named = [*CARD.findall(text), *(s for s in trees if s and not s.startswith(":"))]
    missing = [name for name in named if not (folder / f"{name}.md").is_file()]
    for target in [*LINK.findall(text), *IMAGE.findall(text)]:
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        at = folder / file if file else path
        known = not anchor or (at.suffix == ".md" and at.is_file() and anchor in anchors(at))
        if not at.exists() or not known:
            missing.append(target)
    return missing


@pytest.mark.parametrize("page", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert not broken(page)


def test_links_elsewhere_are_encrypted():
    links = {link for page in ALL for link in re.findall(r"\]\((http[^)\s]+)", prose(page))}
    assert len(links) > 20
    assert not [
        link for link in links if not re.fullmatch(r"https://[\w-]+(\.[\w-]+)+(/\S*)?", link)
    ]


def test_what_leads_nowhere_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# A heading, `with` code\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n[a](other.md#a-heading-with-code) [b](other.md#b) [c](#one) [d](gone.md) `[e](f)`\n"
        "```{image} gone.png\n```\n```sh\n[g](h)\n```\n"
    )
    assert broken(page) == ["other.md#b", "gone.md", "gone.png"]


def test_every_page_is_in_a_table_of_contents():
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for tree in TOCTREE.findall(page.read_text()):
            names = [name for name in tree.splitlines() if name and not name.startswith(":")]
            listed |= {(page.parent / f"{name}.md").resolve() for name in names}
    assert {page.resolve() for page in PAGES} == {path.resolve() for path in listed}
