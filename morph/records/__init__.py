"""The records of a config that fill a file of their own; `morph.config` hands all of them on."""
