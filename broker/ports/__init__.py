"""The ports to the machine: file system, clock, open files, and the log that people read."""
