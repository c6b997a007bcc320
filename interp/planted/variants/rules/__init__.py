"""Rules of attention, one file per variant; the folder is the registry."""
