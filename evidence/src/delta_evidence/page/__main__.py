"""python -m delta_evidence.page: make docs/evidence.md, its figures, and the summary in README again."""

from __future__ import annotations

import argparse
from pathlib import Path

from delta_evidence.page.text import pages
from delta_rlvr.files import write_text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m delta_evidence.page", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="the repository (default: this folder)")
    root = parser.parse_args().root
    if not (root / "evidence" / "studies.yaml").exists():
        parser.error(f"{root / 'evidence' / 'studies.yaml'} is not there: give the repository's folder as --root")
    for path, text in pages(root).items():
        write_text(path, text)
        print(path)


if __name__ == "__main__":
    main()
