"""A preprocessor for mdBook: a link to a file outside docs/ becomes its text, because the file is not in the book."""
import json, re, sys

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(\.\./[^)]*\)")


def visit(item):
    chapter = item.get("Chapter") if isinstance(item, dict) else None
    if chapter:
        # A picture that is not in the book leaves its description.
        chapter["content"] = LINK.sub(r"\2", chapter["content"])
        for part in chapter["sub_items"]:
            visit(part)


if sys.argv[1:2] != ["supports"]:
    book = json.load(sys.stdin)[1]
    for item in book.get("sections", book.get("items", [])):
        visit(item)
    json.dump(book, sys.stdout)
