"""Under the title of each lab: one badge for Colab, one for Kaggle, which open that very notebook.

Why not in the notebook: there the addresses would have to be kept right by hand, and a picture from
elsewhere is a request to elsewhere. Here they follow from the repository and tag of `_config.yml`,
the pictures are our own, and as long as the repository has no real address there is no badge.
"""

from __future__ import annotations

from html import escape

from docutils import nodes
from sphinx.application import Sphinx

from site_fix import is_stamped

LABS = "labs/"
COLAB = "https://colab.research.google.com/github/{repo}/blob/{tag}/{page}.ipynb"
RAW = "https://raw.githubusercontent.com/{repo}/{tag}/{page}.ipynb"
KAGGLE = f"https://kaggle.com/kernels/welcome?src={RAW}"
HOSTS = (("Colab", COLAB, "colab-badge.svg", 132), ("Kaggle", KAGGLE, "kaggle-badge.svg", 134))


def badges(docname: str, repository: str, tag: str) -> str:
    """HTML of the badges of a page; nothing for a page that is no lab, or without an address.

    repository: its full address, as "https://github.com/owner/name".
    """
    if not docname.startswith(LABS) or not is_stamped(repository):
        return ""
    repo = "/".join(repository.rstrip("/").split("/")[-2:])
    static = "../" * docname.count("/") + "_static/"
    links = (
        f'<a href="{escape(address.format(repo=repo, tag=tag, page=docname))}">'
        f'<img src="{static}{picture}" alt="Open this lab in {host}" width="{width}" height="24">'
        "</a>"
        for host, address, picture, width in HOSTS
    )
    return f'<p class="lab-badges">{" ".join(links)}</p>'


def put(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put them after the page's title."""
    options = app.config.html_theme_options
    html = badges(docname, options.get("repository_url", ""), options.get("repository_branch", ""))
    title = next(iter(doctree.findall(nodes.title)), None)
    if html and title is not None and title.parent is not None:
        title.parent.insert(title.parent.index(title) + 1, nodes.raw("", html, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", put)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
