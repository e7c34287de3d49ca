"""One experiment a file; `morph.lab` says how to write one."""
