"""Topics read straight from segment files: a stopped broker's folder, a backup, a copy."""
