"""Tables in Markdown."""


def format_table(rows):
    """Returns rows of values as a table; the first is its head."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    cells = [[str(x).replace("|", "\\|") for x in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
