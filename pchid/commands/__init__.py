"""The subcommands of `pchid`, one file each: a dataclass whose fields are the options and whose `run` does the work."""
