"""Names of files and folders: those of systems, and those that no folder can have."""

import re

# What Windows, macOS and network drives (Synology, QNAP) keep in folders of images.
HIDDEN = {"thumbs.db", "desktop.ini", "icon\r"}
HIDDEN |= {"$recycle.bin", "system volume information"}
HIDDEN |= {"@eadir", "#recycle", "#snapshot"}
HIDDEN |= {"@__thumb", "@recycle", "@recently-snapshot"}
# Names that a folder of images cannot have: on Windows, or as they are hidden. Capital
# letters do not matter. The page of a report reads it, too, in JavaScript.
NO_FOLDER = (
    r'^$|[<>:"/\\|?*\x00-\x1f]|[ .]$|^(con|prn|aux|nul|(com|lpt)[1-9])([.]|$)|^[.]|'
    rf"^({'|'.join(map(re.escape, sorted(HIDDEN)))})$"
)


def is_hidden(name: str) -> bool:
    """Whether a file of this name is kept by a system, and is no image."""
    return name.startswith(".") or name.lower() in HIDDEN
