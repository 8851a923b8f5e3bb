"""Names of files that systems keep, and names that no folder can have."""

import re

# What Windows, macOS and network drives (Synology, QNAP) keep in folders of images.
HIDDEN = {"thumbs.db", "desktop.ini", "icon\r"}
HIDDEN |= {"$recycle.bin", "system volume information"}
HIDDEN |= {"@eadir", "#recycle", "#snapshot"}
HIDDEN |= {"@__thumb", "@recycle", "@recently-snapshot"}
# A regular expression of names that a folder of images cannot have, as Windows refuses
# them or they are hidden, in any case of letters. The page of a report also uses it, in
# JavaScript.
NO_FOLDER = (
    r'^$|[<>:"/\\|?*\x00-\x1f]|[ .]$|^(con|prn|aux|nul|(com|lpt)[1-9])([.]|$)|^[.]|'
    rf"^({'|'.join(map(re.escape, sorted(HIDDEN)))})$"
)


def is_hidden(name: str) -> bool:
    """Whether a file of this name belongs to a system, and is not an image."""
    return name.startswith(".") or name.lower() in HIDDEN
