"""The pages of results/, a file each; `files` and `tables` are what they share."""
