"""Fills the generated parts of the pages in docs/ from the code: run by `make reference`."""

from pathlib import Path

from reference import filled

DOCS = Path(__file__).parents[1]


def main() -> None:
    texts = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    for page, text in texts.items():
        if (new := filled(page, texts)) != text:
            (DOCS / page).write_text(new, encoding="utf-8")
            print(f"filled docs/{page}")


if __name__ == "__main__":
    main()
